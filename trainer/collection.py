"""Where a step's training rollouts come from: played now, drawn again from memory, or taken from a log. Also plays validation.

Every process ends up with all rollouts of the step, in the same order. Not for one group's rollouts (`rollout.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from analysis.filters import FilterSetting
from ragen_diag.config import RolloutConfig, TrainConfig
from trainer.checkpoints import LoopState
from trainer.filtering import mark_kept
from trainer.logged import LoggedGroups
from trainer.rollout import RolloutEngine, validation_env
from trainer.sampling import SamplingSettings
from trainer.setup import Agent, training_settings
from trainer.trajectory import Trajectory


class Collector:
    """Collects rollouts for one run. Raises ConfigError when `offline.log` holds nothing to learn from."""

    def __init__(self, config: TrainConfig, run_dir: Path, agent: Agent, accelerator: Accelerator) -> None:
        self.config, self.run_dir, self.agent, self.accelerator = config, run_dir, agent, accelerator
        self.engines = {
            "train": RolloutEngine(config.env, config.rollout, run_seed=config.seed),
            "val": RolloutEngine(validation_env(config), config.rollout, run_seed=config.seed),
        }
        self.settings = training_settings(config.rollout)
        self._offline = None
        if config.offline.log:
            self._offline = LoggedGroups.of_log(Path(config.offline.log), agent.tokenizer, config.rollout)

    def step(self, state: LoopState, setting: FilterSetting) -> tuple[list[Trajectory], float]:
        """The fresh rollouts of a step, marked by the filter, and the share of groups kept.

        With refill, batches are added until enough groups are kept.
        """
        config, groups = self.config, self.config.rollout.groups
        if self._offline is not None:
            trajectories = self._from_log(self._offline, state)
            return trajectories, mark_kept(trajectories, setting, max_sigma=config.filter.max_sigma)
        collected: list[Trajectory] = []
        for attempt in range(1 + config.filter.refill):
            first = config.rollout.train_seed + state.n_prompts
            state.n_prompts += groups
            seeds = range(first, first + groups)
            collected += self.play(
                seeds, config.rollout.group_size, "train", config.rollout, self.settings, first_group=attempt * groups
            )
            share = mark_kept(collected, setting, max_sigma=config.filter.max_sigma)
            kept = sorted({trajectory.group for trajectory in collected if trajectory.kept})
            if len(kept) >= groups:
                break
        for trajectory in collected:  # a refilled step trains on no more groups than one batch has
            trajectory.kept = trajectory.kept and trajectory.group in kept[:groups]
        return collected, share

    def replayed(self, state: LoopState, *, first_group: int) -> list[Trajectory]:
        """Groups of earlier steps drawn from the run's own log, which is the replay buffer; numbered from first_group."""
        replay = self.config.replay
        if not replay.groups or state.step < 2:
            return []
        memory = LoggedGroups.newest(
            self.run_dir, self.agent.tokenizer, self.config.rollout, before=state.step, capacity=replay.capacity
        )
        rng = np.random.default_rng((self.config.seed, state.step, 1))
        chosen = rng.permutation(len(memory))[: replay.groups].tolist()
        drawn = self._on_main(lambda: memory.load(chosen, first_group=first_group))
        for trajectory in drawn:
            trajectory.replayed = True
        return drawn

    def play(
        self,
        seeds: Sequence[int],
        group_size: int,
        split: str,
        rollout: RolloutConfig,
        settings: SamplingSettings,
        *,
        first_group: int = 0,
        version: int = 0,
    ) -> list[Trajectory]:
        """Play groups, shared among the processes; every process gets all of them, in group order."""
        accelerator, loop = self.accelerator, self.agent.loop(rollout, settings)
        mine = list(range(len(seeds)))[accelerator.process_index :: accelerator.num_processes]
        played: list[Trajectory] = []
        for at in [mine] if accelerator.num_processes == 1 else [[index] for index in mine]:
            if at:
                played += self.engines[split].collect(
                    loop, [seeds[i] for i in at], group_size=group_size, split=split, first_group=first_group + at[0],
                    version=version,
                )  # fmt: skip
        if accelerator.num_processes > 1:
            played = gather_object(played)
        return sorted(played, key=lambda trajectory: (trajectory.group, trajectory.member))

    def _from_log(self, log: LoggedGroups, state: LoopState) -> list[Trajectory]:
        """The next `rollout.groups` groups of the log; each pass over it has an order of its own."""
        chosen = []
        for _ in range(min(self.config.rollout.groups, len(log))):
            epoch, at = divmod(state.n_prompts, len(log))
            chosen.append(int(np.random.default_rng((self.config.seed, epoch)).permutation(len(log))[at]))
            state.n_prompts += 1
        return self._on_main(lambda: log.load(chosen, first_group=0))

    def _on_main(self, load: object) -> list[Trajectory]:
        """What the first process reads, on every process: only the first one must see the folder."""
        box: list[list[Trajectory] | None] = [load() if self.accelerator.is_main_process else None]  # type: ignore[operator]
        if self.accelerator.num_processes > 1:
            broadcast_object_list(box)
        assert box[0] is not None
        return box[0]
