"""When a series turned: robust baselines, confirmed excursions, falls from a peak, level shifts, change points.

Series are pandas Series (index: step, float values); non-finite points are dropped first. Not for meaning: what a turn of
the entropy implies is decided in echo_trap.py and the detectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy import stats

SMOOTHING = 5
"""Points of the trailing median; one-step outliers vanish, a real turn is seen two steps late."""
CONFIRM = 5
"""Points in a row beyond a limit before it counts. RAGEN-2's stop rule waits for 10 (code) or 5 (paper)."""
MIN_POINTS = 15
"""Below this no turn is looked for: five points of baseline, five of confirmation, and something between."""
MAX_CHANGE_POINT_INPUT = 1000
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Baseline:
    """Level and noise of a series' first points."""

    median: float
    sigma: float
    """1.4826 x MAD of the first points, or the step-to-step noise where that is larger."""
    n: int


@dataclass(frozen=True, slots=True)
class Turn:
    """An excursion from the baseline that lasted."""

    step: int
    """Where it began (nearest change point when there is one)."""
    confirmed_step: int
    """First step at which a live observer would have known."""
    baseline: float
    level: float
    """Smoothed value when it was confirmed."""


@dataclass(frozen=True, slots=True)
class Fall:
    """A drop from the running peak that lasted."""

    peak_step: int
    step: int
    confirmed_step: int
    peak: float
    level: float
    """Smoothed value at the end of the series."""
    recovered: bool


@dataclass(frozen=True, slots=True)
class Shift:
    """End of a series against its start."""

    start: float
    end: float
    ci95: tuple[float, float] | None
    """Of end - start; None with fewer than eight points."""
    p_monotone: float
    """Kendall's tau against the step, two-sided, exact for short series."""
    strictly_monotone: bool
    n: int

    @property
    def relative(self) -> float:
        """(end - start) / |start|; infinite from a start of zero."""
        difference = self.end - self.start
        if self.start == 0:
            return float(np.sign(difference) * np.inf) if difference else 0.0
        return difference / abs(self.start)

    def moved(self, direction: int, min_relative: float = 0.1) -> bool:
        """Whether it moved up (+1) or down (-1) beyond noise, by at least `min_relative` of the start.

        Long series: the interval excludes zero. Fewer than eight points: Kendall's p below 0.05, or three or more points
        that only ever move one way by at least 25 %: each logged point is already a mean over a batch.
        """
        if np.sign(self.end - self.start) != direction or abs(self.relative) < min_relative:
            return False
        if self.ci95 is not None:
            return self.ci95[0] > 0 if direction > 0 else self.ci95[1] < 0
        return self.p_monotone < 0.05 or (self.n >= 3 and self.strictly_monotone and abs(self.relative) >= 0.25)


def finite(series: pd.Series | None) -> pd.Series:
    """The finite points in step order; empty for None."""
    if series is None:
        return pd.Series(dtype="float64")
    values = series.astype("float64")
    return values[np.isfinite(values.to_numpy())].sort_index()


def noise_sigma(values: np.ndarray) -> float:
    """Step-to-step noise, blind to slow trends: 1.4826 x MAD of first differences over the square root of two."""
    differences = np.diff(values)
    if len(differences) < 2:
        return float("nan")
    return float(_MAD_TO_SIGMA * np.median(np.abs(differences - np.median(differences))) / np.sqrt(2))


