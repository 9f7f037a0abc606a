"""Tools and turns that fall out of use."""

from __future__ import annotations

from analysis.detectors.registry import detector
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite, shift
from ragen_diag.findings import Family, Finding, Status


@detector("TU01", "tool use collapse", Family.POLICY, "tool_calls_mean | turns_mean")
def tool_use(run: RunData, measures: Measures, *, ratio: float = 0.3) -> Finding:
    """TU01: tool calls a rollout down to `ratio` of their start, or turns down to the two that hold no call.

    FAIL with a fallen score, PASS with a risen one (fewer calls, better answers), else WARN. ratio: ours.
    Turns alone say it only where they started above three and end at two or less (question and answer, no call between).
    Source: verl#4998 (turns fall to 2).
    """
    limit = {"ratio_of_start": ratio, "turns_without_a_call": 2, "source": "ours; verl#4998"}
    calls = finite(measures.series.get("tool_calls_mean"))
    turns = finite(measures.series.get("turns_mean"))
    used = len(calls) >= 2 and float(calls.iloc[: max(1, len(calls) // 4)].max()) > 0
    points, name = (calls, "tool calls") if used else (turns, "turns")
    moved = shift(points)
    if moved is None:
        return Finding("TU01", Status.INCONCLUSIVE, "one step: no trend", threshold=limit)
    if not used:
        # A task that is solved in one move also ends at one turn; only the loss of the middle turns is a sign.
        gone = moved.start > 3 and moved.end <= 2.05 and moved.moved(-1, 0.2)
    else:
        gone = moved.moved(-1, 1 - ratio)
    result = measures.score
    evidence = {"series": name, "start": moved.start, "end": moved.end, "n_points": moved.n, **result.evidence()}
    if not gone:
        claim = f"{name} a rollout: {moved.start:.2g} to {moved.end:.2g}"
        return Finding("TU01", Status.PASS, claim, evidence, limit, span(points))
    status = Status.FAIL if result.fell and used else Status.PASS if result.rose else Status.WARN
    claim = f"{name} a rollout fell from {moved.start:.2g} to {moved.end:.2g}; {result.words()}"
    could = ("tasks that need no tool",)
    check = (
        "reward of rollouts with and without a call",
        "tool errors in the environment",
        "a reward for using the tool",
    )
    return Finding("TU01", status, claim, evidence, limit, span(points), could_also_be=could, check_next=check)
