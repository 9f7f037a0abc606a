"""Measuring a policy on held-out seeds: a run, a checkpoint, a model folder or hub name, a chat server, or random play."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import ServiceError
from ragen_diag.config import EnvConfig, TrainConfig, load_config, with_overrides
from ragen_diag.errors import ModelError, RunFolderError
from ragen_diag.rollout_log import CHECKPOINTS_DIR, RUN_FILE, write_step
from trainer import checkpoints, run_folder
from trainer.agent_loop import AgentLoop
from trainer.endpoint import ChatAgentLoop, ChatServer
from trainer.rollout import RolloutEngine, make_env, validation_env
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
    overrides: Sequence[str] = (),
    served_model: str | None = None,
) -> EvalResult:
    """Success of `model` on seeds first_seed .. first_seed + n_seeds - 1, n_rollouts each.

    model: a run folder (its newest checkpoint), a checkpoint folder, a model folder or hub name, `tiny`, `random`, or the
    URL of an OpenAI-compatible server, of which served_model names the model (None: the only one it serves).
    config: how rollouts are played; None takes the run's own, or the demo's. overrides: `section.key=value` changes to it.
    env, env_options: default to the held-out tasks of the run, or of `config`, or of the demo preset. temperature: defaults to the
    run's validation temperature. run_dir: a new folder for the rollouts as a log. Raises ModelError, ConfigError or
    RunFolderError.
    """
    config, checkpoint = _resolve(str(model), config)
    config = with_overrides(config, overrides)
    if env is not None and env != config.env.name:
        config = dataclasses.replace(config, env=EnvConfig(env, env_options or {}))
    elif env_options is not None:
        config = dataclasses.replace(config, env=EnvConfig(config.env.name, env_options))
    elif env is None:
        config = dataclasses.replace(config, env=validation_env(config))
    if str(model) == RANDOM:
        return random_baseline(config.env, n_seeds=n_seeds, first_seed=first_seed, n_rollouts=n_rollouts)
    rollout, settings = validation_setup(config, temperature)
    name, tokenizer = str(model), None
    loop: AgentLoop | None = None
    if name.startswith(("http://", "https://")):
        server = ChatServer(name, settings, model=served_model)
        name, loop = f"{server.model} at {server.root}", ChatAgentLoop(rollout, server)
    with nullcontext() if run_dir is None else run_folder.claim(run_dir, resume=False):
        if loop is None:
            set_threads(config.runtime)
            agent = _agent(config, checkpoint)
            tokenizer, loop = agent.tokenizer, agent.loop(rollout, settings)
        engine = RolloutEngine(config.env, rollout, run_seed=config.seed)
        seeds = range(first_seed, first_seed + n_seeds)
        trajectories = engine.collect(loop, seeds, group_size=n_rollouts, split="val")
        if run_dir is not None:
            run_folder.save_config(config, run_dir)
            context = LogContext(run_dir.name, 0, "val", config.env.name, name, settings, rollout.think)
            write_step(run_dir, 0, "val", log_rows(trajectories, context, tokenizer))
    return result_of(name, config.env.name, trajectories, n_rollouts=n_rollouts, temperature=settings.temperature)


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
    if model in (RANDOM, "tiny"):
        base = config or load_config("demo")
    else:  # the demo's 32 tokens a reply are made for the embedded model
        base = config or load_config("demo", ["rollout.max_response_tokens=400", "rollout.max_context_tokens=8192"])
    is_path = model != RANDOM and not model.startswith(("http://", "https://"))
    return dataclasses.replace(base, model=dataclasses.replace(base.model, path=model)) if is_path else base, None
