"""Bandit against RAGEN's measured prompts, the payouts, and the groups that share a prompt."""

import numpy as np
import pytest

from envs.bandit import TEST_ARMS, TRAIN_ARMS
from envs.registry import BadOption, make


@pytest.mark.parametrize(
    ("seed", "low", "arms"),
    [
        (123, "Planner", ("Planner", "Artist")),
        (124, "Postman", ("Pilot", "Postman")),
        (10000, "Clerk", ("Clerk", "Freelancer")),
        (10001, "Planner", ("Artist", "Planner")),
    ],
)
def test_reference_prompts(seed, low, arms):  # RAGEN, instance counter 0
    env = make("bandit")
    assert env.reset(seed=seed)[0] == f"Arms: {', '.join(arms)}"
    assert env.action_names == arms
    assert env.solve() == [next(arm for arm in arms if arm != low)]


def test_high_arm_pays_a_quarter_of_the_time_and_differs_within_a_group():
    env = make("bandit")
    payouts = []
    for rollout_seed in range(2000):
        env.reset(seed=123, options={"rollout_seed": rollout_seed})
        observation, reward, terminated, _, info = env.step("artist")
        assert terminated and info["success"] and observation == f"Artist: {reward:g} points"
        payouts.append(reward)
    assert set(payouts) == {0.0, 1.0}
    assert abs(np.mean(payouts) - 0.25) < 0.03  # 3.1 standard errors


def test_low_arm():
    env = make("bandit")
    env.reset(seed=123)
    assert env.step("PLANNER")[:3] == ("Planner: 0.1 points", 0.1, True)


def test_reversed_swaps_payouts_not_names():
    plain, swapped = make("bandit"), make("bandit:reversed")
    for seed in range(40):
        plain.reset(seed=seed)
        swapped.reset(seed=seed)
        assert set(plain.action_names) == set(swapped.action_names)
        assert plain.solve() != swapped.solve()


def test_splits_share_no_name():
    train, test = ({name for pair in pairs for name in pair} for pairs in (TRAIN_ARMS, TEST_ARMS))
    assert (len(train), len(test)) == (24, 16) and not train & test


def test_both_positions_and_all_pairs_occur():
    env = make("bandit:test")
    seen = {(env.reset(seed=seed)[0], tuple(env.solve())) for seed in range(400)}
    assert len(seen) == 2 * len(TEST_ARMS)


@pytest.mark.parametrize("options", [{"split": "dev"}, {"hi_arm_hiscore_prob": 2}])
def test_bad_options(options):
    with pytest.raises(BadOption):
        make("bandit", **options)
