"""Log-probs that say sampler and trainer disagree, and means diluted by padding rows."""

from __future__ import annotations

import re

import numpy as np

from analysis.detectors.registry import detector
from analysis.detectors.windows import SUSTAINED, recent, span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import baseline, finite
from ragen_diag.findings import Family, Finding, Status

_NO_ROW_MEAN = re.compile(r"learning_rate|grad_norm|kl_coef|step|epoch|wall_s|_(?:min|max|cap)$")
"""Metrics that are no means over rows: padding cannot dilute them."""


@detector("LG01", "sampler and trainer disagree", Family.PIPELINE, "sampler_trainer_logprob_gap")
def logprob_gap(
    run: RunData, measures: Measures, *, growth: float = 3.0, warn_at: float = 0.1, fail_at: float = 0.5
) -> Finding:
    """LG01: |log-prob by the sampler - by the trainer| of the same tokens grows or is large.

    growth: times the run's own first steps; warn_at, fail_at: nats per token. Engines in different precision differ by
    0.02 to 0.03 (miles#3098). Ours otherwise. Source: open-instruct#1473 (gap grows even at learning rate 0), tokenspeed#1373.
    """
    limit = {
        "growth": growth,
        "warn_at_nats": warn_at,
        "fail_at_nats": fail_at,
        "source": "miles#3098 for normal; ours",
    }
    gap = finite(measures.series.get("sampler_trainer_logprob_gap"))
    last = recent(gap)
    level, start = float(np.median(last)), baseline(gap).median
    grown = len(gap) >= 2 * SUSTAINED and level > growth * start and level > warn_at / 2
    evidence = {"gap_nats_per_token": level, "gap_first_steps": start, "n_steps": len(gap)}
    could = ("stale rollouts (several updates old)", "different precision of the two engines")
    check = ("the gap at age 0 (fresh weights, no update)", "a prompt/response pairing by id", "weight synchronisation")
    if level >= fail_at and len(gap) >= SUSTAINED:
        status = Status.FAIL
    elif level >= warn_at or grown:
        status = Status.WARN
    else:
        return Finding("LG01", Status.PASS, f"the gap is {level:.3g} nats a token", evidence, limit, span(gap))
    grew = f", {level / start:.1f} times the run's start" if grown and start > 0 else ""
    claim = f"sampler and trainer differ by {level:.3g} nats a token{grew}"
    return Finding("LG01", status, claim, evidence, limit, span(last), could_also_be=could, check_next=check)


@detector("PD01", "metrics diluted by padding rows", Family.PIPELINE, "padding_rows | other:padding_rows")
def padding_rows(run: RunData, measures: Measures) -> Finding:
    """PD01: batches hold padding rows, so every mean over rows is pulled towards the padding's value.

    An absolute fact where the trainer logs it. Source: verl#7771 (three padding rows: perplexity 7.39 reads 2.60), SkyRL#211.
    """
    logged = next(name for name in ("padding_rows", "other:padding_rows") if len(finite(measures.series.get(name))))
    rows = finite(measures.series[logged])
    padded = rows[rows > 0]
    limit = {"padding_rows": 0, "source": "verl#7771"}
    if not len(padded):
        return Finding("PD01", Status.PASS, "no padding rows in any batch", {"n_steps": len(rows)}, limit)
    clean = rows.index[rows == 0]
    moved = {}
    for name, values in measures.series.items():
        with_, without = finite(values.reindex(padded.index)), finite(values.reindex(clean))
        if name != logged and not _NO_ROW_MEAN.search(name) and len(with_) and len(without):
            moved[name.removeprefix("other:")] = {
                "without_padding": float(without.mean()),
                "with_padding": float(with_.mean()),
            }
    shown = "; ".join(
        f"{name} {pair['without_padding']:.3g} reads {pair['with_padding']:.3g}" for name, pair in moved.items()
    )
    claim = (
        f"up to {int(padded.max())} padding rows in {len(padded)} of {len(rows)} batches dilute every mean over rows"
    )
    claim += f": {shown}" if shown else ""
    evidence = {"padded_steps": len(padded), "padding_rows_max": int(padded.max()), "moved": moved}
    check = ("weight means by real tokens", "choose a batch size that needs no padding")
    return Finding("PD01", Status.WARN, claim, evidence, limit, span(padded), check_next=check)
