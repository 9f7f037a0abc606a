"""What several checks ask of a run: its last steps, and rollouts to show. No thresholds of findings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.run_data import RunData
from analysis.turning_points import finite
from ragen_diag.findings import EXAMPLES_PER_FINDING

SUSTAINED = 5
"""Steps a state must last before a series can FAIL for it, unless the fact is absolute."""


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


def ids(rollouts: pd.DataFrame, n: int = EXAMPLES_PER_FINDING) -> tuple[str, ...]:
    """Trajectory ids of up to n rollouts, the latest first."""
    return tuple(str(name) for name in rollouts["trajectory_id"].iloc[::-1].head(n))
