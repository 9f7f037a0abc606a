"""The 2x2 Rubik's cube as text. Moves are derived from the geometry of the cube, so none can be illegal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from gymnasium.utils import seeding

from envs.planning import shortest_plan
from envs.text_env import Outcome, TextEnv

FACES = "ULFRBD"
COLOURS = "WOGRBY"  # of the solved faces, in the order of FACES
Vector = tuple[int, int, int]

# Per face: outward normal, then the directions of "right" and "down" for someone who looks at the unfolded net.
# Axes: x to the right, y up, z towards the viewer of the F face.
_NET: dict[str, tuple[Vector, Vector, Vector]] = {
    "U": ((0, 1, 0), (1, 0, 0), (0, 0, 1)),
    "L": ((-1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "F": ((0, 0, 1), (1, 0, 0), (0, -1, 0)),
    "R": ((1, 0, 0), (0, 0, -1), (0, -1, 0)),
    "B": ((0, 0, -1), (-1, 0, 0), (0, -1, 0)),
    "D": ((0, -1, 0), (1, 0, 0), (0, 0, -1)),
}


def _stickers() -> list[tuple[Vector, Vector]]:
    """(corner, normal) of the 24 stickers: faces in the order of FACES, each in reading order. Corners are (±1, ±1, ±1)."""
    stickers = []
    for normal, right, down in _NET.values():
        for v in (-1, 1):
            for h in (-1, 1):
                x, y, z = (normal[i] + h * right[i] + v * down[i] for i in range(3))
                stickers.append(((x, y, z), normal))
    return stickers


def _turned(vector: Vector, axis: Vector) -> Vector:
    """A quarter turn, clockwise for someone who looks at the face with outward normal `axis`: v -> (v·a) a - a x v."""
    along = sum(v * a for v, a in zip(vector, axis, strict=True))
    x, y, z = (int(component) for component in np.cross(axis, vector))
    return along * axis[0] - x, along * axis[1] - y, along * axis[2] - z


def _permutations() -> dict[str, tuple[int, ...]]:
    """Move -> for each sticker position the position its colour comes from."""
    stickers = _stickers()
    index = {sticker: i for i, sticker in enumerate(stickers)}
    moves = {}
    for face in "UDLRFB":
        axis = _NET[face][0]
        source = list(range(24))
        for i, (corner, normal) in enumerate(stickers):
            if sum(c * a for c, a in zip(corner, axis, strict=True)) > 0:
                source[index[_turned(corner, axis), _turned(normal, axis)]] = i
        moves[face] = tuple(source)
        moves[face + "'"] = tuple(source.index(i) for i in range(24))
    return moves


MOVES = _permutations()
SOLVED = tuple(face for face in range(6) for _ in range(4))


def turn(state: tuple[int, ...], move: str) -> tuple[int, ...]:
    """The 24 colours (0..5, faces U L F R B D in reading order) after one of the twelve quarter turns."""
    return tuple(state[i] for i in MOVES[move])


def is_solved(state: tuple[int, ...]) -> bool:
    """Every face shows one colour; the cube may be held any way up."""
    return all(len(set(state[4 * face : 4 * face + 4])) == 1 for face in range(6))


class Rubiks2x2Env(TextEnv):
    """Turn the faces of a scrambled 2x2 cube until each shows one colour.

    ## Description
    The Pocket Cube: eight corners, six faces of four stickers. Quarter turns in both directions.

    ## Action Space
    One of `U`, `U'`, `D`, `D'`, `L`, `L'`, `R`, `R'`, `F`, `F'`, `B`, `B'`: clockwise, and counter-clockwise with `'`.

    ## Observation Space
    Text: per face two rows of stickers, colours `W O G R B Y`, as they appear in the unfolded net.

    ## Starting State
    The solved cube after `scramble_depth` random quarter turns, none undoing the one before, and never solved. The seed
    fixes the turns.

    ## Rewards
    1 when the cube is solved, else 0. Unit: cubes solved.

    ## Episode End
    Termination: solved (`success`). No truncation; the reference allows 20 actions.

    ## Arguments
    - `scramble_depth`: quarter turns of the scramble, at least 1 (1).

    ## Version History
    - v0: all twelve moves are moves of a real cube; RAGEN's `B` cycles the wrong stickers.
    """

    name = "rubiks_2x2"
    summary = "turn a scrambled 2x2 cube back"
    variants: ClassVar = {f"depth{depth}": {"scramble_depth": depth} for depth in (2, 3, 5)}
    max_actions = 20
    action_names = tuple(MOVES)

    def __init__(self, scramble_depth: int = 1, *, render_mode: str | None = "ansi") -> None:
        if scramble_depth < 1:
            raise ValueError(f"scramble_depth is {scramble_depth}; a scramble has at least 1 turn")
        super().__init__(render_mode=render_mode)
        self.scramble_depth = scramble_depth

    def _rules(self) -> str:
        return (
            "Solve the 2x2 Rubik's cube: every face must show one colour. U D L R F B turn the up, down, left, right, front"
            " and back face clockwise, with ' counter-clockwise.\n"
            "Symbols: W white, O orange, G green, R red, B blue, Y yellow."
        )

    def _begin(self, seed: int) -> None:
        rng, _ = seeding.np_random(seed)
        self._state = SOLVED
        while is_solved(self._state):
            last = ""
            for _ in range(self.scramble_depth):
                move = self.action_names[int(rng.integers(12))]
                while _inverse(move) == last:
                    move = self.action_names[int(rng.integers(12))]
                self._state, last = turn(self._state, move), move

    def _apply(self, action: str) -> Outcome:
        self._state = turn(self._state, action)
        solved = is_solved(self._state)
        return Outcome(reward=float(solved), terminated=solved, effective=True, success=solved)

    def _observe(self) -> str:
        colours = [COLOURS[sticker] for sticker in self._state]
        faces = ("".join(colours[4 * f : 4 * f + 2]) + "/" + "".join(colours[4 * f + 2 : 4 * f + 4]) for f in range(6))
        return "\n".join(f"{name}: {face}" for name, face in zip(FACES, faces, strict=True))

    def solve(self) -> list[str] | None:
        """A shortest solution, if it is among the first 300 000 positions (up to about six turns)."""

        def successors(state: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
            return ((move, turn(state, move)) for move in MOVES)

        return shortest_plan(self._state, successors, is_solved)


def _inverse(move: str) -> str:
    return move[0] if move.endswith("'") else f"{move}'"
