"""Log-mixtures of a cross-score matrix, whole and with each prompt deleted in turn. Arrays only; meaning lives in information.py.

Every estimate of `information.py` is a function of per-row numbers (matched, mix, leave-one-out mix). Deleting a prompt removes
its rows AND its column, which changes the mixture of every other row; `Mixtures` holds both for all deletions at once, so the
jackknife over prompts costs one pass over the matrix. Symbols as in docs/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.comparable import Block


@dataclass(frozen=True, slots=True)
class Mixtures:
    """Per-row numbers under M = 1 + Q prompt sets: set 0 holds all prompts, set q lacks prompt cluster q.

    All in the matrix's unit (nats per sequence, or nats per token for a length-normalised matrix).
    """

    matched_R: np.ndarray
    """L[r, c(r)]."""
    mix_RM: np.ndarray
    """log Σ_j w_j exp L[r, j] over the set's prompts, weights renormalised; undefined (nan) where the row is deleted."""
    others_RM: np.ndarray
    """The same without the row's own column (leave-one-out); nan when no other prompt is left."""
    other_groups_RM: np.ndarray
    """The same without the row's own group only: groups that drew the same prompt stay in. Equals others_RM when all differ."""
    weight_RM: np.ndarray
    """Row weights of each set, columns sum to 1, 0 for deleted rows: a prompt's weight spread evenly over its rows."""

    def mean(self, values_RM: np.ndarray) -> np.ndarray:
        """Weighted mean over rows in every set, (M,)."""
        kept = self.weight_RM > 0
        return np.where(kept, self.weight_RM * np.where(kept, values_RM, 0.0), 0.0).sum(axis=0)

    def std(self, values_RM: np.ndarray) -> np.ndarray:
        """Weighted population standard deviation over rows in every set, (M,)."""
        return np.sqrt(self.mean((values_RM - self.mean(values_RM)) ** 2))


def row_weights(column_R: np.ndarray, weights_N: np.ndarray) -> np.ndarray:
    """Weight of each row, (R,), sums to 1: its prompt's weight spread over the prompt's rows (prompts without rows left out).

    With unequal numbers of rollouts the plain row mean would weigh prompts by how often they were sampled; only this weighting
    keeps the lower end of the bracket below H(X).
    """
    rows_N = np.bincount(column_R, minlength=len(weights_N))
    weight_R = weights_N[column_R] / rows_N[column_R]
    return weight_R / weight_R.sum()


