"""What a cross-score matrix says about I(X;Z) and H(Z|X), as estimates with intervals. Not for logs without scores (text.py).

Definitions and sources: docs/metrics.md. Two populations are kept apart in every `method`:
"over prompts" asks what other prompts would show (jackknife over prompts, t quantile);
"this batch" asks what other rollouts of these prompts would show (bootstrap within prompts).
The lower end of the bracket is an unbiased estimate of the batch's MI, and below the MI of the prompt distribution by about
χ/2N; the upper end is above it by as much (χ: variance of p(z|x)/p(z) over prompts). `mi_nats`, their midpoint, is the estimate
for the prompt distribution. It is withheld when too few prompts compete: lower end ≥ 90 % of H(X), or ends > 1.5 nats apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from analysis.comparable import comparable_blocks, only_rows
from analysis.matrix_estimates import SATURATED_AT, UNITS, ZSCORE_EPS, MatrixEstimates
from analysis.mixture import block_mixtures
from analysis.reference import EMA_DECAY, reference_metrics
from ragen_diag.cross_scores import CrossScores
from ragen_diag.findings import Estimate

__all__ = [
    "SATURATED_AT",
    "UNITS",
    "is_policy",
    "measure",
    "measure_by_turn",
    "reference_metrics",
    "saturation_notice",
    "zscore_ema",
]


def measure(
    cross: CrossScores,
    *,
    names: Collection[str] | None = None,
    seed: int = 0,
    n_boot: int = 1000,
    n_perm: int = 1000,
) -> dict[str, Estimate]:
    """Information estimates of one matrix, by name; a value is None when it cannot be known, and `method` says why.

    names: which of UNITS to compute, None = all.

    In trajectory scope rows meet only contexts of their own turn, and estimates are means over turns (`measure_by_turn` splits).
    Rows with no finite score under their own prompt, or with unscored pairs, are left out and counted in `method`.
    """
    wanted = UNITS.keys() if names is None else names
    blocks, dropped = comparable_blocks(cross)
    note = f"; {dropped} rows with unscored pairs left out" if dropped else ""
    if not blocks:
        reason = "needs reasonings of at least two different prompts, scored under each other" + note
        return {name: Estimate(None, None, UNITS[name], 0, 0, reason) for name in wanted}
    estimates = MatrixEstimates(blocks, exact=is_policy(cross), note=note, seed=seed, n_boot=n_boot, n_perm=n_perm)
    return estimates.estimates(wanted)


def measure_by_turn(
    cross: CrossScores, *, seed: int = 0, n_boot: int = 1000, n_perm: int = 1000
) -> dict[int, dict[str, Estimate]]:
    """`measure` of each turn index apart, for scopes that hold several turns."""
    result = {}
    for turn in np.unique(cross.turn_R).tolist():
        part = only_rows(cross, cross.turn_R == turn)
        result[int(turn)] = measure(part, seed=seed, n_boot=n_boot, n_perm=n_perm)
    return result


def saturation_notice(estimates: Mapping[str, Estimate]) -> str | None:
    """One sentence when the lower end sits near its ceiling H(X), else None."""
    lower, ceiling = estimates["mi_lower_nats"].value, estimates["prompt_entropy_nats"].value
    if lower is None or not ceiling or lower < SATURATED_AT * ceiling:
        return None
    return (
        f"the MI lower end ({lower:.2f} nats) is at {lower / ceiling:.0%} of its ceiling H(X) = {ceiling:.2f} nats: "
        "the true MI may be far larger. Compare more prompts, or read the margin, which has no ceiling."
    )


def zscore_ema(series: Sequence[CrossScores]) -> list[dict[str, float]]:
    """`mi_zscore_ema` and `mi_zscore_ema_seq` per step: the mixture's std replaced by its running mean over steps (RAGEN-2)."""
    result: list[dict[str, float]] = []
    stds: dict[str, float] = {}
    for cross in series:
        blocks, _ = comparable_blocks(cross)
        row: dict[str, float] = {}
        for suffix, per_token in (("", True), ("_seq", False)):
            if not blocks:
                row[f"mi_zscore_ema{suffix}"] = float("nan")
                continue
            gain = std = 0.0
            for block in blocks:
                mixed = block_mixtures(block, per_token=per_token)
                gain += block.share * float(mixed.mean(mixed.matched_R[:, None] - mixed.mix_RM)[0])
                std += block.share * float(mixed.std(mixed.mix_RM)[0])
            stds[suffix] = EMA_DECAY * stds[suffix] + (1 - EMA_DECAY) * std if suffix in stds else std
            row[f"mi_zscore_ema{suffix}"] = gain / (stds[suffix] + ZSCORE_EPS)
        result.append(row)
    return result


def is_policy(cross: CrossScores) -> bool:
    """Whether the scores are those of the distribution Z was drawn from (in state scope the policy saw more than the state)."""
    own = cross.scorer == "policy" or cross.scorer.startswith("checkpoint:")
    return own and cross.scope != "state"
