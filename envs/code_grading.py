"""Grading a program: inputs go into the sandbox, outputs come out, and the comparison happens out here.

Expected values never enter the sandbox. So nothing the program does in there (patching `==`, leaving early, writing to
the result stream) can earn more than computing the right outputs would.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from envs.sandbox import Isolation, run_python

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Case:
    """One test. With `entry`, a call of that function with `args`; without, a program run that reads `stdin`."""

    expected: Any
    entry: str | None = None
    args: tuple[Any, ...] = ()
    stdin: str = ""


def code_of(text: str) -> str:
    """The last fenced block of the text, else the text."""
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text


def count_passed(code: str, cases: list[Case], *, timeout_s: float, isolation: Isolation) -> int:
    """How many cases pass, all in one sandbox; `timeout_s` as in `run_python`. Raises ServiceError if there is none."""
    inputs = [{"entry": case.entry, "args": case.args, "stdin": case.stdin} for case in cases]
    payload = json.dumps({"code": code, "cases": inputs}).encode()
    run = run_python(_HARNESS, payload, timeout_s=timeout_s, isolation=isolation)
    passed = set()
    for line in run.stdout.decode(errors="replace").splitlines():
        try:
            index, value = json.loads(line)
            case = cases[index]
        except (ValueError, TypeError, IndexError, RecursionError):
            continue  # the program wrote into the result stream; that is no result
        if case.entry is None:
            if isinstance(value, str) and _same_text(case.expected, value):
                passed.add(index)
        elif same_value(case.expected, value):
            passed.add(index)
    return len(passed)


def same_value(expected: Any, got: Any) -> bool:
    """Equality of JSON values, numbers up to a relative 1e-6; True is not 1."""
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return expected == got or math.isclose(expected, got, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(same_value, expected, got))
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(same_value(value, got[key]) for key, value in expected.items())
    return type(expected) is type(got) and expected == got


def _same_text(expected: str, got: str) -> bool:
    lines = [[line.rstrip() for line in text.strip().splitlines()] for text in (expected, got)]
    return lines[0] == lines[1]


# Runs inside. Each case is forked, so that one case cannot change what the next one sees, and a crash costs one case.
_HARNESS = """
import builtins, json, os, sys
builtins.exit = builtins.quit = sys.exit  # -S leaves out the module that defines them
task = json.load(sys.stdin)
results = os.fdopen(os.dup(1), "w")
code = compile(task["code"], "solution.py", "exec")

def call(case):
    space = {"__name__": "solution"}
    exec(code, space)
    owner = space.get("Solution")
    function = getattr(owner(), case["entry"]) if owner and hasattr(owner, case["entry"]) else space[case["entry"]]
    return function(*case["args"])

for index, case in enumerate(task["cases"]):
    with open("in", "w") as file:
        file.write(case["stdin"])
    child = os.fork()
    if child == 0:
        results.close()
        os.dup2(os.open("in", os.O_RDONLY), 0)
        os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        try:
            if case["entry"] is None:
                try:
                    exec(code, {"__name__": "__main__"})
                except SystemExit:
                    pass
                sys.stdout.flush()
            else:
                text = json.dumps(call(case))
                with open("value", "w") as file:
                    file.write(text)
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    name = "out" if case["entry"] is None else "value"
    if status == 0 and os.path.exists(name):
        with open(name, errors="replace") as file:
            text = file.read()
        try:
            results.write(json.dumps([index, text if case["entry"] is None else json.loads(text)]) + "\\n")
            results.flush()
        except (ValueError, RecursionError):
            pass
    for name in ("in", "out", "value"):
        if os.path.exists(name):
            os.unlink(name)
"""
