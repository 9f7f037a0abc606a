"""Arithmetic word problems of two to four steps, in the manner of GSM8K; whole-number answers by construction.

Not for: grading (`metamathqa.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAMES = (
    "Ada",
    "Ben",
    "Chen",
    "Dilara",
    "Emeka",
    "Farah",
    "Goran",
    "Hana",
    "Ivo",
    "Jun",
    "Kofi",
    "Lena",
    "Mateo",
    "Noor",
)
THINGS = ("apples", "stickers", "pencils", "marbles", "cards", "shells", "stamps", "beads")

Template = Callable[[Callable[[int, int], int], str, str, str], tuple[str, int]]


def draw_problem(rng: np.random.Generator) -> tuple[str, str]:
    """(question, answer) by a random template."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    first, second = (NAMES[int(i)] for i in rng.choice(len(NAMES), 2, replace=False))
    template = TEMPLATES[int(rng.integers(len(TEMPLATES)))]
    question, answer = template(number, first, second, THINGS[int(rng.integers(len(THINGS)))])
    return question, str(answer)


def _bags(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    bags, each, given = n(3, 9), n(4, 12), n(2, 11)
    question = (
        f"{a} has {bags} bags with {each} {thing} each. {a} gives {given} {thing} to {b}. How many {thing} are left?"
    )
    return question, bags * each - given


def _shares(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    children, each, lost = n(3, 8), n(3, 9), n(2, 9)
    total = children * each + lost
    question = (
        f"{a} buys {total} {thing} and loses {lost} of them. The rest is shared equally among {children} children."
        f" How many {thing} does each child get?"
    )
    return question, each


def _shopping(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    k1, p1, k2, p2, change = n(2, 6), n(2, 9), n(2, 5), n(3, 12), n(1, 20)
    paid = k1 * p1 + k2 * p2 + change
    question = (
        f"{a} buys {k1} notebooks at {p1} coins each and {k2} books at {p2} coins each, and pays with {paid} coins."
        " How many coins does the change come to?"
    )
    return question, change


def _savings(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    weekly, spent, weeks = n(6, 15), n(1, 5), n(4, 12)
    question = (
        f"{a} earns {weekly} coins a week and spends {spent} of them. How many coins has {a} saved after {weeks} weeks?"
    )
    return question, (weekly - spent) * weeks


def _compare(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    own, times, more = n(3, 14), n(2, 5), n(2, 9)
    question = (
        f"{a} has {own} {thing}. {b} has {times} times as many and {more} more. How many {thing} do they have together?"
    )
    return question, own + own * times + more


def _percent(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    hundreds, percent = n(1, 9), 5 * n(1, 15)
    question = (
        f"A school has {hundreds * 100} pupils. {percent} percent of them walk to school. How many pupils do not walk?"
    )
    return question, hundreds * (100 - percent)


def _trip(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    speed1, hours1, speed2, hours2 = 5 * n(4, 14), n(2, 5), 5 * n(4, 14), n(2, 5)
    question = (
        f"{a} drives {hours1} hours at {speed1} km per hour and then {hours2} hours at {speed2} km per hour."
        " How many kilometres is the whole trip?"
    )
    return question, speed1 * hours1 + speed2 * hours2


def _pages(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    daily, days, rest_days = n(8, 25), n(3, 9), n(2, 7)
    pages = daily * days + (daily + 5) * rest_days
    question = (
        f"A book has {pages} pages. {a} reads {daily} pages a day for {days} days, then 5 pages more each day."
        " How many further days does the rest take?"
    )
    return question, rest_days


def _garden(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    rows, plants, withered, each = n(4, 12), n(5, 12), n(2, 15), n(2, 6)
    question = (
        f"{a} plants {rows} rows of {plants} tomato plants. {withered} plants wither, each of the others bears {each} tomatoes."
        " How many tomatoes are there?"
    )
    return question, (rows * plants - withered) * each


def _ages(n: Callable[[int, int], int], a: str, b: str, thing: str) -> tuple[str, int]:
    young, times, later = n(4, 12), n(2, 5), n(3, 15)
    question = f"{a} is {young} years old and {b} is {times} times as old. How old will {b} be in {later} years?"
    return question, young * times + later


TEMPLATES: tuple[Template, ...] = (
    _bags, _shares, _shopping, _savings, _compare, _percent, _trip, _pages, _garden, _ages,
)  # fmt: skip
