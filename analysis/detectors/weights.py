"""Weights that do not move although there is something to learn."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite
from ragen_diag.findings import Family, Finding, Status


def mixed_steps(measures: Measures) -> pd.Series:
    """Per step: True where some group earned different returns, False where none did; steps that cannot be told are absent."""
    series = measures.series
    mixed = pd.Series(dtype="bool")
    for name, is_mixed in (("reward_std_in_group", lambda v: v > 0), ("zero_variance_share", lambda v: v < 1)):
        values = finite(series.get(name))
        if len(values):
            mixed = is_mixed(values).combine_first(mixed) if len(mixed) else is_mixed(values)
    return mixed.astype(bool)


@detector("WM01", "weights not moving", Family.PIPELINE, "grad_norm | kl_nats")
def weights_not_moving(run: RunData, measures: Measures, *, sustained: int = 2, kl_steps: int = 5) -> Finding:
    """WM01: gradient exactly 0 with mixed groups, or KL to the reference exactly 0 while gradients flow.

    sustained: steps with an exactly zero gradient although a group had differing returns. Two, because the fact is exact
    and one such step can be a skipped update (loss-scale overflow). kl_steps: steps of exactly zero KL; in the first
    step after a reset it is rightly zero. Steps whose groups are all tied do not count: their gradient is rightly zero.
    Source: ms-swift#5890 (DeepSpeed bug), mlx-lm-lora#55 (LoRA B exactly 0), trl#2872 (LoRA not synced).
    """
    limit = {"zero_gradient_steps": sustained, "zero_kl_steps": kl_steps, "source": "absolute zeros; counts are ours"}
    gradient, kl = finite(measures.series.get("grad_norm")), finite(measures.series.get("kl_nats"))
    mixed = mixed_steps(measures)
    judged = gradient[gradient.index.isin(mixed[mixed].index)]
    zero = judged[judged == 0]
    rate = finite(measures.series.get("learning_rate"))
    if len(rate) and (rate == 0).all():
        return Finding(
            "WM01", Status.INCONCLUSIVE, "the learning rate is 0 throughout: nothing should move", threshold=limit
        )
    check = ("whether the optimizer holds the trained parameters", "a weight's checksum before and after one step",
             "adapter synchronisation into the rollout engine")  # fmt: skip
    if len(zero) >= sustained and len(zero) > 0.5 * len(judged):
        kl_zero = len(kl) > 0 and bool((kl.reindex(zero.index).dropna() == 0).all())
        claim = f"the gradient norm is exactly 0 in {len(zero)} of {len(judged)} steps that have groups with differing returns"
        claim += ", and the KL is exactly 0 with it" if kl_zero else ""
        evidence: dict[str, object] = {
            "zero_gradient_steps": len(zero), "mixed_steps": len(judged), "kl_exactly_zero": kl_zero,
        }  # fmt: skip
        return Finding("WM01", Status.FAIL, claim, evidence, limit, span(zero), check_next=check)
    flowing = gradient[gradient > 0]
    later = kl.iloc[1:]
    if len(later) >= kl_steps and (later == 0).all() and len(flowing) >= kl_steps:
        claim = (
            f"the KL to the reference is exactly 0 in all {len(later)} steps after the first although gradients flow"
        )
        could = ("the KL is not computed and logged as 0", "the reference is updated with the policy")
        evidence = {"zero_kl_steps": len(later), "gradient_norm_median": float(np.median(flowing))}
        return Finding("WM01", Status.WARN, claim, evidence, limit, span(later), could_also_be=could, check_next=check)
    if len(judged) or (len(later) and (later != 0).any()):
        what = f"the gradient is non-zero in {len(judged) - len(zero)} of {len(judged)} steps with differing returns"
        claim = what if len(judged) else "the policy moves away from the reference (KL above 0)"
        return Finding(
            "WM01", Status.PASS, claim, {"mixed_steps": len(judged), "zero_gradient_steps": len(zero)}, limit
        )
    claim = "no step is known to have groups with differing returns, so a zero gradient proves nothing"
    return Finding("WM01", Status.INCONCLUSIVE, claim, threshold=limit, check_next=("log zero_variance_share",))
