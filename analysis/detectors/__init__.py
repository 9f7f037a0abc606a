"""Detectors: numpy and tables in, Finding out. No torch, no files, no printing."""
