"""Countdown: combine given numbers to a target. Not for: parsing of expressions (`arithmetic.py`)."""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import ClassVar

import numpy as np

from envs.arithmetic import NotArithmetic, evaluate
from envs.task_files import check_split, read_rows, split_of
from envs.text_env import Outcome, TextEnv

Puzzle = tuple[tuple[int, ...], int]
OPERATIONS = {"+": operator.add, "*": operator.mul, "-": operator.sub, "/": operator.truediv}


class CountdownEnv(TextEnv):
    """Write an expression over the given numbers that equals the target.

    ## Description
    Three or four numbers and a target. Every number is used exactly once, with + - * / and parentheses. Every puzzle has
    a solution, and many need a product or a quotient.

    ## Action Space
    Text: one expression, such as `(3 + 5) / 2`. It is parsed exactly, never evaluated as code.

    ## Observation Space
    Text: `Target: 4, nums: [3, 5, 2]`; after the answer, what it earned.

    ## Starting State
    The seed draws numbers from 1 to 99 and an expression over them, half of the time with a product or quotient; its
    value, between 10 and 99, is the target.
    Train and validation puzzles are disjoint for any seeds: a checksum of the puzzle decides which split it is in.

    ## Rewards
    1 if the expression uses every number once and equals the target; 0.1 if it uses them but misses the target; else 0.
    Unit: points.

    ## Episode End
    Termination after one answer. `success`: the expression equals the target.

    ## Arguments
    - `split`: `train` or `validation`.
    - `format_score`: points for the right numbers with a wrong value (0.1).
    - `path`: a Parquet or JSON file with columns `nums` and `target` (such as `Jiayi-Pan/Countdown-Tasks-3to4`) instead of the
      generator; row = seed modulo the split's rows, and an insoluble row gives way to the next.

    ## Version History
    - v0: all four operations, disjoint splits, no `eval`; RAGEN keeps only sums and validates on its training rows.
    """

    name = "countdown"
    summary = "combine numbers by + - * / to a target"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}}
    data = "generator, or a Countdown Parquet file"
    max_actions = 1

    def __init__(
        self,
        split: str = "train",
        format_score: float = 0.1,
        path: str | None = None,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        super().__init__(render_mode=render_mode)
        self.split, self.format_score = split, format_score
        self._rows = _read_puzzles(path, split) if path else None

    def _rules(self) -> str:
        return (
            "Write an equation that equals the target from the given numbers. Use every number exactly once, with + - * /"
            " and parentheses. For target 4 and nums [3, 5, 2] an answer is (3 + 5) / 2."
        )

    def _begin(self, seed: int) -> None:
        self.nums, self.target = _soluble_row(self._rows, seed) if self._rows else draw_puzzle(seed, self.split)
        self._result: str | None = None

    def _apply(self, action: str) -> Outcome:
        try:
            value, used = evaluate(action)
        except NotArithmetic as problem:
            return self._end(f"that is no expression ({problem})", valid=False)
        if sorted(used) != sorted(self.nums):
            return self._end("every number must be used exactly once", valid=False)
        if value != self.target:
            return self._end(f"the expression equals {value}", reward=self.format_score)
        return self._end("correct", reward=1.0, success=True)

    def _end(self, why: str, *, reward: float = 0.0, valid: bool = True, success: bool = False) -> Outcome:
        self._result = f"Your answer earned {reward:g} points: {why}."
        return Outcome(reward=reward, terminated=True, valid=valid, effective=valid, success=success)

    def _observe(self) -> str:
        return self._result or f"Target: {self.target}, nums: {list(self.nums)}"

    def random_action(self, rng: np.random.Generator) -> str:
        """The numbers in random order, joined by random operators from the left."""
        first, *rest = (int(number) for number in rng.permutation(self.nums))
        return f"{'(' * len(rest)}{first}" + "".join(f" {'+-*/'[int(rng.integers(4))]} {number})" for number in rest)

    def solve(self) -> list[str] | None:
        """An expression, found by trying all; None after the answer."""
        solution = None if self._result else find_expression(self.nums, self.target)
        return None if solution is None else [solution]


@lru_cache(maxsize=1024)  # the members of a group ask for the same puzzle
def draw_puzzle(seed: int, split: str) -> Puzzle:
    """Numbers and target of `seed`, inside `split`."""
    rng = random.Random(seed)
    with_product = rng.random() < 0.5  # left to chance, the range of targets would leave mostly sums
    while True:
        nums = tuple(rng.randint(1, 99) for _ in range(rng.randint(3, 4)))
        target, symbols = _random_value(list(nums), rng)
        if 10 <= target <= 99 and with_product != symbols.isdisjoint("*/") and _split_of(nums, target) == split:
            return nums, target


def _random_value(values: list[int], rng: random.Random) -> tuple[int, set[str]]:
    """Value of a random expression over all `values`, in whole numbers throughout, and the operators it uses."""
    used: set[str] = set()
    while len(values) > 1:
        a, b = (values.pop(rng.randrange(len(values))) for _ in range(2))
        symbol = rng.choice("+-*/")
        if symbol == "/" and (b == 0 or a % b):
            symbol = "*"
        if symbol == "*" and abs(a * b) > 999:  # the other numbers rarely bring that back under 100
            symbol = "-"
        values.append(a // b if symbol == "/" else OPERATIONS[symbol](a, b))
        used.add(symbol)
    return values[0], used


def find_expression(nums: Sequence[int], target: int) -> str | None:
    """An expression over all of `nums` that equals `target`, or None. Exhaustive: fine for up to five numbers."""
    return _combine([(Fraction(number), str(number)) for number in nums], target)


def _combine(parts: list[tuple[Fraction, str]], target: int) -> str | None:
    if len(parts) == 1:
        return parts[0][1] if parts[0][0] == target else None
    for i, j in permutations(range(len(parts)), 2):
        (a, text_a), (b, text_b) = parts[i], parts[j]
        rest = [part for k, part in enumerate(parts) if k not in (i, j)]
        for symbol, operation in OPERATIONS.items():
            if (symbol == "/" and b == 0) or (symbol in "+*" and i > j):
                continue
            if (found := _combine([*rest, (operation(a, b), f"({text_a} {symbol} {text_b})")], target)) is not None:
                return found
    return None


def _soluble_row(rows: list[Puzzle], seed: int) -> Puzzle:
    for shift in range(len(rows)):
        nums, target = rows[(seed + shift) % len(rows)]
        if find_expression(nums, target) is not None:
            return nums, target
    raise ValueError("no row of the Countdown file has a solution")


def _split_of(nums: Sequence[int], target: int) -> str:
    return split_of(f"{sorted(nums)} {target}")


def _read_puzzles(path: str, split: str) -> list[Puzzle]:
    rows = read_rows(path)
    if rows and (missing := {"nums", "target"} - set(rows[0])):
        raise ValueError(f"{path}: column {', '.join(sorted(missing))} is missing; it has {', '.join(rows[0])}")
    puzzles = [(tuple(row["nums"]), row["target"]) for row in rows if len(row["nums"]) <= 5]
    kept = [puzzle for puzzle in puzzles if _split_of(*puzzle) == split]
    if not kept:
        raise ValueError(f"{path}: no row of at most five numbers belongs to split {split!r}")
    return kept
