"""Sudoku, one placement an action. Puzzles have exactly one solution, and the budget is enough to write it down."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from typing import ClassVar

import numpy as np

from envs.text_env import Outcome, TextEnv

Grid = list[list[int]]  # 0 = empty
FrozenGrid = tuple[tuple[int, ...], ...]

SLACK_ACTIONS = 4
_PLACEMENTS = [  # all of RAGEN's forms, but nothing before or after: an echo of the rules is not a move
    re.compile(r"place\s+(?P<n>\d{1,2})\s+at\s+row\s+(?P<r>\d{1,2})\s*,?\s*col(?:umn)?\s+(?P<c>\d{1,2})"),
    re.compile(r"(?:place\s+)?(?P<n>\d{1,2})\s+at\s+\(?\s*(?P<r>\d{1,2})\s*,\s*(?P<c>\d{1,2})\s*\)?"),
    re.compile(r"\(?\s*(?P<r>\d{1,2})\s*,\s*(?P<c>\d{1,2})\s*,\s*(?P<n>\d{1,2})\s*\)?"),
]


class SudokuEnv(TextEnv):
    """Fill the empty cells so that every row, column and box holds each number once.

    ## Description
    A Latin square with boxes, partly given. The puzzle has exactly one solution (proven by a search when it is made).
    A number that already stands in its row, column or box is refused. Placed numbers may be replaced, given ones not.

    ## Action Space
    Text: `place N at row R col C`, or `N at R,C`, or `R,C,N`. Rows and columns count from 1.

    ## Observation Space
    Text: the grid, `[3]` given, ` 3 ` placed, ` . ` empty, `|` and dashes between boxes; then what the last action did.

    ## Starting State
    The seed fixes solution and puzzle by RAGEN's draws (fill by backtracking, remove in shuffled order), except that a
    cell whose removal would admit a second solution stays. So RAGEN's puzzle is met exactly where it has one solution.

    ## Rewards
    +1 for a correct placement, the first time in that cell; 0 for a wrong but allowed one; -0.1 for a text that is no
    placement, a given cell or a broken rule; +10 when solved. Unit: points. The return is at most blanks + 10.

    ## Episode End
    Termination: solved (`success`). No truncation; `max_actions` is the number of empty cells plus 4.

    ## Arguments
    - `size`: 4, 9 or 16 (4).
    - `blanks`: empty cells (6).

    ## Version History
    - v0: one solution, no reward for filling the same cell again, and a budget that can win; RAGEN has none of these.
    """

    name = "sudoku"
    summary = "fill a grid that has exactly one solution"
    variants: ClassVar = {
        "easy": {"size": 9, "blanks": 32},
        "medium": {"size": 9, "blanks": 40},
        "hard": {"size": 9, "blanks": 48},
    }
    data = "generator"

    def __init__(self, size: int = 4, blanks: int = 6, *, render_mode: str | None = "ansi") -> None:
        if size not in (4, 9, 16):
            raise ValueError(f"size is {size}; it is 4, 9 or 16")
        if not 1 <= blanks <= size * size * 6 // 10:
            raise ValueError(f"blanks is {blanks}; a {size}x{size} puzzle has 1 to {size * size * 6 // 10} here")
        super().__init__(render_mode=render_mode)
        self.size, self.blanks = size, blanks
        self.max_actions = blanks + SLACK_ACTIONS

    def _rules(self) -> str:
        box = int(self.size**0.5)
        return (
            f"Solve the Sudoku: every row, column and {box}x{box} box holds each of 1 to {self.size} once. One action places"
            " one number: place N at row R col C, counted from 1.\nSymbols: [N] given, N placed, . empty."
        )

    def _begin(self, seed: int) -> None:
        self._solution, self._puzzle = draw_puzzle(seed, self.size, self.blanks)
        self._grid = [list(row) for row in self._puzzle]
        self._rewarded: set[tuple[int, int]] = set()
        self._feedback = ""

    def _apply(self, action: str) -> Outcome:
        move = self._parse(action)
        if move is None:
            return self._refuse("That is no placement.", valid=False)
        number, row, col = move
        where = f"row {row + 1} col {col + 1}"
        if self._puzzle[row][col]:
            return self._refuse(f"{where} is given.")
        if self._grid[row][col] == number:
            return self._refuse(f"{where} holds {number} already.")
        held, self._grid[row][col] = self._grid[row][col], 0
        if number not in _candidates(self._grid, row, col):
            self._grid[row][col] = held
            return self._refuse(f"{number} stands already in the row, column or box of {where}.")
        self._grid[row][col] = number
        self._feedback = f"Placed {number} at {where}."
        reward = 0.0
        if number == self._solution[row][col] and (row, col) not in self._rewarded:
            self._rewarded.add((row, col))
            reward = 1.0
        solved = tuple(map(tuple, self._grid)) == self._solution
        return Outcome(reward=reward + 10.0 * solved, terminated=solved, effective=True, success=solved)

    def _parse(self, action: str) -> tuple[int, int, int] | None:
        """(number, row, column), the latter from 0; None if it is no placement on this board."""
        text = action.strip().lower() if len(action) <= 100 else ""
        match = next((match for form in _PLACEMENTS if (match := form.fullmatch(text))), None)
        if match is None:
            return None
        number, row, col = int(match["n"]), int(match["r"]), int(match["c"])
        return (number, row - 1, col - 1) if all(1 <= value <= self.size for value in (number, row, col)) else None

    def _refuse(self, why: str, *, valid: bool = True) -> Outcome:
        self._feedback = f"Refused: {why}"
        return Outcome(reward=-0.1, valid=valid)

    def _observe(self) -> str:
        box = int(self.size**0.5)
        lines = []
        for r, row in enumerate(self._grid):
            cells = [self._cell(r, c, number) for c, number in enumerate(row)]
            lines.append("|".join("".join(cells[c : c + box]) for c in range(0, self.size, box)))
            if (r + 1) % box == 0 and r + 1 < self.size:
                lines.append("-" * len(lines[-1]))
        return "\n".join([*lines, *([self._feedback] if self._feedback else [])])

    def _cell(self, row: int, col: int, number: int) -> str:
        width = len(str(self.size))
        text = f"{number or '.':>{width}}"
        return f"[{text}]" if self._puzzle[row][col] else f" {text} "

    def random_action(self, rng: np.random.Generator) -> str:
        """A random number in a random cell that is not given."""
        cells = [(r, c) for r in range(self.size) for c in range(self.size) if not self._puzzle[r][c]]
        row, col = cells[int(rng.integers(len(cells)))]
        return f"place {int(rng.integers(1, self.size + 1))} at row {row + 1} col {col + 1}"

    def solve(self) -> list[str] | None:
        """The missing numbers in reading order, wrong ones first, so that nothing refuses a right one."""
        cells = [(r, c) for r in range(self.size) for c in range(self.size) if self._grid[r][c] != self._solution[r][c]]
        if any(self._grid[r][c] for r, c in cells):  # a wrong number may block others: no plan of placements alone
            return None
        return [f"place {self._solution[r][c]} at row {r + 1} col {c + 1}" for r, c in cells]


@lru_cache(maxsize=1024)  # the members of a group ask for the same puzzle
def draw_puzzle(seed: int, size: int, blanks: int) -> tuple[FrozenGrid, FrozenGrid]:
    """(solution, puzzle) of `seed`; the puzzle has `blanks` empty cells and no other solution."""
    rng = random.Random(seed)
    while True:
        solution: Grid = [[0] * size for _ in range(size)]
        _fill(solution, rng)
        puzzle = [row.copy() for row in solution]
        cells = [(r, c) for r in range(size) for c in range(size)]
        rng.shuffle(cells)
        removed = 0
        for row, col in cells:
            number, puzzle[row][col] = puzzle[row][col], 0
            if count_solutions(puzzle) == 1:
                removed += 1
            else:
                puzzle[row][col] = number
            if removed == blanks:
                return tuple(map(tuple, solution)), tuple(map(tuple, puzzle))


def _candidates(grid: Grid, row: int, col: int) -> list[int]:
    """Numbers that break no rule in that empty cell, ascending."""
    size = len(grid)
    box = int(size**0.5)
    top, left = row // box * box, col // box * box
    taken = {*grid[row], *(line[col] for line in grid)}
    taken.update(number for line in grid[top : top + box] for number in line[left : left + box])
    return [number for number in range(1, size + 1) if number not in taken]


def _fill(grid: Grid, rng: random.Random) -> bool:
    """Complete the grid in reading order; the numbers of a cell are tried in shuffled order."""
    size = len(grid)
    for row in range(size):
        for col in range(size):
            if grid[row][col] == 0:
                numbers = list(range(1, size + 1))
                rng.shuffle(numbers)
                allowed = set(_candidates(grid, row, col))
                for number in numbers:
                    if number in allowed:
                        grid[row][col] = number
                        if _fill(grid, rng):
                            return True
                        grid[row][col] = 0
                return False
    return True


def count_solutions(grid: Grid, limit: int = 2) -> int:
    """Number of solutions, but at most `limit`; the grid is left as it was. Tightest cell first."""
    open_cells = [(r, c, _candidates(grid, r, c)) for r, row in enumerate(grid) for c, n in enumerate(row) if n == 0]
    if not open_cells:
        return 1
    row, col, numbers = min(open_cells, key=lambda cell: len(cell[2]))
    found = 0
    for number in numbers:
        grid[row][col] = number
        found += count_solutions(grid, limit - found)
        if found >= limit:
            break
    grid[row][col] = 0
    return found
