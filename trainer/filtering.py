"""Applying the rollout filter to a step's groups. The rules themselves are `analysis.filters`; choosing one is `auto_filter.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analysis.filters import FilterSetting, group_scores, select_by_score
from ragen_diag.config import FilterConfig
from trainer.trajectory import Trajectory


def filter_setting(config: FilterConfig) -> FilterSetting:
    """The configuration's filter as the analyzer's setting. Raises ConfigError for a metric it does not know."""
    names = ("strategy", "value", "mode", "metric", "keep", "include_zero", "eps", "exact_reference")
    return FilterSetting.from_mapping({name: getattr(config, name) for name in names})


def mark_kept(trajectories: Sequence[Trajectory], setting: FilterSetting, *, max_sigma: float = 0.0) -> float:
    """Set `kept` and `filter_score` on every rollout; returns the share of groups kept.

    Rollouts that a failed service ended are not kept, and count in no score; nor does a group that has no other.
    max_sigma: also drop rollouts whose return is further from the mean of all than this many standard deviations (0 is off).
    """
    n_groups = len({trajectory.group for trajectory in trajectories})
    for failed in (trajectory for trajectory in trajectories if trajectory.error is not None):
        failed.kept, failed.filter_score = False, None
    trajectories = [trajectory for trajectory in trajectories if trajectory.error is None]
    if not trajectories:
        return 0.0
    groups = sorted({trajectory.group for trajectory in trajectories})
    by_group = {group: [t for t in trajectories if t.group == group] for group in groups}
    width = max(map(len, by_group.values()))
    values_PG = np.full((len(groups), width), np.nan)
    for row, group in enumerate(groups):
        values_PG[row, : len(by_group[group])] = [_value(t, setting.quantity) for t in by_group[group]]
    scores_P = group_scores(values_PG, setting.metric)
    kept = set(select_by_score(scores_P, setting).tolist())
    for row, group in enumerate(groups):
        for trajectory in by_group[group]:
            trajectory.kept = row in kept
            trajectory.filter_score = None if np.isnan(scores_P[row]) else float(scores_P[row])
    if max_sigma > 0:
        _drop_outliers(trajectories, max_sigma)
        return len({trajectory.group for trajectory in trajectories if trajectory.kept}) / n_groups
    return len(kept) / n_groups


def _drop_outliers(trajectories: Sequence[Trajectory], max_sigma: float) -> None:
    """Drop returns beyond max_sigma standard deviations, and rollouts that are left alone in a group of several."""
    returns = np.array([trajectory.return_ for trajectory in trajectories])
    if len(returns) < 2:
        return
    limit = max_sigma * float(returns.std(ddof=1))
    sizes = Counter(trajectory.group for trajectory in trajectories)
    for trajectory, distance in zip(trajectories, np.abs(returns - returns.mean()), strict=True):
        trajectory.kept = trajectory.kept and bool(distance <= limit + 1e-9)
    left = Counter(trajectory.group for trajectory in trajectories if trajectory.kept)
    for trajectory in trajectories:
        if left[trajectory.group] == 1 < sizes[trajectory.group]:
            trajectory.kept = False


def _value(trajectory: Trajectory, quantity: str) -> float:
    if quantity == "reward":
        return trajectory.return_
    if quantity == "length":
        return float(trajectory.n_tokens)
    return float(np.mean([entropy for turn in trajectory.turns for entropy in turn.sample.entropies]))
