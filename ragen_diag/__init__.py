"""ragen-diag: diagnostics for reasoning collapse in multi-turn RL of LLM agents.

This package is the user's side: command line, configuration, the rollout-log schema, finding codes and the public API
(`load`, `analyze`, `train`, ...; see `ragen_diag.api`). Importing it loads neither torch, transformers nor pandas.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = [
    "analyze", "compare", "convert", "demo", "doctor", "evaluate", "explain", "load", "plan", "show", "train", "tune", "watch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Resolve the API functions on first use, so that the import itself stays light."""
    if name in __all__:
        from ragen_diag import api

        return getattr(api, name)
    raise AttributeError(f"module 'ragen_diag' has no attribute '{name}'")
