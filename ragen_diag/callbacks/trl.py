"""TRL's GRPO trainers and every other transformers `Trainer`: metrics from the log, rollouts from TRL's completions file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ragen_diag.callbacks.monitor import Monitor

_TRACKERS = ("wandb", "trackio", "tensorboard")


class MonitorCallback(TrainerCallback):
    """`GRPOTrainer(..., args=GRPOConfig(log_completions=True), callbacks=[MonitorCallback()])`.

    monitor: a `Monitor` of your own; by default one that writes to stdout and to the trackers of `args.report_to`.
    Without `log_completions=True` only the metrics are checked. A step is checked when the trainer begins the next one or
    ends, because TRL writes a step's completions after the callbacks have run. Set `logging_steps=1`: TRL keeps the completions
    of logged steps only.
    """

    def __init__(self, monitor: Monitor | None = None) -> None:
        from analysis.readers.trl import Trl

        self.monitor = monitor
        self._follow_trackers = monitor is None
        self._reader = Trl()
        self._waiting: tuple[int, dict[str, Any]] | None = None
        """Step and metrics of a step whose completions are not written yet."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the monitor, and its sinks for the trackers that the trainer reports to."""
        if not state.is_world_process_zero:
            return
        if self.monitor is None:
            self.monitor = Monitor(Path(args.output_dir).name or "run")
        if self._follow_trackers:
            self._follow_trackers = False
            wanted = [args.report_to] if isinstance(args.report_to, str) else (args.report_to or [])
            for name in _TRACKERS:
                if name in wanted:
                    self.monitor.add_sink(name, log_dir=_event_folder(args))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Keep a step's metrics until its completions are there."""
        # An evaluation at this step is about to overwrite the training completions with a mix of both.
        self._hand_over(args, control)
        if self.monitor is not None and logs and "train_runtime" not in logs:
            self._waiting = (state.global_step, dict(logs))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the step before."""
        self._hand_over(args, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop when the monitor was told to: between two steps is where the trainer looks."""
        if self.monitor is not None and self.monitor.should_stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the last step."""
        self._hand_over(args, control)
        if self.monitor is not None:
            self.monitor.close()

    def _hand_over(self, args: Any, control: Any) -> None:
        if self._waiting is None or self.monitor is None:
            return
        (step, metrics), self._waiting = self._waiting, None
        is_evaluation = any(name.startswith("eval_") for name in metrics)
        path = Path(args.output_dir) / "completions" / f"completions_{step:05d}.parquet"
        rollouts = None
        if getattr(args, "log_completions", False) and not is_evaluation and path.is_file():
            rollouts = _read(self._reader, path)
        self.monitor.step(step, rollouts=rollouts, metrics=metrics)
        if self.monitor.should_stop:
            control.should_training_stop = True


def _read(reader: Any, path: Path) -> Any:
    import pyarrow as pa

    from analysis.readers.base import Notes, ReadOptions
    from ragen_diag.rollout_log import SCHEMA

    tables = list(reader.read(path, ReadOptions(split="train", strict=True), Notes()))
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _event_folder(args: Any) -> Path:
    return Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or Path(args.output_dir) / "runs") / "ragen_diag"
