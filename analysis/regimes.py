"""The plane of RAGEN-2: how much the reasoning says about its prompt, against how varied it is for one prompt.

A regime is decided on intervals: a point whose interval crosses a threshold is `unknown`. Not for estimating (information.py)
and not for findings (detectors/template_collapse.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ragen_diag.findings import Estimate

MI_LOW = 0.15
"""Share of H(X). RAGEN-2's collapse zone is MI < 0.3 nats with 8 prompts: 0.3 / ln 8 = 0.144."""
ENTROPY_LOW = 0.35
"""Share of the run's own first H(Z|X). Ours, from planted runs; the papers give no number."""
ENTROPY = "conditional_entropy_nats_per_token"
DIVERSITY = "within_prompt_diversity"
"""1 - word overlap of a prompt's reasonings: stands in for H(Z|X) in a log without log-probs."""
_DEPENDENCE_IN_WORDS = {
    "normalised_mi": "MI / H(X)",
    "mi_lower_nats / prompt_entropy_nats": "MI / H(X)",
    "text_retrieval above chance": "retrieval from the text, above chance,",
    "retrieval above chance": "retrieval above chance,",
}
N_FIRST = 3
"""Estimates whose median is the run's start."""

Interval = tuple[float, float]


class Regime(StrEnum):
    """Quadrants of the plane."""

    INPUT_DRIVEN = "input-driven"
    TEMPLATE_COLLAPSE = "template_collapse"
    COMPRESSED = "compressed"
    LOW_ENTROPY_COLLAPSE = "low_entropy_collapse"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RegimePoint:
    """One step on the plane."""

    step: int
    mi_share: float
    """Normalised MI, MI / H(X), or above-chance retrieval / (1 - chance)."""
    mi_interval: Interval | None
    relative_entropy: float
    """H(Z|X) over the run's start; nan when no entropy was measured."""
    entropy_interval: Interval | None
    regime: Regime


@dataclass(frozen=True, slots=True)
class RegimePath:
    """A run's way through the plane."""

    points: tuple[RegimePoint, ...]
    final: Regime
    """Over the last measured steps together (a fifth of them, at least one)."""
    reason: str
    mi_name: str
    """Which estimate the plane's first axis is."""
    entropy_name: str = ENTROPY
    """Which estimate the second axis is: ENTROPY, or DIVERSITY where no entropy was measured."""
    seen_at_start: bool = False
    """The first N_FIRST points together were clearly input-driven."""


def classify(mi: Interval | None, relative_entropy: Interval | None) -> Regime:
    """Quadrant of two intervals; `unknown` when one crosses its threshold. No entropy at all counts as kept entropy only
    for high MI: a low one without entropy cannot be told from low-entropy collapse."""
    if mi is None or not np.isfinite(mi).all():
        return Regime.UNKNOWN
    high_mi, low_mi = mi[0] > MI_LOW, mi[1] < MI_LOW
    if relative_entropy is None or not np.isfinite(relative_entropy).all():
        return Regime.INPUT_DRIVEN if high_mi else Regime.UNKNOWN
    high_entropy, low_entropy = relative_entropy[0] > ENTROPY_LOW, relative_entropy[1] < ENTROPY_LOW
    if high_mi:
        return Regime.INPUT_DRIVEN if high_entropy else Regime.COMPRESSED if low_entropy else Regime.UNKNOWN
    if low_mi:
        return (
            Regime.TEMPLATE_COLLAPSE if high_entropy else Regime.LOW_ENTROPY_COLLAPSE if low_entropy else Regime.UNKNOWN
        )
    return Regime.UNKNOWN


def mi_share(estimates: Mapping[str, Estimate]) -> tuple[str, Estimate] | None:
    """The best measure of input dependence a step has, as a share of what is attainable: (name, estimate) or None.

    Normalised MI from cross scores first, then retrieval above chance over what is left above chance.
    """
    direct = estimates.get("normalised_mi")
    if _usable(direct):
        assert direct is not None
        return "normalised_mi", direct
    ceiling = estimates.get("prompt_entropy_nats")
    lower = estimates.get("mi_lower_nats")
    if _usable(lower) and ceiling is not None and ceiling.value:
        assert lower is not None
        return "mi_lower_nats / prompt_entropy_nats", _scaled(lower, 0.0, ceiling.value)
    for prefix in ("", "text_"):
        accuracy, chance = estimates.get(f"{prefix}retrieval_accuracy"), estimates.get(f"{prefix}retrieval_chance")
        if _usable(accuracy) and chance is not None and chance.value is not None and chance.value < 1:
            assert accuracy is not None
            return f"{prefix}retrieval above chance", _scaled(accuracy, chance.value, 1 - chance.value)
    return None


