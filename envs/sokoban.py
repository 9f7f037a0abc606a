"""Sokoban, told as text. Rooms come from `sokoban_rooms.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from envs.grid_text import Cell, Format, check_format, tell_board, tell_legend
from envs.planning import shortest_plan
from envs.sokoban_rooms import UP_DOWN_LEFT_RIGHT, generate_room
from envs.text_env import Outcome, TextEnv

CELL_PIXELS = 16
COLOURS = (  # RGB by meaning, in the order of MEANINGS
    (92, 72, 60), (238, 232, 213), (226, 150, 120), (84, 150, 84), (190, 140, 70), (60, 110, 180), (110, 90, 200)
)  # fmt: skip
MEANINGS = ("wall", "floor", "target", "box on target", "box", "player", "player on target")

Position = tuple[Cell, frozenset[Cell]]  # player, boxes


class SokobanEnv(TextEnv):
    """Push every box onto a target.

    ## Description
    A walled room with boxes, as many targets, and a player. Walking into a box pushes it, if the cell behind it is free.
    Boxes cannot be pulled, so a wrong push may be final. Every room is solvable: it was made by playing backwards.

    ## Action Space
    One of `Up`, `Down`, `Left`, `Right` (any case). A move against a wall or a stuck box changes nothing.

    ## Observation Space
    Text. `grid`: one row per line, by default `#` wall, `_` floor, `O` target, `√` box on target, `X` box, `P` player,
    `S` player on target. `coord`: the board size and the zero-based (row, column) of targets, boxes and player, walls
    unnamed. `grid_coord`: both.

    ## Starting State
    The seed fixes the room (RAGEN's order of draws, so equal seeds give equal rooms). No box starts on a target.

    ## Rewards
    Each action -0.1; +1 when it brings a box onto a target, -1 when it takes one off; +10 when all boxes are on targets.
    Unit: points. A one-box room solved in n actions returns 11 - 0.1 n.

    ## Episode End
    Termination: all boxes are on targets (`success`). No truncation; the reference allows 10 actions.

    ## Arguments
    - `dim_room`: rows and columns with the outer wall ((6, 6)).
    - `num_boxes`: boxes and targets (1).
    - `search_depth`: moves of the backward search (300); smaller gives easier rooms.
    - `observation_format`: `grid`, `coord` or `grid_coord`.
    - `render_mode`: `rgb_array` makes `render()` return an image, 16 x 16 pixels a cell; observations stay text.
    - `symbols`: seven characters for wall, floor, target, box on target, box, player, player on target.

    ## Version History
    - v0: a failed attempt at a room is followed by a fixed seed; RAGEN's next seed depends on PYTHONHASHSEED.
    """

    metadata: ClassVar = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # type: ignore[misc]
    name = "sokoban"
    summary = "push the boxes onto the targets"
    variants: ClassVar = {
        "simple": {},
        "coord": {"observation_format": "grid_coord"},
        "visual": {"render_mode": "rgb_array"},
        "larger": {"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10},
        "new_vocab": {"search_depth": 30, "symbols": "W.GCBA@"},
    }
    action_names = ("Up", "Down", "Left", "Right")

    def __init__(
        self,
        dim_room: tuple[int, int] = (6, 6),
        num_boxes: int = 1,
        search_depth: int = 300,
        observation_format: Format = "grid",
        symbols: str = "#_O√XPS",
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        if len(dim_room) != 2 or min(dim_room) < 4:
            raise ValueError(f"dim_room is {dim_room}; it is (rows, columns), 4 or more each with the outer wall")
        if num_boxes < 1:
            raise ValueError(f"num_boxes is {num_boxes}; a room needs at least 1")
        if search_depth < 3:
            raise ValueError(f"search_depth is {search_depth}; no box can leave its target in fewer than 3")
        if len(symbols) != 7 or len(set(symbols)) != 7:
            raise ValueError(f"symbols is {symbols!r}; it needs seven different characters: {', '.join(MEANINGS)}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; it is one of {', '.join(self.metadata['render_modes'])}")
        check_format(observation_format)
        super().__init__(render_mode=render_mode)
        self.dim_room, self.num_boxes, self.search_depth = (int(dim_room[0]), int(dim_room[1])), num_boxes, search_depth
        self.observation_format, self.symbols = observation_format, symbols

    def _rules(self) -> str:
        rules = (
            "You are the player in Sokoban. Push every box onto a target. Walk into a box to push it one cell;"
            " boxes cannot be pulled, nor pushed into walls or other boxes."
        )
        return rules + tell_legend(zip(self.symbols, MEANINGS, strict=True), self.dim_room, self.observation_format)

    def _begin(self, seed: int) -> None:
        self._room = generate_room(seed, self.dim_room, self.num_boxes, self.search_depth)
        self._targets = frozenset(self._room.targets)
        self._player, self._boxes = self._room.player, frozenset(self._room.boxes)

    def _apply(self, action: str) -> Outcome:
        before, on_target_before = self._player, len(self._boxes & self._targets)
        self._player, self._boxes = self._moved((self._player, self._boxes), action)
        on_target = len(self._boxes & self._targets)
        solved = on_target == self.num_boxes
        change = (on_target > on_target_before) - (on_target < on_target_before)
        reward = -0.1 + change + 10 * solved
        return Outcome(reward=reward, terminated=solved, effective=self._player != before, success=solved)

    def _moved(self, position: Position, action: str) -> Position:
        """Where one move leads; the same position if it is blocked."""
        (row, col), boxes = position
        dr, dc = UP_DOWN_LEFT_RIGHT[self.action_names.index(action)]
        ahead, beyond = (row + dr, col + dc), (row + 2 * dr, col + 2 * dc)
        if ahead not in self._room.floor:
            return position
        if ahead not in boxes:
            return ahead, boxes
        if beyond in self._room.floor and beyond not in boxes:
            return ahead, boxes - {ahead} | {beyond}
        return position

    def _code(self, cell: Cell) -> int:
        """Index into `symbols` and `MEANINGS`."""
        on_target = cell in self._targets
        if cell == self._player:
            return 6 if on_target else 5
        if cell in self._boxes:
            return 3 if on_target else 4
        return 2 if on_target else int(cell in self._room.floor)

    def _codes(self) -> list[list[int]]:
        rows, cols = self.dim_room
        return [[self._code((r, c)) for c in range(cols)] for r in range(rows)]

    def render(self) -> str | np.ndarray:
        """The observation, or uint8 (16 rows, 16 columns, 3) in render mode `rgb_array`: one colour for each meaning."""
        if self.render_mode != "rgb_array":
            return self._observe()
        return np.array(COLOURS, np.uint8)[self._codes()].repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)

    def _observe(self) -> str:
        rows, cols = self.dim_room
        codes = self._codes()
        labels = {2: "Targets", 4: "Boxes", 3: "Boxes on target", 5: "Player", 6: "Player on target"}
        cells = [(r, c) for r in range(rows) for c in range(cols)]
        entities = ((label, [(r, c) for r, c in cells if codes[r][c] == code]) for code, label in labels.items())
        board = ["".join(self.symbols[code] for code in row) for row in codes]
        return tell_board(board, entities, self.observation_format)

    def solve(self) -> list[str] | None:
        """A shortest solution; None if a box is stuck for good (or beyond 300 000 searched positions)."""

        def successors(position: Position) -> Iterator[tuple[str, Position]]:
            return ((name, self._moved(position, name)) for name in self.action_names)

        return shortest_plan((self._player, self._boxes), successors, lambda position: position[1] == self._targets)
