"""What several checks ask of a run: the last steps, how the score moved, rollouts to show. No thresholds of findings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import Fall, Shift, fall_from_peak, finite, shift

SCORES = ("task_score_mean", "success_rate", "val_success_rate", "reward_mean")
"""What a policy is judged by, best first: a true task score before the reward it is trained on."""
SUSTAINED = 5
"""Steps a state must last before a series can FAIL for it, unless the fact is absolute."""


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


def score(measures: Measures) -> Score:
    """The best score with at least two points."""
    for name in SCORES:
        points = finite(measures.series.get(name))
        if len(points) >= 2:
            return Score(name, shift(points), fall_from_peak(points))
    return Score("", None, None)


def recent(series: pd.Series, share: float = 0.2) -> pd.Series:
    """The last fifth of a series' finite points, at least SUSTAINED of them (all of a shorter series)."""
    points = finite(series)
    return points.iloc[-max(SUSTAINED, int(len(points) * share)) :]


def span(series: pd.Series) -> tuple[int, int] | None:
    """First and last step of a series; None for an empty one or one without real steps."""
    points = series.dropna()
    if not len(points) or points.index[0] < 0:
        return None
    return int(points.index[0]), int(points.index[-1])


def steps_of(rollouts: pd.DataFrame) -> tuple[int, int] | None:
    """First and last step of some rollouts; None when they have none."""
    steps = rollouts["step"].dropna()
    return (int(steps.min()), int(steps.max())) if len(steps) else None


def recent_rollouts(run: RunData, share: float = 0.2) -> pd.DataFrame:
    """Training rollouts of the last fifth of the steps, at least SUSTAINED steps; all of them when there are no steps."""
    train = run.train
    steps = np.sort(train["step"].dropna().unique())
    if not len(steps):
        return train
    first = steps[-min(len(steps), max(SUSTAINED, int(len(steps) * share)))]
    return train[train["step"] >= first]


def ids(rollouts: pd.DataFrame, n: int = 3) -> tuple[str, ...]:
    """Trajectory ids of up to n rollouts, the latest first."""
    return tuple(str(name) for name in rollouts["trajectory_id"].iloc[::-1].head(n))
