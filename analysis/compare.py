"""Differences between runs: paired by prompt where prompts match, refused where definitions differ. No verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import stats

from analysis.result import RunReport
from ragen_diag.findings import Estimate

_FACTS = (
    "retrieval_chance",
    "text_retrieval_chance",
    "mi_upper_bound",
    "prompt_entropy_nats",
    "text_prompt_entropy_nats",
)
"""Facts of the batches, not of the policies: nothing to compare."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of one run against the baseline run."""

    run: str
    metric: str
    baseline: Estimate
    other: Estimate
    difference: Estimate
    """other - baseline."""

    @property
    def clear(self) -> bool:
        """The interval of the difference does not contain 0."""
        interval = self.difference.ci95
        return interval is not None and not interval[0] <= 0 <= interval[1]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A metric that is not compared, and why."""

    run: str
    metric: str
    why: str


@dataclass
class Comparison:
    """Every run against the first."""

    baseline: str
    differences: list[Difference] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def paired_difference(baseline_N: np.ndarray, other_N: np.ndarray, *, unit: str = "share") -> Estimate:
    """Mean of `other - baseline` over N prompts seen by both, with a 95 % interval.

    For 0/1 outcomes: adjusted Wald for matched pairs, half a count added to each cell of the 2x2 table (Agresti & Min 2005,
    "Simple improved confidence intervals for comparing matched proportions", Stat. Med. 24). Otherwise Student's t over prompts.
    Fewer than two pairs: no interval.
    """
    pairs = np.isfinite(baseline_N) & np.isfinite(other_N)
    before, after = baseline_N[pairs], other_N[pairs]
    n = len(before)
    if n == 0:
        return Estimate(None, None, unit, 0, 0, "no prompt was seen by both runs")
    difference = after - before
    value = float(difference.mean())
    if n < 2:
        return Estimate(value, None, unit, n, 2 * n, "one common prompt: no interval")
    if np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all():
        gained, lost, total = (difference > 0).sum() + 0.5, (difference < 0).sum() + 0.5, n + 2
        centre = (gained - lost) / total
        half = stats.norm.ppf(0.975) * math.sqrt(gained + lost - (gained - lost) ** 2 / total) / total
        method = "matched pairs, adjusted Wald (Agresti & Min 2005)"
    else:
        centre = value
        half = float(stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / math.sqrt(n))
        method = "paired Student t over prompts"
    return Estimate(value, (centre - half, centre + half), unit, n, 2 * n, method)


def compare_runs(runs: list[RunReport]) -> Comparison:
    """Compare every run with the first. Needs at least two; raises ValueError otherwise."""
    if len(runs) < 2:
        raise ValueError(f"comparing needs two or more runs, got {len(runs)}")
    baseline, *others = runs
    comparison = Comparison(baseline.name)
    for other in others:
        _compare_outcomes(baseline, other, comparison)
        _compare_metrics(baseline, other, comparison)
    return comparison


def _compare_outcomes(baseline: RunReport, other: RunReport, comparison: Comparison) -> None:
    for metric, column, unit in (("val_success_rate", "success", "share"), ("val_reward_mean", "return_", "reward")):
        first, second = _last_validation(baseline, column), _last_validation(other, column)
        if first is None or second is None:
            comparison.refused.append(Refusal(other.name, metric, "a run has no validation rollouts"))
            continue
        common = first.index.intersection(second.index)
        if len(common) < 2:
            why = f"the runs share {len(common)} validation prompts: their success is not comparable"
            comparison.refused.append(Refusal(other.name, metric, why))
            continue
        before, after = first.loc[common].to_numpy(), second.loc[common].to_numpy()
        comparison.differences.append(
            Difference(
                other.name, metric, _mean(before, unit), _mean(after, unit), paired_difference(before, after, unit=unit)
            )
        )  # fmt: skip


def _last_validation(run: RunReport, column: str) -> pd.Series | None:
    """Mean outcome per prompt at the last validation step, or None."""
    val = run.data.split("val")
    if val.empty:
        return None
    last = val[val["step"] == val["step"].max()] if val["step"].notna().any() else val
    means = last.groupby("prompt_id")[column].mean().dropna()
    return means if len(means) else None


def _mean(values_N: np.ndarray, unit: str) -> Estimate:
    n = len(values_N)
    half = float(stats.t.ppf(0.975, n - 1) * values_N.std(ddof=1) / math.sqrt(n))
    mean = float(values_N.mean())
    low, high = (max(0.0, mean - half), min(1.0, mean + half)) if unit == "share" else (mean - half, mean + half)
    return Estimate(mean, (low, high), unit, n, n, "Student t over common prompts")


def _compare_metrics(baseline: RunReport, other: RunReport, comparison: Comparison) -> None:
    for name in sorted(set(baseline.metrics) & set(other.metrics)):
        first, second = baseline.metrics[name], other.metrics[name]
        if first.value is None or second.value is None or name.startswith(_FACTS):
            continue
        if (first.unit, first.method) != (second.unit, second.method):
            why = f"definitions differ: {first.method} [{first.unit}] against {second.method} [{second.unit}]"
            comparison.refused.append(Refusal(other.name, name, why))
            continue
        comparison.differences.append(
            Difference(other.name, name, first, second, _independent_difference(first, second))
        )


def _independent_difference(first: Estimate, second: Estimate) -> Estimate:
    """Difference of two independent estimates; half-widths add in quadrature (Newcombe 1998, hybrid score intervals)."""
    assert first.value is not None and second.value is not None
    value = second.value - first.value
    ci95 = None
    if first.ci95 and second.ci95:
        below = math.hypot(second.value - second.ci95[0], first.ci95[1] - first.value)
        above = math.hypot(second.ci95[1] - second.value, first.value - first.ci95[0])
        ci95 = (value - below, value + above)
    n_prompts, n_rollouts = first.n_prompts + second.n_prompts, first.n_rollouts + second.n_rollouts
    return Estimate(
        value, ci95, first.unit, n_prompts, n_rollouts, "difference of independent estimates (Newcombe 1998)"
    )
