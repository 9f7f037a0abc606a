"""Whether there is any reasoning left to judge: thinking present and closed, output format kept."""

from __future__ import annotations

from analysis.detectors.registry import detector
from analysis.detectors.windows import recent, span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import shift
from ragen_diag.findings import Family, Finding, Status


@detector("TV01", "thinking missing or unclosed", Family.POLICY, "thinking_valid_rate")
def thinking_validity(run: RunData, measures: Measures, *, warn_at: float = 0.5, drop: float = 0.3) -> Finding:
    """TV01: share of turns with non-empty, closed thinking; low, it makes every statement about reasoning one about few.

    warn_at: share in the recent steps (RAGEN-2 reads its collapse zone only at 0.8 and above). drop: loss against the
    start that counts as a change. Both ours. Logs without any thinking are not judged: the task may not ask for it.
    """
    limit = {"warn_at": warn_at, "drop": drop, "source": "ours; RAGEN-2 reads MI at a valid rate of 0.8 or more"}
    points = measures.series["thinking_valid_rate"].dropna()
    level, moved = float(recent(points).mean()), shift(points)
    evidence = {"thinking_valid_rate": level, "n_steps": len(points)}
    fallen = moved is not None and moved.moved(-1, drop)
    if level >= warn_at and not fallen:
        return Finding(
            "TV01", Status.PASS, f"{level:.0%} of recent turns hold closed thinking", evidence, limit, span(points)
        )
    change = f", down from {moved.start:.0%}" if fallen and moved is not None else ""
    claim = f"only {level:.0%} of recent turns hold closed thinking{change}; {measures.score.words()}"
    could = ("thinking stored elsewhere (`--thinking-tags`, a reasoning field)", "responses cut at the cap (LT01)")
    return Finding("TV01", Status.WARN, claim, evidence, limit, span(points), could_also_be=could,
                   check_next=("responses without thinking", "the format reward"))  # fmt: skip


@detector("TV02", "output format lost", Family.POLICY, "format_valid_share")
def format_validity(run: RunData, measures: Measures, *, drop: float = 0.3) -> Finding:
    """TV02: the share of turns that follow the output format fell by `drop` of its start, clear of noise. Ours.

    FAIL with a fallen score, WARN otherwise.
    """
    limit = {"drop": drop, "source": "ours"}
    points = measures.series["format_valid_share"].dropna()
    moved = shift(points)
    if moved is None:
        return Finding("TV02", Status.INCONCLUSIVE, "one step: no trend", threshold=limit)
    evidence = {"format_valid_start": moved.start, "format_valid_end": moved.end, "n_steps": moved.n}
    if not moved.moved(-1, drop):
        return Finding(
            "TV02", Status.PASS, f"{moved.start:.0%} to {moved.end:.0%} of turns follow the format", evidence, limit
        )
    result = measures.score
    status = Status.FAIL if result.fell else Status.WARN
    claim = f"turns that follow the format fell from {moved.start:.0%} to {moved.end:.0%}; {result.words()}"
    return Finding(
        "TV02", status, claim, evidence, limit, span(points), check_next=("responses that break the format",)
    )
