from __future__ import annotations

import numpy as np
import pytest

from analysis.scoring.build import ReasoningTurn, cross_scores


class Counting:
    """A scorer whose log-prob tells which prompt and reasoning it was asked for."""

    def score(self, prompts, reasonings, *, pairs_RN=None, progress=None):
        scores = -np.array([[float(sum(p) + 100 * sum(z)) for p in prompts] for z in reasonings])
        return scores if pairs_RN is None else np.where(pairs_RN, scores, np.nan)


def turn(trajectory, group, context, reasoning, index=0):
    return ReasoningTurn(trajectory, group, index, context, reasoning)


def test_identical_prompts_are_one_column_with_their_share_of_the_groups():
    turns = [
        turn("a0", "a", [1, 2], [5]), turn("a1", "a", [1, 2], [6]), turn("a2", "a", [1, 2], [7]),
        turn("b0", "b", [1, 2], [5]),
        turn("c0", "c", [3], [5, 5]), turn("c1", "c", [3], []),
    ]  # fmt: skip
    cross = cross_scores(turns, Counting(), scope="first_turn", step=4)
    assert cross.logprob_sum_RN.shape == (5, 2)
    assert cross.weights_N.tolist() == [2 / 3, 1 / 3]  # by groups, not by rows; the empty reasoning is left out
    assert cross.column_R.tolist() == [0, 0, 0, 0, 1]
    assert cross.tokens_R.tolist() == [1, 1, 1, 1, 2]
    assert cross.logprob_sum_RN[4].tolist() == [-1003.0, -1003.0]
    assert (cross.step, cross.split, cross.scope, cross.scorer) == (4, "train", "first_turn", "policy")


def test_trajectory_scope_draws_one_turn_each_and_compares_within_turns():
    turns = [turn(f"t{i}", f"g{i // 2}", [i, index], [9, i], index) for i in range(40) for index in range(3)]
    cross = cross_scores(turns, Counting(), scope="trajectory", step=1, seed=3)
    assert len(set(cross.trajectory_ids_R)) == 40 == len(cross.turn_R)
    assert set(cross.turn_R.tolist()) == {0, 1, 2}
    turn_of_column = np.zeros(len(cross.weights_N), dtype=int)
    turn_of_column[cross.column_R] = cross.turn_R
    assert np.array_equal(np.isfinite(cross.logprob_sum_RN), cross.turn_R[:, None] == turn_of_column[None, :])
    again = cross_scores(turns, Counting(), scope="trajectory", step=1, seed=3)
    assert again.turn_R.tolist() == cross.turn_R.tolist()


def test_subsample_keeps_prompts_and_pairs_of_rollouts():
    turns = [turn(f"{g}-{k}", g, [g, 1], [k + 1]) for g in range(30) for k in range(8)]
    cross = cross_scores(turns, Counting(), scope="first_turn", step=1, max_rows=20)
    assert cross.logprob_sum_RN.shape == (20, 10)
    assert np.bincount(cross.column_R).tolist() == [2] * 10
    few = cross_scores(turns, Counting(), scope="first_turn", step=1, max_rows=120)
    assert few.logprob_sum_RN.shape == (120, 30)


def test_refusals():
    with pytest.raises(ValueError, match="unknown scope 'turn'"):
        cross_scores([], Counting(), scope="turn", step=0)
    with pytest.raises(ValueError, match="no turn with a reasoning"):
        cross_scores([turn("a", "a", [1], [])], Counting(), scope="first_turn", step=0)
