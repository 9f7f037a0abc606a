"""The contract of `envs/text_env.py`, for every environment and variant that the registry lists."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.registry import MissingExtra, ServiceError, TextEnv, make, specs
from envs.sandbox import check_isolation

NAMES = [name for spec in specs() for name in (spec.name, *(f"{spec.name}:{variant}" for variant in spec.variants))]
INFO_KEYS = {"action_is_valid", "action_is_effective", "success"}
HEADINGS = (
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Rewards",
    "Episode End",
    "Arguments",
    "Version History",
)


def made(name: str) -> TextEnv:
    try:
        env = make(name)
        if env.name == "deepcoder":
            check_isolation("bubblewrap")
        return env
    except (MissingExtra, ServiceError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_checker_has_nothing_to_say(name, monkeypatch):
    monkeypatch.setattr(
        gymnasium.logger, "warn", lambda message, *args: pytest.fail(message % args if args else message)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made(name))


@pytest.mark.parametrize("name", NAMES)
def test_docstring_and_metadata(name):
    env = made(name)
    missing = [heading for heading in HEADINGS if f"## {heading}\n" not in type(env).__doc__]
    assert not missing
    assert env.summary and env.data and env.instruction.strip() and env.max_actions >= 1
    assert env.name == name.partition(":")[0]


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_prompt_and_group_members_share_it(name):
    env, other = made(name), made(name)
    for seed in (0, 123, 10_000):
        observation, _ = env.reset(seed=seed)
        for rollout_seed in (0, 1, 2):
            assert other.reset(seed=seed, options={"rollout_seed": rollout_seed})[0] == observation
            assert other.instruction == env.instruction
    assert len({env.reset(seed=seed)[0] for seed in range(20)}) > 1


def episodes(name: str) -> list:
    """Prompts and random plays, to be equal wherever they are computed."""
    env, rng, trace = make(name), np.random.default_rng(7), []
    for seed in (5, 123, 190, 10_001):
        trace.append(env.reset(seed=seed, options={"rollout_seed": 3})[0])
        for _ in range(min(env.max_actions, 10)):
            observation, reward, terminated, _, info = env.step(env.random_action(rng))
            trace.append([observation, reward, terminated, {key: info[key] for key in sorted(INFO_KEYS)}])
            if terminated:
                break
    return trace


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_fresh_process_with_another_hash_seed_plays_the_same(hash_seed):
    names = [name for name in NAMES if not _lacks_extra(name)]
    code = (
        "import json, sys; from tests.envs.test_contract import episodes; "
        "print(json.dumps({name: episodes(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps({name: episodes(name) for name in names}))


def _lacks_extra(name: str) -> bool:
    try:
        made(name)
    except pytest.skip.Exception:
        return True
    return False


HARD_TEXTS = [
    "",
    " ",
    "\x00\x01\x1b[2J",
    "\ud800",
    "ß" * 10,
    "<answer>up</answer>",
    "%s{0}\\n",
    "9" * 5000,
    "((((" * 999,
    "a" * 2**20,
]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=80) | st.sampled_from(HARD_TEXTS), max_size=6), seed=st.integers(0, 9))
def test_any_text_is_answered_with_an_observation(name, texts, seed):
    env = made(name)
    env.reset(seed=seed)
    for text in texts:
        observation, reward, terminated, truncated, info = env.step(text)
        assert isinstance(observation, str) and len(observation) < 100_000
        assert isinstance(reward, float) and np.isfinite(reward)
        assert isinstance(terminated, bool) and truncated is False
        assert all(isinstance(info[key], bool) for key in INFO_KEYS)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_names_leave_the_environment_where_it_was(name):
    env = made(name)
    before, _ = env.reset(seed=3)
    if env.action_names is None:
        pytest.skip("free text: the environment's own tests say what is invalid")
    observation, reward, terminated, _, info = env.step("no such action")
    assert (observation, reward, terminated) == (before, 0.0, False)
    assert info == {"action_is_valid": False, "action_is_effective": False, "success": False}


@pytest.mark.parametrize("name", NAMES)
def test_names_match_in_any_case(name):
    upper, lower = made(name), made(name)
    upper.reset(seed=3)
    lower.reset(seed=3)
    if upper.action_names is None:
        pytest.skip("free text")
    assert upper.step(f" {upper.action_names[0].upper()} ") == lower.step(lower.action_names[0].lower())


def solvable(name: str) -> TextEnv:
    """`made`, without the games of another package that come without a solver."""
    env = made(name)
    if type(env).solve is TextEnv.solve:
        pytest.skip("no solver")
    return env


def follow_plans(env: TextEnv) -> dict:
    """Play solve()'s plan, and a new one when noise broke it; the last info. Ends when no plan is left."""
    plan, info = env.solve() or [], {"success": False}
    for _ in range(env.max_actions + 50):
        if not plan:
            break
        _, _, terminated, _, info = env.step(plan.pop(0))
        if terminated:
            break
        plan = plan or env.solve() or []
    return info


@pytest.mark.parametrize("name", NAMES)
def test_solution_earns_success(name):
    env, solved = solvable(name), 0
    for seed in range(123, 129):
        env.reset(seed=seed, options={"rollout_seed": 0})
        solved += follow_plans(env)["success"]
    # Noise (slipping, new tiles) may beat a plan; where there is none, the environment's own tests ask for all.
    assert solved >= 2


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_after_the_end(name):
    env = solvable(name)
    with pytest.raises(ResetNeeded):
        env.step("x")
    ended = False
    for seed in range(124, 134):
        env.reset(seed=seed)
        info = follow_plans(env)
        if ended := info["success"]:
            break
    assert ended
    observation = env._observe()
    again, reward, terminated, _, after = env.step((env.action_names or ("x",))[0])
    assert (again, reward, terminated, after["success"]) == (observation, 0.0, True, True)
    assert not after["action_is_valid"]
