"""The plot of one finding: the series it is about, its limits as lines, its window of steps shaded.

A finding carries numbers, not series. Its series are those it names under evidence["series"] and ["score"], those listed here
by code, and those its check needs (`detectors.registry`); the limits that are levels of a series are listed here too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from analysis.report.draw import Plot, Row, stacked_plot
from analysis.report.labels import digits
from analysis.report.series import Curve, curves
from analysis.report.words import registered_checks
from analysis.result import RunReport
from ragen_diag.findings import Finding

MAX_ROWS = 3


class Level(NamedTuple):
    """A threshold that can be drawn as a horizontal line over a finding's first series."""

    key: str
    words: str
    base: str = ""
    """Evidence key of the value that the threshold multiplies; "" = the threshold is the level itself."""


SERIES: dict[str, tuple[str, ...]] = {
    "ZS01": ("zero_variance_share", "all_wrong_share"),
    "ZS02": ("zero_variance_share", "all_right_share"),
    "ZS03": ("zero_variance_share", "constant_share"),
    "LT01": ("truncated_share", "response_tokens_max"),
    "TC01": ("normalised_mi", "retrieval_accuracy", "text_retrieval_accuracy"),
    "ET01": ("reward_std_in_group", "conditional_entropy_nats", "reward_mean"),
    "AD01": ("advantage_max", "reward_std_in_group"),
    "EN01": ("env_text_share",),
    "DT01": ("repetition_share", "response_tokens_mean"),
}
_WARN_FAIL = (Level("warn_at", "warn at"), Level("fail_at", "fail at"))
LEVELS: dict[str, tuple[Level, ...]] = {
    "ZS01": _WARN_FAIL,
    "ZS02": _WARN_FAIL,
    "ZS03": _WARN_FAIL,
    "LT01": _WARN_FAIL,
    "LT02": (Level("ratio", "limit", "tokens_start"),),
    "LT03": (Level("ratio", "limit", "tokens_start"),),
    "TC01": (Level("mi_share_low", "low under"),),
    "EN01": _WARN_FAIL,
    "HE01": (Level("ratio_of_start", "limit", "entropy_start"),),
    "HE02": (Level("ratio_of_start", "limit", "entropy_start"),),
    "KL01": (Level("growth", "limit", "kl_start_nats"),),
    "TU01": (Level("ratio_of_start", "limit", "start"),),
    "TV01": (Level("warn_at", "warn under"),),
    "LG01": (Level("warn_at_nats", "warn at"), Level("fail_at_nats", "fail at")),
    "GN01": (Level("ratio", "spike from", "median_norm"),),
}


def finding_plot(run: RunReport, finding: Finding, max_points: int) -> Plot | None:
    """Draw a finding's series; None when none of them is in the log."""
    shown = curves(run, _names(run, finding))[:MAX_ROWS]
    if not shown:
        return None
    rows = [Row("", [entry], lines=_lines(finding, entry, first=entry is shown[0])) for entry in shown]
    parts = ["Shaded: the steps the finding is about."] if finding.steps else []
    if any(row.lines for row in rows):
        parts.append("Dashed: its limits.")
    return stacked_plot("What it rests on", " ".join(parts), rows, max_points=max_points, window=finding.steps)


def names_a_series(run: RunReport, key: str, value: object) -> bool:
    """Whether an evidence entry only says which series was looked at."""
    return key == "series" and isinstance(value, str) and value in {*run.series, *run.data.series}


def _names(run: RunReport, finding: Finding) -> list[str]:
    known = {*run.series, *run.data.series}
    named = [value for key in ("series", "score") if isinstance(value := finding.evidence.get(key), str)]
    check = registered_checks().get(finding.code)
    needed = [name.strip() for name in check.needs.replace("|", "+").split("+")] if check else []
    return [
        name for name in dict.fromkeys([*named[:1], *SERIES.get(finding.code, ()), *needed, *named]) if name in known
    ]


def _lines(finding: Finding, entry: Curve, *, first: bool) -> list[tuple[float, str]]:
    lines = []
    for level in LEVELS.get(finding.code, ()) if first else ():
        limit = finding.threshold.get(level.key)
        base = finding.evidence.get(level.base) if level.base else 1.0
        if isinstance(limit, (int, float)) and isinstance(base, (int, float)) and math.isfinite(limit * base):
            lines.append((float(limit * base), f"{level.words} {digits(limit * base)}"))
    return lines
