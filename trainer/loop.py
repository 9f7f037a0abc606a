"""The StarPO loop:

roll out, diagnose, filter, credit, update, log; step after step. What each verb means stands in its own file.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list

from analysis.filters import FilterSetting
from ragen_diag.config import TrainConfig
from ragen_diag.errors import RunFolderError
from ragen_diag.rollout_log import read_metrics, write_metrics, write_step
from trainer import auto_filter, checkpoints, credit, early_stop, gradient_analysis, run_folder, thinking_gate
from trainer.batch import make_batch
from trainer.checkpoints import LoopState
from trainer.collection import Collector
from trainer.diagnostics import first_turn_scores, point_estimates
from trainer.filtering import filter_setting
from trainer.losses import truncated_importance
from trainer.metrics import Row, advantage_metrics, rollout_metrics
from trainer.processes import make_accelerator, refuse_silent_single_process
from trainer.progress import RunProgress
from trainer.rollout import validation_env
from trainer.sampling import SamplingSettings
from trainer.setup import build_agent, set_threads, validation_setup
from trainer.trajectory import LogContext, Trajectory, log_rows
from trainer.update import Scored, Updater
from trainer.validation import EvalResult, result_of


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run came to."""

    run_dir: Path
    steps_done: int
    stop_reason: str | None
    """None: all steps were done."""
    validations: tuple[tuple[int, EvalResult], ...]
    """(step, result), in order; those before a resume are in the metrics only."""
    metrics: tuple[Row, ...]
    wall_s: float

    def summary(self) -> str:
        """A few lines for the terminal."""
        why = f", stopped early: {self.stop_reason}" if self.stop_reason else ""
        lines = [f"{self.run_dir}: {self.steps_done} steps in {self.wall_s:.0f} s{why}"]
        lines += [f"  validation at step {step}: {result.summary()}" for step, result in self.validations]
        return "\n".join(lines)


def train(config: TrainConfig, run_dir: Path, *, resume: bool = False, progress: bool = True) -> TrainResult:
    """Train, logging everything under `run_dir`. Raises ConfigError, RunFolderError or ModelError before anything is written."""
    began = time.monotonic()
    refuse_silent_single_process()
    with run_folder.claim(run_dir, resume=resume):
        if resume:
            run_folder.check_same(config, run_folder.load_recorded_config(run_dir))
        trainer = Trainer(config, run_dir)
        if not resume and trainer.accelerator.is_main_process:
            run_folder.save_config(config, run_dir)
        with RunProgress(config.name, config.steps, enabled=progress and trainer.accelerator.is_main_process) as shown:
            trainer.run(shown, resume=resume)
        return TrainResult(
            run_dir,
            trainer.state.step,
            trainer.state.stop_reason,
            tuple(trainer.validations),
            tuple(trainer.rows),
            time.monotonic() - began,
        )


