"""2048: RAGEN's first tiles, the merging rules, honest rewards."""

import pytest

from envs.game_2048 import legal_moves, slide
from envs.registry import BadOption, make


def board(text: str):
    return tuple(tuple(int(n) for n in row.split()) for row in text.split("/"))


@pytest.mark.parametrize(("seed", "cells"), [(123, [(0, 0), (2, 3)]), (10000, [(0, 2), (2, 0)])])
def test_reference_first_tiles(seed, cells):  # RAGEN at 20daedc
    env = make("game_2048")
    env.reset(seed=seed)
    assert [(r, c) for r in range(4) for c in range(4) if env._board[r][c]] == cells
    assert {env._board[r][c] for r, c in cells} == {2}


@pytest.mark.parametrize(
    ("row", "left", "points"),
    [
        ("2 2 2 2", "4 4 0 0", 8),  # each tile merges once
        ("4 2 2 0", "4 4 0 0", 4),
        ("2 0 0 2", "4 0 0 0", 4),
        ("0 2 0 4", "2 4 0 0", 0),
        ("2 2 4 0", "4 4 0 0", 4),
        ("2 4 8 16", "2 4 8 16", 0),
    ],
)
def test_merging(row, left, points):
    rest = "/0 0 0 0" * 3
    assert slide(board(row + rest), "Left") == (board(left + rest), points)
    mirrored = " ".join(reversed(row.split()))
    assert slide(board(mirrored + rest), "Right") == (board(" ".join(reversed(left.split())) + rest), points)
    columns = tuple(zip(*board(row + rest), strict=True))
    assert slide(columns, "Up") == (tuple(zip(*board(left + rest), strict=True)), points)


def test_down_is_right_of_the_transposed():
    start = board("2 0 0 0/2 4 0 0/4 4 0 2/4 0 0 2")
    assert slide(start, "Down")[0] == board("0 0 0 0/0 0 0 0/4 0 0 0/8 8 0 4")


def test_rewards():
    env = make("game_2048")
    env.reset(seed=123)
    env._board = board("2 2 0 0/0 0 0 0/0 0 0 0/0 0 0 0")
    observation, reward, _, _, info = env.step("Up")
    assert reward == -0.1 and not info["action_is_valid"] and not info["action_is_effective"]
    assert observation.endswith("Score: 0\nValid moves: Right, Down, Left")
    _, reward, _, _, info = env.step("left")
    assert reward == pytest.approx(0.1 * 2.321928) and info["score"] == 4  # log2(5)
    assert sum(tile > 0 for row in env._board for tile in row) == 2


def test_ends():
    env = make("game_2048", target=8)
    env.reset(seed=0)
    env._board = board("4 4 0 0/0 0 0 0/0 0 0 0/0 0 0 0")
    _, _, terminated, _, info = env.step("Left")
    assert terminated and info["success"]
    env = make("game_2048", target=128)
    env.reset(seed=0)
    env._board = board("32 4 8 16/4 8 16 32/8 16 32 64/0 32 64 16")
    assert legal_moves(env._board) == ["Down", "Left"]
    _, _, terminated, _, info = env.step("Left")  # fills the last cell with a 2 or a 4: nothing can merge
    assert terminated and not info["success"]


def test_tiles_to_come_follow_the_rollout_seed():
    env = make("game_2048")
    boards = set()
    for rollout_seed in range(10):
        env.reset(seed=5, options={"rollout_seed": rollout_seed})
        boards.add(env.step("Left")[0] + env.step("Up")[0])
    assert len(boards) > 5


def test_expert_wins_within_the_budget():
    env = make("game_2048")
    for seed in range(123, 128):
        env.reset(seed=seed)
        plan = env.solve()
        assert len(plan) <= env.max_actions
        assert [env.step(move) for move in plan][-1][4]["success"]


@pytest.mark.parametrize("target", [4, 100])
def test_bad_options(target):
    with pytest.raises(BadOption, match="power of two"):
        make("game_2048", target=target)
