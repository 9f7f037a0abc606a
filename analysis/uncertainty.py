"""Intervals and tests: jackknife over prompts, stratified bootstrap within prompts, survey-style binomial, permutation.

Two questions, two intervals (metrics.md §4). Population: "what would other prompts show?" Prompts are the sampling unit, so the
jackknife deletes whole prompts. Batch: "what would other rollouts of these prompts show?" Rollouts are resampled within prompts.
The bootstrap over prompts is deliberately absent: a resample holds each prompt 0, 1, 2, ... times, 37 % of the prompts fall out
of the mixture, and an MI estimate, which depends on how many prompts compete, is biased in every resample.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

MIN_CLUSTERS = 4
"""Fewer prompts than this give no population interval: the t quantile alone exceeds 4 standard errors below it."""
MAX_SINGLETON_SHARE = 0.2
"""More weight than this on prompts with one rollout gives no batch interval: their spread is not observed."""


def jackknife_se(replicates_M: np.ndarray) -> float:
    """Delete-one jackknife standard error; replicate 0 is the estimate itself, the others lack one prompt each.

    nan when a replicate is undefined or fewer than two prompts exist. Source: Efron & Stein 1981.
    """
    deleted = replicates_M[1:]
    if len(deleted) < 2 or not np.isfinite(deleted).all():
        return float("nan")
    return float(np.sqrt((len(deleted) - 1) / len(deleted) * ((deleted - deleted.mean()) ** 2).sum()))


def jackknife_interval(
    replicates_M: np.ndarray, *, allowance: float = 0.0, level: float = 0.95
) -> tuple[float, float] | None:
    """Estimate ± (t quantile × jackknife standard error + allowance), Q - 1 degrees of freedom; None under MIN_CLUSTERS prompts.

    allowance: a bias that the standard error cannot see, same unit as the estimate.
    """
    n_clusters = len(replicates_M) - 1
    se = jackknife_se(replicates_M)
    if n_clusters < MIN_CLUSTERS or not np.isfinite(se) or not np.isfinite(replicates_M[0]):
        return None
    half = float(stats.t.ppf(0.5 + level / 2, n_clusters - 1)) * se + allowance
    return float(replicates_M[0] - half), float(replicates_M[0] + half)


def stratified_bootstrap(
    values_R: np.ndarray,
    weight_R: np.ndarray,
    stratum_R: np.ndarray,
    *,
    n_boot: int = 1000,
    rng: np.random.Generator,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Percentile interval of a weighted mean of rows when rows are resampled within strata (a prompt's rollouts).

    Resampling n rows shows only (n-1)/n of their variance, so deviations are scaled by √(n/(n-1)) (Rao & Wu 1988), and by the
    ratio of t to normal quantiles with Satterthwaite's degrees of freedom: few strata often hold most of the variance. Strata
    with one row lend the pooled deviations; None when they carry more than MAX_SINGLETON_SHARE of the weight.
    """
    _, stratum_R = np.unique(stratum_R, return_inverse=True)
    rows_S = np.bincount(stratum_R)
    single_R = rows_S[stratum_R] == 1
    if (rows_S == 1).all() or weight_R[single_R].sum() > MAX_SINGLETON_SHARE * weight_R.sum():
        return None
    mean_R = (np.bincount(stratum_R, weights=values_R) / rows_S)[stratum_R]
    deviation_R = (values_R - mean_R) * np.sqrt(rows_S / np.maximum(rows_S - 1, 1))[stratum_R]
    order = np.argsort(stratum_R, kind="stable")
    first_R, count_R = (np.cumsum(rows_S) - rows_S)[stratum_R[order]], rows_S[stratum_R[order]]
    picks_BR = first_R + (rng.random((n_boot, len(order))) * count_R).astype(np.int64)
    drawn_BR = deviation_R[order][picks_BR]
    if single_R.any():
        pool = deviation_R[~single_R]
        singles = single_R[order]
        drawn_BR[:, singles] = pool[rng.integers(len(pool), size=(n_boot, int(singles.sum())))]
    tail = (1 - level) / 2
    weights = weight_R / weight_R.sum()
    dof = _satterthwaite(deviation_R * weights, stratum_R, rows_S)
    widen = float(stats.t.ppf(1 - tail, dof) / stats.norm.ppf(1 - tail))
    lo, hi = np.quantile(drawn_BR @ weights[order], [tail, 1 - tail]) * widen
    estimate = float(weights @ values_R)
    return estimate + float(lo), estimate + float(hi)


