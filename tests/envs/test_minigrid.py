"""MiniGrid as text: what is told is what is there, and the reward is the package's."""

import numpy as np
import pytest

from envs.registry import BadOption, make

pytest.importorskip("minigrid")


def test_what_is_told():
    env = make("minigrid")
    observation, _ = env.reset(seed=4)
    assert observation == (
        "Mission: use the key to open the door and then get to the goal\nCarrying: nothing\nFree cells ahead: 0\n"
        "Seen: locked yellow door 1 right; yellow key 1 ahead"
    )
    told = [env.step(action)[0].splitlines() for action in ("Pickup", "Right", "Toggle")]
    assert told[0][1:] == ["Carrying: yellow key", "Free cells ahead: 1", "Seen: locked yellow door 1 right"]
    assert told[1][3] == "Seen: locked yellow door 1 ahead"
    assert "open yellow door 1 ahead" in told[2][3]


def test_reward_counts_actions():
    env = make("minigrid")
    env.reset(seed=4)
    plan = env.solve()
    steps = [env.step(action) for action in plan]
    assert [step[1] for step in steps[:-1]] == [0.0] * (len(plan) - 1)
    assert steps[-1][1] == pytest.approx(1 - 0.9 * len(plan) / 40) and steps[-1][4]["success"]


def test_ineffective_and_fatal_actions():
    env = make("minigrid:lava")
    env.reset(seed=4)
    assert env.step("Pickup")[4] == {"action_is_valid": True, "action_is_effective": False, "success": False}
    _, reward, terminated, _, info = env.step("Forward")  # lava ahead
    assert (reward, terminated, info["success"], info["action_is_effective"]) == (0.0, True, False, True)


def test_planning_leaves_the_world_alone():
    env = make("minigrid:fetch")
    env.reset(seed=4)
    before, state = env.render(), env._world.np_random.bit_generator.state
    assert env.solve() == env.solve()
    assert env.render() == before and env._world.np_random.bit_generator.state == state


@pytest.mark.parametrize("env_id", ["MiniGrid-NoSuchWorld-v0", "CartPole-v1"])
def test_bad_options(env_id):
    with pytest.raises(BadOption, match=env_id):
        make("minigrid", env_id=env_id)


def test_free_cells_ahead_can_be_walked():
    env, rng = make("minigrid:empty"), np.random.default_rng(0)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        for _ in range(int(rng.integers(3))):
            observation = env.step("Left")[0]
        free = int(observation.splitlines()[2].removeprefix("Free cells ahead: "))
        effective = []
        for _ in range(free):
            *_, terminated, _, info = env.step("Forward")
            effective.append(info["action_is_effective"])
            if terminated:
                break
        assert all(effective)
        assert info["success"] if free and terminated else not env.step("Forward")[4]["action_is_effective"]
