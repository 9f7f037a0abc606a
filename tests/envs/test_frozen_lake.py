"""FrozenLake against RAGEN's boards and plays, gymnasium's transitions and the rules of the text."""

import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as GymFrozenLake

from envs.registry import BadOption, make
from tests.envs.oracle import BOARDS, replay


@pytest.mark.parametrize("seed", BOARDS["frozen_lake"])
def test_reference_board_and_play(seed):
    env = make("frozen_lake:no_slip")
    case = BOARDS["frozen_lake"][seed]
    assert env.reset(seed=int(seed))[0] == case["board"]
    replay(env, case.get("play"))


def test_coordinates_name_everything_once():
    env = make("frozen_lake", observation_format="grid_coord", success_rate=1.0)
    observation, _ = env.reset(seed=124)
    assert observation == (
        "Coordinates: \nBoard size: 4 rows x 4 cols (zero-indexed).\nStart: (3, 3)\nGoal: (0, 3)\nPlayer: (3, 3)\n"
        "Holes: (0, 0), (3, 1)\nGrid Map: \nO__G\n____\n____\n_O_P"
    )
    for action in ("Up", "Up", "Up"):
        observation, reward, terminated, _, _ = env.step(action)
    assert (reward, terminated) == (1.0, True)
    assert "Player on goal: (0, 3)" in observation and "Goal:" not in observation


def test_legend_and_limits_are_this_instance_s():
    env = make("frozen_lake", size=6, observation_format="coord", success_rate=0.5)
    assert "(5, 5)" in env.instruction and "Symbols" not in env.instruction and "0.25" in env.instruction
    assert "slippery" not in make("frozen_lake:no_slip").instruction


def test_slip_follows_the_rollout_seed_and_the_board_does_not():
    env = make("frozen_lake", success_rate=1 / 3)
    boards, ends = set(), set()
    for rollout_seed in range(16):
        boards.add(env.reset(seed=127, options={"rollout_seed": rollout_seed})[0])
        ends.add(tuple(env.step("Down")[0] for _ in range(4)))
    assert len(boards) == 1
    assert len(ends) > 4  # RAGEN gives every member of a group the same one


def test_slip_frequencies():
    env = make("frozen_lake", success_rate=0.8)
    moved = 0
    for rollout_seed in range(2000):
        env.reset(seed=10000, options={"rollout_seed": rollout_seed})  # player at (3, 1), free above
        moved += env.step("Up")[0].splitlines()[2][1] == "P"
    assert abs(moved / 2000 - 0.8) < 0.03  # 3.4 standard errors


def test_transition_table_is_gymnasiums():
    env = make("frozen_lake", success_rate=0.6)
    env.reset(seed=132)
    rows = [list(row.replace("_", "F").replace("O", "H")) for row in env._board.rows]
    rows[env._player[0]][env._player[1]] = "S"
    peer = GymFrozenLake(desc=["".join(row) for row in rows], success_rate=0.6)
    rng = np.random.default_rng(0)
    for rollout_seed in range(50):
        env.reset(seed=132, options={"rollout_seed": rollout_seed})
        peer.reset(seed=0)
        peer.np_random = np.random.default_rng([132, rollout_seed])
        for _ in range(10):
            action = int(rng.integers(4))
            _, reward, terminated, _, _ = env.step(env.action_names[action])
            state, peer_reward, peer_terminated, _, _ = peer.step(action)
            assert (*divmod(state, 4), peer_reward, peer_terminated) == (*env._player, reward, terminated)
            if terminated:
                break


def test_random_policy_without_slip():
    env = make("frozen_lake:no_slip")
    rng = np.random.default_rng(0)
    wins = 0
    for episode in range(4 * 512):
        env.reset(seed=123 + episode % 512)
        for _ in range(env.max_actions):
            _, _, terminated, _, info = env.step(env.random_action(rng))
            if terminated:
                wins += info["success"]
                break
    assert abs(wins / 2048 - 0.256) < 0.03  # RAGEN: 25.6 % on its validation seeds


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"size": 1}, "2x2"),
        ({"p": 0}, "above 0"),
        ({"success_rate": 1.5}, "0 to 1"),
        ({"observation_format": "x"}, "grid_coord"),
    ],
)
def test_bad_options_say_what_is_allowed(options, part):
    with pytest.raises(BadOption, match=part):
        make("frozen_lake", **options)
