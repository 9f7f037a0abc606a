"""The grader audit: every environment passes it, and it catches graders that do not deserve to."""

import pytest

from envs.audit import audit
from envs.registry import Outcome, TextEnv, make
from tests.envs.test_contract import NAMES, solvable


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_pays_only_for_solutions(name):
    failures = [attempt for attempt in audit(solvable(name), n_seeds=3) if not attempt.passed]
    assert not failures


class Gullible(TextEnv):
    """Pays for any text that contains the answer, as a grader that searches does."""

    name, max_actions = "gullible", 1

    def _begin(self, seed: int) -> None:
        self.number = seed % 50

    def _apply(self, action: str) -> Outcome:
        won = str(self.number) in action
        return Outcome(reward=float(won), terminated=True, success=won)

    def _observe(self) -> str:
        return "Which number?"

    def _rules(self) -> str:
        return "Guess a number."

    def solve(self) -> list[str] | None:
        return [str(self.number)]


class Unwinnable(Gullible):
    """Its known solution is wrong."""

    def solve(self) -> list[str] | None:
        return ["no number"]


class Unsolved(Gullible):
    """It knows no solution."""

    def solve(self) -> list[str] | None:
        return None


def verdicts(env: TextEnv) -> dict[str, bool]:
    return {attempt.kind: attempt.passed for attempt in audit(env)}


def test_a_searching_grader_is_caught_by_every_arm_at_once():
    found = verdicts(Gullible())
    assert found["known solution"] and found["empty"] and found["prompt echoed"] and found["one megabyte"]
    assert not any(passed for kind, passed in found.items() if kind.startswith("every arm"))


def test_a_wrong_gold_answer_is_caught():
    attempt = audit(Unwinnable())[0]
    assert (attempt.kind, attempt.passed, attempt.n_successes, attempt.example_seed) == (
        "known solution",
        False,
        0,
        123,
    )


def test_nothing_to_audit():
    with pytest.raises(ValueError, match="nothing to audit"):
        audit(Unsolved())


def test_slip_does_not_count_against_the_solution():
    attempt = audit(make("frozen_lake", success_rate=0.4), n_seeds=5)[0]
    assert attempt.passed and attempt.n_successes == 5
