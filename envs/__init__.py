"""Text environments for agent RL, one file each. Start at `registry.make`; the contract is in `text_env.py`."""