def _satterthwaite(terms_R: np.ndarray, stratum_R: np.ndarray, rows_S: np.ndarray) -> float:
    """Effective degrees of freedom of a sum of strata means, from each row's term of the variance; inf without variance."""
    variance_S = np.bincount(stratum_R, weights=terms_R**2)
    repeated = rows_S > 1
    total = variance_S[repeated].sum()
    if total == 0:
        return float("inf")
    return float(max(1.0, total**2 / (variance_S[repeated] ** 2 / (rows_S[repeated] - 1)).sum()))


def share_interval(replicates_M: np.ndarray, n_rows: int, *, level: float = 0.95) -> tuple[float, float] | None:
    """Exact (Clopper-Pearson) interval of a share whose rows cluster in prompts.

    The number of trials is the effective one, p(1-p)/se² from the jackknife over prompts, corrected for the few degrees of
    freedom of that se (Korn & Graubard 1998). When every row agrees no se exists and prompts count as the trials.
    """
    n_clusters = len(replicates_M) - 1
    share = float(np.clip(replicates_M[0], 0.0, 1.0))
    if n_clusters < 2 or not np.isfinite(replicates_M[0]):
        return None
    se, tail = jackknife_se(replicates_M), (1 - level) / 2
    trials = float(n_clusters)
    if np.isfinite(se) and se > 0 and 0 < share < 1 and n_rows > 1:
        correction = stats.t.ppf(tail, n_rows - 1) / stats.t.ppf(tail, n_clusters - 1)
        trials = float(min(share * (1 - share) / se**2 * correction**2, n_rows))
    hits = share * trials
    lo = float(stats.beta.ppf(tail, hits, trials - hits + 1)) if hits > 0 else 0.0
    hi = float(stats.beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return lo, hi


def permuted_scores(
    score_RN: np.ndarray,
    column_R: np.ndarray,
    weight_R: np.ndarray,
    *,
    n_perm: int = 1000,
    rng: np.random.Generator,
) -> tuple[float, np.ndarray]:
    """Σ weight · score[row, assigned column]: the observed value, and the values (P,) of shuffled row → prompt assignments.

    Shuffling leaves each row's mixture alone, so comparing these sums is comparing MI. Rows are exchangeable when the reasoning
    does not depend on the prompt, whatever the scorer, so the test is exact.
    """
    rows = np.arange(len(column_R))
    order_PR = rng.permuted(np.broadcast_to(rows, (n_perm, len(rows))), axis=1)
    # Position i keeps its column and its weight; another row stands there.
    return float(weight_R @ score_RN[rows, column_R]), score_RN[order_PR, column_R[None, :]] @ weight_R


def permutation_p(observed: float, shuffled_P: np.ndarray) -> float:
    """Share of assignments with at least the observed value, the observed one included (one-sided; small = dependence)."""
    tolerance = 1e-9 * max(1.0, abs(observed))
    return float((1 + np.count_nonzero(shuffled_P >= observed - tolerance)) / (1 + len(shuffled_P)))


def cluster_means(values_R: np.ndarray, cluster_R: np.ndarray) -> np.ndarray:
    """Replicates (1 + Q,) of the mean over clusters of the cluster's mean: with all, and without each cluster."""
    _, index_R = np.unique(cluster_R, return_inverse=True)
    mean_Q = np.bincount(index_R, weights=values_R) / np.bincount(index_R)
    if len(mean_Q) == 1:
        return np.array([mean_Q[0], np.nan])
    return np.concatenate([[mean_Q.mean()], (mean_Q.sum() - mean_Q) / (len(mean_Q) - 1)])


def row_means(values_R: np.ndarray, cluster_R: np.ndarray) -> np.ndarray:
    """Replicates (1 + Q,) of the plain mean over rows: with all clusters, and without each."""
    _, index_R = np.unique(cluster_R, return_inverse=True)
    sum_Q, count_Q = np.bincount(index_R, weights=values_R), np.bincount(index_R)
    left_Q = np.where(count_Q < len(values_R), len(values_R) - count_Q, np.nan)
    return np.concatenate([[values_R.mean()], (values_R.sum() - sum_Q) / left_Q])