class Trainer:
    """One run's moving parts."""

    def __init__(self, config: TrainConfig, run_dir: Path) -> None:
        self.config, self.run_dir, self.state = config, run_dir, LoopState()
        self.filter = filter_setting(config.filter)
        set_threads(config.runtime)
        self.agent = build_agent(config, for_training=True)
        self.accelerator = make_accelerator(config, run_dir)
        self.collector = Collector(config, run_dir, self.agent, self.accelerator)
        self.settings = self.collector.settings
        self.updater = Updater(
            self.agent.policy, config.algorithm, config.optim, self.accelerator,
            temperature=config.rollout.temperature, sharding=config.runtime.sharding,
        )  # fmt: skip
        self.rows: list[Row] = []
        self.validations: list[tuple[int, EvalResult]] = []

    def run(self, shown: RunProgress, *, resume: bool) -> None:
        """All remaining steps, with validation, checkpoints and early stops between them."""
        saved = checkpoints.list_checkpoints(self.run_dir) if resume else []
        if saved:
            self.state, optimizer_state = checkpoints.load(saved[-1][1], self.agent.policy)
            self.updater.engine.restore(optimizer_state)
            self.rows = [row for row in read_metrics(self.run_dir) if (row["step"] or 0) <= self.state.step]
            if self.state.filter is not None:
                self.filter = FilterSetting.from_mapping(self.state.filter)
            if self.accelerator.is_main_process:
                auto_filter.forget_after(self.run_dir, self.state.step)
        elif self.config.validation.every and self.config.validation.at_start:
            self._finish_step({"step": 0, **self._validate(shown)})
        if self.config.runtime.tracker != "none":
            self.accelerator.init_trackers(self.config.name)
        while self.state.step < self.config.steps and self.state.stop_reason is None:
            self._one_step(shown)
        self.accelerator.end_training()

    def _one_step(self, shown: RunProgress) -> None:
        began, state, config = time.monotonic(), self.state, self.config
        state.step += 1
        row: Row = {"step": state.step, "learning_rate": self.updater.set_progress((state.step - 1) / config.steps)}
        trajectories, kept_share = self.collector.step(state, self.filter)
        row |= {"rollout_wall_s": time.monotonic() - began, "kept_group_share": kept_share}
        row |= rollout_metrics(trajectories, self.agent.tokenizer, think=config.rollout.think)
        self._tell_errors(trajectories, shown)
        row |= self._diagnose(trajectories, "train")
        row |= self._analyze_gradients(trajectories)
        row |= self._learn([trajectory for trajectory in trajectories if trajectory.kept], kept_share)
        self._log_rollouts(trajectories, "train", self.settings)
        row |= self._retune_filter()
        early_stop.note_step(state, config, row)
        due = config.validation.every and (state.step % config.validation.every == 0 or self._is_last())
        if due:
            row |= self._validate(shown)
        row["step_wall_s"] = time.monotonic() - began
        self._finish_step(row)
        every = config.runtime.checkpoint_every
        if self._is_last() or (every and state.step % every == 0):
            self._save()
        shown.step(state.step, row)
        if state.stop_reason:
            shown.say(f"{config.name} stops after step {state.step}: {state.stop_reason}")

    def _tell_errors(self, trajectories: list[Trajectory], shown: RunProgress) -> None:
        errors = [trajectory.error for trajectory in trajectories if trajectory.error is not None]
        if errors:
            total = len(trajectories)
            shown.say(f"step {self.state.step}: a service failed in {len(errors)} of {total} rollouts: {errors[0]}")

    def _is_last(self) -> bool:
        return self.state.step >= self.config.steps or self.state.stop_reason is not None

    def _diagnose(self, trajectories: list[Trajectory], split: str) -> Row:
        """Measure the cross-score matrix when it is due: at step 1 and every `diagnostics.every` steps."""
        every, step = self.config.diagnostics.every, self.state.step
        if (
            not every
            or not self.config.rollout.think
            or not (step == 1 or step % every == 0 or step == self.config.steps)
        ):
            return {}
        scores = first_turn_scores(
            trajectories, self.agent.policy.model, self.agent.tokenizer, self.config.diagnostics,
            step=step, split=split, temperature=self.settings.temperature,
        )  # fmt: skip
        if scores is None:
            return {}
        if self.accelerator.is_main_process:
            scores.save(self.run_dir)
        return dict(point_estimates(scores))

    def _analyze_gradients(self, trajectories: list[Trajectory]) -> Row:
        """Gradients per reward-variance bucket when they are due, on all rollouts of the step."""
        every, step = self.config.diagnostics.gradient_every, self.state.step
        sound = [trajectory for trajectory in trajectories if trajectory.error is None]
        if not every or not sound or not (step == 1 or step % every == 0):
            return {}
        row = gradient_analysis.measure(self.updater, self._score(sound, 1.0), sound, self.config.diagnostics)
        if (ratio := row["gradient_noise_ratio"]) is not None:
            self.state.noise_ratio = ratio
        return row

    def _retune_filter(self) -> Row:
        """Choose the filter of the following steps from the log so far, when `filter: auto` says it is time."""
        config, state = self.config.filter, self.state
        if not config.auto_every or state.step % config.auto_every:
            return {}
        decided: list[Any] = [None]
        if self.accelerator.is_main_process:
            decided = [
                auto_filter.decide(
                    self.run_dir, self.filter, step=state.step, window=config.auto_window, noise=state.noise_ratio,
                    seed=self.config.seed,
                )
            ]  # fmt: skip
        if self.accelerator.num_processes > 1:
            broadcast_object_list(decided)
        self.filter, row = decided[0]
        state.filter = dataclasses.asdict(self.filter)
        return row

    def _learn(self, kept: list[Trajectory], kept_share: float) -> Row:
        """Credit and update on the kept rollouts and on what is replayed; nothing happens when there are none."""
        if not kept:
            self.state.empty_steps += 1
            return {}
        self.state.empty_steps = 0
        replayed = self.collector.replayed(self.state, first_group=1 + max(t.group for t in kept))
        scored = self._score([*kept, *replayed], kept_share)
        credit.note_advantages(scored.batch, scored.credit, [*kept, *replayed])
        rng = np.random.default_rng((self.config.seed, self.state.step))
        measured = self.updater.run(scored, rng=rng)
        if scored.sampler_gap_nats is not None:
            measured["sampler_trainer_logprob_gap"] = scored.sampler_gap_nats
        coefficient = {"kl_coef": self.config.algorithm.kl_coef} if self.config.algorithm.kl_coef > 0 else {}
        shared: Row = {
            "replayed_group_share": len({t.group for t in replayed}) / len({t.group for t in [*kept, *replayed]})
        }
        return {
            **advantage_metrics(scored.batch, scored.credit),
            **measured,
            **coefficient,
            **(shared if replayed else {}),
        }

    def _score(self, trajectories: list[Trajectory], kept_share: float) -> Scored:
        """Everything the loss of these rollouts needs, under the policy as it is now."""
        algorithm, updater = self.config.algorithm, self.updater
        batch = make_batch(trajectories, pad_id=self.agent.pad_id)
        sampler_BT, other_numerics = batch.old_logp_BT, self._samples_with_other_numerics()
        if self.settings.truncates or other_numerics or sampler_BT.isnan().any():
            # Ratios are taken under the trainer's full distribution, which is the one trained; a log may not tell its own.
            replaced_BT = sampler_BT.isnan()
            if self.settings.truncates or other_numerics:
                replaced_BT = replaced_BT | (batch.fresh_B[:, None] > 0)
            batch.old_logp_BT = torch.where(replaced_BT, updater.score(batch, "logp"), sampler_BT)
        values_BT = updater.score(batch, "value") if algorithm.advantage in credit.CRITIC_RULES else None
        ref_logp_BT = updater.score(batch, "reference") if algorithm.kl_coef > 0 else None
        assigned = credit.assign(
            batch, trajectories, algorithm, values_BT=values_BT, ref_logp_BT=ref_logp_BT, kept_share=kept_share
        )
        if algorithm.thinking_gate:
            target = thinking_gate.quality_target(batch, trajectories, self.agent.tokenizer)
            gate_BT = thinking_gate.gate(batch, updater.score(batch, "quality"), target)
            assigned = dataclasses.replace(assigned, advantages_BT=assigned.advantages_BT * gate_BT, quality=target)
        gap = None
        if other_numerics and not self.settings.truncates:
            if algorithm.sampler_ratio_cap > 0:
                weight_BT = truncated_importance(batch.old_logp_BT, sampler_BT, cap=algorithm.sampler_ratio_cap)
                assigned = dataclasses.replace(assigned, advantages_BT=assigned.advantages_BT * weight_BT)
            fresh_BT = batch.mask_BT * batch.fresh_B[:, None]
            gap = float(((batch.old_logp_BT - sampler_BT).abs() * fresh_BT).sum() / fresh_BT.sum())
        return Scored(batch, assigned, values_BT, ref_logp_BT, gap)

    def _samples_with_other_numerics(self) -> bool:
        """Whether the same weights give the sampler other log-probs than the update: other kernels, or mixed precision.

        A log's log-probs are those of other weights, and stay.
        """
        config = self.config
        return not config.offline.log and (config.rollout.backend != "transformers" or config.runtime.precision != "no")

    def _validate(self, shown: RunProgress) -> Row:
        """Play the held-out seeds and log them as split `val`."""
        validation, state = self.config.validation, self.state
        rollout, settings = validation_setup(self.config)
        seeds = range(validation.first_seed, validation.first_seed + validation.seeds)
        trajectories = self.collector.play(seeds, 1, "val", rollout, settings, version=state.step)
        self._log_rollouts(trajectories, "val", settings)
        self._tell_errors(trajectories, shown)
        if all(trajectory.error is not None for trajectory in trajectories):
            return {}
        label = f"step {state.step}"
        env = validation_env(self.config).name
        result = result_of(label, env, trajectories, n_rollouts=1, temperature=validation.temperature)
        self.validations.append((state.step, result))
        early_stop.note_validation(state, self.config, result.success_rate)
        shown.say(f"{self.config.name} validation, {result.summary()}")
        return {"val_success_rate": result.success_rate, "val_reward_mean": float(result.returns_SK.mean())}

    def _log_rollouts(self, trajectories: list[Trajectory], split: str, settings: SamplingSettings) -> None:
        if not self.accelerator.is_main_process:
            return
        # Training rollouts of step t were sampled before its update, by the policy after t - 1 updates.
        version = self.state.step - 1 if split == "train" else self.state.step
        context = LogContext(
            self.config.name,
            self.state.step,
            split,
            self.config.env.name if split == "train" else validation_env(self.config).name,
            f"logged in {self.config.offline.log}"
            if self.config.offline.log and split == "train"
            else f"update-{version}",
            settings,
            self.config.rollout.think,
        )
        write_step(self.run_dir, self.state.step, split, log_rows(trajectories, context, self.agent.tokenizer))

    def _finish_step(self, row: Row) -> None:
        self.rows.append(row)
        if not self.accelerator.is_main_process:
            return
        try:
            write_metrics(self.run_dir, self.rows)
        except OSError as error:
            raise RunFolderError(
                f"{self.run_dir}: cannot write the metrics ({error}). Free space, then --resume."
            ) from error
        if self.config.runtime.tracker != "none":
            numbers = {name: value for name, value in row.items() if value is not None and name != "step"}
            self.accelerator.log(numbers, step=int(row["step"] or 0))

    def _save(self) -> None:
        optimizer_state = self.updater.engine.optimizer_state()
        if self.accelerator.is_main_process:
            checkpoints.save(
                self.run_dir, self.state, self.agent.policy, optimizer_state, self.agent.tokenizer,
                keep=self.config.runtime.keep_checkpoints,
            )  # fmt: skip
        self.accelerator.wait_for_everyone()
