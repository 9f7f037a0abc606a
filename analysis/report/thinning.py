"""Thin a long series for display so that a one-step spike survives: minimum and maximum of every bucket, never plain skipping.

Only for drawing. Nothing that is measured or judged goes through here.
"""

from __future__ import annotations

import numpy as np

KEPT_PER_BUCKET = 3
"""Minimum, maximum and one gap: what can survive of a bucket."""
_ENDS = 2


def thin_indices(values: np.ndarray, max_points: int) -> np.ndarray:
    """Choose at most `max_points` positions of a series so that its extremes stay and its gaps stay gaps.

    values: float (T,), nan = not measured, infinities count as extremes.
    max_points: at least KEPT_PER_BUCKET + 2.
    Returns sorted unique int64 positions; all of them when the series is short enough. Every bucket keeps its smallest and
    largest value; a bucket with a gap keeps one nan, so the line breaks there; first and last position always stay.
    """
    if max_points < KEPT_PER_BUCKET + _ENDS:
        raise ValueError(f"max_points must be at least {KEPT_PER_BUCKET + _ENDS}, got {max_points}")
    if len(values) <= max_points:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    for bucket in np.array_split(np.arange(len(values)), (max_points - _ENDS) // KEPT_PER_BUCKET):
        measured = bucket[~np.isnan(values[bucket])]
        if len(measured):
            kept.add(int(measured[np.argmin(values[measured])]))
            kept.add(int(measured[np.argmax(values[measured])]))
        gaps = bucket[np.isnan(values[bucket])]
        if len(gaps):
            kept.add(int(gaps[0]))
    return np.array(sorted(kept), dtype=np.int64)


def thinning_note(n_shown: int, n_total: int) -> str:
    """Say under a plot what was left out; "" when nothing was."""
    if n_shown >= n_total:
        return ""
    return f"Thinned: {n_shown:,} of {n_total:,} steps drawn, with the smallest and largest of every bucket, so spikes stay."
