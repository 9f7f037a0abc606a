"""From turns to one `CrossScores`: which turns, which distinct prompts, which weights. The scoring itself is passed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ragen_diag.cross_scores import CrossScores
from ragen_diag.rollout_log import prompt_id as hash_of

SCOPES = ("first_turn", "state", "trajectory")


class Scorer(Protocol):
    """Anything that fills a cross-score matrix: CrossScorer, ServerScorer."""

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        reasonings: Sequence[Sequence[int]],
        *,
        pairs_RN: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Float64 (R, N) log-prob sums in nats, nan where pairs_RN is false."""
        ...


@dataclass(frozen=True, slots=True)
class ReasoningTurn:
    """One sampled reasoning and the context it is scored under (metrics.md §1)."""

    trajectory_id: str
    group: Hashable
    """Rollouts of one prompt sampled together; a prompt's weight is its share of the groups."""
    turn: int
    context_ids: Sequence[int]
    """X: context up to and including the opening think tag (in `state` scope: of the current observation alone)."""
    reasoning_ids: Sequence[int]
    """Z: tokens strictly between the tags; turns with none are left out."""
    prompt_id: str | None = None
    """Identity of the first prompt; None = hash of context_ids."""


def cross_scores(
    turns: Sequence[ReasoningTurn],
    scorer: Scorer,
    *,
    scope: str,
    step: int,
    split: str = "train",
    scorer_name: str = "policy",
    max_rows: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> CrossScores:
    """Score turns against the distinct contexts among them.

    first_turn keeps turn 0 of each trajectory; state and trajectory draw one turn uniformly from each (RAGEN-2's sampling,
    without replacement), and trajectory scores a reasoning only under contexts of its own turn index (other pairs are nan).
    max_rows: a seeded sub-sample that keeps as many prompts as possible with two rollouts each.

    Raises ValueError for an unknown scope or when no turn holds a reasoning.
    """
    if scope not in SCOPES:
        raise ValueError(f"unknown scope {scope!r}: one of {', '.join(SCOPES)}")
    rng = np.random.default_rng(seed)
    with_reasoning = [turn for turn in turns if len(turn.reasoning_ids) and len(turn.context_ids)]
    rows = (
        [turn for turn in with_reasoning if turn.turn == 0] if scope == "first_turn" else _one_each(with_reasoning, rng)
    )
    if max_rows is not None and len(rows) > max_rows:
        rows = _subsample(rows, max_rows, rng)
    if not rows:
        raise ValueError(f"no turn with a reasoning to score in scope {scope!r}")
    columns: dict[tuple[Any, ...], int] = {}
    # In trajectory scope equal contexts of different turns stay apart, so that every column has one turn index.
    keys = [(turn.turn if scope == "trajectory" else None, tuple(map(int, turn.context_ids))) for turn in rows]
    column_R = np.array([columns.setdefault(key, len(columns)) for key in keys], dtype=np.int64)
    turn_R = np.array([turn.turn for turn in rows], dtype=np.int64)
    pairs_RN = None
    if scope == "trajectory":
        pairs_RN = turn_R[:, None] == np.array([turn for turn, _ in columns])[None, :]
    names: dict[int, str] = {}
    for turn, column in zip(rows, column_R.tolist(), strict=True):
        names.setdefault(column, turn.prompt_id or hash_of(list(turn.context_ids)))
    return CrossScores(
        step=step,
        split=split,
        scope=scope,
        scorer=scorer_name,
        logprob_sum_RN=scorer.score(
            [context for _, context in columns],
            [turn.reasoning_ids for turn in rows],
            pairs_RN=pairs_RN,
            progress=progress,
        ),
        tokens_R=np.array([len(turn.reasoning_ids) for turn in rows], dtype=np.int64),
        column_R=column_R,
        weights_N=_weights(rows, column_R, len(columns), by_group=scope == "first_turn"),
        prompt_ids_N=tuple(names[column] for column in range(len(columns))),
        trajectory_ids_R=tuple(turn.trajectory_id for turn in rows),
        turn_R=turn_R,
    )


def _one_each(turns: Sequence[ReasoningTurn], rng: np.random.Generator) -> list[ReasoningTurn]:
    """One turn drawn uniformly from each trajectory."""
    by_trajectory: dict[str, list[ReasoningTurn]] = defaultdict(list)
    for turn in turns:
        by_trajectory[turn.trajectory_id].append(turn)
    return [members[rng.integers(len(members))] for members in by_trajectory.values()]


def _subsample(rows: Sequence[ReasoningTurn], max_rows: int, rng: np.random.Generator) -> list[ReasoningTurn]:
    """At most max_rows rows: as many random groups as fit with two rollouts each, then more rollouts of those in turn."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for position in rng.permutation(len(rows)).tolist():
        by_group[rows[position].group].append(position)
    groups = list(by_group.values())[: max(1, max_rows // 2)]
    in_turns = [members[k] for k in range(max(map(len, groups))) for members in groups if k < len(members)]
    return [rows[position] for position in sorted(in_turns[:max_rows])]


def _weights(rows: Sequence[ReasoningTurn], column_R: np.ndarray, n_columns: int, *, by_group: bool) -> np.ndarray:
    """Share of the groups (first turns) or of the rows (later turns, whose contexts no group shares) of each column."""
    if by_group:
        column_R = np.array(
            [column for _, column in {(row.group, c) for row, c in zip(rows, column_R.tolist(), strict=True)}]
        )
    counts = np.bincount(column_R, minlength=n_columns).astype(np.float64)
    return counts / counts.sum()
