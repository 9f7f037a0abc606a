"""Lean 4: prove a theorem tactic by tactic. Not for: running Lean (`lean_checkers.py`, `lean_embedded.py`)."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from envs.lean_checkers import Checker, KiminaChecker, LakeChecker, Message, Report
from envs.lean_embedded import shared_checker
from envs.task_files import check_split, read_rows, split_of
from envs.text_env import Outcome, TextEnv

Backend = Literal["embedded", "kimina", "lake"]
MAX_TACTIC_CHARS = 2000
MAX_FEEDBACK_CHARS = 1500
MATHLIB_HEADER = (
    "import Mathlib\nimport Aesop\n\nset_option maxHeartbeats 400000\n\nopen BigOperators Real Nat Topology Rat\n\n"
)
TRUSTED_AXIOMS = {"propext", "Classical.choice", "Quot.sound"}
"""What ordinary Lean proofs rest on. Anything else (sorryAx, Lean.ofReduceBool, an axiom of the policy's own) is no proof."""
# Words that start commands, run programs inside Lean, or read files: a proof needs none of them.
_NO_TACTIC = re.compile(
    r"#|\b(sorry|admit|axiom|unsafe|theorem|lemma|example|def|abbrev|opaque|instance|structure|inductive|class|end"
    r"|namespace|section|open|import|universe|variable|attribute|deriving|export|initialize|mutual|private|protected"
    r"|noncomputable|partial|syntax|macro|macro_rules|notation|infixl?|infixr|prefix|postfix|elab|elab_rules|by_elab"
    r"|run_tac|run_cmd|run_elab|run_meta|set_option|native_decide|include_str|implemented_by|extern|csimp|stop)\b"
)
_START = re.compile(r"^(theorem|lemma)\s+(\S+)", re.MULTILINE)
_OPEN_END = re.compile(r":=\s*(by)?\s*(sorry)?\s*\Z")
_AXIOMS = re.compile(r"depends on axioms: \[([^\]]*)\]")
_PRELUDE_NAMES = {"Eq", "HAdd.hAdd", "HMul.hMul"}  # how the embedded checker prints =, + and *


@dataclass(frozen=True, slots=True)
class Theorem:
    """A statement up to its `:=`, with what stands before it; `proof` is known for the package's own only."""

    header: str
    statement: str
    text: str
    proof: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name that the statement declares."""
        match = _START.search(self.statement)
        assert match is not None, "theorems without a name are refused when they are read"
        return match[2]


class LeanEnv(TextEnv):
    """Prove a theorem in Lean 4, one tactic per action; Lean checks every step.

    ## Description
    The theorem stands with the tactics accepted so far. A tactic is accepted if Lean reports nothing but unsolved goals
    with it; rejected ones leave the proof as it was. A proof counts if Lean reports no error, no `sorry`, and (by
    `#print axioms`) no axiom beyond Lean's own three.

    ## Action Space
    Text: a tactic, of one line or several, at most 2000 characters. Words that start commands, such as `theorem`,
    `axiom`, `open` or `sorry`, make it invalid, and so does `#`.

    ## Observation Space
    Text: the statement in words, the theorem with its accepted tactics, and Lean's last answer: remaining goals, or
    why the tactic was rejected (at most 1500 characters).

    ## Starting State
    The seed draws a theorem of the split; a checksum of the statement decides its split, so splits are disjoint.

    ## Rewards
    Each action -0.1; a rejected or invalid tactic -1; a finished proof +10. With `valid_step_reward`, an accepted tactic
    earns that much (RAGEN: 1). Unit: points.

    ## Episode End
    Termination: the proof is complete (`success`). No truncation; the reference allows 30 actions. Where Lean cannot be
    run (server down, no `lake`), `ServiceError` is raised: that ends a rollout as an error.

    ## Arguments
    - `split`: `train` or `validation`.
    - `checker`: `embedded` (extra `lean`), `kimina` (a Kimina Lean server at `url`), or `lake` (the Lake project in the
      folder `project`).
    - `path`: JSON, JSON lines or Parquet in miniF2F's fields (`formal_statement`; `natural_language_statement`); needs
      `kimina` or `lake`. Statements without imports get Mathlib's.
    - `timeout_s`: seconds for one check (10; processor time in the embedded checker); running out of it is a rejection.
    - `valid_step_reward`: see Rewards (0).

    ## Version History
    - v0: accepted steps earn nothing by default; RAGEN pays 1 for each, so that 30 times `skip` beats a proof. Axioms are
      looked at, messages are bounded, and server failures are errors.
    """

    name = "lean"
    summary = "prove a theorem in Lean 4, tactic by tactic"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}}
    extra = "lean"
    data = "58 theorems in an embedded Lean 4 checker, or miniF2F files with a Kimina server or a Lake project"
    max_actions = 30

    def __init__(
        self,
        split: str = "train",
        checker: Backend = "embedded",
        url: str | None = None,
        project: str | None = None,
        path: str | None = None,
        timeout_s: float = 10.0,
        valid_step_reward: float = 0.0,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        if timeout_s < 1:
            raise ValueError(f"timeout_s is {timeout_s}; Lean needs 1 second or more")
        super().__init__(render_mode=render_mode)
        self.split, self.valid_step_reward = split, valid_step_reward
        self._checker = _make_checker(checker, url, project, timeout_s)
        if path is not None and checker == "embedded":
            raise ValueError("the embedded checker has no Mathlib, so `path` needs checker=kimina or checker=lake")
        theorems = _own_theorems() if path is None else _read_theorems(path)
        if path is None and checker != "embedded":
            raise ValueError(f"checker={checker} needs theorems of its Lean installation: give path=FILE")
        self._theorems = [theorem for theorem in theorems if split_of(theorem.statement) == split]
        if not self._theorems:
            raise ValueError(f"{path}: no theorem belongs to split {split!r}")

    def _rules(self) -> str:
        return (
            "Prove the theorem in Lean 4. Each action is one tactic, appended to the proof if Lean accepts it. Commands,"
            " sorry and new axioms are not allowed."
        )

    def _begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.theorem = self._theorems[int(rng.integers(len(self._theorems)))]
        self._accepted: list[str] = []
        self._feedback, self._proven = "", False

    def _apply(self, action: str) -> Outcome:
        text = action.encode(errors="replace").decode()  # lone surrogates cannot be written to a file
        tactic = textwrap.dedent(text.replace("\t", "  ")).strip("\r\n")
        if reason := _why_no_tactic(tactic):
            self._feedback = f"That is no tactic: {reason}."
            return Outcome(reward=-1.1, valid=False)
        script = [*self._accepted, tactic]
        report = self._checker.check(self._code(script))
        errors = [message for message in report.messages if message.severity == "error"]
        unsolved = [message for message in errors if message.text.startswith("unsolved goals")]
        others = [message for message in errors if message not in unsolved and not _is_echo(message, unsolved)]
        if report.timed_out or others or report.has_sorry or not _axioms_are_trusted(report):
            self._feedback = f"Lean rejects `{tactic[:200]}`: {_why_rejected(report, others)}"
            return Outcome(reward=-1.1)
        self._accepted, self._proven = script, not unsolved
        goals = "\n\n".join(message.text.removeprefix("unsolved goals").strip() for message in unsolved)
        self._feedback = "The proof is complete." if self._proven else f"Goals left:\n{_readable(goals)}"
        reward = -0.1 + self.valid_step_reward + 10 * self._proven
        return Outcome(reward=reward, terminated=self._proven, effective=True, success=self._proven)

    def _code(self, script: list[str]) -> str:
        return f"{self.theorem.header}{self._shown(script)}\n\n#print axioms {self.theorem.name}\n"

    def _shown(self, script: list[str]) -> str:
        return f"{self.theorem.statement} := by\n" + "\n".join(textwrap.indent(tactic, "  ") for tactic in script)

    def _observe(self) -> str:
        parts = [self.theorem.text, self._shown(self._accepted).rstrip(), self._feedback[:MAX_FEEDBACK_CHARS]]
        return "\n\n".join(part for part in parts if part)

    def random_action(self, rng: np.random.Generator) -> str:
        """One of a dozen common tactics on the names `h`, `hp` and `n`."""
        common = (
            "intro h", "intro hp hq", "exact h", "exact hp", "apply h", "constructor", "assumption", "rfl", "left",
            "right", "trivial", "exact ⟨hp, hq⟩", "rw [h]", "exact h.left", "induction n", "cases h",
        )  # fmt: skip
        return common[int(rng.integers(len(common)))]

    def solve(self) -> list[str] | None:
        """The rest of the known proof; None after the end, and where the proof has left the known one."""
        known = list(self.theorem.proof)
        n = len(self._accepted)
        return known[n:] if not self._proven and known and known[:n] == self._accepted else None


def _make_checker(backend: str, url: str | None, project: str | None, timeout_s: float) -> Checker:
    if backend not in get_args(Backend):
        raise ValueError(f"checker is {backend!r}; it is one of {', '.join(get_args(Backend))}")
    if (url is None) == (backend == "kimina") or (project is None) == (backend == "lake"):
        raise ValueError("checker=kimina goes with url=SERVER, checker=lake with project=FOLDER, embedded with neither")
    if backend == "kimina":
        return KiminaChecker(str(url), timeout_s)
    return LakeChecker(str(project), timeout_s) if backend == "lake" else shared_checker(round(timeout_s))


def _why_no_tactic(tactic: str) -> str | None:
    if not tactic.strip():
        return "it is empty"
    if len(tactic) > MAX_TACTIC_CHARS:
        return f"it is longer than {MAX_TACTIC_CHARS} characters"
    found = _NO_TACTIC.search(tactic)
    return f"{found[0]} is not allowed" if found else None


def _is_echo(message: Message, unsolved: list[Message]) -> bool:
    """The embedded checker repeats the failure of a whole theorem as an internal exception."""
    return bool(unsolved) and message.text.startswith("internal exception")


def _axioms_are_trusted(report: Report) -> bool:
    listed = [
        name for message in report.messages for found in _AXIOMS.findall(message.text) for name in found.split(",")
    ]
    unfinished = any(message.text.startswith("unsolved goals") for message in report.messages)
    return all(name.strip() in TRUSTED_AXIOMS or (unfinished and name.strip() == "sorryAx") for name in listed)


def _why_rejected(report: Report, others: list[Message]) -> str:
    if report.timed_out:
        return "the time limit was reached"
    told = [message.text for message in others if not message.text.startswith("internal exception")]
    if told:
        return _readable("\n".join(told))
    return "it fails on the current goal" if others else "the proof would rest on sorry or on an axiom"


def _readable(text: str) -> str:
    """The embedded prelude has no pretty printers for =, + and *; tell their names once."""
    used = sorted(name for name in _PRELUDE_NAMES if re.search(rf"(?<![\w.]){re.escape(name)} ", text))
    signs = {"Eq": "Eq a b is a = b", "HAdd.hAdd": "HAdd.hAdd a b is a + b", "HMul.hMul": "HMul.hMul a b is a * b"}
    return f"{text}\n({'; '.join(signs[name] for name in used)})" if used else text


@lru_cache(maxsize=1)
def _own_theorems() -> tuple[Theorem, ...]:
    lines = (files("envs") / "data" / "lean_theorems.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Theorem("", row["statement"], row["text"], tuple(row["proof"])) for row in map(json.loads, lines))


@lru_cache(maxsize=4)
def _read_theorems(path: str) -> tuple[Theorem, ...]:
    return tuple(_theorem_of(row, f"{path}, row {number}") for number, row in enumerate(read_rows(path), start=1))


def _theorem_of(row: dict[str, Any], where: str) -> Theorem:
    formal = row.get("formal_statement")
    if not isinstance(formal, str):
        raise ValueError(f"{where}: has {', '.join(row)}; expected formal_statement")
    text = row.get("natural_language_statement") or row.get("informal_statement") or row.get("informal_prefix") or ""
    start, end = _START.search(formal), _OPEN_END.search(formal)
    if start is None or end is None:
        raise ValueError(f"{where}: formal_statement is no `theorem NAME ... := by` without a proof: {formal[:80]!r}")
    before = formal[: start.start()]
    header = before if "import " in before else MATHLIB_HEADER + before
    return Theorem(header, formal[start.start() : end.start()].rstrip(), str(text).strip())
