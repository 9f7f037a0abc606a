"""ragen-diag: diagnostics for reasoning collapse in multi-turn RL of LLM agents.

This package is the user's side: command line, configuration, the rollout-log schema, finding codes and the public API.
Importing it loads neither torch, transformers nor pandas; the API functions import what they need when called.
"""

__version__ = "0.1.0"