def _usable(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.value is not None


def _scaled(estimate: Estimate, offset: float, scale: float) -> Estimate:
    assert estimate.value is not None
    interval = estimate.ci95
    moved = None if interval is None else ((interval[0] - offset) / scale, (interval[1] - offset) / scale)
    value = (estimate.value - offset) / scale
    return Estimate(value, moved, "share", estimate.n_prompts, estimate.n_rollouts, estimate.method)


def pooled(estimates: list[Estimate]) -> tuple[float, Interval | None]:
    """Mean of estimates from different steps, with the interval of a mean of independent numbers; None when one has none."""
    values = [estimate.value for estimate in estimates if estimate.value is not None]
    if not values:
        return float("nan"), None
    mean = float(np.mean(values))
    intervals = [estimate.ci95 for estimate in estimates if estimate.value is not None]
    if any(interval is None for interval in intervals):
        return mean, None
    below = [value - interval[0] for value, interval in zip(values, intervals, strict=True) if interval]
    above = [interval[1] - value for value, interval in zip(values, intervals, strict=True) if interval]
    n = len(values)
    return mean, (mean - float(np.linalg.norm(below)) / n, mean + float(np.linalg.norm(above)) / n)


def last_window(n: int) -> int:
    """How many of n measured steps the final regime looks at: a fifth, at least one."""
    return max(1, n // 5)


def regime_path(per_step: Mapping[int, Mapping[str, Estimate]], *, exact: bool = True) -> RegimePath:
    """Regime of every measured step and of the last ones together.

    per_step: estimates by step and name (analysis/measures.py). Variety is ENTROPY, or DIVERSITY where no entropy is known.
    exact: the policy itself scored. A foreign model or a text classifier that sees no dependence may just be blind, so its
    low values count only when it saw dependence at the run's start.
    """
    named = {step: found for step in sorted(per_step) if (found := mi_share(per_step[step])) is not None}
    if not named:
        return RegimePath((), Regime.UNKNOWN, "input dependence was not measured", "")
    mi_name = _axis(named)
    steps = [step for step, (name, _) in named.items() if name == mi_name]
    mi = {step: named[step][1] for step in steps}
    entropy_name = ENTROPY if any(_usable(per_step[step].get(ENTROPY)) for step in steps) else DIVERSITY
    entropy = {step: per_step[step].get(entropy_name) for step in steps}
    seen = _seen_at_start([mi[step] for step in steps])
    if not (exact and not mi_name.startswith("text_")) and not seen:
        mi = {step: _one_sided(estimate) for step, estimate in mi.items()}
    known = [e.value for e in entropy.values() if e is not None and e.value is not None]
    start = float(np.median(known[:N_FIRST])) if known else float("nan")
    relative = {step: _relative(entropy[step], start) for step in steps}
    points = tuple(_point(step, mi[step], relative[step]) for step in steps)
    window = steps[-last_window(len(steps)) :]
    _, mi_interval = pooled([mi[step] for step in window])
    _, entropy_interval = pooled([kept for step in window if (kept := relative[step]) is not None])
    final = classify(mi_interval, entropy_interval)
    reason = _reason(final, mi_name, mi_interval, entropy_name, entropy_interval, window)
    return RegimePath(points, final, reason, mi_name, entropy_name, seen)


def _axis(named: Mapping[int, tuple[str, Estimate]]) -> str:
    """One measure for the whole path, for switching between two would draw a jump that is not there.

    Cross scores come before text, which is measured at more steps but sees less, unless they stopped before the run's last third.
    """
    steps = sorted(named)
    late = [named[step][0] for step in steps[-max(1, len(steps) // 3) :]]
    names = [named[step][0] for step in steps]
    direct = [name for name in late if not name.startswith("text_")]
    candidates = direct or late
    return max(dict.fromkeys(candidates), key=names.count)


def _seen_at_start(estimates: list[Estimate]) -> bool:
    _, interval = pooled(estimates[:N_FIRST])
    return interval is not None and interval[0] > MI_LOW


def _one_sided(estimate: Estimate) -> Estimate:
    interval = None if estimate.ci95 is None else (estimate.ci95[0], 1.0)
    return Estimate(
        estimate.value,
        interval,
        estimate.unit,
        estimate.n_prompts,
        estimate.n_rollouts,
        f"{estimate.method}; lower end only",
    )


def _relative(estimate: Estimate | None, start: float) -> Estimate | None:
    if estimate is None or estimate.value is None or not start > 0:
        return None
    return _scaled(estimate, 0.0, start)


def _point(step: int, mi: Estimate, relative: Estimate | None) -> RegimePoint:
    interval = None if relative is None else relative.ci95
    value = float("nan") if relative is None or relative.value is None else relative.value
    assert mi.value is not None
    return RegimePoint(step, mi.value, mi.ci95, value, interval, classify(mi.ci95, interval))


def _reason(
    final: Regime, name: str, mi: Interval | None, entropy_name: str, entropy: Interval | None, window: list[int]
) -> str:
    def show(interval: Interval | None) -> str:
        return "without an interval" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"

    where = f"step {window[-1]}" if len(window) == 1 else f"steps {window[0]} to {window[-1]}"
    variety = "H(Z|X)" if entropy_name == ENTROPY else "diversity within a prompt"
    dependence = _DEPENDENCE_IN_WORDS.get(name, name)
    text = f"{where}: {dependence} {show(mi)} (low: under {MI_LOW}), {variety} {show(entropy)} of its start (low: under {ENTROPY_LOW})"
    return text if final != Regime.UNKNOWN else f"{text}: not clear of the thresholds"
