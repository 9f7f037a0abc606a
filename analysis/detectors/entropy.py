"""Policy entropy, never without the score beside it."""

from __future__ import annotations

import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.score import Score
from analysis.turning_points import finite, shift
from ragen_diag.findings import Family, Finding, Status

NEEDS = "entropy_nats | conditional_entropy_nats"
SOLVED = 0.9
"""Success rate from which a low entropy is the mark of a solved task."""


def entropy_series(measures: Measures) -> tuple[str, pd.Series]:
    """The longest logged entropy: full-distribution over sampled tokens, else of the sampled thinking alone."""
    candidates = {name: finite(measures.series.get(name)) for name in ("entropy_nats", "conditional_entropy_nats")}
    name = max(candidates, key=lambda key: len(candidates[key]))
    return name, candidates[name]


def _solved(measures: Measures) -> bool:
    success = finite(measures.series.get("success_rate"))
    return len(success) > 0 and float(success.iloc[-5:].mean()) >= SOLVED


@detector("HE01", "entropy collapse", Family.POLICY, NEEDS)
def entropy_collapse(run: RunData, measures: Measures, *, ratio: float = 0.3) -> Finding:
    """HE01: entropy down to `ratio` of its start. FAIL with a fallen score, WARN with one that stayed or is not logged.

    Falling entropy with a rising score is learning and passes. ratio: ours; absolute levels differ by model and
    tokenizer and by framework version (verl <= 0.4.0 masks wrongly), so only the run's own start is compared.
    """
    limit = {"ratio_of_start": ratio, "source": "ours; judged with the score (rllm#116)"}
    name, points = entropy_series(measures)
    moved = shift(points)
    if moved is None or moved.n < 3:
        return Finding("HE01", Status.INCONCLUSIVE, f"{len(points)} entropy points: no trend", threshold=limit)
    result = measures.score
    evidence = {
        "series": name,
        "entropy_start": moved.start,
        "entropy_end": moved.end,
        "n_points": moved.n,
        **result.evidence(),
    }
    if not moved.moved(-1, 1 - ratio):
        return Finding(
            "HE01", Status.PASS, f"entropy {moved.start:.3g} to {moved.end:.3g} nats a token", evidence, limit
        )
    claim = f"entropy fell from {moved.start:.3g} to {moved.end:.3g}; {result.words()}"
    return _verdict("HE01", claim, evidence, limit, points, result, _solved(measures), (
        "entropy coefficient, clip range and KL coefficient", "share of duplicate responses", "ragen-diag explain TC01",
    ))  # fmt: skip


@detector("HE02", "entropy explosion", Family.POLICY, NEEDS)
def entropy_explosion(run: RunData, measures: Measures, *, ratio: float = 1.8) -> Finding:
    """HE02: entropy up to `ratio` times its start. FAIL with a fallen score, WARN with one that stayed or is not logged.

    Rising entropy is fine for some (clip-higher recipes) and fatal for others: the score decides. ratio: ours.
    Source: trl#6407 (entropy above 2 nats and to 6, score 0.015), rllm#116 (rise without harm).
    """
    limit = {"ratio_of_start": ratio, "source": "ours; judged with the score (trl#6407, rllm#116)"}
    name, points = entropy_series(measures)
    moved = shift(points)
    if moved is None or moved.n < 3:
        return Finding("HE02", Status.INCONCLUSIVE, f"{len(points)} entropy points: no trend", threshold=limit)
    result = measures.score
    evidence = {
        "series": name,
        "entropy_start": moved.start,
        "entropy_end": moved.end,
        "n_points": moved.n,
        **result.evidence(),
    }
    if not moved.moved(+1, ratio - 1):
        return Finding(
            "HE02", Status.PASS, f"entropy {moved.start:.3g} to {moved.end:.3g} nats a token", evidence, limit
        )
    claim = f"entropy rose from {moved.start:.3g} to {moved.end:.3g}; {result.words()}"
    return _verdict("HE02", claim, evidence, limit, points, result, False, (
        "entropy coefficient (too high?)", "length and truncation of the responses", "sampler/trainer log-prob gap",
    ))  # fmt: skip


def _verdict(
    code: str, claim: str, evidence: dict[str, object], limit: dict[str, object], points: pd.Series, result: Score,
    solved: bool, check: tuple[str, ...],
) -> Finding:  # fmt: skip
    status = Status.FAIL if result.fell else Status.PASS if result.rose or solved else Status.WARN
    could = () if result.known else ("learning: no score in this log says whether it got better",)
    return Finding(code, status, claim, evidence, limit, span(points), could_also_be=could, check_next=check)
