"""The random baseline: how often uniformly random actions succeed. Any trained number must be read against it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.text_env import TextEnv

VALIDATION_SEED = 123
"""First of RAGEN's validation seeds."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Outcome of random play over `n_episodes` consecutive seeds."""

    n_episodes: int
    n_successes: int
    success_ci95: tuple[float, float]
    """Wilson interval of the success rate, 0..1. Episodes count as independent draws of a seed."""
    mean_return: float
    mean_actions: float

    @property
    def success_rate(self) -> float:
        """Share of episodes with success, 0..1."""
        return self.n_successes / self.n_episodes


def play_randomly(env: TextEnv, n_episodes: int, *, first_seed: int = VALIDATION_SEED, rng_seed: int = 0) -> Baseline:
    """Play each of `n_episodes` seeds once, at most `env.max_actions` random actions each."""
    from scipy.stats import binomtest

    rng = np.random.default_rng(rng_seed)
    wins, total_return, n_actions = 0, 0.0, 0
    for seed in range(first_seed, first_seed + n_episodes):
        env.reset(seed=seed)
        for _ in range(env.max_actions):
            _, reward, terminated, _, info = env.step(env.random_action(rng))
            total_return += reward
            n_actions += 1
            if terminated:
                wins += info["success"]
                break
    low, high = binomtest(wins, n_episodes).proportion_ci(method="wilson")
    return Baseline(n_episodes, wins, (float(low), float(high)), total_return / n_episodes, n_actions / n_episodes)
