"""Other packages' tasks: reasoning-gym's scorers and TextArena's games behind our contract."""

import random

import numpy as np
import pytest

from envs.registry import BadOption, MissingExtra, make


def test_any_name_is_passed_on_to_the_package(monkeypatch):
    for package, name, extra in (
        ("reasoning_gym", "reasoning_gym:zebra_puzzles", "reasoning-gym"),
        ("textarena", "textarena:Wordle-v0", "textarena"),
    ):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(MissingExtra, match=rf"environment '{name}' needs .*ragen-diag\[{extra}\]"):
            make(name)


def test_a_textarena_game_won_and_lost():
    pytest.importorskip("textarena")
    env = make("textarena:FrozenLake-v0")
    observation, _ = env.reset(seed=3)
    assert observation.startswith("Welcome to Frozen Lake!") and "|  H  |     |     |     |" in observation
    for move in ("[right]", "[down]", "[right]", "[right]", "[down]"):
        observation, reward, terminated, _, info = env.step(move)
        assert (reward, terminated, info["action_is_valid"]) == (0.0, False, True)
        assert observation.count("|  P  |") <= 1
    observation, reward, terminated, _, info = env.step("[down]")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    env.reset(seed=3)
    assert env.step("sideways")[1:3] == (0.0, False)
    observation, reward, terminated, _, info = env.step("sideways")
    assert (reward, terminated, info["success"], info["action_is_valid"]) == (0.0, True, False, False)
    assert "Invalid Move" in observation


def test_a_textarena_game_is_solved_by_trying_it_out():
    pytest.importorskip("textarena")
    for seed in range(3):
        env = make("textarena:FrozenLake-v0-random")
        env.reset(seed=seed)
        plan = env.unwrapped.solve()
        assert len(plan) == 6, "down and right three times each, in some order, unless holes forbid it"
        for move in plan:
            *_, info = env.step(move)
        assert info["success"]


def test_random_moves_are_moves_of_the_game():
    pytest.importorskip("textarena")
    env = make("textarena:FrozenLake-v0")
    env.reset(seed=0)
    moves = {env.unwrapped.random_action(np.random.default_rng(seed)) for seed in range(50)}
    assert moves == {"[up]", "[down]", "[left]", "[right]", "[w]", "[a]", "[s]", "[d]"}
    assert env.step("[up] or rather [down]")[1:3] == (0.0, False)


def test_textarena_leaves_the_global_generator_alone():
    pytest.importorskip("textarena")
    random.seed(5)
    expected = random.random()
    random.seed(5)
    one, two = make("textarena:Sokoban-v0"), make("textarena:Sokoban-v0")
    first, _ = one.reset(seed=1)
    two.reset(seed=2)
    one.step("[w]")
    assert two.reset(seed=1)[0] == first
    assert random.random() == expected


def test_unknown_textarena_games():
    pytest.importorskip("textarena")
    with pytest.raises(BadOption, match="TextArena has no game 'Chequers-v9'"):
        make("textarena:Chequers-v9")


def test_reasoning_gym_tasks():
    pytest.importorskip("reasoning_gym")
    env = make("reasoning_gym:mini_sudoku")
    env.reset(seed=1)
    assert env.step(env.solve()[0])[1:3] == (1.0, True)
    env = make("reasoning_gym", config={"min_numbers": 3, "max_numbers": 3})
    env.reset(seed=1)
    assert env.step("no idea")[1:3] == (0.0, True)  # the package pays 0.01 for this
    env = make("reasoning_gym:gsm_symbolic")
    question, _ = env.reset(seed=123)
    assert env.step(question)[1:3] == (0.0, True), "this question ends with its own answer"
    with pytest.raises(BadOption, match="does not make 'tic_tac'"):
        make("reasoning_gym:tic_tac")
