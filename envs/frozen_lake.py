"""FrozenLake on random boards, told as text: gymnasium's transitions, the boards of RAGEN seed for seed.

Not for: the fixed 4x4 and 8x8 maps of gymnasium's FrozenLake-v1.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Literal, get_args

from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as GymFrozenLake
from gymnasium.envs.toy_text.utils import categorical_sample
from gymnasium.utils import seeding

from envs.text_env import Outcome, TextEnv

Format = Literal["grid", "coord", "grid_coord"]
Cell = tuple[int, int]

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
    action_names = ("Left", "Down", "Right", "Up")  # gymnasium's order, so the index is its action

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
            raise ValueError(f"frozen_lake: size is {size}, but start and goal need a board of at least 2x2")
        if not 0 < p <= 1:
            raise ValueError(f"frozen_lake: p is {p}; it is the probability of an ice tile, above 0 and at most 1")
        if not 0 <= success_rate <= 1:
            raise ValueError(f"frozen_lake: success_rate is {success_rate}; it is a probability, 0 to 1")
        if observation_format not in get_args(Format):
            raise ValueError(f"frozen_lake: observation_format {observation_format!r} is none of {get_args(Format)}")
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
        if self.observation_format != "coord":
            rules += "\nSymbols: " + ", ".join(f"{symbol} {meaning}" for symbol, meaning in LEGEND) + "."
        if self.observation_format != "grid":
            last = self.size - 1
            rules += f"\nCoordinates are (row, column), from (0, 0) at top left to ({last}, {last}) at bottom right."
        return rules

    def _begin(self, seed: int) -> None:
        self._tiles, self._start, self._goal = random_board(self.size, self.p, seed)
        self._transitions: dict[int, dict[int, list[tuple[Any, ...]]]] = GymFrozenLake(
            desc=["".join(row) for row in self._tiles], success_rate=self.success_rate
        ).P
        self._player = self._start

    def _apply(self, action: str) -> Outcome:
        before = self._player
        options = self._transitions[before[0] * self.size + before[1]][self.action_names.index(action)]
        _, state, reward, terminated = options[categorical_sample([option[0] for option in options], self.noise_rng)]
        self._player = divmod(int(state), self.size)
        return Outcome(
            reward=float(reward),
            terminated=bool(terminated),
            effective=self._player != before,
            success=self._player == self._goal,
        )

    def _observe(self) -> str:
        if self.observation_format == "grid":
            return self._grid_text()
        if self.observation_format == "coord":
            return self._coord_text()
        return f"Coordinates: \n{self._coord_text()}\nGrid Map: \n{self._grid_text()}"

    def _symbol(self, cell: Cell) -> str:
        tile = self._tiles[cell[0]][cell[1]]
        if cell == self._player:
            return {"H": "X", "G": "√"}.get(tile, "P")
        return {"H": "O", "G": "G"}.get(tile, "_")

    def _grid_text(self) -> str:
        return "\n".join("".join(self._symbol((r, c)) for c in range(self.size)) for r in range(self.size))

    def _coord_text(self) -> str:
        cells = [(r, c) for r in range(self.size) for c in range(self.size)]
        under = self._symbol(self._player)
        entities: list[tuple[str, list[Cell]]] = [
            ("Start", [self._start]),
            ("Goal", [self._goal] if under != "√" else []),
            ("Player", [self._player] if under == "P" else []),
            ("Player on goal", [self._player] if under == "√" else []),
            ("Player in hole", [self._player] if under == "X" else []),
            ("Holes", [cell for cell in cells if self._symbol(cell) == "O"]),
        ]
        lines = [f"Board size: {self.size} rows x {self.size} cols (zero-indexed)."]
        lines += [f"{label}: {', '.join(map(str, where))}" for label, where in entities if where]
        return "\n".join(lines)

    def solve(self) -> list[str] | None:
        """A shortest safe path. With slip it is the plan while moves go as intended: call again after each step."""
        if self._tiles[self._player[0]][self._player[1]] == "H":
            return None
        came_from: dict[Cell, tuple[Cell, str] | None] = {self._player: None}
        queue = deque([self._player])
        while queue:
            cell = queue.popleft()
            if cell == self._goal:
                return _path_to(cell, came_from)
            for name, (dr, dc) in zip(self.action_names, ((0, -1), (1, 0), (0, 1), (-1, 0)), strict=True):
                near = (cell[0] + dr, cell[1] + dc)
                if near not in came_from and _is_safe(self._tiles, near):
                    came_from[near] = (cell, name)
                    queue.append(near)
        return None


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
        for near in ((r, c - 1), (r + 1, c), (r, c + 1), (r - 1, c)):
            if near not in seen and _is_safe(tiles, near):
                seen.add(near)
                stack.append(near)
    return goal in seen


def _path_to(cell: Cell, came_from: dict[Cell, tuple[Cell, str] | None]) -> list[str]:
    path = []
    while (step := came_from[cell]) is not None:
        cell, name = step
        path.append(name)
    return path[::-1]
