"""Applying the rollout filter to a step's groups. The rules themselves are `analysis.filters`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.filters import FilterSetting, group_scores, select_by_score
from ragen_diag.config import FilterConfig
from trainer.trajectory import Trajectory


def filter_setting(config: FilterConfig) -> FilterSetting:
    """The configuration's filter as the analyzer's setting. Raises ConfigError for a metric it does not know."""
    names = ("strategy", "value", "mode", "metric", "keep", "include_zero", "eps", "exact_reference")
    return FilterSetting.from_mapping({name: getattr(config, name) for name in names})


def mark_kept(trajectories: Sequence[Trajectory], setting: FilterSetting) -> float:
    """Set `kept` and `filter_score` on every rollout; returns the share of groups kept."""
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
    return len(kept) / len(groups)


def _value(trajectory: Trajectory, quantity: str) -> float:
    if quantity == "reward":
        return trajectory.return_
    if quantity == "length":
        return float(trajectory.n_tokens)
    return float(np.mean([entropy for turn in trajectory.turns for entropy in turn.sample.entropies]))
