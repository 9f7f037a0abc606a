"""Retrieval: is a reasoning's own prompt among the k that score it best? Arrays only; intervals in uncertainty.py."""

from __future__ import annotations

import numpy as np

KS = (1, 2, 4, 8)


def retrieval_replicates(
    score_RN: np.ndarray, column_R: np.ndarray, cluster_N: np.ndarray, clusters: int, weight_RM: np.ndarray, k: int
) -> np.ndarray:
    """Weighted accuracy@k with all prompts (entry 0) and without each prompt cluster, (1 + Q,).

    A deleted prompt takes its rows along and stops competing for the others. Ties are split evenly: a row whose own prompt ties
    with t others counts with the chance of being drawn among the k, so constant scores give chance, not 0 or 1.
    """
    rows = np.arange(len(column_R))
    matched_R1 = score_RN[rows, column_R][:, None]
    member_NQ = (cluster_N[:, None] == np.arange(clusters)[None, :]).astype(np.float64)
    better_RN, tied_RN = (score_RN > matched_R1), (score_RN == matched_R1)
    tied_RN[rows, column_R] = False
    better_RM = _without(better_RN, member_NQ)
    tied_RM = _without(tied_RN, member_NQ)
    hit_RM = np.clip((k - better_RM) / (tied_RM + 1.0), 0.0, 1.0)
    return (weight_RM * hit_RM).sum(axis=0)


def chance_level(weights_N: np.ndarray, k: int) -> float:
    """Accuracy@k of an answer that ignores the reasoning and names k groups at random: min(1, k Σ w²).

    Identical prompts are credited to each other through their summed weight; equals k/N when all N prompts differ.
    """
    return float(min(1.0, k * (weights_N**2).sum()))


def _without(flags_RN: np.ndarray, member_NQ: np.ndarray) -> np.ndarray:
    """Row counts of a flag over all columns, and over all but each cluster's, (R, 1 + Q)."""
    flags = flags_RN.astype(np.float64)
    total_R1 = flags.sum(axis=1, keepdims=True)
    return np.hstack([total_R1, total_R1 - flags @ member_NQ])
