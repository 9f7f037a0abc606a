"""The 2x2 cube: moves that a real cube can do, and no others."""

import numpy as np
import pytest

from envs.registry import BadOption, make
from envs.rubiks_2x2 import MOVES, SOLVED, is_solved, turn


def play(moves: str, state=SOLVED):
    for move in moves.split():
        state = turn(state, move)
    return state


def test_reference_state():  # RAGEN at 20daedc, seed 123, depth 1: faces U L F R B D
    env = make("rubiks_2x2")
    env.reset(seed=123)
    assert "".join(map(str, env._state)) == "000022113322443311445555"


@pytest.mark.parametrize("move", MOVES)
def test_every_move_has_order_four_and_moves_twelve_stickers(move):
    inverse = move[0] if move.endswith("'") else f"{move}'"
    scrambled = play("R U F L D B")
    assert play(f"{move} {inverse}", scrambled) == scrambled
    assert play(" ".join([move] * 4), scrambled) == scrambled and play(f"{move} {move}", scrambled) != scrambled
    assert sum(MOVES[move][i] != i for i in range(24)) == 12


def test_known_identities():
    assert play("R U R' U' " * 6) == SOLVED  # the commutator of two faces has order 6
    assert play("R U R' U'") != SOLVED
    assert is_solved(play("R L'"))  # turning the whole cube over
    assert is_solved(play("U D'")) and is_solved(play("F B'"))
    assert play("R R U U " * 3) == SOLVED and play("R R U U " * 2) != SOLVED


def test_corners_stay_corners():
    """The three stickers of a corner always carry a colour triple that exists, in its turning sense (no illegal `B`)."""
    from envs.rubiks_2x2 import _stickers

    places = {}
    for i, (corner, _) in enumerate(_stickers()):
        places.setdefault(corner, []).append(i)
    clockwise = []
    for corner, stickers in places.items():
        normals = [np.array(_stickers()[i][1]) for i in stickers]
        a, b, c = stickers
        clockwise.append((a, b, c) if np.dot(np.cross(normals[0], normals[1]), corner) > 0 else (a, c, b))
    real = {
        colours[k:] + colours[:k]
        for trio in clockwise
        for colours in [tuple(SOLVED[i] for i in trio)]
        for k in range(3)
    }
    rng, state = np.random.default_rng(0), SOLVED
    for _ in range(300):
        state = turn(state, list(MOVES)[int(rng.integers(12))])
        assert {tuple(state[i] for i in trio) for trio in clockwise} <= real


def test_group_reached_by_a_few_moves():
    """Positions with the cube held still, by distance in quarter turns: 12 after one, 114 after two."""
    seen, layer, sizes = {SOLVED}, {SOLVED}, []
    for _ in range(2):
        layer = {turn(state, move) for state in layer for move in MOVES} - seen
        seen |= layer
        sizes.append(len(layer))
    assert sizes == [12, 114]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_scramble_is_unsolved_and_solved_in_at_most_as_many_turns(depth):
    env = make("rubiks_2x2", scramble_depth=depth)
    for seed in range(10):
        env.reset(seed=seed)
        assert not is_solved(env._state)
        plan = env.solve()
        assert 1 <= len(plan) <= depth
        rewards = [env.step(move)[1] for move in plan]
        assert rewards == [0.0] * (len(plan) - 1) + [1.0]


def test_bad_options():
    with pytest.raises(BadOption):
        make("rubiks_2x2", scramble_depth=0)
