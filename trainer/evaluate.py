"""Measuring a policy on held-out seeds: a run, a checkpoint, a model folder or hub name, or random play."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import ServiceError
from ragen_diag.config import EnvConfig, TrainConfig, load_config
from ragen_diag.errors import ModelError, RunFolderError
from ragen_diag.rollout_log import CHECKPOINTS_DIR, RUN_FILE, write_step
from trainer import checkpoints, run_folder
from trainer.rollout import RolloutEngine, make_env
from trainer.setup import Agent, build_agent, set_threads, validation_setup
from trainer.trajectory import LogContext, log_rows
from trainer.validation import EvalResult, result_of

RANDOM = "random"


def evaluate(
    model: str | Path,
    *,
    env: str | None = None,
    env_options: dict[str, Any] | None = None,
    n_seeds: int = 256,
    first_seed: int = 123,
    n_rollouts: int = 1,
    temperature: float | None = None,
    run_dir: Path | None = None,
    config: TrainConfig | None = None,
) -> EvalResult:
    """Success of `model` on seeds first_seed .. first_seed + n_seeds - 1, n_rollouts each.

    model: a run folder (its newest checkpoint), a checkpoint folder, a model folder or hub name, `tiny`, or `random`.
    env, env_options: default to those of the run, or of `config`, or of the demo preset. temperature: defaults to the
    run's validation temperature. run_dir: a new folder for the rollouts as a log. Raises ModelError, ConfigError or
    RunFolderError.
    """
    config, checkpoint = _resolve(str(model), config)
    if env is not None and env != config.env.name:
        config = dataclasses.replace(config, env=EnvConfig(env, env_options or {}))
    elif env_options is not None:
        config = dataclasses.replace(config, env=EnvConfig(config.env.name, env_options))
    if str(model) == RANDOM:
        return random_baseline(config.env, n_seeds=n_seeds, first_seed=first_seed, n_rollouts=n_rollouts)
    if run_dir is None:
        return _play(str(model), config, checkpoint, n_seeds, first_seed, n_rollouts, temperature, None)
    with run_folder.claim(run_dir, resume=False):
        return _play(str(model), config, checkpoint, n_seeds, first_seed, n_rollouts, temperature, run_dir)


def random_baseline(
    env: EnvConfig | str, *, n_seeds: int = 256, first_seed: int = 123, n_rollouts: int = 1, rng_seed: int = 0
) -> EvalResult:
    """Uniformly random valid actions under the environment's action budget. Any trained number must be read against it.

    Raises ConfigError for an unknown environment, ModelError for one that defines no random action.
    """
    config = EnvConfig(env) if isinstance(env, str) else env
    game, rng = make_env(config), np.random.default_rng(rng_seed)
    successes_SK, returns_SK = np.zeros((n_seeds, n_rollouts), bool), np.zeros((n_seeds, n_rollouts))
    try:
        for s, k in np.ndindex(n_seeds, n_rollouts):
            game.reset(seed=first_seed + s, options={"rollout_seed": k})
            for _ in range(game.max_actions):
                _, reward, terminated, _, info = game.step(game.random_action(rng))
                returns_SK[s, k] += float(reward)
                if terminated:
                    successes_SK[s, k] = bool(info["success"])
                    break
    except (NotImplementedError, ServiceError) as error:
        raise ModelError(f"random: {error}") from error
    return EvalResult(RANDOM, config.name, tuple(range(first_seed, first_seed + n_seeds)), successes_SK, returns_SK)


def load_policy(model: str | Path) -> tuple[Agent, TrainConfig]:
    """The agent of a run, checkpoint or model, weights loaded, and the configuration it goes with. Raises ModelError."""
    config, checkpoint = _resolve(str(model), None)
    return _agent(config, checkpoint), config


def _agent(config: TrainConfig, checkpoint: Path | None) -> Agent:
    # The critic's weights are part of a checkpoint, so the same networks are built as in training.
    agent = build_agent(config, for_training=checkpoint is not None)
    if checkpoint is not None:
        checkpoints.load_weights(checkpoint, agent.policy)
    return agent


def _play(
    model: str, config: TrainConfig, checkpoint: Path | None, n_seeds: int, first_seed: int, n_rollouts: int,
    temperature: float | None, run_dir: Path | None,
) -> EvalResult:  # fmt: skip
    set_threads(config.runtime)
    agent = _agent(config, checkpoint)
    rollout, settings = validation_setup(config, temperature)
    engine = RolloutEngine(config.env, rollout, run_seed=config.seed)
    seeds = range(first_seed, first_seed + n_seeds)
    trajectories = engine.collect(agent.loop(rollout, settings), seeds, group_size=n_rollouts, split="val")
    if run_dir is not None:
        run_folder.save_config(config, run_dir)
        context = LogContext(run_dir.name, 0, "val", config.env.name, model, settings, config.rollout.think)
        write_step(run_dir, 0, "val", log_rows(trajectories, context, agent.tokenizer))
    return result_of(model, config.env.name, trajectories, n_rollouts=n_rollouts, temperature=settings.temperature)


def _resolve(model: str, config: TrainConfig | None) -> tuple[TrainConfig, Path | None]:
    """Configuration and checkpoint folder behind a name; no checkpoint for a plain model."""
    path = Path(model)
    if (path / RUN_FILE).is_file():
        saved = checkpoints.list_checkpoints(path)
        if not saved:
            raise ModelError(
                f"{path} is a run without a checkpoint; it was stopped before the first one. Resume it with --resume."
            )
        return config or run_folder.load_recorded_config(path), saved[-1][1]
    if (path / "trained.safetensors").is_file():
        run = path.parent.parent
        if path.parent.name != CHECKPOINTS_DIR or not (run / RUN_FILE).is_file():
            raise RunFolderError(f"{path}: a checkpoint needs its run beside it ({run / RUN_FILE} is missing)")
        return config or run_folder.load_recorded_config(run), path
    base = config or load_config("demo")
    return (
        base if model == RANDOM else dataclasses.replace(base, model=dataclasses.replace(base.model, path=model))
    ), None
