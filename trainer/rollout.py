"""From seeds to a step's rollouts: groups, members, environments, shares of processes. Not for one turn (`agent_loop.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from envs import registry
from envs.text_env import TextEnv
from ragen_diag.config import EnvConfig, RolloutConfig, TrainConfig
from ragen_diag.errors import ConfigError
from trainer.agent_loop import AgentLoop, Episode
from trainer.sampling import stream
from trainer.trajectory import Trajectory

_SPLITS = {"train": 0, "val": 1}


def make_env(config: EnvConfig) -> TextEnv:
    """The configured environment. Raises ConfigError with the registry's message."""
    try:
        return registry.make(config.name, **config.options)
    except registry.EnvError as error:
        raise ConfigError(f"env: {error}") from error


def validation_env(config: TrainConfig) -> EnvConfig:
    """Where held-out rollouts are played: `validation.env`, else the training environment's tasks that training never sees."""
    if config.validation.env:
        return EnvConfig(config.validation.env, config.validation.env_options)
    try:
        return EnvConfig(config.env.name, registry.held_out_options(config.env.name, config.env.options))
    except registry.EnvError as error:
        raise ConfigError(f"env: {error}") from error


class RolloutEngine:
    """Collects groups of rollouts. Environments are made once and reset."""

    def __init__(self, env: EnvConfig, rollout: RolloutConfig, *, run_seed: int) -> None:
        self.env_config, self.config, self.run_seed = env, rollout, run_seed
        self._pool: list[TextEnv] = []

    def collect(
        self,
        loop: AgentLoop,
        seeds: Sequence[int],
        *,
        group_size: int,
        split: str,
        first_group: int = 0,
        version: int = 0,
    ) -> list[Trajectory]:
        """`group_size` rollouts of each prompt seed, in group order.

        Members of a group share the prompt and differ in transition noise and sampling. version: the step, so that the same
        validation seeds are sampled afresh each time.
        """
        episodes: list[Episode] = []
        for at, seed in enumerate(seeds):
            for member in range(group_size):
                trajectory = Trajectory(group=first_group + at, member=member, seed=seed)
                key = (self.run_seed, _SPLITS[split], version, seed, member)
                noise = (
                    self.run_seed * 2**20 + member
                )  # transition noise: equal across steps of one seed, unlike in a group
                episodes.append(Episode(trajectory, self._env(len(episodes)), noise, stream(*key)))
        size = self.config.batch_size
        return [
            trajectory
            for start in range(0, len(episodes), size)
            for trajectory in loop.play(episodes[start : start + size])
        ]

    def _env(self, index: int) -> TextEnv:
        index %= self.config.batch_size  # episodes of later batches reuse the environments of earlier ones
        while len(self._pool) <= index:
            self._pool.append(make_env(self.env_config))
        return self._pool[index]