def mixtures(
    score_RN: np.ndarray, column_R: np.ndarray, weights_N: np.ndarray, cluster_N: np.ndarray, n_clusters: int
) -> Mixtures:
    """Build the per-row numbers of all prompt sets.

    score_RN: finite log-probs (R, N); column_R: own column; weights_N: prompt weights, summing to 1 (all positive);
    cluster_N: int (N,), 0..n_clusters-1: columns that are deleted together (normally each its own); a cluster may have none here.
    """
    rows = np.arange(len(column_R))
    log_joint_RN = score_RN + np.log(weights_N)
    own_RN = column_R[:, None] == np.arange(len(weights_N))[None, :]
    weight_Q = np.bincount(cluster_N, weights=weights_N, minlength=n_clusters)
    own_cluster_R = cluster_N[column_R]

    total_R = _logsumexp(log_joint_RN)
    own_in_cluster_RQ = own_cluster_R[:, None] == np.arange(n_clusters)[None, :]

    weight_R = row_weights(column_R, weights_N)
    weight_RQ = np.where(own_in_cluster_RQ, 0.0, weight_R[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        mix_RQ = _without_each(log_joint_RN, total_R, cluster_N, n_clusters) - np.log1p(-weight_Q)
        weight_RQ = weight_RQ / weight_RQ.sum(axis=0)
    others_RM = _leave_own_out(log_joint_RN, own_RN, np.zeros_like(weights_N), weights_N, cluster_N, n_clusters)
    groups = count_groups(weights_N)
    other_groups_RM = others_RM
    if groups is not None and groups > len(weights_N):
        left_N = np.maximum(weights_N - 1.0 / groups, 0.0)
        other_groups_RM = _leave_own_out(log_joint_RN, own_RN, left_N, weights_N, cluster_N, n_clusters)
    return Mixtures(
        matched_R=score_RN[rows, column_R],
        mix_RM=np.column_stack([total_R, np.where(own_in_cluster_RQ, np.nan, mix_RQ)]),
        others_RM=others_RM,
        other_groups_RM=other_groups_RM,
        weight_RM=np.column_stack([weight_R, weight_RQ]),
    )


def block_mixtures(block: Block, *, per_token: bool) -> Mixtures:
    """Mixtures of one comparable block, of log-prob sums or of log-probs per token."""
    score = block.score_RN / block.tokens_R[:, None] if per_token else block.score_RN
    return mixtures(score, block.column_R, block.weights_N, block.cluster_N, block.clusters)


def margins(block: Block) -> np.ndarray:
    """(matched - mean over the other prompts) / tokens of every row, with all prompts and without each cluster, (R, 1 + Q)."""
    rows = np.arange(len(block.column_R))
    weighted_RN = block.score_RN * block.weights_N
    weighted_RN[rows, block.column_R] = 0.0
    member_NQ = (block.cluster_N[:, None] == np.arange(block.clusters)[None, :]).astype(np.float64)
    own_R1 = block.weights_N[block.column_R][:, None]
    total_R1 = weighted_RN.sum(axis=1, keepdims=True)
    left_RM = np.hstack([1 - own_R1, 1 - own_R1 - (block.weights_N @ member_NQ)[None, :]])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_RM = np.hstack([total_R1, total_R1 - weighted_RN @ member_NQ]) / np.where(left_RM > 1e-12, left_RM, np.nan)
        return (block.score_RN[rows, block.column_R][:, None] - mean_RM) / block.tokens_R[:, None]


def count_groups(weights_N: np.ndarray, most: int = 1 << 14) -> int | None:
    """Smallest number of groups of which every prompt's weight is a whole number; None when there is none up to `most`."""
    least = max(len(weights_N), round(1.0 / float(weights_N.max())))
    for groups in range(least, most + 1):
        shares = weights_N * groups
        if np.abs(shares - shares.round()).max() < 1e-6:
            return groups
    return None


def _leave_own_out(
    log_joint_RN: np.ndarray,
    own_RN: np.ndarray,
    left_N: np.ndarray,
    weights_N: np.ndarray,
    cluster_N: np.ndarray,
    n_clusters: int,
) -> np.ndarray:
    """Log-mixture with only left_N of the own column's weight kept, weights renormalised, in every prompt set, (R, M)."""
    column_R = own_RN.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        reduced = np.log(left_N / weights_N)
        joint_RN = np.where(own_RN, log_joint_RN + reduced[None, :], log_joint_RN)
        total_R = _logsumexp(joint_RN)
        kept_R = 1.0 - weights_N[column_R] + left_N[column_R]
        weight_Q = np.bincount(cluster_N, weights=weights_N, minlength=n_clusters)
        kept_RQ = kept_R[:, None] - weight_Q[None, :]
        without_RQ = _without_each(joint_RN, total_R, cluster_N, n_clusters)
        kept_RM = np.column_stack([kept_R, kept_RQ])
        result_RM = np.column_stack([total_R, without_RQ]) - np.log(np.where(kept_RM > 1e-12, kept_RM, np.nan))
    deleted_RQ = cluster_N[column_R][:, None] == np.arange(n_clusters)[None, :]
    result_RM[:, 1:][deleted_RQ] = np.nan
    return result_RM


def _logsumexp(values_RN: np.ndarray) -> np.ndarray:
    """log Σ exp over columns; -inf for a row of -inf (a prompt alone has no others)."""
    peak_R = values_RN.max(axis=1)
    safe_R = np.where(np.isfinite(peak_R), peak_R, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values_RN - safe_R[:, None]).sum(axis=1)) + safe_R


def _without_each(log_joint_RN: np.ndarray, total_R: np.ndarray, cluster_N: np.ndarray, n_clusters: int) -> np.ndarray:
    """log Σ_{j not in q} exp log_joint[r, j] for every cluster q, (R, Q).

    Subtracting a share from the total loses digits when the share is most of the total; those entries (at most one a row) are
    summed again from scratch.
    """
    finite_R = np.where(np.isfinite(total_R), total_R, 0.0)
    share_RN = np.exp(log_joint_RN - finite_R[:, None])
    if n_clusters == len(cluster_N) and np.array_equal(cluster_N, np.arange(n_clusters)):
        share_RQ = share_RN
    else:
        share_RQ = share_RN @ (cluster_N[:, None] == np.arange(n_clusters)[None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        without_RQ = total_R[:, None] + np.log1p(-np.minimum(share_RQ, 1.0))
    rows, clusters = np.nonzero(share_RQ > 0.9)
    if len(rows):
        kept = np.where(cluster_N[None, :] == clusters[:, None], -np.inf, log_joint_RN[rows])
        without_RQ[rows, clusters] = _logsumexp(kept)
    return without_RQ
