"""`ragen-diag plan` as text: the interval to expect from N prompts x K rollouts, or what a wanted one costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ragen_diag.errors import UsageError

if TYPE_CHECKING:
    from analysis.planning import Spread

METRIC = "mi_nats"
PRIOR_BETWEEN, PRIOR_WITHIN, PRIOR_GAP = 0.35, 0.55, 4.0
"""Spread assumed without a pilot: a policy half-way between template and input-driven (docs/calibration.md)."""


def plan_text(*, prompts: int | None, rollouts: int | None, half_width: float | None, run: Path | None) -> str:
    """The plan. Give prompts and rollouts, or half_width (and rollouts, if they are fixed). Raises UsageError otherwise."""
    from analysis import planning

    for name, value in (("--prompts", prompts), ("--rollouts", rollouts), ("--half-width", half_width)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} {value:g}: must be above 0")
    spread, origin = _spread(run)
    header = f"I(X;Z) per sequence, 95 % interval over prompts; spread from {origin}"
    if half_width is not None:
        options = planning.plans(spread, half_width, **({"rollouts": (rollouts,)} if rollouts else {}))
        if not options:
            raise UsageError(f"no plan up to a million prompts gives ±{half_width:g} nats; ask for a wider interval")
        rows = [
            f"{plan.n_prompts:>9,} {plan.n_rollouts:>9} {plan.n_prompts * plan.n_rollouts:>11,}   ±{plan.half_width:.3f} nats"
            for plan in options
        ]
        return "\n".join([header, "  prompts  rollouts  reasonings   half-width", *rows])
    if prompts is None or rollouts is None:
        raise UsageError("give --prompts and --rollouts to learn the interval, or --half-width to learn the sizes")
    expected = planning.half_width(spread, prompts, rollouts)
    if math.isinf(expected):
        return f"{header}\n{prompts} prompts are too few for an interval; it needs at least {planning.MIN_CLUSTERS}"
    return f"{header}\n{prompts} prompts x {rollouts} rollouts: expect ±{expected:.3f} nats"


def _spread(run: Path | None) -> tuple[Spread, str]:
    from analysis import planning
    from ragen_diag.cross_scores import CrossScores, cross_score_files

    if run is None:
        return planning.Spread(
            METRIC, PRIOR_BETWEEN, PRIOR_WITHIN, PRIOR_GAP
        ), "a stated prior (give --run for your own)"
    files = [path for path in cross_score_files(run) if "first_turn" in path.name]
    if not files:
        raise UsageError(
            f"{run} holds no cross scores to learn the spread from; analyze it with --scorer, or leave --run out"
        )
    try:
        return planning.spread_of(CrossScores.load(files[-1]), METRIC), str(files[-1])
    except ValueError as error:
        raise UsageError(
            f"{files[-1]} cannot tell the spread: {error}. Leave --run out to plan from the prior"
        ) from error
