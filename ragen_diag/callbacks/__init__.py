"""The detectors inside other people's trainings. Importing this loads no training framework.

    from ragen_diag.callbacks import Monitor             # any training loop: hand over rollouts, metrics, or both
    from ragen_diag.callbacks import MonitorCallback     # TRL and transformers: trainer.add_callback(MonitorCallback())
    from ragen_diag.callbacks import attach_to_verl      # verl: attach_to_verl(trainer, Monitor())

A monitor never stops a training unless it is asked to.
"""

from typing import Any

__all__ = ["Alert", "Monitor", "MonitorCallback", "attach_to_verl", "verl_step"]
_HOMES = {
    "Alert": "sinks",
    "Monitor": "monitor",
    "MonitorCallback": "trl",
    "attach_to_verl": "verl",
    "verl_step": "verl",
}


def __getattr__(name: str) -> Any:
    """Resolve on first use: only `MonitorCallback` needs transformers."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"ragen_diag.callbacks.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ragen_diag.callbacks' has no attribute '{name}'")
