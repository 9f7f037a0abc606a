"""Plain words and number formatting shared by the report's templates. Knows statuses and verdicts, nothing of a run."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from analysis.detectors.registry import Detector, all_detectors
from analysis.report.labels import digits
from ragen_diag.findings import Family, Finding, Status, Verdict

LIST_ITEMS = 12


class Words(NamedTuple):
    """How a verdict is told to a person."""

    headline: str
    meaning: str
    colour: str
    """A status name: the CSS class that colours it."""


VERDICTS: dict[Verdict, Words] = {
    Verdict.HEALTHY: Words("Healthy", "No sign of collapse in what this log can show.", "pass"),
    Verdict.WATCH: Words(
        "Watch", "Something drifts. Not collapsed, but look at it before spending more compute.", "warn"
    ),
    Verdict.COLLAPSED: Words("Collapsed", "The reasoning has collapsed: more steps like these will not help.", "fail"),
    Verdict.BROKEN_PIPELINE: Words(
        "Broken pipeline",
        "The numbers point to a fault in the training code or the log, not in the policy. Mend that first.",
        "fail",
    ),
    Verdict.INCONCLUSIVE: Words(
        "Cannot tell", "The log holds too little, or contradicts itself. See what to log.", "inconclusive"
    ),
}

SYMBOLS: dict[Status, str] = {
    Status.PASS: "✓",
    Status.WARN: "!",
    Status.FAIL: "✕",
    Status.INCONCLUSIVE: "?",
    Status.SKIPPED: "–",
    Status.ERROR: "⚠",
}

SEVERITY: tuple[Status, ...] = (
    Status.ERROR,
    Status.FAIL,
    Status.WARN,
    Status.INCONCLUSIVE,
    Status.PASS,
    Status.SKIPPED,
)
"""Most severe first."""


@cache
def registered_checks() -> dict[str, Detector]:
    """Every check of this package by code."""
    return {entry.code: entry for entry in all_detectors()}


def is_normal(finding: Finding) -> bool:
    """Whether a finding only names values that look broken and are right."""
    check = registered_checks().get(finding.code)
    return check is not None and check.family is Family.NORMAL


def title_of(code: str) -> str:
    """What a check is called; "" for one that is not registered here."""
    check = registered_checks().get(code)
    return check.title if check else ""


def number(value: Any) -> str:
    """A value for a person: 'unknown' for None and nan, thousands apart, three significant digits, short lists."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return digits(value)
    if isinstance(value, float):
        return digits(value)
    if isinstance(value, dict):
        return " · ".join(f"{words(key)} {number(item)}" for key, item in list(value.items())[:LIST_ITEMS]) or "none"
    if isinstance(value, (list, tuple)):
        more = f" … ({len(value) - LIST_ITEMS} more)" if len(value) > LIST_ITEMS else ""
        return (", ".join(number(item) for item in value[:LIST_ITEMS]) + more) or "none"
    return str(value)


def words(name: str) -> str:
    """A key such as `frac_tied` as words."""
    return str(name).replace("_", " ").strip()


def steps_text(steps: tuple[int, int] | None) -> str:
    """The window of a finding."""
    if steps is None:
        return ""
    return f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]}–{steps[1]}"


def count_text(count: int, singular: str, plural: str | None = None) -> str:
    """'1 run', '3 runs'."""
    return f"{number(count)} {singular if count == 1 else plural or singular + 's'}"
