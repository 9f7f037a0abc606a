"""Training that goes nowhere: neither score nor policy moves."""

from __future__ import annotations

import numpy as np

from analysis.detectors.registry import detector
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite, shift
from ragen_diag.findings import Family, Finding, Status


@detector("NP01", "no progress", Family.SIGNAL, "kl_nats + reward_mean | kl_nats + success_rate")
def no_progress(
    run: RunData, measures: Measures, *, n_points: int = 8, kl_left: float = 0.005, flat: float = 0.25
) -> Finding:
    """NP01: the score has no trend and the policy has not left the reference: nothing is being learned.

    n_points: points needed. kl_left: nats a token below which the policy counts as still at the reference. flat: relative
    change of the KL that still counts as flat. All three must hold; a plateau after learning has a KL behind it and
    passes. Ours. Source: trl#3452 (reward 1.81 to 1.79, KL flat at 5e-4; the loss of 0 people asked about is normal).
    """
    limit = {"n_points": n_points, "kl_left_nats": kl_left, "kl_flat": flat, "source": "ours; trl#3452"}
    kl = finite(measures.series["kl_nats"])
    result = measures.score
    moved = shift(kl)
    if result.shift is None or moved is None or min(moved.n, result.shift.n) < n_points:
        return Finding("NP01", Status.INCONCLUSIVE, f"fewer than {n_points} steps with score and KL", threshold=limit)
    still = float(np.max(kl)) < kl_left and abs(moved.relative) < flat and moved.end != 0
    evidence = {"kl_start_nats": moved.start, "kl_end_nats": moved.end, "n_points": moved.n, **result.evidence()}
    trend = result.shift.moved(+1, 0.05) or result.shift.moved(-1, 0.05)
    if trend or not still:
        claim = f"{result.words()}; KL {moved.start:.2g} to {moved.end:.2g} nats a token"
        return Finding("NP01", Status.PASS, claim, evidence, limit, span(kl))
    claim = f"no progress: {result.words()}, and the KL is flat at {moved.end:.2g} nats a token"
    check = (
        "learning rate and number of updates",
        "share of groups with differing returns (ZS01-ZS03)",
        "reward noise",
    )
    return Finding("NP01", Status.WARN, claim, evidence, limit, span(kl),
                   could_also_be=("a run that has only begun",), check_next=check)  # fmt: skip
