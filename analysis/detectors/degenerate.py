"""Text that is no longer language: one token over and over, many scripts at once, one length, nothing at all."""

from __future__ import annotations

import pandas as pd

from analysis.detectors.length import constant_length, not_finite_steps
from analysis.detectors.registry import detector
from analysis.detectors.windows import ids, recent, recent_rollouts, span, steps_of
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.snr import wilson
from analysis.turning_points import finite
from analysis.writing import scripts_used
from ragen_diag.findings import Family, Finding, Status

MANY_SCRIPTS = 4
"""Writing systems in one response that no task asks for: a foreign name, a translation and its reasoning make three."""


@detector("DT01", "degenerate text", Family.POLICY,
          "rollouts.top_token_share | response_tokens_min + response_tokens_max | response_tokens_mean")  # fmt: skip
def degenerate_text(
    run: RunData, measures: Measures, *, token_share: float = 0.5, warn_at: float = 0.1, fail_at: float = 0.5
) -> Finding:
    """DT01: responses made of one repeated token, of many scripts, of one length with non-finite losses, or of a token or two.

    token_share: share of its commonest word from which a response (of eight words or more) counts as degenerate.
    warn_at, fail_at: share of the recent responses; the lower end of its 95 % interval must reach them. Ours.
    From series alone: one length for all responses while losses are not finite (an all-cap step by itself is truncation,
    LT01), or a mean length of at most two tokens. Source: RAGEN#52 ("!!!!"), Agent-R1#30, verl#721.
    """
    limit = {"token_share": token_share, "warn_at": warn_at, "fail_at": fail_at, "source": "ours; see the page of DT01"}
    same = constant_length(measures)
    broken = [step for step in same.index if int(step) in not_finite_steps(run)]
    check = ("the last checkpoint before it", "NU01: the first non-finite metric", "learning rate and KL at that step")
    if broken:
        claim = f"every response has {same.loc[broken[0]]:g} tokens while the losses are not finite: the policy writes one token"
        evidence: dict[str, object] = {"constant_length_tokens": float(same.loc[broken[0]]), "n_steps": len(broken)}
        return Finding("DT01", Status.FAIL, claim, evidence, limit, (int(broken[0]), int(broken[-1])), check_next=check)
    mixed = _many_scripts(run, limit | {"scripts": MANY_SCRIPTS}, warn_at, fail_at, check)
    if mixed is not None:
        return mixed
    if len(run.rollouts):
        rollouts = recent_rollouts(run)
        rollouts = rollouts[rollouts["top_token_share"].notna()]
        hit = rollouts["top_token_share"] >= token_share
        share, interval = wilson(int(hit.sum()), len(rollouts))
        if interval is not None:
            status = Status.FAIL if interval[0] >= fail_at else Status.WARN if interval[0] >= warn_at else Status.PASS
            claim = f"{share:.1%} of {len(rollouts)} recent responses repeat one word for half their length or more"
            evidence = {
                "degenerate_share": share,
                "ci95": list(interval),
                "n_rollouts": len(rollouts),
            }
            could = ("a task whose answer is repetitive (grids, tables)",)
            return Finding("DT01", status, claim, evidence, limit, steps_of(rollouts), ids(rollouts[hit]), ids(rollouts[~hit]),
                           could, check)  # fmt: skip
    lengths = recent(measures.series.get("response_tokens_mean", pd.Series(dtype="float64")))
    if not len(lengths):
        return Finding("DT01", Status.INCONCLUSIVE, "responses too short to judge, and no lengths", threshold=limit)
    if float(lengths.max()) <= 2:
        claim = f"responses hold {lengths.mean():.1f} tokens on average"
        return Finding(
            "DT01", Status.WARN, claim, {"tokens_mean": float(lengths.mean())}, limit, span(lengths), check_next=check
        )
    repeated = finite(measures.series.get("repetition_share"))
    claim = "lengths are those of text; the words themselves are not in this log"
    evidence = {"tokens_mean": float(lengths.mean()), "repetition_points": len(repeated)}
    return Finding("DT01", Status.PASS, claim, evidence, limit, span(lengths))


def _many_scripts(
    run: RunData, limit: dict[str, object], warn_at: float, fail_at: float, check: tuple[str, ...]
) -> Finding | None:
    """The finding when a share of the recent responses mixes MANY_SCRIPTS writing systems or more; else None."""
    window = set(recent_rollouts(run)["trajectory_id"]) if run.texts else set()
    texts = [row for row in run.texts if row.trajectory_id in window]
    # Some logs keep the thinking inside the response, others beside it.
    whole = [row.response_text if row.thinking_text in row.response_text else row.thinking_text for row in texts]
    hit = [scripts_used(text) >= MANY_SCRIPTS for text in whole]
    share, interval = wilson(sum(hit), len(hit))
    if interval is None or interval[0] < warn_at:
        return None
    claim = (
        f"{share:.0%} of {len(texts)} recent responses mix {MANY_SCRIPTS} or more writing systems: no longer language"
    )
    evidence = {"many_scripts_share": share, "ci95": list(interval), "n_rollouts": len(texts)}
    shown = [row.trajectory_id for row, many in zip(texts, hit, strict=True) if many][::-1][:3]
    others = [row.trajectory_id for row, many in zip(texts, hit, strict=True) if not many][::-1][:3]
    steps = [row.step for row in texts if row.step is not None]
    return Finding(
        "DT01", Status.FAIL if interval[0] >= fail_at else Status.WARN, claim, evidence, limit,
        (min(steps), max(steps)) if steps else None, tuple(shown), tuple(others), ("a task about many languages",),
        check,
    )  # fmt: skip
