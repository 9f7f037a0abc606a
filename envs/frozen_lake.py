"""FrozenLake on random boards, told as text: gymnasium's dynamics, the boards of RAGEN seed for seed.

The dynamics are restated here (a test compares them with gymnasium's step by step): building gymnasium's transition table
for a new board at each reset costs 20 times the episode.

Not for: the fixed 4x4 and 8x8 maps of gymnasium's FrozenLake-v1.
"""

from __future__ import annotations

from typing import ClassVar

from gymnasium.utils import seeding

from envs.grid_text import Cell, Format, check_format, tell_board, tell_legend
from envs.planning import shortest_plan
from envs.text_env import Outcome, TextEnv

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
        self._tiles, self._start, self._goal = random_board(self.size, self.p, seed)
        self._player = self._start

    def _apply(self, action: str) -> Outcome:
        before = self._player
        intended = self.action_names.index(action)
        # One uniform per step, cut up in gymnasium's order: one side, the intended way, the other side.
        drawn, sideways = self.noise_rng.random(), (1 - self.success_rate) / 2
        slip = -1 if drawn < sideways else 0 if drawn < sideways + self.success_rate else 1
        dr, dc = DIRECTIONS[(intended + slip) % 4]
        last = self.size - 1
        self._player = (min(max(before[0] + dr, 0), last), min(max(before[1] + dc, 0), last))
        tile = self._tiles[self._player[0]][self._player[1]]
        return Outcome(
            reward=float(tile == "G"),
            terminated=tile in "GH",
            effective=self._player != before,
            success=tile == "G",
        )

    def _symbol(self, cell: Cell) -> str:
        tile = self._tiles[cell[0]][cell[1]]
        if cell == self._player:
            return {"H": "X", "G": "√"}.get(tile, "P")
        return {"H": "O", "G": "G"}.get(tile, "_")

    def _observe(self) -> str:
        cells = [(r, c) for r in range(self.size) for c in range(self.size)]
        under = self._symbol(self._player)
        entities = [
            ("Start", [self._start]),
            ("Goal", [self._goal] if under != "√" else []),
            ("Player", [self._player] if under == "P" else []),
            ("Player on goal", [self._player] if under == "√" else []),
            ("Player in hole", [self._player] if under == "X" else []),
            ("Holes", [cell for cell in cells if self._symbol(cell) == "O"]),
        ]
        rows = ["".join(self._symbol((r, c)) for c in range(self.size)) for r in range(self.size)]
        return tell_board(rows, entities, self.observation_format)

    def solve(self) -> list[str] | None:
        """A shortest safe path. With slip it is the plan while moves go as intended: call again after each step."""
        if not _is_safe(self._tiles, self._player):
            return None

        def successors(cell: Cell) -> list[tuple[str, Cell]]:
            moves = (
                (name, (cell[0] + dr, cell[1] + dc))
                for name, (dr, dc) in zip(self.action_names, DIRECTIONS, strict=True)
            )
            return [(name, near) for name, near in moves if _is_safe(self._tiles, near)]

        return shortest_plan(self._player, successors, lambda cell: cell == self._goal)


def random_board(size: int, p: float, seed: int) -> tuple[list[list[str]], Cell, Cell]:
    """Tiles (rows of S, F, H, G), start and goal of `seed`. The order of draws is RAGEN's: tiles, start, goal."""
    rng, _ = seeding.np_random(seed)
    while True:
        tiles = rng.choice(["F", "H"], (size, size), p=[p, 1 - p]).tolist()
        start = (int(rng.integers(size)), int(rng.integers(size)))
        goal = (int(rng.integers(size)), int(rng.integers(size)))
        tiles[start[0]][start[1]], tiles[goal[0]][goal[1]] = "S", "G"
        if start != goal and _connected(tiles, start, goal):
            return tiles, start, goal


def _is_safe(tiles: list[list[str]], cell: Cell) -> bool:
    return 0 <= cell[0] < len(tiles) and 0 <= cell[1] < len(tiles) and tiles[cell[0]][cell[1]] != "H"


def _connected(tiles: list[list[str]], start: Cell, goal: Cell) -> bool:
    seen, stack = {start}, [start]
    while stack:
        r, c = stack.pop()
        for near in ((r + dr, c + dc) for dr, dc in DIRECTIONS):
            if near not in seen and _is_safe(tiles, near):
                seen.add(near)
                stack.append(near)
    return goal in seen
