"""Grading a program: inputs go into the sandbox, outputs come out, and the comparison happens out here.

Expected values never enter the sandbox. So nothing the program does in there (patching `==`, leaving early, writing to
the result stream) can earn more than computing the right outputs would.
"""

from __future__ import annotations

import json
import marshal
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
    # Into the sandbox as marshal, which needs no import there; out of it as JSON, for what comes out is not trusted.
    payload = marshal.dumps(json.loads(json.dumps({"code": code, "cases": inputs})), 2)
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
# Importing json would cost more time than all the rest: hence its C encoder alone, and the imports that the program names
# once for all cases.
_HARNESS = """
import builtins, marshal, os, sys
from _json import encode_basestring_ascii, make_encoder
builtins.exit = builtins.quit = sys.exit  # -S leaves out the module that defines them
task = marshal.load(sys.stdin.buffer)
results = os.fdopen(os.dup(1), "w")
code = compile(task["code"], "solution.py", "exec")
for name in set(code.co_names) & {"bisect", "collections", "functools", "heapq", "itertools", "math", "re", "string", "typing"}:
    __import__(name)

def refuse(value):
    raise TypeError(type(value))

def dumps(value):
    encoder = make_encoder({}, refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encoder(value, 0))

def call(case):
    space = {"__name__": "solution"}
    exec(code, space)
    owner = space.get("Solution")
    function = getattr(owner(), case["entry"]) if owner and hasattr(owner, case["entry"]) else space[case["entry"]]
    return function(*case["args"])

for index, case in enumerate(task["cases"]):
    called = case["entry"] is not None
    source, sink = (os.devnull, os.devnull) if called else ("in", "out")
    if not called:
        with open("in", "w") as file:
            file.write(case["stdin"])
    child = os.fork()
    if child == 0:
        results.close()
        os.dup2(os.open(source, os.O_RDONLY), 0)
        os.dup2(os.open(sink, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        try:
            if called:
                text = dumps(call(case))
                with open("value", "w") as file:
                    file.write(text)
            else:
                try:
                    exec(code, {"__name__": "__main__"})
                except SystemExit:
                    pass
                sys.stdout.flush()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    name = "value" if called else "out"
    if status == 0 and os.path.exists(name):
        with open(name, errors="replace") as file:
            text = file.read()
        text = text.replace("\\n", " ") if called else dumps(text)
        results.write(f"[{index}, {text}]\\n")
        results.flush()
    for name in ("in", "out", "value"):
        if os.path.exists(name):
            os.unlink(name)
"""
