"""RAGEN-2's collapse metrics under their own names, exactly, quirks included. For comparison with its logs, not for verdicts.

Definitions re-stated from `ragen/trainer/collapse_metrics.py` of mll-lab-nu/RAGEN at 20daedc (2026-04-14). Quirks, kept: the
mixture is uniform over columns, duplicates stay separate columns, rows weigh equally, `mi_upper_bound` is the log of the column
count, and the same formulas are applied to the length-normalised matrix. `information.py` has the estimates to rely on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

_KS = (2, 4, 8)
_EPS = 1e-3
EMA_DECAY = 0.9


def reference_metrics(
    logprob_sum_RP: np.ndarray,
    tokens_R: np.ndarray,
    column_R: np.ndarray,
    signature_P: Sequence[Hashable],
    *,
    ema: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return RAGEN-2's metrics of one matrix (its key names without the label in front).

    logprob_sum_RP: nats (R, P); tokens_R: reasoning lengths; column_R: own columns; signature_P: prompt identity of each column
    (equal = same token ids). ema: the previous call's result; None = first call, whose EMA is the current value.
    """
    sums = np.asarray(logprob_sum_RP, dtype=np.float64)
    column_R = np.asarray(column_R)
    rows, n_columns = np.arange(len(sums)), sums.shape[1]
    per_token = sums / np.maximum(np.asarray(tokens_R), 1)[:, None]
    result: dict[str, float] = {"mi_upper_bound": float(np.log(n_columns))}
    for matrix, infix, suffix in ((per_token, "", ""), (sums, "_seq", "_seq")):
        matched = matrix[rows, column_R]
        marginal = np.logaddexp.reduce(matrix, axis=1) - np.log(n_columns)
        gain, std = float((matched - marginal).mean()), float(marginal.std())
        result[f"mi{infix}_estimate"] = gain
        result[f"conditional_entropy{infix}_est"] = -float(matched.mean())
        result[f"reasoning_entropy{infix}_est"] = -float(marginal.mean())
        result[f"marginal_std{suffix}"] = std
        result[f"mi_zscore{suffix}"] = gain / (std + _EPS)
        key = f"marginal_std_ema{suffix}"
        result[key] = std if ema is None else EMA_DECAY * ema[key] + (1 - EMA_DECAY) * std
        result[f"mi_zscore_ema{suffix}"] = gain / (result[key] + _EPS)
        if not infix:
            result["matched_log_prob_mean"] = float(matched.mean())
            result["marginal_log_prob_mean"] = float(marginal.mean())
    result.update(_retrieval(per_token, column_R, signature_P))
    return result


def _retrieval(per_token_RP: np.ndarray, column_R: np.ndarray, signature_P: Sequence[Hashable]) -> dict[str, float]:
    """Share of rows with a column of their own signature among the best; ties go to the lowest column."""
    _, identity_P = np.unique(np.array([repr(entry) for entry in signature_P]), return_inverse=True)
    same_RP = identity_P[None, :] == identity_P[column_R][:, None]
    ranked_RP = np.argsort(-per_token_RP, axis=1, kind="stable")
    hits_RP = np.take_along_axis(same_RP, ranked_RP, axis=1)
    n_columns = len(identity_P)
    chance = float(same_RP.mean())
    result = {"retrieval_accuracy": float(hits_RP[:, 0].mean()), "retrieval_chance_level": chance}
    for k in _KS:
        depth = min(k, 8, n_columns)
        result[f"retrieval_accuracy@{k}"] = float(hits_RP[:, :depth].any(axis=1).mean())
        result[f"retrieval_chance_level@{k}"] = min(1.0, chance * depth)
    for suffix in ("", *(f"@{k}" for k in _KS)):
        result[f"retrieval_above_chance{suffix}"] = (
            result[f"retrieval_accuracy{suffix}"] - result[f"retrieval_chance_level{suffix}"]
        )
    return result
