"""The result of an analysis: what the terminal, the JSON contract, the HTML report and the Python API all show.

`to_json` is the contract of `ragen-diag analyze --json` (schema: ragen_diag/schemas/report.schema.json). Data only.
"""

from __future__ import annotations

import dataclasses
import html
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.run_data import RunData
from ragen_diag import __version__
from ragen_diag.findings import Estimate, Finding, SeriesPoint, Status, Verdict
from ragen_diag.rollout_log import BadRecord

if TYPE_CHECKING:
    import pandas as pd

    from analysis.readers.base import LogSource
    from analysis.tuning import FilterRecommendation

JSON_SCHEMA_VERSION = 1


@dataclass
class InputSummary:
    """What was read under one path in one format, over all its splits."""

    path: str
    kind: str
    format: str
    format_version: str | None
    why: str
    n_files: int
    n_rollouts: int
    """Trajectories; bad rows and metric rows excluded."""
    n_turns: int
    n_steps: int
    """Distinct training steps, from record, file or folder name."""
    n_groups: int
    """Distinct (split, step, prompt)."""
    n_with_thinking: int
    """Rollouts with at least one non-empty thinking, cut-off ones included."""
    mean_reward: float | None
    """Over rollouts with a finite reward, as stored."""
    n_reward_missing: int
    n_bad_rows: int
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The same counts per split."""
    assumptions: list[str] = field(default_factory=list)
    skipped: list[BadRecord] = field(default_factory=list)


@dataclass
class RunReport:
    """One run's verdict with everything that supports it."""

    name: str
    verdict: Verdict
    reason: str
    """One sentence: why this verdict."""
    regime: str
    phase: str
    findings: list[Finding]
    """Most severe first; families 'normal' last."""
    metrics: dict[str, Estimate]
    series: dict[str, list[SeriesPoint]]
    filter: dict[str, Any] | None
    """Recommended filter: {"setting": {...}, "table": [...], "confidence": ..., "reasons": [...]}; None without groups."""
    data: RunData
    """What the findings were computed from; not part of the JSON."""
    source: LogSource | None = None
    """Where the run was read from; the report streams it once more to show chosen rollouts whole."""
    recommendation: FilterRecommendation | None = None
    """The same recommendation as an object that can be written as a filter file; not part of the JSON."""

    def by_status(self, *statuses: Status) -> list[Finding]:
        """Findings with any of the given statuses."""
        return [finding for finding in self.findings if finding.status in statuses]


@dataclass
class Report:
    """A finished analysis over one or more runs."""

    inputs: list[InputSummary]
    runs: list[RunReport]

    @property
    def findings(self) -> list[Finding]:
        """All findings of all runs."""
        return [finding for run in self.runs for finding in run.findings]

    def to_frame(self) -> pd.DataFrame:
        """Findings as a table: run, code, status, claim, first_step, last_step."""
        import pandas as pd

        columns = ["run", "code", "status", "claim", "first_step", "last_step"]
        rows = [
            [run.name, finding.code, finding.status.value, finding.claim, *(finding.steps or (None, None))]
            for run in self.runs
            for finding in run.findings
        ]
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        """A small table for notebooks: one line per run."""
        rows = "".join(
            f"<tr><td>{html.escape(run.name)}</td><td><b>{run.verdict.value}</b></td><td>{html.escape(run.reason)}</td></tr>"
            for run in self.runs
        )
        return f"<table><tr><th>run</th><th>verdict</th><th>why</th></tr>{rows}</table>"

    def to_json(self) -> dict[str, Any]:
        """The JSON contract: plain types only, null for what cannot be known (nan and infinities become null)."""
        return {
            "schema_version": JSON_SCHEMA_VERSION,
            "tool": {"name": "ragen-diag", "version": __version__},
            "inputs": [_plain(dataclasses.asdict(entry)) for entry in self.inputs],
            "runs": [_run_json(run) for run in self.runs],
        }


def _run_json(run: RunReport) -> dict[str, Any]:
    return {
        "name": run.name,
        "verdict": run.verdict.value,
        "reason": run.reason,
        "regime": run.regime,
        "phase": run.phase,
        "findings": [_plain(dataclasses.asdict(finding)) for finding in run.findings],
        "metrics": {name: _plain(dataclasses.asdict(estimate)) for name, estimate in run.metrics.items()},
        "series": {
            name: [[point.step, _plain(point.value), _plain(point.lo), _plain(point.hi)] for point in points]
            for name, points in run.series.items()
        },
        "filter": _plain(run.filter),
    }


def _plain(value: Any) -> Any:
    """Reduce to JSON types; non-finite floats become None, numpy scalars Python ones, sets and tuples lists."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
