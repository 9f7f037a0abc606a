"""Non-finite numbers: what became NaN first, and what was still finite then."""

from __future__ import annotations

import numpy as np

from analysis.detectors.registry import detector
from analysis.measures import Measures
from analysis.run_data import RunData
from ragen_diag.findings import Family, Finding, Status

CORE = ("loss", "policy_loss", "grad_norm", "value_loss", "reward_mean")
"""A non-finite value here means the update itself is lost; elsewhere it may be an empty mask or a division by no tokens."""


@detector("NU01", "non-finite values", Family.PIPELINE)
def non_finite(run: RunData, measures: Measures) -> Finding:
    """NU01: NaN or infinity in a logged metric.

    FAIL when loss, gradient or reward is hit and has not come back by its last point; WARN when they came back or only
    other metrics are hit. Only logged series are judged, where a NaN was printed by the trainer (a cell left empty is no
    point at all); nan in a series computed from rollouts means that nobody measured it.
    """
    bad = {name: values[~np.isfinite(values.to_numpy(dtype="float64"))] for name, values in run.series.items()}
    bad = {name: values for name, values in bad.items() if len(values)}
    if not bad:
        checked = sum(1 for values in run.series.values() if len(values))
        return Finding("NU01", Status.PASS, f"all values of {checked} logged metrics are finite", threshold=_LIMIT)
    first = min(int(values.index[0]) for values in bad.values())
    last = max(int(values.index[-1]) for values in bad.values())
    hit_first = sorted(name for name, values in bad.items() if int(values.index[0]) == first)
    finite_then = sorted(
        name for name, values in run.series.items() if first in values.index and np.isfinite(values.loc[[first]]).all()
    )
    evidence = {
        "first_step": first,
        "metrics_first": hit_first,
        "metrics_ever": sorted(bad),
        "still_finite": finite_then,
        "n_values": sum(len(values) for values in bad.values()),
    }
    core = [name for name in CORE if name in bad]
    lost = [name for name in core if bad[name].index[-1] == run.series[name].index[-1]]
    steps = (first, last)
    if lost:
        claim = f"{', '.join(hit_first)} not finite from step {first}; {', '.join(lost)} never came back: the updates are lost"
        could = (
            "one NaN reward or log-prob poisoning the batch",
            "overflow in bf16/fp16",
            "a prompt longer than the context",
        )
        check = ("the batch of the first bad step: rewards, log-probs, lengths", "gradient norms of the steps before")
        return Finding("NU01", Status.FAIL, claim, evidence, _LIMIT, steps, could_also_be=could, check_next=check)
    if core:
        claim = f"{', '.join(core)} not finite in {evidence['n_values']} values from step {first}, then finite again"
        return Finding(
            "NU01", Status.WARN, claim, evidence, _LIMIT, steps,
            could_also_be=("a skipped update (loss-scale overflow)",), check_next=("the batches of these steps",),
        )  # fmt: skip
    whole = ", ".join(name for name in ("loss", "policy_loss", "grad_norm") if name in finite_then)
    claim = f"{', '.join(hit_first)} not finite from step {first}" + (f" while {whole} stayed finite" if whole else "")
    claim += ": a logging or empty-mask problem until shown otherwise"
    return Finding(
        "NU01", Status.WARN, claim, evidence, _LIMIT, steps,
        could_also_be=("a mean over no tokens (empty mask)", "a metric that is off but still logged"),
        check_next=("how these metrics are averaged when a batch holds no such token",),
    )  # fmt: skip


_LIMIT = {"non_finite_values": 0, "source": "absolute: a NaN needs no statistics"}
