"""The environment in docs/environments.md works as it stands there, and its table names what there is."""

import re
from pathlib import Path

from envs.audit import audit
from envs.registry import specs

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")


def test_the_example_passes_its_own_audit():
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    space = {"__name__": "example"}
    exec(code, space)
    env = space["GuessEnv"]()
    assert env.reset(seed=7)[0] == "Guess a number from 1 to 20."
    assert env.step("12")[0] == "The number is lower than 12."
    assert env.step("８")[4]["action_is_valid"] is False  # a full-width digit
    assert env.step("8")[1:3] == (1.0, True)
    assert all(attempt.passed for attempt in audit(env))
    assert len(code.splitlines()) <= 35


def test_every_environment_has_a_baseline_or_says_why():
    for spec in specs():
        assert f"`{spec.name}`" in PAGE or spec.name in PAGE
