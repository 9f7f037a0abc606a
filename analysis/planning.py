"""How many prompts and rollouts an interval of a wanted width needs. Predicts the intervals of information.py; draws nothing.

A population estimate over N prompts of K rollouts has variance (between + within / K) / N: prompts differ (between), and so do
the rollouts of one prompt (within). Both come from a pilot matrix; more rollouts shrink only the second term.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.comparable import Block, comparable_blocks
from analysis.information import is_policy
from analysis.matrix_estimates import MatrixEstimates, midpoint_bias
from analysis.mixture import block_mixtures, margins
from analysis.uncertainty import MIN_CLUSTERS
from ragen_diag.cross_scores import CrossScores

METRICS = ("mi_nats", "conditional_entropy_nats_per_token", "margin_nats_per_token")
"""Estimates whose truth does not depend on how many prompts compete (the lower end and retrieval do)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance components of one estimate, in its unit squared."""

    metric: str
    between: float
    """Variance over prompts of a prompt's contribution, with infinitely many rollouts."""
    within: float
    """Mean variance over the rollouts of one prompt."""
    gap_times_prompts: float = 0.0
    """mi_nats only: width of the bracket times the number of prompts, nats. The bracket closes as 1/N."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to reach a half-width."""

    n_prompts: int
    n_rollouts: int
    """Rollouts per prompt."""
    half_width: float


def spread_of(pilot: CrossScores, metric: str = "mi_nats") -> Spread:
    """Variance components of `metric` from a measured matrix.

    Raises ValueError for an unknown metric, fewer than MIN_CLUSTERS prompts with two rollouts, or a saturated pilot.
    """
    if metric not in METRICS:
        raise ValueError(f"no plan for {metric!r}: one of {', '.join(METRICS)}")
    blocks, _ = comparable_blocks(pilot)
    if len(blocks) != 1:
        raise ValueError("planning needs one comparable set of prompts: use first_turn scores")
    values_R, column_R = _row_values(blocks[0], metric), blocks[0].column_R
    rows_N = np.bincount(column_R)
    repeats = int((rows_N >= 2).sum())
    if repeats < MIN_CLUSTERS:
        raise ValueError(f"a pilot needs {MIN_CLUSTERS} prompts with two rollouts each; this one has {repeats}")
    measured = MatrixEstimates(blocks, exact=is_policy(pilot), note="", seed=0, n_boot=1, n_perm=1)
    made = measured.estimates([metric])[metric]
    if metric not in measured.replicates:
        raise ValueError(f"{metric}: {made.method}")
    replicates = measured.replicates[metric]
    n_prompts = len(replicates) - 1
    pseudo = (n_prompts - 1) * replicates[1:]
    deviation_R = values_R - (np.bincount(column_R, weights=values_R) / rows_N)[column_R]
    repeated = rows_N[column_R] >= 2
    within = float((deviation_R[repeated] ** 2).sum() / (repeated.sum() - repeats))
    between = float(pseudo.var(ddof=1)) - within * float((1.0 / rows_N).mean())
    gap = _gap_nats(blocks[0]) * n_prompts if metric == "mi_nats" else 0.0
    return Spread(metric, max(between, 0.0), within, gap)


def half_width(spread: Spread, n_prompts: int, n_rollouts: int, *, level: float = 0.95) -> float:
    """Expected half-width of the population interval, in the metric's unit; inf below MIN_CLUSTERS prompts."""
    if n_prompts < MIN_CLUSTERS:
        return float("inf")
    t = float(stats.t.ppf(0.5 + level / 2, n_prompts - 1))
    se = float(np.sqrt((spread.between + spread.within / n_rollouts) / n_prompts))
    return t * se + midpoint_bias(spread.gap_times_prompts / n_prompts)


def prompts_needed(spread: Spread, wanted: float, n_rollouts: int, *, most: int = 1_000_000) -> int | None:
    """Fewest prompts whose interval is at most `wanted` wide on each side; None above `most`. ValueError for wanted <= 0."""
    if not wanted > 0:
        raise ValueError(f"the wanted half-width must be positive, not {wanted}")
    low, high = MIN_CLUSTERS, MIN_CLUSTERS
    while half_width(spread, high, n_rollouts) > wanted:
        low, high = high, 2 * high
        if high > 2 * most:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(spread, middle, n_rollouts) <= wanted else (middle + 1, high)
    return low if low <= most else None


def plans(spread: Spread, wanted: float, *, rollouts: tuple[int, ...] = (2, 4, 8, 16, 32)) -> list[Plan]:
    """Ways to reach a half-width, cheapest (fewest reasonings in all) first."""
    found = []
    for n_rollouts in rollouts:
        n_prompts = prompts_needed(spread, wanted, n_rollouts)
        if n_prompts is not None:
            found.append(Plan(n_prompts, n_rollouts, half_width(spread, n_prompts, n_rollouts)))
    return sorted(found, key=lambda plan: (plan.n_prompts * plan.n_rollouts, plan.n_prompts))


def _row_values(block: Block, metric: str) -> np.ndarray:
    """What each row contributes to the estimate, (R,)."""
    if metric == "margin_nats_per_token":
        return margins(block)[:, 0]
    mixed = block_mixtures(block, per_token=metric == "conditional_entropy_nats_per_token")
    if metric == "mi_nats":
        return mixed.matched_R - (mixed.mix_RM[:, 0] + mixed.other_groups_RM[:, 0]) / 2
    return -mixed.matched_R


def _gap_nats(block: Block) -> float:
    """Width of the bracket: upper end (own group left out) minus lower end."""
    mixed = block_mixtures(block, per_token=False)
    return float(mixed.mean(mixed.mix_RM - mixed.other_groups_RM)[0])
