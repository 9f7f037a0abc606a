"""Diagnosis while training: the cross-score matrix of first-turn reasonings, with the policy itself as scorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.information import measure
from analysis.scoring.build import ReasoningTurn, cross_scores
from analysis.scoring.cross_scorer import CrossScorer
from ragen_diag.config import DiagnosticsConfig
from ragen_diag.cross_scores import CrossScores
from trainer.parsing import thinking_span
from trainer.trajectory import Trajectory, trajectory_id

METRICS = ("mi_lower_nats", "mi_upper_nats", "retrieval_accuracy", "retrieval_chance")


def first_turn_scores(
    trajectories: Sequence[Trajectory],
    policy: Any,
    tokenizer: Any,
    config: DiagnosticsConfig,
    *,
    step: int,
    split: str,
    temperature: float,
) -> CrossScores | None:
    """Score the first reasonings of a step under each other's prompts; None when no rollout thought anything.

    policy: a causal LM, or a PEFT model whose adapters are switched on. Scores are those of the tempered distribution
    that was sampled from; a top-p or top-k restriction cannot be scored (a foreign token would have log-prob minus
    infinity) and is left out.
    """
    turns = []
    for trajectory in trajectories:
        if trajectory.error is not None:
            continue
        first = trajectory.turns[0]
        span = thinking_span(first.sample.ids, tokenizer)
        if span is None or span[0] == span[1]:
            continue
        name = trajectory_id(step, split, trajectory)
        turns.append(
            ReasoningTurn(
                name,
                trajectory.group,
                0,
                first.prompt_ids + first.sample.ids[: span[0]],
                first.sample.ids[slice(*span)],
            )
        )
    if not turns:
        return None
    scorer = CrossScorer(policy, token_budget=config.token_budget, temperature=temperature)
    return cross_scores(
        turns, scorer, scope="first_turn", step=step, split=split, max_rows=config.max_reasonings, seed=step
    )


def point_estimates(scores: CrossScores) -> dict[str, float | None]:
    """The matrix's numbers for the step's metrics; intervals are the analyzer's business."""
    estimates = measure(scores, n_boot=1, n_perm=1)
    return {name: estimates[name].value for name in METRICS}
