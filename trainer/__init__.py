"""The StarPO trainer: agent loop, rollout engine, advantages, losses, checkpoints. The folder that imports torch."""
