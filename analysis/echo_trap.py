"""The Echo Trap of one run: which signals turned, when, before or after the reward fell, and the phase it is in.

RAGEN-1 (arXiv:2504.20073, finding 2): the in-group reward std falls first, tens of steps early; entropy drifts or jumps;
then the reward falls; a gradient-norm spike marks the point of no return. The paper gives no numbers; ours stand below.
Needs per-step series only (computed from rollouts or logged). Not for single-signal findings (analysis/detectors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.turning_points import (
    CONFIRM,
    MIN_POINTS,
    Fall,
    Turn,
    baseline,
    fall_from_peak,
    finite,
    first_turn,
    smooth,
    spikes,
)

SOLVED_HEADROOM = 0.15
"""A mean reward within this share of the best return leaves the spread no room: its fall is success, not a trap."""
STD_RATIO = 0.5
"""In-group std at half its baseline is a warning. RAGEN-2 stops at a tenth: most planted runs get there after the fall, or never."""
MIN_LEAD = 3
"""Steps a signal must turn before the reward's fall to have foretold it; a crash drags spread and entropy with it."""
SPIKE_WINDOW = 25
"""Steps around the reward's fall in which a gradient spike counts as part of it."""


class Phase(StrEnum):
    """Where a run stands."""

    HEALTHY = "healthy"
    EARLY_WARNING = "early_warning"
    """A precursor is confirmed and the reward stands."""
    TRAPPED = "trapped"
    """The reward fell after its precursor and has not come back."""
    IRREVERSIBLE = "irreversible"
    """Trapped, and gradient spikes came with the fall."""
    CRASHED = "crashed"
    """The reward fell and nothing watched had turned before: no Echo Trap, and not to be foreseen from this log."""
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Signal:
    """What counts as a turn of one series."""

    low: float | None
    """Falls to this share of its baseline."""
    high: float | None
    """Rises to this multiple of its baseline."""
    kind: str
    """What it is a measure of; two series of one kind are one witness."""
    leads: bool = True
    """Whether its turn before the fall counts as a precursor; others only confirm."""


SIGNALS: dict[str, Signal] = {
    "reward_std_in_group": Signal(STD_RATIO, None, "spread"),
    "entropy_nats": Signal(0.4, 1.8, "entropy"),
    "conditional_entropy_nats": Signal(0.4, 1.8, "entropy"),
    "normalised_mi": Signal(0.5, None, "dependence"),
    "text_retrieval_accuracy": Signal(0.5, None, "dependence"),
    "distinct_response_share": Signal(0.5, None, "diversity"),
    "thinking_tokens_mean": Signal(0.4, 3.0, "length", leads=False),
    "response_tokens_mean": Signal(0.4, 3.0, "length", leads=False),
    "repetition_share": Signal(None, 2.0, "repetition", leads=False),
    "kl_nats": Signal(None, 20.0, "kl", leads=False),
    "clip_fraction": Signal(None, 5.0, "clip", leads=False),
}


@dataclass(frozen=True, slots=True)
class EchoTrap:
    """Result for one run; steps are training steps."""

    phase: Phase
    reason: str
    turns: dict[str, Turn] = field(default_factory=dict)
    """First confirmed turn of every signal that turned."""
    fall: Fall | None = None
    """Of the reward."""
    announced_step: int | None = None
    """First step at which a live observer would have been warned."""
    spike_steps: tuple[int, ...] = ()
    watched: tuple[str, ...] = ()
    """Signals with enough points to be watched."""

    @property
    def lead_steps(self) -> dict[str, int]:
        """Steps from each leading signal's turn to the reward's fall; empty when the reward stands."""
        if self.fall is None:
            return {}
        leading = {name: turn for name, turn in self.turns.items() if name in SIGNALS and SIGNALS[name].leads}
        return {name: self.fall.step - turn.step for name, turn in leading.items()}


def echo_trap(
    series: Mapping[str, pd.Series], *, return_range: tuple[float, float] | None = None, spread: float | None = None
) -> EchoTrap:
    """Watch a run's series for the Echo Trap.

    series: by canonical name (metric_names.py, plus SIGNALS above); the reward is `reward_mean`, else a success rate.
    return_range: lowest and highest single return of the run; spread: p95 - p5 of single returns. Both from rollouts;
    without them `reward_min`/`reward_max` are used, and without those a falling std is taken at its word.
    """
    reward = _reward(series)
    points = finite(reward)
    watched = tuple(name for name in SIGNALS if len(finite(series.get(name))) >= MIN_POINTS)
    if len(points) < MIN_POINTS and not watched:
        longest = max((len(finite(values)) for values in series.values()), default=0)
        return EchoTrap(
            Phase.INCONCLUSIVE, f"{longest} steps with numbers; a turn needs a baseline and at least {MIN_POINTS}"
        )
    allowed = _room_to_improve(series, points, return_range)
    turns = {name: turn for name in watched if (turn := _turn(name, series[name], allowed)) is not None}
    fall = fall_from_peak(points, spread=spread) if len(points) else None
    spiking = tuple(spikes(series["grad_norm"])) if "grad_norm" in series else ()
    announced = _announced(turns, fall, points)
    return _judge(turns, fall, spiking, announced, watched, points)