def baseline(series: pd.Series) -> Baseline:
    """Median and robust sigma of the first points: a quarter of the series, at least 5 and at most 10 (as RAGEN-2)."""
    values = finite(series).to_numpy()
    n = min(len(values), max(5, min(10, len(values) // 4)))
    if n == 0:
        return Baseline(float("nan"), float("nan"), 0)
    first = values[:n]
    median = float(np.median(first))
    mad = float(_MAD_TO_SIGMA * np.median(np.abs(first - median)))
    return Baseline(median, float(np.nanmax([mad, noise_sigma(first), 0.0])), n)


def smooth(series: pd.Series) -> pd.Series:
    """Trailing median over SMOOTHING points."""
    return finite(series).rolling(SMOOTHING, min_periods=1).median()


def first_run(mask: np.ndarray, length: int = CONFIRM) -> int | None:
    """Index where the first run of at least `length` true values starts."""
    if len(mask) < length:
        return None
    counts = np.convolve(mask.astype(int), np.ones(length, dtype=int), mode="valid")
    starts = np.flatnonzero(counts == length)
    return int(starts[0]) if len(starts) else None


def first_turn(
    series: pd.Series, ratio: float, *, allowed: pd.Series | None = None, sigmas: float = 3.0
) -> Turn | None:
    """First confirmed excursion to `ratio` x baseline (below for ratio < 1, above for ratio > 1) and `sigmas` x its noise.

    allowed: boolean by step; points where it is False do not count (a spread that falls because the task is solved).
    None with fewer than MIN_POINTS points or a baseline that is not clear of zero.
    """
    points = finite(series)
    if len(points) < MIN_POINTS:
        return None
    start = baseline(points)
    if start.median <= 0 or start.median < start.sigma / np.sqrt(start.n):
        return None
    level = smooth(points)
    margin = sigmas * start.sigma / np.sqrt(SMOOTHING)
    if ratio < 1:
        beyond = level.to_numpy() <= min(ratio * start.median, start.median - margin)
    else:
        beyond = level.to_numpy() >= max(ratio * start.median, start.median + margin)
    beyond[: start.n] = False
    if allowed is not None:
        beyond &= allowed.reindex(points.index).ffill().fillna(True).to_numpy(dtype=bool)
    begin = first_run(beyond)
    if begin is None:
        return None
    confirmed = begin + CONFIRM - 1
    onset = min(_onset(points.to_numpy(), begin, -1 if ratio < 1 else +1), confirmed)
    return Turn(int(points.index[onset]), int(points.index[confirmed]), start.median, float(level.iloc[confirmed]))


def fall_from_peak(series: pd.Series, *, spread: float | None = None, share: float = 0.4) -> Fall | None:
    """The fall of a smoothed series from its running peak that lasts to the end, else the first that recovered, or None.

    A fall must exceed `share` of what was gained since the baseline (of a quarter of `spread`, if that is more: a run that
    gained nothing has noise for a peak) and five sigmas of the smoothed noise (a running peak is some two sigmas high itself).
    spread: range of single values, such as p95 - p5 of the returns; default: the size of the peak itself.
    """
    points = finite(series)
    if len(points) < MIN_POINTS:
        return None
    level = smooth(points).to_numpy()
    start = baseline(points)
    peak = np.maximum.accumulate(np.where(np.arange(len(level)) >= 2, level, -np.inf))
    peak[:2] = level[:2]
    width = np.abs(peak) if spread is None or not np.isfinite(spread) else np.full(len(peak), spread)
    needed = np.maximum(share * np.maximum(peak - start.median, 0.25 * width), 5 * noise_sigma(points.to_numpy()) / 1.8)
    below = level <= peak - needed - 1e-12
    begin = first_run(below)
    if begin is None:
        return None
    recovered = not below[-min(CONFIRM, len(below)) :].all()
    if not recovered:  # report the fall that lasted, not an earlier dip
        begin = len(below) - int(np.argmin(below[::-1])) if not below.all() else 0
    confirmed = min(begin + CONFIRM - 1, len(level) - 1)
    peak_at = int(np.flatnonzero(level[: begin + 1] >= peak[begin] - 1e-12)[-1])
    steps = points.index
    onset = min(max(_onset(points.to_numpy(), begin, -1), peak_at), confirmed)
    return Fall(
        peak_step=int(steps[peak_at]), step=int(steps[onset]), confirmed_step=int(steps[confirmed]),
        peak=float(peak[begin]), level=float(np.median(points.to_numpy()[-SMOOTHING:])), recovered=recovered,
    )  # fmt: skip


def _onset(values: np.ndarray, begin: int, direction: int) -> int:
    """The change point near `begin` at which the level moved most in `direction`, or an earlier one half as large; else `begin`.

    Near: ten points before (a trailing median is late) to ten after (a chance dip may run into the real fall).
    """
    points = change_points(values)
    edges = [0, *points, len(values)]
    means = [float(values[first:last].mean()) for first, last in pairwise(edges)]
    moves = direction * np.diff(means)
    near = {p: float(move) for p, move in zip(points, moves, strict=True) if abs(p - begin) <= 10}
    largest = max(near.values(), default=0.0)
    return min((point for point, move in near.items() if move >= 0.5 * largest > 0), default=begin)


def change_points(values: np.ndarray) -> list[int]:
    """Indices at which the mean level changes: PELT, l2 cost on noise-scaled values (Killick et al. 2012, arXiv:1101.1438).

    Penalty 3 log n per change point; segments of at least CONFIRM points. Longer inputs are block-averaged first.
    """
    if len(values) < 2 * CONFIRM:
        return []
    block = -(-len(values) // MAX_CHANGE_POINT_INPUT)
    binned = np.array([part.mean() for part in np.array_split(values, len(values) // block)]) if block > 1 else values
    sigma = noise_sigma(binned)
    if not np.isfinite(sigma) or sigma == 0:
        sigma = float(binned.std())
    if sigma == 0:
        return []
    import ruptures

    model = ruptures.Pelt(model="l2", min_size=CONFIRM, jump=1)
    found = model.fit_predict((binned / sigma)[:, None], pen=3 * np.log(len(binned)))
    return [point * block for point in found[:-1]]


def shift(series: pd.Series | None) -> Shift | None:
    """Last fifth of a series against its first (3 to 10 points each; single points under eight). None under two points."""
    points = finite(series)
    values = points.to_numpy()
    n = len(values)
    if n < 2:
        return None
    width = 1 if n < 8 else max(3, min(10, n // 5))
    head, tail = values[:width], values[-width:]
    start, end = float(head.mean()), float(tail.mean())
    interval = None
    if n >= 8:
        sigma = np.nanmax([noise_sigma(values), np.sqrt((head.var(ddof=1) + tail.var(ddof=1)) / 2)])
        half = stats.t.ppf(0.975, 2 * width - 2) * sigma * np.sqrt(2 / width)
        interval = (end - start - half, end - start + half)
    constant = np.ptp(values) == 0
    p = 1.0 if constant else float(stats.kendalltau(np.arange(n), values).pvalue)
    steps = np.diff(values)
    return Shift(start, end, interval, p, bool((steps > 0).all() or (steps < 0).all()), n)


def spikes(series: pd.Series, *, ratio: float = 5.0, sigmas: float = 10.0) -> list[int]:
    """Steps whose value exceeds the median of the 20 points before it by `ratio` times and `sigmas` robust sigmas."""
    points = finite(series)
    if len(points) < MIN_POINTS:
        return []
    before = points.shift(1).rolling(20, min_periods=5)
    level = before.median()
    noise = _MAD_TO_SIGMA * (points - level).abs().shift(1).rolling(20, min_periods=5).median()
    found = (points > ratio * level) & (points > level + sigmas * noise.fillna(np.inf))
    return [int(step) for step in points.index[found.to_numpy()]]
