"""Responses at the token cap, growing towards it, or shrinking away. Looked at before any difficulty is blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import SUSTAINED, ids, recent, recent_rollouts, span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite, shift
from ragen_diag.findings import Family, Finding, Status

COMPLETE = 0.8
"""Share of cut responses with a complete answer above which truncation does not spoil the scores; ours."""


def constant_length(measures: Measures) -> pd.Series:
    """Response length at the steps where shortest and longest response are the same; needs the mean to agree if logged."""
    low, high = finite(measures.series.get("response_tokens_min")), finite(measures.series.get("response_tokens_max"))
    both = high[high.index.isin(low.index)]
    same = both[both == low.reindex(both.index)]
    mean = measures.series.get("response_tokens_mean")
    if mean is not None:
        same = same[np.isclose(mean.reindex(same.index).fillna(same), same)]
    return same


def complete_share(cut: pd.DataFrame) -> float:
    """Share of cut rollouts whose every turn still follows the output format: the cap only cut what came after the answer."""
    known = cut["format_valid"].dropna()
    return float((known >= 1).mean()) if len(known) else 0.0


def not_finite_steps(run: RunData) -> set[int]:
    """Steps at which some logged loss or gradient is NaN or infinite."""
    found: set[int] = set()
    for name in ("loss", "policy_loss", "grad_norm"):
        values = run.series.get(name)
        if values is not None:
            found |= {int(step) for step in values.index[~np.isfinite(values.to_numpy(dtype="float64"))]}
    return found


def truncated_share(run: RunData, same: pd.Series, logged: pd.Series, limit: dict[str, Any]) -> pd.Series | Finding:
    """Share of cut responses per step, or the finding that says why it cannot be known.

    same: steps where shortest and longest response are equally long (`constant_length`). logged: `truncated_share` as logged.
    """
    if len(logged):
        return logged
    if len(run.rollouts) and run.train["truncated"].notna().any():
        return pd.Series([float(run.train["truncated"].mean())], index=[-1])
    advice: tuple[str, ...] = ()
    if not len(same):
        claim = "lengths vary and the log does not say which responses were cut"
        advice = ("log the finish reason",)
    elif len(run.rollouts) and run.train["n_thinking_valid"].gt(0).mean() > 0.5:
        claim = f"all responses count {same.iloc[-1]:g} tokens and most close their thinking: a stored constant, not a length"
        advice = ("log real token counts",)
    elif len(same) < 2:
        claim = "one step of constant length, cap unknown"
    else:
        return pd.Series(
            1.0, index=same.index
        )  # min = max at every step is the cap itself: no policy stops at one length
    return Finding("LT01", Status.INCONCLUSIVE, claim, threshold=limit, check_next=advice)


@detector("LT01", "responses cut at the token cap", Family.PIPELINE,
          "truncated_share | response_tokens_min + response_tokens_max | rollouts.truncated")  # fmt: skip
def truncation(run: RunData, measures: Measures, *, warn_at: float = 0.5, fail_at: float = 0.9) -> Finding:
    """LT01: the share of responses that end at the cap instead of at an end token.

    warn_at: mean share over the recent steps. fail_at: same, for at least SUSTAINED steps; every response of a step at the
    cap is an absolute fact and FAILs at once. Ours; dynamic-sampling recipes call 0.1 to 0.5 common early in training.
    When losses are not finite at the same steps, the constant length is a symptom, and NU01 and DT01 speak instead.
    Source: autocontext#1067, CoursIA#13596, ms-swift#5890.
    """
    limit = {
        "warn_at": warn_at,
        "fail_at": fail_at,
        "sustained_steps": SUSTAINED,
        "source": "ours; see the page of LT01",
    }
    same = constant_length(measures)
    share = truncated_share(run, same, finite(measures.series.get("truncated_share")), limit)
    if isinstance(share, Finding):
        return share
    last = recent(share)
    level = float(last.mean())
    evidence = {"truncated_share": level, "n_steps": len(last), "constant_length_steps": len(same)}
    if set(last.index) & not_finite_steps(run):
        claim = "responses end at the cap where the losses are not finite: a symptom there, judged by NU01 and DT01"
        return Finding("LT01", Status.INCONCLUSIVE, claim, evidence, limit, span(last))
    whole = bool((last >= 1 - 1e-9).all()) or (len(same) > 0 and level > 0.97)
    status = (
        Status.FAIL
        if whole or (level >= fail_at and len(last) >= SUSTAINED)
        else Status.WARN
        if level >= warn_at
        else Status.PASS
    )
    how = "every" if whole else f"{level:.0%} of"
    claim = f"{how} recent response{' is' if whole else 's are'} cut at the cap"
    if len(same):
        claim += f" (shortest = longest = {same.iloc[-1]:g} tokens in {len(same)} steps)"
    rollouts = recent_rollouts(run)
    cut, whole_ones = rollouts[rollouts["truncated"] == 1], rollouts[rollouts["truncated"] == 0]
    finished = complete_share(cut)
    if finished >= COMPLETE and status == Status.FAIL:
        status = Status.WARN
        claim += f": {finished:.0%} of them hold a complete answer and run on after it, so the scores are those of real answers"
        evidence["complete_answer_share"] = finished
    elif status in (Status.FAIL, Status.WARN):
        claim += ": scores and texts are those of unfinished answers, so nothing follows about difficulty"
    spread = finite(measures.series.get("response_tokens_max"))
    could = ("an end-of-sequence token the sampler does not know",) if status != Status.PASS else ()
    if len(spread) and np.ptp(spread.to_numpy()) > 0 and level >= 0.3 and not len(same):
        evidence["response_tokens_max"] = float(spread.max())
    check = (
        "raise the response cap and compare the truncated share",
        "the end-of-sequence token of sampler and template",
    )
    return Finding("LT01", status, claim, evidence, limit, span(last), ids(cut), ids(whole_ones), could, check)


@detector("LT02", "length explosion", Family.POLICY, "response_tokens_mean")
def explosion(run: RunData, measures: Measures, *, ratio: float = 2.0, near_cap: float = 0.8) -> Finding:
    """LT02: responses grow to `ratio` times their start, or to `near_cap` of the cap, and the score does not follow.

    Growth with a rising score is reasoning at work (DeepSeek-R1, arXiv:2501.12948, fig. 3) and passes. FAIL when the score
    fell, WARN when it stayed or is not logged. ratio, near_cap: ours. Source: rllm#226, simpleRL-reason#35.
    """
    limit = {"ratio": ratio, "near_cap": near_cap, "source": "ours"}
    points = finite(measures.series["response_tokens_mean"])
    moved = shift(points)
    if moved is None:
        return Finding("LT02", Status.INCONCLUSIVE, "one step: no trend", threshold=limit)
    cap = _cap(run, measures)
    grown = moved.moved(+1, ratio - 1) or (cap is not None and moved.moved(+1, 0.25) and moved.end >= near_cap * cap)
    result = measures.score
    evidence = {"tokens_start": moved.start, "tokens_end": moved.end, "cap_tokens": cap, **result.evidence()}
    if not grown:
        return Finding("LT02", Status.PASS, f"mean length {moved.start:.0f} to {moved.end:.0f} tokens", evidence, limit)
    status = Status.FAIL if result.fell else Status.PASS if result.rose else Status.WARN
    claim = f"responses grew from {moved.start:.0f} to {moved.end:.0f} tokens; {result.words()}"
    check = (
        "truncated share and repetition of the long responses",
        "whether the loss averages per token or per sequence",
    )
    return Finding("LT02", status, claim, evidence, limit, span(points), check_next=check)


@detector("LT03", "length shrinking away", Family.POLICY, "response_tokens_mean | thinking_tokens_mean")
def shrinking(run: RunData, measures: Measures, *, ratio: float = 0.6) -> Finding:
    """LT03: responses or thinking shrink to `ratio` of their start while the score falls or stays.

    Shorter with a better score is efficiency and passes. RAGEN-1 and -2 see thinking shrink in every task, so WARN is the
    most this says alone; with a fallen score the cause is usually named by FH01, TC01 or ET01. ratio: ours.
    Source: open-r1#255 (387 to 190 tokens while accuracy fell).
    """
    limit = {"ratio": ratio, "source": "ours"}
    name = (
        "thinking_tokens_mean"
        if len(finite(measures.series.get("thinking_tokens_mean"))) >= 2
        else "response_tokens_mean"
    )
    points = finite(measures.series.get(name))
    moved = shift(points)
    if moved is None:
        return Finding("LT03", Status.INCONCLUSIVE, "one step: no trend", threshold=limit)
    result = measures.score
    evidence = {"tokens_start": moved.start, "tokens_end": moved.end, "series": name, **result.evidence()}
    # Two points beyond the first and a halving need no test of every step in between: lengths are means over a batch.
    halved = moved.moved(-1, 1 - ratio) or (
        3 <= moved.n < 8 and moved.end <= 0.5 * moved.start and moved.strictly_monotone
    )
    if not halved or not result.fell:
        how = "shorter" if halved else "no shorter"
        claim = f"{how} than at the start ({moved.start:.0f} to {moved.end:.0f} tokens); {result.words()}"
        return Finding("LT03", Status.PASS, claim, evidence, limit)
    claim = f"{name.split('_')[0]} shrank from {moved.start:.0f} to {moved.end:.0f} tokens while {result.words()}"
    could = ("a length penalty at work",)
    return Finding("LT03", Status.WARN, claim, evidence, limit, span(points), could_also_be=could)


def _cap(run: RunData, measures: Measures) -> float | None:
    if len(run.rollouts) and run.train["max_response_tokens"].notna().any():
        return float(run.train["max_response_tokens"].max())
    stated = finite(measures.series.get("response_token_cap"))
    if len(stated):
        return float(stated.max())
    longest = finite(measures.series.get("response_tokens_max"))
    # The longest response is the cap only if it is met again and again.
    return float(longest.max()) if len(longest) >= 3 and (longest == longest.max()).mean() >= 0.5 else None
