"""Per-step series of a run as arrays for drawing: found by name, thinned, tabulated. Draws nothing and judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.report.labels import label, unit_of
from analysis.report.thinning import thin_indices, thinning_note
from analysis.result import RunReport

TABLE_ROWS = 16


@dataclass(frozen=True)
class Curve:
    """One series over T steps; lo and hi are nan where there is no interval."""

    name: str
    label: str
    unit: str
    step_T: np.ndarray
    value_T: np.ndarray
    lo_T: np.ndarray
    hi_T: np.ndarray

    @property
    def has_band(self) -> bool:
        """Whether any step carries an interval."""
        return bool((~np.isnan(self.lo_T) & ~np.isnan(self.hi_T)).any())

    def thinned(self, max_points: int) -> Curve:
        """At most `max_points` steps with every bucket's extremes kept."""
        kept = thin_indices(self.value_T, max_points)
        return Curve(
            self.name, self.label, self.unit, self.step_T[kept], self.value_T[kept], self.lo_T[kept], self.hi_T[kept]
        )


def curve(run: RunReport, name: str, shown_as: str | None = None) -> Curve | None:
    """Find a series: the analyzed one (with intervals) first, else the logged one; None when absent or nowhere measured."""
    if points := run.series.get(name):
        ordered = sorted(points, key=lambda point: point.step)
        columns = [[point.value for point in ordered], [point.lo for point in ordered], [point.hi for point in ordered]]
        step_T = np.array([point.step for point in ordered], dtype=np.int64)
        value_T, lo_T, hi_T = (
            np.array([np.nan if v is None else v for v in column], dtype=float) for column in columns
        )
    elif name in run.data.series:
        logged = run.data.series[name].sort_index()
        step_T = logged.index.to_numpy(dtype=np.int64)
        value_T = logged.to_numpy(dtype=float, na_value=np.nan)
        lo_T = hi_T = np.full(len(value_T), np.nan)
    else:
        return None
    return (
        None
        if np.isnan(value_T).all()
        else Curve(name, shown_as or label(name), unit_of(name), step_T, value_T, lo_T, hi_T)
    )


def curves(run: RunReport, names: Sequence[str]) -> list[Curve]:
    """All present series among `names`."""
    return [found for name in names if (found := curve(run, name)) is not None]


def plain_curve(step_T: np.ndarray, value_T: np.ndarray, shown_as: str, unit: str = "") -> Curve:
    """A curve without intervals that is no series of the run."""
    empty_T = np.full(len(step_T), np.nan)
    return Curve(shown_as, shown_as, unit, step_T.astype(np.int64), value_T.astype(float), empty_T, empty_T)


def thinning_of(shown: Sequence[Curve], max_points: int) -> str:
    """The line under a plot about what was thinned; "" when every step is drawn."""
    longest = max(shown, key=lambda entry: len(entry.step_T), default=None)
    if longest is None:
        return ""
    return thinning_note(len(longest.thinned(max_points).step_T), len(longest.step_T))


def curve_table(shown: Sequence[Curve]) -> tuple[list[str], list[list[object]]]:
    """A small table of the curves, headers and rows: the text alternative of a plot. Extremes of every curve are rows."""
    if not shown:
        return [], []
    wanted: set[int] = set()
    for entry in shown:
        per_curve = max(TABLE_ROWS // len(shown), 5)
        wanted.update(int(step) for step in entry.thinned(per_curve).step_T)
    lookups = [dict(zip(entry.step_T.tolist(), entry.value_T.tolist(), strict=True)) for entry in shown]
    headers = ["step", *(f"{entry.label} ({entry.unit})" if entry.unit else entry.label for entry in shown)]
    return headers, [[step, *(lookup.get(step) for lookup in lookups)] for step in sorted(wanted)]
