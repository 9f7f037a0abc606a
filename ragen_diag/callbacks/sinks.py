"""Where alerts go: stdout, TensorBoard, W&B, Trackio. Knows no training framework and decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ragen_diag.errors import MissingExtra, UsageError, did_you_mean
from ragen_diag.findings import Finding, Status

NAMES = ("stdout", "tensorboard", "wandb", "trackio")
_LEVELS = {Status.WARN: 1, Status.FAIL: 2}


@dataclass(frozen=True, slots=True)
class Alert:
    """A finding at WARN or FAIL that was not reported at this level before."""

    run: str
    step: int
    """Training step at which it was raised; the finding's own window is `finding.steps`."""
    finding: Finding

    @property
    def level(self) -> int:
        """1 for WARN, 2 for FAIL: the value plotted by trackers."""
        return _LEVELS[self.finding.status]

    def __str__(self) -> str:
        window = f" (steps {self.finding.steps[0]}–{self.finding.steps[1]})" if self.finding.steps else ""
        return f"{self.finding.status.value} {self.finding.code} {self.finding.claim}{window}"


Sink = Callable[[Alert], None]


def make_sink(to: str | Sink, *, log_dir: str | Path | None = None) -> Sink:
    """A sink from its name, or the callable itself.

    log_dir: folder of TensorBoard's event files. Raises UsageError for an unknown name, MissingExtra when its package is absent.
    """
    if not isinstance(to, str):
        return to
    if to == "stdout":
        return to_stream
    if to == "tensorboard":
        return TensorBoard(log_dir)
    if to == "wandb":
        return Wandb()
    if to == "trackio":
        return Trackio()
    raise UsageError(
        f"alerts to '{to}': no such place.{did_you_mean(to, NAMES)} Known: {', '.join(NAMES)}, or a function"
    )


def to_stream(alert: Alert, file: TextIO | None = None) -> None:
    """One line; stdout unless told otherwise."""
    print(f"ragen-diag ALERT step {alert.step} {alert}", file=file or sys.stdout, flush=True)


class TensorBoard:
    """A text and a step in `ragen_diag/<code>` (1 WARN, 2 FAIL) at the step of the alert."""

    def __init__(self, log_dir: str | Path | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra.of("tensorboard", "train", "alerts to TensorBoard") from error
        self.writer = SummaryWriter(None if log_dir is None else str(log_dir))

    def __call__(self, alert: Alert) -> None:
        """Write one alert and flush: a training that dies has left it behind."""
        self.writer.add_text("ragen_diag/alerts", str(alert), alert.step)
        self.writer.add_scalar(f"ragen_diag/{alert.finding.code}", alert.level, alert.step)
        self.writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class Wandb:
    """`run.alert` of the run that is open when the alert comes, and `ragen_diag/<code>` in its summary."""

    def __init__(self) -> None:
        self.wandb = _tracker("wandb")

    def __call__(self, alert: Alert) -> None:
        """Raise one alert. Raises UsageError when no run is open."""
        run = self.wandb.run
        if run is None:
            raise UsageError("alerts to W&B need an open run: call wandb.init() before the training")
        level = self.wandb.AlertLevel.ERROR if alert.level == 2 else self.wandb.AlertLevel.WARN
        run.alert(title=f"ragen-diag {alert.finding.code}", text=f"step {alert.step}: {alert}", level=level)
        # Not run.log: a step of our own would fight with the trainer's.
        run.summary[f"ragen_diag/{alert.finding.code}"] = {"level": alert.level, "step": alert.step, "text": str(alert)}


class Trackio:
    """`trackio.alert` of the run that is open."""

    def __init__(self) -> None:
        self.trackio = _tracker("trackio")

    def __call__(self, alert: Alert) -> None:
        """Raise one alert."""
        level = self.trackio.AlertLevel.ERROR if alert.level == 2 else self.trackio.AlertLevel.WARN
        self.trackio.alert(title=f"ragen-diag {alert.finding.code}", text=f"step {alert.step}: {alert}", level=level)


def _tracker(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"alerts to {name} need the package '{name}'. Try: pip install {name}") from error
