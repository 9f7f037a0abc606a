"""FrozenLake on random boards, told as text: gymnasium's dynamics, the boards of RAGEN seed for seed.

The dynamics are restated here, and a test compares them with gymnasium's step by step: gymnasium builds a transition table
for each new board, which takes longer than playing on it.

Not for: the fixed 4x4 and 8x8 maps of gymnasium's FrozenLake-v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from gymnasium.utils import seeding

from envs.grid_text import Cell, Format, check_format, tell_board, tell_legend
from envs.planning import shortest_plan
from envs.text_env import Outcome, TextEnv

ICE, HOLE, GOAL = "_OG"
DIRECTIONS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # of the actions Left, Down, Right, Up: gymnasium's order
LEGEND = (
    ("P", "player"),
    ("_", "ice"),
    ("O", "hole"),
    ("G", "goal"),
    ("X", "player in a hole"),
    ("√", "player on the goal"),
)


class FrozenLakeEnv(TextEnv):
    """Cross a frozen lake from a random start to a random goal without falling into a hole.

    ## Description
    A square board with a start, a goal, holes and ice. Every board has a path from start to goal that avoids the holes.
    The ice may be slippery: a move then goes sideways now and then.

    ## Action Space
    One of `Left`, `Down`, `Right`, `Up` (any case). A move off the board leaves the player where it is.

    ## Observation Space
    Text. `grid`: one row per line, symbols `P` player, `_` ice, `O` hole, `G` goal, `X` player in a hole, `√` player on
    the goal; the start looks like ice. `coord`: the board size and the zero-based (row, column) of each thing.
    `grid_coord`: both.

    ## Starting State
    The seed fixes board, start and goal: tiles are frozen with probability `p`, start and goal are uniform, and boards
    without a safe path are drawn again (RAGEN's order of draws, so equal seeds give equal boards).

    ## Rewards
    +1 on reaching the goal, 0 otherwise. Unit: goals reached; the return is 0 or 1.

    ## Episode End
    Termination: the player stands on the goal (`success`) or in a hole. No truncation; the reference allows 10 actions.

    ## Arguments
    - `size`: cells per side (4).
    - `p`: probability that a tile is ice, not hole (0.9).
    - `success_rate`: probability that a move goes the intended way, each side taking half of the rest (0.8).
    - `observation_format`: `grid`, `coord` or `grid_coord`.

    ## Version History
    - v0: slip noise is drawn per rollout (`options={"rollout_seed": r}`); RAGEN shares it within a group.
    """

    name = "frozen_lake"
    summary = "cross a slippery lake to the goal, avoid the holes"
    variants: ClassVar = {
        "no_slip": {"success_rate": 1.0},
        "coord": {"observation_format": "grid_coord"},
        "coord_no_slip": {"observation_format": "grid_coord", "success_rate": 1.0},
    }
    action_names = ("Left", "Down", "Right", "Up")

    def __init__(
        self,
        size: int = 4,
        p: float = 0.9,
        success_rate: float = 0.8,
        observation_format: Format = "grid",
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        if size < 2:
            raise ValueError(f"size is {size}, but start and goal need a board of at least 2x2")
        if not 0 < p <= 1:
            raise ValueError(f"p is {p}; it is the probability of an ice tile, above 0 and at most 1")
        if not 0 <= success_rate <= 1:
            raise ValueError(f"success_rate is {success_rate}; it is a probability, 0 to 1")
        check_format(observation_format)
        super().__init__(render_mode=render_mode)
        self.size, self.p, self.success_rate, self.observation_format = size, p, success_rate, observation_format

    def _rules(self) -> str:
        rules = "You walk on a frozen lake. Reach the goal without falling into a hole. "
        rules += "Each action moves one cell; the edge of the board stops you."
        if self.success_rate < 1:
            sideways = (1 - self.success_rate) / 2
            rules += (
                f" The ice is slippery: a move goes the intended way with probability {self.success_rate:.3g}"
                f" and to each side with probability {sideways:.3g}."
            )
        return rules + tell_legend(LEGEND, (self.size, self.size), self.observation_format)

    def _begin(self, seed: int) -> None:
        self._board = draw_board(self.size, self.p, seed)
        self._player = self._board.start

    def _apply(self, action: str) -> Outcome:
        before = self._player
        intended = self.action_names.index(action)
        # One uniform per step, cut up in gymnasium's order: one side, the intended way, the other side.
        drawn, sideways = self.noise_rng.random(), (1 - self.success_rate) / 2
        slip = -1 if drawn < sideways else 0 if drawn < sideways + self.success_rate else 1
        dr, dc = DIRECTIONS[(intended + slip) % 4]
        last = self.size - 1
        self._player = (min(max(before[0] + dr, 0), last), min(max(before[1] + dc, 0), last))
        on_goal, in_hole = self._player == self._board.goal, not self._board.is_safe(self._player)
        return Outcome(
            reward=float(on_goal), terminated=on_goal or in_hole, effective=self._player != before, success=on_goal
        )

    def _observe(self) -> str:
        rows = list(self._board.rows)
        row, col = self._player
        shown = {HOLE: "X", GOAL: "√"}.get(rows[row][col], "P")
        rows[row] = rows[row][:col] + shown + rows[row][col + 1 :]
        return tell_board(rows, self._entities(shown), self.observation_format)

    def _entities(self, shown: str) -> Iterator[tuple[str, list[Cell]]]:
        board, player = self._board, [self._player]
        yield "Start", [board.start]
        yield "Goal", [] if shown == "√" else [board.goal]
        yield "Player", player if shown == "P" else []
        yield "Player on goal", player if shown == "√" else []
        yield "Player in hole", player if shown == "X" else []
        holes = [(r, c) for r, row in enumerate(board.rows) for c, tile in enumerate(row) if tile == HOLE]
        yield "Holes", [cell for cell in holes if cell != self._player]

    def solve(self) -> list[str] | None:
        """A shortest safe path. With slip it is the plan while moves go as intended: call again after each step."""
        if not self._board.is_safe(self._player):
            return None

        def successors(cell: Cell) -> list[tuple[str, Cell]]:
            moves = (
                (name, (cell[0] + dr, cell[1] + dc))
                for name, (dr, dc) in zip(self.action_names, DIRECTIONS, strict=True)
            )
            return [(name, near) for name, near in moves if self._board.is_safe(near)]

        return shortest_plan(self._player, successors, lambda cell: cell == self._board.goal)


@dataclass(frozen=True, slots=True)
class Board:
    """Rows of ice, holes and the goal; the start is ice."""

    rows: tuple[str, ...]
    start: Cell
    goal: Cell

    def is_safe(self, cell: Cell) -> bool:
        """Is this cell on the board and no hole?"""
        row, col = cell
        return 0 <= row < len(self.rows) and 0 <= col < len(self.rows) and self.rows[row][col] != HOLE

    def has_safe_path(self) -> bool:
        """From start to goal, around the holes."""
        unseen = {(r, c) for r, row in enumerate(self.rows) for c, tile in enumerate(row) if tile != HOLE}
        stack = [self.start]
        while stack:
            row, col = stack.pop()
            for near in ((row, col - 1), (row + 1, col), (row, col + 1), (row - 1, col)):
                if near in unseen:
                    if near == self.goal:
                        return True
                    unseen.remove(near)
                    stack.append(near)
        return False


@lru_cache(maxsize=1024)  # the members of a group ask for the same board
def draw_board(size: int, p: float, seed: int) -> Board:
    """The board of `seed`. The order of draws is RAGEN's: tiles, start, goal."""
    rng, _ = seeding.np_random(seed)
    share = p / (p + (1 - p))
    while True:
        # What rng.choice([ICE, HOLE], (size, size), p=[p, 1 - p]) draws and does, at a fifth of its cost.
        tiles = [[ICE if u < share else HOLE for u in row] for row in rng.random((size, size)).tolist()]
        start = (int(rng.integers(size)), int(rng.integers(size)))
        goal = (int(rng.integers(size)), int(rng.integers(size)))
        tiles[start[0]][start[1]], tiles[goal[0]][goal[1]] = ICE, GOAL
        board = Board(tuple("".join(row) for row in tiles), start, goal)
        if start != goal and board.has_safe_path():
            return board
