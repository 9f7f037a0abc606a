"""`Monitor`: the detectors on a training that is running, fed by hand. Knows no training framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ragen_diag.callbacks.sinks import Alert, Sink, make_sink
from ragen_diag.errors import UsageError
from ragen_diag.findings import Finding, Status, Verdict
from ragen_diag.watching import Alerts

if TYPE_CHECKING:
    import pyarrow as pa


class Monitor:
    """Feed it a step's rollouts, its metrics, or both; each new cause for concern is reported once, wherever you want it.

    monitor = Monitor("my run", to=["stdout", "wandb"])
    for step, batch in enumerate(training):
        monitor.step(step, rollouts=[{"prompt": p, "response": r, "reward": x} for p, r, x in batch], metrics={"kl": 0.01})

    to: any of 'stdout', 'tensorboard', 'wandb', 'trackio', or functions that take an `Alert`.
    every: steps between checks; a check of 128 rollouts takes about a second.
    stop_at: 'FAIL' or 'WARN' sets `should_stop` at the first alert of that status; None (default) never does.
    log_dir: folder of TensorBoard's event files.
    seed: of the bootstraps inside the checks.
    """

    def __init__(
        self,
        name: str = "run",
        *,
        to: str | Sink | Sequence[str | Sink] = "stdout",
        every: int = 1,
        stop_at: str | None = None,
        log_dir: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        from analysis.live import LiveRun

        if every < 1:
            raise UsageError(f"every={every}: must be at least 1 step")
        if stop_at not in (None, "WARN", "FAIL"):
            raise UsageError(f"stop_at={stop_at!r}: must be 'WARN', 'FAIL' or None")
        self.name, self.every = name, every
        self.alerts: list[Alert] = []
        """Everything reported so far."""
        self.findings: list[Finding] = []
        """All findings of the last check, PASS and SKIPPED ones too."""
        self.verdict = Verdict.INCONCLUSIVE
        self.reason = "nothing was checked yet"
        self.should_stop = False
        self._stop_at = stop_at
        self._live, self._said = LiveRun(name, seed), Alerts()
        self._readers: dict[str, Any] = {}
        """By format name; a reader keeps count of the rollouts in each group, so it lives as long as the run."""
        self._n_rollouts = 0
        self._last_checked: int | None = None
        self._sinks = [
            make_sink(sink, log_dir=log_dir) for sink in ([to] if isinstance(to, str) or callable(to) else to)
        ]

    def step(
        self,
        step: int,
        *,
        rollouts: Iterable[Mapping[str, Any]] | pa.Table | None = None,
        metrics: Mapping[str, Any] | None = None,
        split: str | None = None,
    ) -> list[Alert]:
        """Take what step `step` produced and return the new alerts, after handing them to the sinks.

        rollouts: dictionaries with prompt and response (text or messages) or messages, reward (a number or named parts), and
        whatever else is known (analysis/readers/in_memory.py), or a table in the rollout-log schema. Rollouts of one prompt are
        a group unless `group` says otherwise. metrics: numbers under their framework's names or ours. split: 'train' or 'val'.
        Raises BadLog for a rollout that cannot be read; nothing of that call is kept then.
        """
        if rollouts is not None:
            self._live.add_rollouts(self._table(step, rollouts, split))
        if metrics:
            self._live.add_metrics(step, metrics)
        due = self._last_checked is None or step - self._last_checked >= self.every or step < self._last_checked
        return self.check(step) if due else []

    def check(self, step: int) -> list[Alert]:
        """Run the detectors now. `step` is the step the alerts will name."""
        result = self._live.check()
        self._last_checked = step
        self.findings = result.findings
        self.verdict, self.reason = result.judgement.verdict, result.judgement.reason
        fresh = [Alert(self.name, step, finding) for finding in self._said.new(self.name, result.findings)]
        for alert in fresh:
            self.alerts.append(alert)
            self.should_stop |= self._stop_at is not None and (
                alert.finding.status == Status.FAIL or self._stop_at == "WARN"
            )
            for sink in self._sinks:
                sink(alert)
        return fresh

    def add_sink(self, to: str | Sink, *, log_dir: str | Path | None = None) -> None:
        """Report to one more place from now on."""
        self._sinks.append(make_sink(to, log_dir=log_dir))

    def close(self) -> None:
        """Close what the sinks hold open."""
        for sink in self._sinks:
            if hasattr(sink, "close"):
                sink.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def table_of(self, log_format: str, records: Sequence[dict[str, Any]], *, split: str | None = None) -> pa.Table:
        """Records as a framework of `analysis.readers` writes them, as a table for `step`. Raises BadLog for a bad record."""
        from analysis.readers.registry import rollout_readers

        if log_format not in self._readers:
            self._readers[log_format] = rollout_readers()[log_format]()
        return self._read(self._readers[log_format], records, split)

    def _table(self, step: int, rollouts: Iterable[Mapping[str, Any]] | pa.Table, split: str | None) -> pa.Table:
        import pyarrow as pa

        from analysis.readers.in_memory import InMemory
        from ragen_diag.rollout_log import conform

        if isinstance(rollouts, pa.Table):
            return conform(rollouts)
        reader = self._readers.setdefault("", InMemory())
        return self._read(reader, [{**rollout, "step": step} for rollout in rollouts], split)

    def _read(self, reader: Any, records: Sequence[dict[str, Any]], split: str | None) -> pa.Table:
        table = reader.table(records, path=Path(self.name), first_line=self._n_rollouts + 1, split=split)
        self._n_rollouts += len(records)
        return table
