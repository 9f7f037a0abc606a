"""Which reasonings and prompts of a cross-score matrix may be compared with each other. Selection only, no estimates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ragen_diag.cross_scores import CrossScores


@dataclass(frozen=True, slots=True)
class Block:
    """Rows and columns that may be compared with each other: the whole matrix, or one turn in trajectory scope."""

    score_RN: np.ndarray
    tokens_R: np.ndarray
    column_R: np.ndarray
    weights_N: np.ndarray
    cluster_N: np.ndarray
    """Sampling unit of each column, 0..clusters-1; in trajectory scope the first prompt, which many contexts share."""
    clusters: int
    """Sampling units over all blocks."""
    share: float
    """Share of all rows that are in this block."""


def comparable_blocks(cross: CrossScores) -> tuple[list[Block], int]:
    """Blocks with at least two prompts each, and the number of rows left out.

    In trajectory scope a reasoning meets only contexts of its own turn. A row is left out when it has unscored (nan) pairs in its
    block, no finite score under its own prompt, or no tokens; a column, when no row is left that was sampled under it.
    """
    by_turn = cross.scope == "trajectory"
    column_R = np.asarray(cross.column_R, dtype=np.int64)
    parts = []
    for turn in np.unique(cross.turn_R) if by_turn else [None]:
        rows = np.arange(len(column_R)) if turn is None else np.flatnonzero(cross.turn_R == turn)
        columns = np.unique(column_R[rows])
        scores = cross.logprob_sum_RN[np.ix_(rows, columns)]
        own = np.searchsorted(columns, column_R[rows])
        usable = (
            np.isfinite(scores[np.arange(len(own)), own]) & ~np.isnan(scores).any(axis=1) & (cross.tokens_R[rows] > 0)
        )
        rows = rows[usable]
        columns = np.unique(column_R[rows])
        if len(columns) >= 2:
            parts.append((rows, columns))
    if not parts:
        return [], len(cross.column_R)
    n_rows = sum(len(rows) for rows, _ in parts)
    every_column = np.concatenate([columns for _, columns in parts])
    units = np.array(cross.prompt_ids_N)[every_column] if by_turn else np.arange(len(every_column))
    _, cluster = np.unique(units, return_inverse=True)
    blocks, start = [], 0
    for rows, columns in parts:
        weights = cross.weights_N[columns]
        blocks.append(
            Block(
                score_RN=np.asarray(cross.logprob_sum_RN[np.ix_(rows, columns)], dtype=np.float64),
                tokens_R=cross.tokens_R[rows],
                column_R=np.searchsorted(columns, column_R[rows]),
                weights_N=weights / weights.sum(),
                cluster_N=cluster[start : start + len(columns)],
                clusters=int(cluster.max()) + 1,
                share=len(rows) / n_rows,
            )
        )
        start += len(columns)
    return blocks, len(cross.column_R) - n_rows


def only_rows(cross: CrossScores, keep_R: np.ndarray) -> CrossScores:
    """The same matrix with some rows only; columns that lose all their rows are dropped by `comparable_blocks`."""
    return replace(
        cross,
        logprob_sum_RN=cross.logprob_sum_RN[keep_R],
        tokens_R=cross.tokens_R[keep_R],
        column_R=cross.column_R[keep_R],
        trajectory_ids_R=tuple(np.array(cross.trajectory_ids_R)[keep_R]),
        turn_R=cross.turn_R[keep_R],
    )