def _reward(series: Mapping[str, pd.Series]) -> pd.Series | None:
    for name in ("reward_mean", "task_score_mean", "success_rate", "val_success_rate"):
        if len(finite(series.get(name))) >= MIN_POINTS:
            return series[name]
    return series.get("reward_mean")


def _room_to_improve(
    series: Mapping[str, pd.Series], reward: pd.Series, return_range: tuple[float, float] | None
) -> pd.Series | None:
    """Per step: the mean reward is clear of the best possible one. None when the best is not known."""
    success = finite(series.get("success_rate"))
    if len(success):
        return smooth(success) < 1 - SOLVED_HEADROOM
    if return_range is None:
        high, low = finite(series.get("reward_max")), finite(series.get("reward_min"))
        if not len(high) or not len(low):
            return None
        return_range = (float(low.min()), float(high.max()))
    low_value, high_value = return_range
    if not len(reward) or high_value <= low_value:
        return None
    return smooth(reward) < high_value - SOLVED_HEADROOM * (high_value - low_value)


def _turn(name: str, values: pd.Series, allowed: pd.Series | None) -> Turn | None:
    signal = SIGNALS[name]
    gate = allowed if signal.leads else None
    found = [first_turn(values, ratio, allowed=gate) for ratio in (signal.low, signal.high) if ratio is not None]
    return min((turn for turn in found if turn), key=lambda turn: turn.confirmed_step, default=None)


def _announced(turns: Mapping[str, Turn], fall: Fall | None, reward: pd.Series) -> int | None:
    """Std alone warns; of the other leading signals it takes two, or one while the reward is not rising."""
    steps = [turns["reward_std_in_group"].confirmed_step] if "reward_std_in_group" in turns else []
    first_of_kind: dict[str, int] = {}
    for name, turn in turns.items():
        kind = SIGNALS[name].kind
        if SIGNALS[name].leads and kind != "spread":
            first_of_kind[kind] = min(turn.confirmed_step, first_of_kind.get(kind, turn.confirmed_step))
    others = sorted(first_of_kind.values())
    if len(others) >= 2:
        steps.append(others[1])
    if others and not _risen(reward, others[0]):
        steps.append(others[0])
    if fall is not None:
        steps.append(fall.confirmed_step)
    return min(steps, default=None)


def _risen(reward: pd.Series, until: int) -> bool:
    """The reward had climbed clear of its baseline by step `until`."""
    before = reward[reward.index <= until]
    if len(before) < MIN_POINTS:
        return False
    start = baseline(before)
    error = start.sigma * np.sqrt(1 / start.n + 1 / CONFIRM)
    return bool(before.to_numpy()[-CONFIRM:].mean() > start.median + 2 * error)


def _judge(
    turns: dict[str, Turn],
    fall: Fall | None,
    spiking: tuple[int, ...],
    announced: int | None,
    watched: tuple[str, ...],
    reward: pd.Series,
) -> EchoTrap:
    leading = {name: turn for name, turn in turns.items() if SIGNALS[name].leads}

    def result(phase: Phase, reason: str) -> EchoTrap:
        return EchoTrap(phase, reason, turns, fall, announced, spiking, watched)

    if fall is None or fall.recovered:
        if announced is not None and leading and (fall is None or announced < fall.confirmed_step):
            first = min(leading, key=lambda name: leading[name].confirmed_step)
            stands = "the reward stands" if len(reward) else "no reward in this log says what followed"
            return result(Phase.EARLY_WARNING, f"{first} turned at step {leading[first].step}, {stands}")
        if not len(reward):
            return result(Phase.INCONCLUSIVE, "no reward in this log, so no fall could be looked for")
        return result(Phase.HEALTHY, f"no lasting turn in {len(watched)} signals; the reward has not fallen for good")
    before = [name for name, turn in leading.items() if fall.step - turn.step >= MIN_LEAD]
    if not before:
        seen = ", ".join(watched) or "nothing"
        return result(
            Phase.CRASHED,
            f"the reward fell at step {fall.step}; {seen} had not turned before, so nothing here foretold it",
        )
    near = [step for step in spiking if step >= fall.step - SPIKE_WINDOW]
    reason = f"{', '.join(before)} turned before the reward, which fell at step {fall.step}"
    if near:
        return result(
            Phase.IRREVERSIBLE, f"{reason}; the gradient spiked at step {near[0]} and the reward has not returned"
        )
    return result(Phase.TRAPPED, f"{reason} and has not returned")
