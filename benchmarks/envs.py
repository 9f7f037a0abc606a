"""Steps and resets per second of every environment, beside peers where they are installed.

    python -m benchmarks.envs [--seconds 1.0] [--peers-only]

Random actions, one process, one thread; seconds of processor time, so that a busy machine does not blur them.
Peers: gymnasium's FrozenLake built anew at each reset, as RAGEN does, once told as text and once drawn as an image at each step
(needs pygame); gym-sokoban as RAGEN wraps it (its step draws an image each time; `pip install gym-sokoban gym "setuptools<75"`);
TextArena's FrozenLake and Sokoban; reasoning-gym's Countdown and mini Sudoku (an episode there is one item and one score).
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable

import numpy as np

from envs.registry import MissingExtra, make, specs

Episode = Callable[[int], int]
"""Plays the episode of a seed; the number of steps."""


def episode_of(name: str) -> Episode:
    env, rng = make(name), np.random.default_rng(0)

    def play(seed: int) -> int:
        env.reset(seed=seed)
        for step in range(1, min(env.max_actions, 10) + 1):
            if env.step(env.random_action(rng))[2]:
                return step
        return step

    return play


def gymnasium_frozen_lake(render_mode: str = "ansi") -> Episode:
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

    def play(seed: int) -> int:
        env = FrozenLakeEnv(desc=generate_random_map(4, 0.9, seed), success_rate=0.8, render_mode=render_mode)
        env.reset(seed=seed)
        for step in range(1, 11):
            terminated = env.step(env.np_random.integers(4))[2]
            env.render()
            if terminated:
                return step
        return step

    return play


def gym_sokoban() -> Episode:
    import random

    from gym_sokoban.envs.sokoban_env import SokobanEnv

    symbols = np.array(list("#_O√XPS"))
    random.seed(0)
    np.random.seed(0)
    env = SokobanEnv(dim_room=(6, 6), num_boxes=1, max_steps=100)

    def play(seed: int) -> int:
        env.reset()
        for step in range(1, 11):
            done = env.step(1 + seed % 4)[2]
            "\n".join("".join(row) for row in symbols[env.room_state.astype(int)])
            if done:
                return step
        return step

    return play


def textarena_game(name: str, moves: tuple[str, ...]) -> Episode:
    import textarena

    env = textarena.make(name)
    rng = np.random.default_rng(0)

    def play(seed: int) -> int:
        env.reset(num_players=1, seed=seed)
        for step in range(1, 11):
            env.get_observation()
            if env.step(f"[{moves[int(rng.integers(len(moves)))]}]")[0]:
                return step
        return step

    return play


def reasoning_gym_items(name: str) -> Episode:
    import reasoning_gym

    def play(seed: int) -> int:
        data = reasoning_gym.create_dataset(name, size=1, seed=seed)
        data.score_answer("1", data[0])
        return 1

    return play


PEERS: tuple[tuple[str, str, str, Callable[[], Episode]], ...] = (
    ("frozen_lake", "gymnasium", "gymnasium, told as text", gymnasium_frozen_lake),
    ("frozen_lake", "pygame", "gymnasium, drawn", lambda: gymnasium_frozen_lake("rgb_array")),
    ("sokoban", "gym_sokoban", "gym-sokoban, drawn", gym_sokoban),
    ("frozen_lake", "textarena", "textarena", lambda: textarena_game("FrozenLake-v0", ("up", "down", "left", "right"))),
    ("sokoban", "textarena", "textarena", lambda: textarena_game("Sokoban-v0", ("w", "a", "s", "d"))),
    ("countdown", "reasoning_gym", "reasoning-gym", lambda: reasoning_gym_items("countdown")),
    ("sudoku", "reasoning_gym", "reasoning-gym", lambda: reasoning_gym_items("mini_sudoku")),
)
"""(our environment, package, label, its episode)."""


def rate(play: Episode, seconds: float) -> tuple[float, float]:
    """(steps per second, episodes per second), resets included; every seed is new, so caches of prompts do not help."""
    play(0)
    steps = episodes = 0
    start = time.process_time()
    while (elapsed := time.process_time() - start) < seconds:
        episodes += 1
        steps += play(episodes)
    return steps / elapsed, episodes / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="measuring time per environment")
    parser.add_argument("--peers-only", action="store_true", help="only what has a peer, and the peers")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for spec in specs() for name in (spec.name, *(f"{spec.name}:{variant}" for variant in spec.variants))]
    if arguments.peers_only:
        names = sorted({ours for ours, *_ in PEERS})
    print(f"{'environment':<44}{'steps/s':>12}{'episodes/s':>12}")
    rates: dict[str, tuple[float, float]] = {}
    for name in names:
        try:
            rates[name] = rate(episode_of(name), arguments.seconds)
        except MissingExtra as missing:
            print(f"{name:<44}  {missing}")
            continue
        print(f"{name:<44}{rates[name][0]:>12.0f}{rates[name][1]:>12.0f}")
    for ours, package, label, peer in PEERS:
        if importlib.util.find_spec(package) is None:
            print(f"{ours} beside {label}: {package} is not installed")
            continue
        steps, episodes = rate(peer(), arguments.seconds)
        ratio = rates[ours][1] / episodes
        print(f"{ours + ' beside ' + label:<44}{steps:>12.0f}{episodes:>12.0f}   {ours} is {ratio:.1f} x as fast")


if __name__ == "__main__":
    main()
