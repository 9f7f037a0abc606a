"""What the analyzer says: statuses, verdicts, findings, estimates. Data only; detectors live in `analysis/detectors`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EXAMPLES_PER_FINDING = 3
"""Rollouts that a finding names, and a report shows, for it and against it."""


class Status(StrEnum):
    """Outcome of one check on one run."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    """Too little or contradictory data."""
    SKIPPED = "SKIPPED"
    """The input is absent from the log; the claim says what to log."""
    ERROR = "ERROR"
    """The detector crashed: our own fault, with the traceback in the evidence."""


class Verdict(StrEnum):
    """One word for a run."""

    HEALTHY = "healthy"
    WATCH = "watch"
    COLLAPSED = "collapsed"
    BROKEN_PIPELINE = "broken_pipeline"
    INCONCLUSIVE = "inconclusive"


class Family(StrEnum):
    """What a finding speaks about; pipeline findings are judged before any statement about the policy."""

    PIPELINE = "pipeline"
    POLICY = "policy"
    SIGNAL = "signal"
    DATA = "data"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result on one run."""

    code: str
    """Stable code such as ZS01; `ragen-diag explain CODE` prints its page."""
    status: Status
    claim: str
    """One sentence a reader can disagree with."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Numbers behind the claim, JSON types only, units in the key names."""
    threshold: dict[str, Any] = field(default_factory=dict)
    """The limits that were applied, and under "source" where they come from."""
    steps: tuple[int, int] | None = None
    """First and last training step the claim is about; None when the log has no steps."""
    examples: tuple[str, ...] = ()
    """Trajectory ids that show it."""
    counter_examples: tuple[str, ...] = ()
    """Trajectory ids that do not."""
    could_also_be: tuple[str, ...] = ()
    check_next: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty. `value` None = cannot be known from this log (the method says why)."""

    value: float | None
    ci95: tuple[float, float] | None
    unit: str
    n_prompts: int
    n_rollouts: int
    method: str


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One step of a series; lo and hi are the 95 % interval, None when there is none."""

    step: int
    value: float | None
    lo: float | None = None
    hi: float | None = None
