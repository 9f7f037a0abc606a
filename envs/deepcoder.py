"""DeepCoder: write a program that passes hidden tests. Not for: running it (`sandbox.py`), judging it (`code_grading.py`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar, get_args

import numpy as np

from envs.code_grading import Case, code_of, count_passed
from envs.human_eval_problems import human_eval_rows
from envs.sandbox import Isolation
from envs.task_files import check_split, read_rows, split_of
from envs.text_env import Outcome, TextEnv

MAX_CODE_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A task with its tests; `solution` is known for the package's own problems only."""

    question: str
    starter: str
    cases: tuple[Case, ...]
    solution: str | None = None


class DeepCoderEnv(TextEnv):
    """Write a Python program or function for a stated problem; hidden tests decide.

    ## Description
    Functions are called with the tests' arguments; programs read standard input and write standard output. Everything
    runs in bubblewrap, without network or files, within limits of time, memory, processes and output. Expected values
    stay outside. Where no sandbox starts, `ServiceError` is raised and nothing runs.

    ## Action Space
    Text: Python code, at most 50 000 characters; the last fenced block if there is one.

    ## Observation Space
    Text: the problem and its starter code; after the answer, how many tests passed.

    ## Starting State
    The seed draws a problem of the split; a checksum of the problem decides its split, so splits are disjoint.

    ## Rewards
    Passed tests / tests. Unit: share of tests, 0 to 1.

    ## Episode End
    Termination after one program (`success`: all tests passed). An empty text is invalid and ends nothing.

    ## Arguments
    - `split`: `train` or `validation`.
    - `source`: `own` (25 problems), or `human_eval` (154 of HumanEval's 164 problems, from its package; extra `human-eval`).
    - `path`: instead, JSON, JSON lines or Parquet in DeepCoder's or LiveCodeBench's fields (`problem` or `question_content`,
      `tests` or `public_test_cases`, `starter_code`).
    - `timeout_s`: seconds of processor time for each test (3); five times as much in wall time for all of them.
    - `isolation`: `bubblewrap`, or `rlimits`, which is weaker: files and network stay open.

    ## Version History
    - v0: isolation, disjoint splits, comparison of values outside; RAGEN trains on the test split, runs the code in a
      child of the trainer, compares by `str()`, and falls back to a problem without tests.
    """

    name = "deepcoder"
    summary = "write Python that passes hidden tests, in a sandbox"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}, "human_eval": {"source": "human_eval"}}
    data = "25 own problems, HumanEval (extra human-eval), or DeepCoder/LiveCodeBench files; needs bubblewrap"
    max_actions = 1

    def __init__(
        self,
        split: str = "train",
        source: str = "own",
        path: str | None = None,
        timeout_s: float = 3.0,
        isolation: Isolation = "bubblewrap",
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        if isolation not in get_args(Isolation):
            raise ValueError(f"isolation is {isolation!r}; it is one of {', '.join(get_args(Isolation))}")
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}; it is above 0 seconds")
        if source not in SOURCES:
            raise ValueError(f"source is {source!r}; it is one of {', '.join(SOURCES)}")
        super().__init__(render_mode=render_mode)
        self.split, self.timeout_s, self.isolation = split, timeout_s, isolation
        problems = SOURCES[source]() if path is None else _read_problems(path)
        self._problems = [problem for problem in problems if split_of(problem.question) == split]
        if not self._problems:
            raise ValueError(f"{path}: no problem belongs to split {split!r}")

    def _rules(self) -> str:
        return (
            "Write Python 3 code for the problem. If a function is asked for, define it with that name; otherwise read"
            " standard input and print the result. Only the standard library is there. Hidden tests check the code."
        )

    def _begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.problem = self._problems[int(rng.integers(len(self._problems)))]
        self._result = ""

    def _apply(self, action: str) -> Outcome:
        code = code_of(action)
        if not code.strip() or len(code) > MAX_CODE_CHARS:
            return Outcome(valid=False)
        cases = list(self.problem.cases)
        passed = count_passed(code, cases, timeout_s=self.timeout_s, isolation=self.isolation)
        self._result = f"{passed} of {len(cases)} tests passed."
        solved = passed == len(cases)
        extra = {"n_tests_passed": passed, "n_tests": len(cases)}
        return Outcome(passed / len(cases), terminated=True, effective=True, success=solved, extra=extra)

    def _observe(self) -> str:
        return self._result or "\n".join(part for part in (self.problem.question, self.problem.starter) if part)

    def random_action(self, rng: np.random.Generator) -> str:
        """The starter code, returning or printing a random small number."""
        number = int(rng.integers(10))
        return f"{self.problem.starter} return {number}" if self.problem.starter else f"print({number})"

    def solve(self) -> list[str] | None:
        """The known solution; None for problems from a file, and after the end."""
        return [self.problem.solution] if self.problem.solution and not self._result else None


