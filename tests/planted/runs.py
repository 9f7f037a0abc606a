"""Planted runs by kind: healthy ones of every awkward sort, collapses, hacks and pipeline bugs, with the step of every event.

Each kind draws its sizes and rates anew per seed. `draw(kind, seed)` is all that tests and benchmarks/detection.py use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.run_data import RunData
from tests.planted.simulate import Plan, Texts, simulate


@dataclass(frozen=True)
class Planted:
    """One drawn run with what is true of it."""

    kind: str
    run: RunData
    texts: Texts
    fall_step: int | None = None
    """Step at which the reward begins to fall."""
    turn_step: int | None = None
    """Step at which the first precursor begins to move."""


Make = Callable[[np.random.Generator], tuple[Plan, dict[str, int]]]
HEALTHY: dict[str, Make] = {}
FAILING: dict[str, Make] = {}
EXPECTED: dict[str, tuple[str, ...]] = {}
"""Failing kind -> codes that name it."""
_BUGS: dict[str, Callable[[RunData, np.random.Generator], None]] = {}


def draw(kind: str, seed: int) -> Planted:
    """Draw one run of a kind."""
    rng = np.random.default_rng([seed, *kind.encode()])
    plan, events = (HEALTHY | FAILING)[kind](rng)
    run, texts = simulate(plan, rng, f"{kind}-{seed}")
    if kind in _BUGS:
        _BUGS[kind](run, rng)
        # A bug may mark rollouts after their texts were drawn: the native log must show what the columns say.
        texts = dataclasses.replace(texts, env_text_R=run.rollouts["has_env_text"].to_numpy() > 0)
    return Planted(kind, run, texts, **events)


def _ramp(n: int, start: float, end: float, first: float = 0.0, last: float = 1.0) -> np.ndarray:
    """Straight from `start` to `end` between two shares of the run, level outside."""
    return np.interp(np.linspace(0, 1, n), [first, last], [start, end])


def _size(rng: np.random.Generator) -> tuple[int, dict[str, int]]:
    n = int(rng.integers(60, 140))
    return n, {"n_groups": int(rng.choice([8, 12])), "group_size": int(rng.choice([4, 8]))}


def _learning(rng: np.random.Generator, **changes: object) -> tuple[Plan, dict[str, int]]:
    n, size = _size(rng)
    levels = {
        "success": _ramp(n, rng.uniform(0.15, 0.35), rng.uniform(0.5, 0.75), 0.05, rng.uniform(0.6, 1.0)),
        "entropy": _ramp(n, rng.uniform(0.6, 1.2), rng.uniform(0.4, 0.6)),
        "kl": _ramp(n, 1e-4, rng.uniform(0.01, 0.06)),
        "tokens": _ramp(n, rng.uniform(150, 300), rng.uniform(150, 300)),
    }
    resolved = {name: (value(n) if callable(value) else value) for name, value in changes.items()}
    return Plan.flat(n, **(size | levels | resolved)), {}


def healthy(make: Make) -> Make:
    HEALTHY[make.__name__] = make
    return make


def failing(*codes: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        FAILING[make.__name__] = make
        EXPECTED[make.__name__] = codes
        return make

    return register


# --- healthy, dull and awkward


@healthy
def learning(rng):
    return _learning(rng, cross_every=10)


@healthy
def solved(rng):
    return _learning(rng, success=lambda n: _ramp(n, 0.3, 0.995, 0.05, 0.6), difficulty=0.5)


@healthy
def plateau(rng):
    return _learning(rng, success=rng.uniform(0.3, 0.6), cross_every=12)


@healthy
def noisy_small_groups(rng):
    return _learning(rng, n_groups=4, group_size=4)


@healthy
def dense_negative_returns(rng):
    return _learning(rng, scale=10.0, offset=-8.0, noise=1.0)


@healthy
def format_learned_first(rng):
    return _learning(rng, format_ok=lambda n: _ramp(n, 0.5, 0.99, 0.0, 0.2), format_reward=0.2)


@healthy
def sparse_reward(rng):
    return _learning(rng, success=lambda n: _ramp(n, 0.03, 0.15), difficulty=1.5)


@healthy
def entropy_falls_with_learning(rng):
    return _learning(
        rng, entropy=lambda n: _ramp(n, 1.0, 0.12, 0.0, 0.7), success=lambda n: _ramp(n, 0.2, 0.8, 0.0, 0.7)
    )


@healthy
def entropy_rises_with_learning(rng):
    return _learning(rng, entropy=lambda n: _ramp(n, 0.5, 1.3), success=lambda n: _ramp(n, 0.2, 0.75))


@healthy
def longer_and_better(rng):
    return _learning(rng, tokens=lambda n: _ramp(n, 150, 520), success=lambda n: _ramp(n, 0.2, 0.75))


@healthy
def one_gradient_spike(rng):
    plan, events = _learning(rng)
    plan.grad[int(plan.n_steps * rng.uniform(0.3, 0.9))] *= 15
    return plan, events


@healthy
def dip_and_recovery(rng):
    plan, events = _learning(rng, success=lambda n: _ramp(n, 0.3, 0.7, 0.0, 0.4))
    start = int(plan.n_steps * 0.5)
    plan.success[start : start + 10] -= 0.35
    return plan, events


@healthy
def curriculum(rng):
    return _learning(
        rng, success=lambda n: np.where(np.arange(n) < n // 2, _ramp(n, 0.3, 0.8, 0, 0.4), _ramp(n, 0.4, 0.7, 0.5, 1))
    )


@healthy
def short_shared_phrases(rng):
    return _learning(rng, short_phrases=True, tokens=12.0)


@healthy
def early_truncation(rng):
    return _learning(rng, cap=256, tokens=lambda n: _ramp(n, 235, 150, 0.0, 0.5))


@healthy
def prompts_of_two_kinds(rng):
    return _learning(rng, difficulty=6.0)


@healthy
def far_from_reference(rng):
    return _learning(rng, kl=lambda n: _ramp(n, 1e-3, 0.4), success=lambda n: _ramp(n, 0.2, 0.8))


@healthy
def no_thinking(rng):
    return _learning(rng, thinking=False)


# --- the policy collapses


@failing("TC01")
def template_collapse(rng):
    """Input dependence goes, entropy and reward spread stay. Half the runs have cross scores only, half exact copies only."""
    start = rng.uniform(0.2, 0.6)
    plan, _ = _learning(
        rng, entropy=rng.uniform(0.7, 1.0), success=lambda n: _ramp(n, 0.3, 0.5, 0.0, 0.4), cross_every=8
    )
    plan.template = _ramp(plan.n_steps, 0.05, rng.uniform(0.94, 1.0), start, start + 0.25)
    plan.paraphrased = bool(rng.random() < 0.5)
    plan.cross_every = 8 if plan.paraphrased else 0
    return plan, {"turn_step": int(start * plan.n_steps) + 1}


@failing("TC01", "HE01")
def low_entropy_collapse(rng):
    start = rng.uniform(0.3, 0.6)
    plan, _ = _learning(rng, success=lambda n: _ramp(n, 0.3, 0.5, 0.0, 0.3), cross_every=8)
    n = plan.n_steps
    plan.template = _ramp(n, 0.05, 0.98, start, start + 0.2)
    plan.entropy = plan.entropy * _ramp(n, 1.0, 0.06, start, start + 0.2)
    plan.success = plan.success * _ramp(n, 1.0, rng.uniform(0.3, 0.6), start + 0.15, start + 0.3)
    return plan, {}


@failing("HE01")
def entropy_decay(rng):
    plan, _ = _learning(rng, success=lambda n: _ramp(n, 0.3, 0.5, 0.0, 0.3))
    plan.entropy = _ramp(plan.n_steps, 1.0, rng.uniform(0.03, 0.15), 0.2, 0.8)
    plan.success = plan.success * _ramp(plan.n_steps, 1.0, rng.uniform(0.2, 0.5), 0.5, 0.9)
    return plan, {}


@failing("HE02")
def entropy_explosion(rng):
    plan, _ = _learning(rng, success=lambda n: _ramp(n, 0.3, 0.5, 0.0, 0.3))
    start = rng.uniform(0.4, 0.6)
    plan.entropy = 0.7 * _ramp(plan.n_steps, 1.0, rng.uniform(3, 8), start, start + 0.2)
    plan.success = plan.success * _ramp(plan.n_steps, 1.0, rng.uniform(0.05, 0.3), start + 0.05, start + 0.3)
    return plan, {}


@failing("ET01")
def echo_trap(rng):
    """Spread falls first, then the reward, 15 to 50 steps later; half the runs end with gradient spikes."""
    n, size = (
        int(rng.integers(100, 180)),
        {"n_groups": int(rng.choice([8, 12])), "group_size": int(rng.choice([4, 8, 16]))},
    )
    turn, lead = int(rng.integers(25, 45)), int(rng.integers(18, 50))
    fall = turn + lead
    steps = np.arange(n)
    tie = np.interp(steps, [turn, turn + rng.integers(4, 12)], [0.0, rng.uniform(0.85, 0.98)])
    success = np.interp(steps, [0, fall, fall + rng.integers(3, 20)], [0.35, 0.6, rng.uniform(0.03, 0.15)])
    entropy = np.interp(steps, [0, turn, fall, n], [0.9, 0.7, rng.uniform(0.25, 0.5), 0.3])
    plan = Plan.flat(n, **size, tie=tie, success=success, entropy=entropy, kl=_ramp(n, 1e-4, 0.1))
    if rng.random() < 0.5:
        plan.grad[fall + 2 : fall + 30 : 7] *= 25
    return plan, {"turn_step": turn + 1, "fall_step": fall + 1}


@failing("RD01")
def crash_without_precursor(rng):
    plan, _ = _learning(rng)
    fall = int(plan.n_steps * rng.uniform(0.4, 0.8))
    plan.success[fall:] = rng.uniform(0.0, 0.04)
    plan.format_ok[fall:] = rng.uniform(0.0, 0.3)
    return plan, {"fall_step": fall + 1}


@failing("GN01")
def gradient_blow_up(rng):
    plan, _ = _learning(rng)
    fall = int(plan.n_steps * rng.uniform(0.5, 0.75))
    plan.grad[fall - 2 : fall + 20 : 5] *= rng.uniform(20, 60)
    plan.success[fall:] *= np.maximum(0.1, 1 - np.arange(plan.n_steps - fall) / 8)
    return plan, {"fall_step": fall + 1}


@failing("KL01")
def kl_drift(rng):
    plan, _ = _learning(rng)
    start = rng.uniform(0.4, 0.6)
    plan.kl = plan.kl + _ramp(plan.n_steps, 0.0, rng.uniform(0.7, 4.0), start, 1.0)
    plan.success = plan.success * _ramp(plan.n_steps, 1.0, rng.uniform(0.1, 0.5), start, min(start + 0.3, 1.0))
    return plan, {}


@failing("FH01")
def format_hack(rng):
    plan, _ = _learning(rng, format_ok=lambda n: _ramp(n, 0.3, 0.99), format_reward=1.0)
    plan.success = _ramp(plan.n_steps, rng.uniform(0.35, 0.5), rng.uniform(0.03, 0.15))
    return plan, {}


@failing("LT02")
def length_explosion(rng):
    plan, _ = _learning(rng, tokens=lambda n: _ramp(n, 150, rng.uniform(600, 900), 0.3, 0.9))
    plan.success = plan.success * _ramp(plan.n_steps, 1.0, rng.uniform(0.05, 0.4), 0.4, 0.9)
    return plan, {}


@failing("DT01")
def degenerate_text(rng):
    plan, _ = _learning(rng)
    start = int(plan.n_steps * rng.uniform(0.4, 0.8))
    plan.repeat[start:] = rng.uniform(0.8, 1.0)
    plan.success[start:] = 0.0
    return plan, {}


@failing("TU01")
def tool_use_collapse(rng):
    return _learning(rng, tools=lambda n: _ramp(n, 3.0, rng.uniform(0.0, 0.3), 0.3, 0.7), success=rng.uniform(0.3, 0.5))


# --- nothing to learn from


@failing("ZS01")
def all_wrong(rng):
    return _learning(rng, success=0.0005, difficulty=1.0)


@failing("ZS02")
def all_right(rng):
    return _learning(rng, success=lambda n: _ramp(n, 0.985, 0.9997, 0.0, 0.3), difficulty=0.5)


@failing("LT01")
def truncation(rng):
    return _learning(rng, cap=128, tokens=rng.uniform(300, 800), success=rng.uniform(0.01, 0.1), format_ok=0.03)


# --- pipeline bugs


def bug(*codes: str) -> Callable[[Callable[[RunData, np.random.Generator], None]], None]:
    """Register a bug that is done to a healthy run."""

    def register(function: Callable[[RunData, np.random.Generator], None]) -> None:
        name = function.__name__
        FAILING[name] = lambda rng: _learning(rng)
        EXPECTED[name] = codes
        _BUGS[name] = function

    return register


@bug("NU01")
def not_finite(run, rng):
    step = int(rng.integers(10, 50))
    for name in ("loss", "grad_norm", "kl_nats"):
        run.series[name].loc[step:] = np.nan


@bug("AD01")
def zero_advantages(run, rng):
    lost = rng.random(len(run.rollouts)) < rng.uniform(0.7, 1.0)
    run.rollouts.loc[lost, ["advantage", "advantage_absmax"]] = 0.0


@bug("GR01")
def broken_groups(run, rng):
    run.rollouts["group"] = np.arange(len(run.rollouts))


@bug("WM01")
def frozen_weights(run, rng):
    for name in ("grad_norm", "kl_nats"):
        run.series[name] *= 0.0


@bug("RW01")
def default_score(run, rng):
    run.reward_components = pd.DataFrame(
        {"accuracy": 0.5, "style": rng.random(len(run.rollouts))}, index=run.rollouts.index
    )


@bug("RW02")
def unscored(run, rng):
    lost = rng.random(len(run.rollouts)) < rng.uniform(0.1, 0.4)
    run.rollouts.loc[lost, "return_"] = np.nan


@bug("EN01")
def env_text(run, rng):
    run.rollouts["has_env_text"] = (rng.random(len(run.rollouts)) < rng.uniform(0.3, 0.8)).astype(float)


@bug("AD02")
def reward_noise(run, rng):
    tiny = rng.normal(0, 1e-5, len(run.rollouts))
    run.rollouts["return_"] = np.round(run.rollouts["prompt"] % 2 + 1.0) + tiny


@bug("LG01")
def stale_weights(run, rng):
    n = len(run.series["loss"])
    gap = np.interp(np.arange(n), [0, 20, n], [0.02, 0.03, rng.uniform(0.3, 1.0)]) * rng.lognormal(0, 0.1, n)
    run.series["sampler_trainer_logprob_gap"] = pd.Series(gap, index=run.series["loss"].index)
