"""2048: slide and merge tiles on a 4x4 board."""

from __future__ import annotations

import copy
from math import log2
from typing import ClassVar

import numpy as np
from gymnasium.utils import seeding

from envs.text_env import Outcome, TextEnv

Board = tuple[tuple[int, ...], ...]  # 4 rows of 4 tiles, 0 = empty

SIZE = 4
P_SPAWN_TWO = 0.9


class Game2048Env(TextEnv):
    """Reach a tile by sliding and merging.

    ## Description
    A move slides all tiles one way; two equal tiles that meet become their sum, once per move. After a move that changed
    something a 2 (probability 0.9) or a 4 appears on a random empty cell.

    ## Action Space
    One of `Up`, `Right`, `Down`, `Left` (any case). A move that changes nothing is invalid and spawns nothing.

    ## Observation Space
    Text: four rows of tiles, the score so far, and the moves that change something.

    ## Starting State
    The seed places the first two tiles (RAGEN's draws). Later tiles are drawn per rollout.

    ## Rewards
    0.1 log2(m + 1) for a move that merges tiles summing to m, 0 for one that merges none, -0.1 for an invalid move. Unit:
    tenths of a doubling. The score in the observation is the plain sum of merged tiles.

    ## Episode End
    Termination: a tile of `target` (`success`), or no move changes anything. No truncation; `max_actions` is two thirds
    of the target, since a move adds 2.2 to the sum of tiles on average.

    ## Arguments
    - `target`: tile to reach, a power of two of at least 8 (128).

    ## Version History
    - v0: invalid moves cost what is promised, and the budget can win; in RAGEN the penalty vanishes in the logarithm, and
      700 actions are too few for 2048.
    """

    name = "game_2048"
    summary = "slide and merge tiles up to a target"
    variants: ClassVar = {"to_32": {"target": 32}, "to_512": {"target": 512}, "to_2048": {"target": 2048}}
    action_names = ("Up", "Right", "Down", "Left")

    def __init__(self, target: int = 128, *, render_mode: str | None = "ansi") -> None:
        if target < 8 or target & (target - 1):
            raise ValueError(f"target is {target}; it is a power of two of at least 8")
        super().__init__(render_mode=render_mode)
        self.target = target
        self.max_actions = target * 2 // 3

    def _rules(self) -> str:
        return (
            f"Play 2048 up to the tile {self.target}. A move slides all tiles one way; equal tiles that meet merge into their"
            " sum. Then a new 2 or 4 appears. A move that changes nothing is invalid.\nSymbols: . empty cell."
        )

    def _begin(self, seed: int) -> None:
        rng, _ = seeding.np_random(seed)
        empty: Board = ((0,) * SIZE,) * SIZE
        self._board = _spawn(_spawn(empty, rng), rng)
        self._score = 0

    def _apply(self, action: str) -> Outcome:
        board, merged = slide(self._board, action)
        if board == self._board:
            return Outcome(reward=-0.1, valid=False)
        self._board = _spawn(board, self.noise_rng)
        self._score += merged
        won = max(map(max, self._board)) >= self.target
        return Outcome(
            reward=0.1 * log2(merged + 1),
            terminated=won or not legal_moves(self._board),
            effective=True,
            success=won,
            extra={"score": self._score},
        )

    def _observe(self) -> str:
        rows = [" ".join(f"{tile or '.':>4}" for tile in row) for row in self._board]
        moves = ", ".join(legal_moves(self._board)) or "none"
        return "\n".join([*rows, f"Score: {self._score}", f"Valid moves: {moves}"])

    def solve(self) -> list[str] | None:
        """The moves of a simple corner strategy that, with this rollout's coming tiles, reach the target.

        None if that strategy does not get there; it looks at the tiles to come only to play on, not to choose.
        """
        board, rng, moves = self._board, copy.deepcopy(self.noise_rng), []
        while max(map(max, board)) < self.target:
            options = legal_moves(board)
            if not options:
                return None
            best = max(options, key=lambda move: _look_ahead(slide(board, move)[0], 2))
            board = _spawn(slide(board, best)[0], rng)
            moves.append(best)
        return moves


def slide(board: Board, move: str) -> tuple[Board, int]:
    """(board after the move and before the spawn, sum of merged tiles)."""
    upright = move in ("Up", "Down")
    backwards = move in ("Right", "Down")
    lines, merged = [], 0
    for line in zip(*board, strict=True) if upright else board:
        slid, points = _slide_line(line[::-1] if backwards else line)
        lines.append(slid[::-1] if backwards else slid)
        merged += points
    return tuple(zip(*lines, strict=True)) if upright else tuple(lines), merged


def _slide_line(line: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Towards the front."""
    tiles = [tile for tile in line if tile]
    out, points, at = [], 0, 0
    while at < len(tiles):
        pair = at + 1 < len(tiles) and tiles[at] == tiles[at + 1]
        out.append(tiles[at] * 2 if pair else tiles[at])
        points += out[-1] if pair else 0
        at += 2 if pair else 1
    return (*out, *[0] * (SIZE - len(out))), points


def legal_moves(board: Board) -> list[str]:
    """The moves that change the board."""
    return [move for move in Game2048Env.action_names if slide(board, move)[0] != board]


def _spawn(board: Board, rng: np.random.Generator) -> Board:
    empty = [(r, c) for r in range(SIZE) for c in range(SIZE) if board[r][c] == 0]
    row, col = empty[int(rng.integers(len(empty)))]
    tile = 2 if rng.random() < P_SPAWN_TWO else 4
    return tuple(tuple(tile if (r, c) == (row, col) else n for c, n in enumerate(line)) for r, line in enumerate(board))


SNAKE = ((15, 14, 13, 12), (8, 9, 10, 11), (7, 6, 5, 4), (0, 1, 2, 3))  # exponents: big tiles in a row, from one corner


def _look_ahead(board: Board, depth: int) -> float:
    """Value of a board by its best continuation without new tiles."""
    value = float(sum(tile * 2 ** SNAKE[r][c] for r, row in enumerate(board) for c, tile in enumerate(row)))
    if depth == 0:
        return value
    options = [slid for move in Game2048Env.action_names if (slid := slide(board, move)[0]) != board]
    return value + max((_look_ahead(option, depth - 1) for option in options), default=-value)
