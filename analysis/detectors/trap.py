"""Echo Trap, falls of the reward, gradient spikes. The watching is done in echo_trap.py; here it becomes findings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import SUSTAINED, span
from analysis.echo_trap import MIN_LEAD, SOLVED_HEADROOM, STD_RATIO, EchoTrap, Phase
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import CONFIRM, MIN_POINTS, baseline, fall_from_peak, finite, shift, spikes
from ragen_diag.findings import Family, Finding, Status

_TRAP_LIMIT = {
    "std_ratio": STD_RATIO, "confirm_steps": CONFIRM, "solved_headroom": SOLVED_HEADROOM, "min_steps": MIN_POINTS,
    "source": "order of events: RAGEN-1 (arXiv:2504.20073, finding 2); numbers: ours, from planted runs",
}  # fmt: skip


@detector("ET01", "Echo Trap", Family.POLICY,
          "reward_std_in_group | entropy_nats | conditional_entropy_nats | normalised_mi | reward_mean")  # fmt: skip
def echo_trap(run: RunData, measures: Measures) -> Finding:
    """ET01: in-group reward spread, entropy or input dependence turned first, and the reward after them.

    FAIL when trapped or irreversible, WARN on a precursor while the reward stands, PASS when neither. A fall without
    precursor is not an Echo Trap: RD01 reports it.
    """
    trap = measures.echo_trap
    if trap is None or trap.phase == Phase.INCONCLUSIVE or not trap.watched:
        why = (
            trap.reason
            if trap is not None and trap.phase == Phase.INCONCLUSIVE
            else "no signal has enough steps to be watched"
        )
        return Finding("ET01", Status.INCONCLUSIVE, why, threshold=_TRAP_LIMIT, check_next=("log more steps",))
    evidence = _evidence(trap)
    steps = None
    if trap.turns:
        steps = (min(turn.step for turn in trap.turns.values()), _last_step(measures))
    check = (
        "filter groups by reward variance (`ragen-diag tune`)",
        "the KL and entropy coefficients",
        "ragen-diag explain TC01",
    )
    if trap.phase in (Phase.TRAPPED, Phase.IRREVERSIBLE):
        return Finding(
            "ET01", Status.FAIL, f"{trap.phase}: {trap.reason}", evidence, _TRAP_LIMIT, steps, check_next=check
        )
    if trap.phase == Phase.EARLY_WARNING:
        could = ("prompts becoming all-right or all-wrong while the policy is sound",)
        return Finding("ET01", Status.WARN, f"early warning: {trap.reason}", evidence, _TRAP_LIMIT, steps,
                       could_also_be=could, check_next=check)  # fmt: skip
    claim = (
        trap.reason if trap.phase == Phase.HEALTHY else "the reward fell without the signs of an Echo Trap (see RD01)"
    )
    return Finding("ET01", Status.PASS, claim, evidence, _TRAP_LIMIT)


def _evidence(trap: EchoTrap) -> dict[str, object]:
    return {
        "phase": trap.phase.value,
        "turned_at_step": {name: turn.step for name, turn in trap.turns.items()},
        "lead_steps": trap.lead_steps,
        "reward_fell_at_step": trap.fall.step if trap.fall else None,
        "announced_at_step": trap.announced_step,
        "gradient_spike_steps": list(trap.spike_steps[:20]),
        "watched": list(trap.watched),
    }


def _last_step(measures: Measures) -> int:
    return max(int(values.index[-1]) for values in measures.series.values() if len(values))


@detector("RD01", "reward fell", Family.POLICY, "reward_mean | success_rate | val_success_rate | task_score_mean")
def reward_fell(run: RunData, measures: Measures, *, share: float = 0.4) -> Finding:
    """RD01: the score fell from its peak and has not come back; says whether anything else had turned before.

    share: of what was gained since the start (of a quarter of its spread, if that is more). FAIL when something else broke
    with it: reward spread, entropy, gradients, format, length. WARN when all of that stands: then the task mix may have
    changed rather than the policy. Never claims that a fall without precursor could have been foreseen.
    """
    limit = {"share_of_gain": share, "confirm_steps": CONFIRM, "source": "ours, from planted runs"}
    name = next((n for n in ("reward_mean", "success_rate", "task_score_mean", "val_success_rate")
                 if len(finite(measures.series.get(n))) >= MIN_POINTS), None)  # fmt: skip
    if name is None:
        return Finding("RD01", Status.INCONCLUSIVE, f"fewer than {MIN_POINTS} steps with a score", threshold=limit)
    points = finite(measures.series[name])
    trap = measures.echo_trap
    fall = trap.fall if trap is not None and name == "reward_mean" else fall_from_peak(points, share=share)
    if fall is None:
        return Finding(
            "RD01", Status.PASS, f"{name} has not fallen from its peak for good", {"n_steps": len(points)}, limit
        )
    evidence: dict[str, object] = {
        "series": name, "peak": fall.peak, "peak_step": fall.peak_step, "fell_at_step": fall.step, "now": fall.level,
    }  # fmt: skip
    if fall.recovered:
        claim = f"{name} dipped at step {fall.step} and came back"
        return Finding("RD01", Status.PASS, claim, evidence, limit)
    turns = trap.turns if trap is not None else {}
    broken = sorted(set(turns) | set(_broken(measures, fall.step)))
    before = sorted(turn for turn in turns if fall.step - turns[turn].step >= MIN_LEAD)
    evidence |= {"broken_with_it": broken, "turned_before": before}
    steps = (fall.step, int(points.index[-1]))
    claim = f"{name} fell from {fall.peak:.3g} to {fall.level:.3g} at step {fall.step} and has not come back"
    if before:
        claim += f"; {', '.join(before)} had turned before"
    else:
        watched = ", ".join(trap.watched) if trap is not None else ""
        claim += (
            f"; no earlier sign in {watched}: this log could not have foretold it"
            if watched
            else ("; nothing else in this log could have foretold it")
        )
    could = ("a change of task mix, curriculum, reward function or code at that step",)
    check = ("what changed at that step: data, code, checkpoint, learning rate", "rollouts just before and after")
    status = Status.FAIL if broken else Status.WARN
    return Finding("RD01", status, claim, evidence, limit, steps, could_also_be=could, check_next=check)


def _broken(measures: Measures, step: int) -> list[str]:
    """Other series that are worse after `step` than before it, clear of noise: the policy changed, not only the score."""
    found = []
    for name, direction, relative in (
        ("reward_std_in_group", -1, 0.5), ("entropy_nats", -1, 0.5), ("entropy_nats", +1, 0.5),
        ("format_valid_share", -1, 0.2), ("thinking_valid_rate", -1, 0.2), ("distinct_response_share", -1, 0.4),
        ("response_tokens_mean", -1, 0.5), ("response_tokens_mean", +1, 1.0), ("repetition_share", +1, 0.5),
        ("grad_norm", +1, 2.0), ("kl_nats", +1, 3.0), ("action_valid_share", -1, 0.2),
    ):  # fmt: skip
        points = finite(measures.series.get(name))
        before, after = points[points.index < step], points[points.index >= step]
        if len(before) < SUSTAINED or len(after) < SUSTAINED:
            continue
        around = pd.concat([before.iloc[-10:], after.iloc[-10:]])
        moved = shift(around)
        level = float(np.median(before.iloc[-10:]))
        now = float(np.median(after.iloc[-10:]))
        if (
            moved is not None
            and level != 0
            and direction * (now - level) / abs(level) >= relative
            and moved.moved(direction)
        ):
            found.append(name)
    return found


@detector("GN01", "gradient spikes", Family.POLICY, "grad_norm")
def gradient_spikes(run: RunData, measures: Measures, *, ratio: float = 5.0, sigmas: float = 10.0) -> Finding:
    """GN01: gradient norms far above the 20 steps before them.

    ratio, sigmas: both must be exceeded; ours. FAIL when the score fell within 25 steps of a spike and has not come back
    (RAGEN-1: spikes mark the point of no return); WARN for repeated spikes, or one when no score says it did no harm.
    """
    limit = {"ratio": ratio, "sigmas": sigmas, "source": "ours; role of spikes: RAGEN-1, finding 2"}
    points = finite(measures.series["grad_norm"])
    if len(points) < MIN_POINTS:
        return Finding(
            "GN01", Status.INCONCLUSIVE, f"fewer than {MIN_POINTS} steps with a gradient norm", threshold=limit
        )
    found = spikes(points, ratio=ratio, sigmas=sigmas)
    evidence = {"spike_steps": found[:50], "n_spikes": len(found), "median_norm": float(points.median())}
    if not found:
        raised = shift(points)
        grown = raised is not None and raised.moved(+1, 4.0) and measures.score.fell
        if grown and raised is not None:
            claim = f"the gradient norm rose from {raised.start:.3g} to {raised.end:.3g} while {measures.score.words()}"
            return Finding("GN01", Status.WARN, claim, evidence, limit, span(points))
        return Finding("GN01", Status.PASS, f"no spike in {len(points)} steps", evidence, limit)
    highest = float(points.loc[found].max())
    evidence["highest_norm"] = highest
    trap = measures.echo_trap
    fall = trap.fall if trap is not None else None
    claim = f"{len(found)} gradient spike{'s' if len(found) > 1 else ''}, up to {highest:.3g} (normally {points.median():.3g})"
    steps = (found[0], found[-1])
    check = (
        "gradient clipping (0.5 in the gated recipe)",
        "the longest and the most surprising rollouts of these steps",
    )
    if fall is not None and not fall.recovered and any(abs(step - fall.step) <= 25 for step in found):
        claim += f"; the reward fell at step {fall.step} and has not come back"
        return Finding("GN01", Status.FAIL, claim, evidence, limit, steps, check_next=check)
    result = measures.score
    if len(found) >= 3 or not result.known:
        claim += f"; {result.words()}"
        return Finding("GN01", Status.WARN, claim, evidence, limit, steps, check_next=check)
    before = baseline(finite(measures.series[result.name]))
    evidence["score_baseline"] = before.median
    return Finding("GN01", Status.PASS, f"{claim}; without effect: {result.words()}", evidence, limit, steps)
