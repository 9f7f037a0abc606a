"""How a run's score moved: what entropy, KL and length are judged beside. Not a finding by itself (detectors/trap.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analysis.turning_points import Fall, Shift, fall_from_peak, finite, shift

SCORES = ("task_score_mean", "success_rate", "val_success_rate", "reward_mean")
"""What a policy is judged by, best first: a true task score before the reward it is trained on."""


@dataclass(frozen=True, slots=True)
class Score:
    """How the score moved over a run."""

    name: str
    """Empty when no score was logged."""
    shift: Shift | None
    fall: Fall | None

    @property
    def known(self) -> bool:
        """Two or more points of some score exist."""
        return self.shift is not None

    @property
    def fell(self) -> bool:
        """Down for good: from its peak, or end against start."""
        if self.shift is None:
            return False
        return (self.fall is not None and not self.fall.recovered) or self.shift.moved(-1, 0.15)

    @property
    def rose(self) -> bool:
        """Up, end against start, and not fallen from its peak since."""
        return self.shift is not None and self.shift.moved(+1, 0.05) and not self.fell

    def words(self) -> str:
        """The movement in a few words."""
        if self.shift is None:
            return "no score in this log"
        if self.fall is not None and not self.fall.recovered:
            return f"{self.name} fell (peak {self.fall.peak:.3g}, now {self.fall.level:.3g}, {self.shift.n} points)"
        verb = "fell" if self.fell else "rose" if self.rose else "stayed"
        return f"{self.name} {verb} ({self.shift.start:.3g} to {self.shift.end:.3g}, {self.shift.n} points)"

    def evidence(self) -> dict[str, object]:
        """The movement as evidence."""
        if self.shift is None:
            return {}
        return {
            "score": self.name,
            "score_start": self.shift.start,
            "score_end": self.shift.end,
            "score_points": self.shift.n,
        }


def score_of(series: Mapping[str, pd.Series]) -> Score:
    """The best score with at least two points."""
    for name in SCORES:
        points = finite(series.get(name))
        if len(points) >= 2:
            return Score(name, shift(points), fall_from_peak(points))
    return Score("", None, None)