@lru_cache(maxsize=1)
def _own_problems() -> tuple[Problem, ...]:
    lines = (files("envs") / "data" / "code_problems.jsonl").read_text(encoding="utf-8").splitlines()
    problems = []
    for row in map(json.loads, lines):
        cases = [Case(t["expected"], row["entry"], tuple(t.get("args", ())), t.get("stdin", "")) for t in row["tests"]]
        problems.append(Problem(row["question"], row["starter"], tuple(cases), row["solution"]))
    return tuple(problems)


@lru_cache(maxsize=1)
def _human_eval() -> tuple[Problem, ...]:
    return tuple(Problem(prompt, "", cases, solution) for prompt, solution, cases in human_eval_rows())


SOURCES = {"own": _own_problems, "human_eval": _human_eval}


@lru_cache(maxsize=4)
def _read_problems(path: str) -> tuple[Problem, ...]:
    problems = []
    for number, row in enumerate(read_rows(path), start=1):
        question = row.get("problem", row.get("question_content"))
        tests = row.get("tests", row.get("public_test_cases"))
        if question is None or tests is None:
            raise ValueError(f"{path}, row {number}: has {', '.join(row)}; expected problem and tests")
        try:
            cases = _cases_of(json.loads(tests) if isinstance(tests, str) else tests)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, row {number}: tests of an unknown shape: {error!r}") from error
        if cases:
            problems.append(Problem(question, row.get("starter_code") or "", cases))
    return tuple(problems)


def _cases_of(tests: Any) -> tuple[Case, ...]:
    """Either {inputs, outputs, fn_name?} (TACO) or a list of {input, output, type or testtype, ...} (the others)."""
    if isinstance(tests, dict):
        pairs = zip(tests["inputs"], tests["outputs"], strict=True)
        return tuple(_case(given, expected, tests.get("fn_name")) for given, expected in pairs)
    cases = []
    for test in tests:
        metadata = test.get("metadata") or {}
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
        functional = test.get("testtype", test.get("type")) in ("functional", "function_call")
        entry = (test.get("fn_name") or metadata.get("func_name")) if functional else None
        if functional and not entry:
            raise KeyError("func_name")
        cases.append(_case(test["input"], test["output"], entry))
    return tuple(cases)


def _case(given: Any, expected: Any, entry: str | None) -> Case:
    if entry is None:
        text = "\n".join(map(str, given)) if isinstance(given, list) else str(given)
        return Case("\n".join(map(str, expected)) if isinstance(expected, list) else str(expected), stdin=text)
    # LiveCodeBench writes one JSON value per line; the others give lists, the output wrapped in one more list.
    args = [json.loads(line) for line in given.splitlines() if line.strip()] if isinstance(given, str) else given
    if isinstance(expected, str) and isinstance(given, str):
        expected = json.loads(expected)
    elif isinstance(expected, list) and len(expected) == 1:
        expected = expected[0]
    return Case(expected, entry, tuple(args))
