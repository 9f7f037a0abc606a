"""Worlds and runs whose diagnosis is known in closed form."""
