"""The analysis of a training that is still running: tables and metrics come in step by step, checks run in between.

Not for logs on disk (ingest.py, analyze.py). Every step's rollouts are folded once; a check costs what the detectors and one
step's text estimates cost, not what the run so far would cost to read again. Filters are not tuned and no scorer runs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from analysis import entropy, text
from analysis.detectors.registry import run_detectors
from analysis.ingest import RolloutFold, series_of
from analysis.measures import Measures
from analysis.readers.aliases import canonical_names
from analysis.run_data import RunData, TextRow
from analysis.verdict import Judgement, judge
from ragen_diag.findings import Estimate, Finding

_NO_STEP = -1
_LAST_SHARE = 5
"""Texts of the last fifth of the steps are measured together, as for a finished log (analyze.py)."""


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """What the detectors say about the run so far."""

    judgement: Judgement
    findings: list[Finding]


@dataclass
class LiveRun:
    """One growing run. `add_rollouts` and `add_metrics` in any order, `check` whenever wanted."""

    name: str
    seed: int = 0
    _fold: RolloutFold = field(default_factory=RolloutFold)
    _points: dict[str, dict[int, float]] = field(default_factory=dict)
    """Foreign metric name -> step -> value; the last value of a step wins."""
    _text: dict[int, dict[str, Estimate]] = field(default_factory=dict)
    _unmeasured: set[int] = field(default_factory=set)
    """Steps that got rollouts since their texts were last measured."""

    def add_rollouts(self, table: pa.Table) -> None:
        """Take turns in the rollout-log schema. Trajectory ids must be unique within the run."""
        self._fold.add(table)
        steps = table.column("step").unique().to_pylist()
        self._unmeasured |= {_NO_STEP if step is None else step for step in steps}

    def add_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take logged numbers under their framework's names; what is no number is passed over, nan is kept."""
        for name, value in metrics.items():
            if isinstance(value, (bool, int, float)):
                self._points.setdefault(name, {})[step] = float(value)

    def check(self) -> LiveCheck:
        """Run every detector on the run so far."""
        run = self._run()
        per_step: dict[int, dict[str, Estimate]] = {}
        if len(run.rollouts):
            for step, estimate in entropy.from_rollouts(run.train).items():
                per_step[step] = {"conditional_entropy_nats_per_token": estimate}
        pooled = self._measure_texts(run.texts)
        for step, estimates in self._text.items():
            per_step.setdefault(step, {}).update(estimates)
        findings = run_detectors(run, Measures.of(run, per_step=per_step, whole_run=pooled))
        return LiveCheck(judge(findings), findings)

    def _run(self) -> RunData:
        names = canonical_names(self._points)
        series = {names[name]: series_of(points.items()) for name, points in self._points.items()}
        rollouts, components = self._fold.frames()
        kind = "rollouts" if len(rollouts) else "metrics"
        return self._fold.run(self.name, rollouts, components, series=series, kind=kind, formats=("live",))

    def _measure_texts(self, texts: Iterable[TextRow]) -> dict[str, Estimate]:
        """Measure the newest step's texts, and those of the last fifth of the steps together (the result)."""
        by_step: dict[int, list[TextRow]] = {}
        for row in texts:
            if row.split == "train":
                by_step.setdefault(_NO_STEP if row.step is None else row.step, []).append(row)
        if not by_step:
            return {}
        steps = sorted(by_step)
        newest = steps[-1]
        if newest in self._unmeasured:
            self._text[newest] = text.measure_text(by_step[newest], seed=self.seed)
        self._unmeasured.clear()
        last = steps[-max(1, int(np.ceil(len(steps) / _LAST_SHARE))) :]
        if last == [newest]:
            return dict(self._text.get(newest, {}))
        return text.measure_text([row for step in last for row in by_step[step]], seed=self.seed)
