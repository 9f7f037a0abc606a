"""What the person at the terminal sees while a run goes on. To stderr only; a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SHOWN = (
    ("success", "success_rate", "{:.0%}"),
    ("return", "reward_mean", "{:.2f}"),
    ("std in group", "reward_std_in_group", "{:.2f}"),
    ("H(Z|X)", "conditional_entropy_nats", "{:.2f}"),
    ("MI", "mi_lower_nats", "{:.2f}"),
    ("retrieval", "retrieval_accuracy", "{:.0%}"),
)


class RunProgress:
    """Follows one run; silent when disabled."""

    def __init__(self, name: str, total: int, *, enabled: bool) -> None:
        self.name, self.total, self.enabled = name, total, enabled
        self._latest: dict[str, float] = {}
        console = Console(file=sys.stderr)
        self._live = enabled and console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), TextColumn("{task.fields[numbers]}"), console=console, disable=not self._live,
        )  # fmt: skip
        self._task = self._bar.add_task(name, total=total, numbers="")

    def __enter__(self) -> RunProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def step(self, step: int, metrics: Mapping[str, float | int | None]) -> None:
        """Show a finished step; numbers that were not measured keep their last value."""
        self._latest |= {key: value for _, key, _ in SHOWN if (value := metrics.get(key)) is not None}
        numbers = "  ".join(
            f"{label} {form.format(self._latest[key])}" for label, key, form in SHOWN if key in self._latest
        )
        self._bar.update(self._task, completed=step, numbers=numbers)
        tenth = max(1, self.total // 10)
        if self.enabled and not self._live and (step % tenth == 0 or step == self.total):
            self.say(f"{self.name} step {step}/{self.total}  {numbers}")

    def say(self, text: str) -> None:
        """One line above the bar."""
        if self.enabled:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
