"""Mathematical questions with a checked answer and a second chance (MetaMathQA). Not for: proofs (Lean)."""

from __future__ import annotations

import json
import logging
import re
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from envs.errors import require
from envs.task_files import check_split, read_rows, split_of
from envs.text_env import Outcome, TextEnv
from envs.word_problems import draw_problem

Problem = tuple[str, str]  # question, answer
MAX_ANSWER_CHARS = 120
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?|-?\.\d+")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_COSTLY = re.compile(
    r"\*\*|!|\d{10}|\^\s*\{?\s*[-(]*\d{3}|\^.*\^"
)  # could keep a computer algebra system busy for hours


class MetaMathQAEnv(TextEnv):
    """Answer a mathematical question; a wrong answer may be tried again for half the reward.

    ## Description
    Questions of a few steps with one answer. After a wrong answer the same question stands, with a note.

    ## Action Space
    Text: the answer, at most 120 characters, holding exactly one number (words and units around it are ignored).

    ## Observation Space
    Text: the question; after a wrong answer, the question and a note.

    ## Starting State
    The seed draws a question: one in five from the package's own set, else a generated word problem. With `path`, row =
    seed modulo the rows of the split. A checksum of the question decides its split, so splits are disjoint.

    ## Rewards
    1 / 2^k for the right answer after k wrong ones; 0 for a wrong one. Unit: points.

    ## Episode End
    Termination: right answer (`success`). No truncation; `max_actions` is 4, so that three retries are really possible.

    ## Arguments
    - `split`: `train` or `validation`.
    - `path`: JSON, JSON lines or Parquet with `query`/`response` (MetaMathQA: the answer follows "The answer is: ") or
      `question`/`answer` (GSM8K: it follows "####"). Answers that are no plain number are compared by `math-verify`
      (extra `envs`).

    ## Version History
    - v0: retries can be reached and data is read once per process; RAGEN allows one action and compares strings.
    """

    name = "metamathqa"
    summary = "mathematical questions with retries at half the reward"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}}
    data = "own set and generator, or MetaMathQA/GSM8K files"
    max_actions = 4

    def __init__(self, split: str = "train", path: str | None = None, *, render_mode: str | None = "ansi") -> None:
        check_split(split)
        super().__init__(render_mode=render_mode)
        self.split = split
        rows = _own_problems() if path is None else _read_problems(path)
        self._rows = [row for row in rows if split_of(row[0]) == split]
        self._generated = path is None
        if not self._rows:
            raise ValueError(f"{path}: no question belongs to split {split!r}")
        if not all(_single_number(answer) is not None for _, answer in self._rows):
            require("math_verify", needed_by=self.name, extra="envs")

    def _rules(self) -> str:
        return (
            "Solve the mathematical problem. Answer with one number. A wrong answer may be corrected, for less reward."
        )

    def _begin(self, seed: int) -> None:
        self.question, self.answer = self._draw(seed) if self._generated else self._rows[seed % len(self._rows)]
        self._n_wrong, self._note = 0, ""

    def _draw(self, seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        if rng.random() < 0.2:
            return self._rows[int(rng.integers(len(self._rows)))]
        while True:
            problem = draw_problem(rng)
            if split_of(problem[0]) == self.split:
                return problem

    def _apply(self, action: str) -> Outcome:
        valid = bool(action.strip())
        if valid and answers_match(self.answer, action):
            self._note = "\nCorrect."
            return Outcome(reward=0.5**self._n_wrong, terminated=True, effective=True, success=True)
        self._n_wrong += 1
        self._note = f"\nYour answer number {self._n_wrong} was incorrect. Think again."
        return Outcome(valid=valid)

    def _observe(self) -> str:
        return self.question + self._note

    def random_action(self, rng: np.random.Generator) -> str:
        """A whole number from 0 to 99."""
        return str(int(rng.integers(100)))

    def solve(self) -> list[str] | None:
        """The stored answer; None after the end."""
        return None if self._note == "\nCorrect." else [self.answer]


def answers_match(gold: str, answer: str) -> bool:
    """Is `answer` the same value as `gold`? Plain numbers exactly, everything else by `math-verify`."""
    if len(answer) > MAX_ANSWER_CHARS:
        return False
    wanted = _single_number(gold)
    if wanted is not None:
        return _single_number(answer) == wanted
    if _COSTLY.search(answer):
        return False
    math_verify = require("math_verify", needed_by=MetaMathQAEnv.name, extra="envs")
    # No time-outs: they need signals, which exist only in the main thread; _COSTLY keeps the work small instead.
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about exactly that
    parsed = [math_verify.parse(f"${text.strip().strip('$')}$", parsing_timeout=None) for text in (gold, answer)]
    return bool(math_verify.verify(*parsed, timeout_seconds=None))


def _single_number(text: str) -> Fraction | None:
    """The one number in the text: 1,200 or 3.5 or -2/3 or \\frac{2}{3}; None if there is none, several, or other algebra."""
    text = _FRACTION.sub(r"\1/\2", text).replace("−", "-").replace("\\$", "").replace("$", "")
    found = _NUMBER.findall(text)
    if len(found) != 1 or re.search(r"[\\^_{}()\[\]*+√π]", text):
        return None
    numerator, _, denominator = re.sub(r"[\s,]", "", found[0]).partition("/")
    if denominator and int(denominator) == 0:
        return None
    value = Fraction(numerator) / (int(denominator) if denominator else 1)
    return value / 100 if text.rstrip().endswith("%") else value


@lru_cache(maxsize=1)
def _own_problems() -> tuple[Problem, ...]:
    lines = (files("envs") / "data" / "math_problems.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple((row["question"], row["answer"]) for row in map(json.loads, lines))


@lru_cache(maxsize=4)  # once per process, not once per environment: a run has hundreds of them
def _read_problems(path: str) -> tuple[Problem, ...]:
    if not Path(path).is_file():
        raise ValueError(f"no file {path}. Try: hf download meta-math/MetaMathQA --repo-type dataset --local-dir .")
    return tuple(_problem_of(row, path) for row in read_rows(path))


def _problem_of(row: dict[str, Any], path: str) -> Problem:
    if "query" in row and "response" in row:
        return row["query"], row["response"].rpartition("The answer is: ")[2].strip()
    if "question" in row and "answer" in row:
        return row["question"], str(row["answer"]).rpartition("####")[2].strip()
    raise ValueError(f"{path}: a row has {', '.join(row)}; expected query and response, or question and answer")
