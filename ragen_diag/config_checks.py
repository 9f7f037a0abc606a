"""What makes a configuration wrong: unknown keys, types, ranges, combinations. Not for reading files (`config.py`)."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ragen_diag.errors import did_you_mean

if TYPE_CHECKING:
    from ragen_diag.config_sections import TrainConfig

_AT_LEAST_ONE = {
    "steps", "rollout.groups", "rollout.group_size", "rollout.max_turns", "rollout.max_actions_per_turn", "rollout.window",
    "rollout.max_response_tokens", "rollout.max_context_tokens", "rollout.batch_size", "optim.epochs", "optim.mini_batch",
    "optim.micro_batch", "model.lora_rank", "validation.seeds", "diagnostics.max_reasonings", "diagnostics.token_budget",
    "early_stop.variance_collapse_steps", "early_stop.min_validation_count", "filter.auto_window", "diagnostics.gradient_buckets",
    "rollout.env_threads",
}  # fmt: skip
_ABOVE_ZERO = {"rollout.temperature", "rollout.top_p", "validation.temperature", "optim.lr", "optim.critic_lr", "optim.grad_clip",
               "model.lora_alpha"}  # fmt: skip
_SHARES = {"rollout.top_p", "algorithm.gamma", "algorithm.lam", "algorithm.high_level_gamma", "optim.warmup_share",
           "early_stop.variance_collapse_share", "early_stop.min_validation_success"}  # fmt: skip
_ANY_SIGN = {"rollout.format_penalty"}
TRACKERS = {"tensorboard": "tensorboard", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow", "comet_ml": "comet_ml",
            "aim": "aim", "clearml": "clearml", "dvclive": "dvclive", "swanlab": "swanlab"}  # fmt: skip
"""Accelerate's trackers, and the package each needs."""


def build(cls: Any, data: Mapping[str, Any], where: str, problems: list[str], root: Any = None) -> Any:
    """A configuration from nested mappings; what does not fit is noted in `problems` with its dotted name."""
    root = root or cls
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in data.items():
        dotted = f"{where}.{key}" if where else str(key)
        if key not in hints:
            hint = did_you_mean(str(key), hints) or _elsewhere(str(key), root) or f" Known here: {', '.join(hints)}."
            problems.append(f"unknown key '{dotted}'.{hint}")
        elif dataclasses.is_dataclass(hints[key]):
            if isinstance(value, Mapping):
                values[key] = build(hints[key], value, dotted, problems, root)
            else:
                problems.append(f"{dotted} is a section with keys, not a value ({value!r})")
        else:
            values[key] = _checked(hints[key], value, dotted, problems)
    return cls(**values)


def _elsewhere(key: str, root: Any) -> str:
    """Name the section a misplaced key belongs to."""
    for name, hint in typing.get_type_hints(root).items():
        if dataclasses.is_dataclass(hint) and key in {field.name for field in dataclasses.fields(hint)}:
            return f" Did you mean '{name}.{key}'?"
    return ""


def _checked(hint: Any, value: Any, dotted: str, problems: list[str]) -> Any:
    """The value as its field's type; on a mismatch a problem is noted and the value passed through."""
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            options = ", ".join(map(str, typing.get_args(hint)))
            problems.append(
                f"{dotted} is {value!r}; it must be one of {options}.{did_you_mean(str(value), typing.get_args(hint))}"
            )
        return value
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            problems.append(f"{dotted} is {value!r}; it must be a mapping, for example {{observation_format: coord}}")
        return value
    if hint is float and isinstance(value, str):
        value = _number(value)  # YAML reads 1e-4 as text
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        problems.append(f"{dotted} is {value!r}; it must be {names[hint]}")
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        problems += _out_of_range(dotted, value)
    return value


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _out_of_range(dotted: str, value: float) -> list[str]:
    if not math.isfinite(value):
        return [f"{dotted} is {value}; it must be a finite number"]
    if dotted in _AT_LEAST_ONE and value < 1:
        return [f"{dotted} is {value}; it must be at least 1"]
    if dotted in _ABOVE_ZERO and value <= 0:
        return [f"{dotted} is {value}; it must be above 0"]
    if dotted in _SHARES and not 0 <= value <= 1:
        return [f"{dotted} is {value}; it must lie between 0 and 1"]
    if dotted not in _ANY_SIGN and value < 0:
        return [f"{dotted} is {value}; it must not be negative"]
    return []


def cross_checks(config: TrainConfig) -> list[str]:
    """Combinations that cannot work."""
    algorithm, rollout, found = config.algorithm, config.rollout, []
    group_relative = algorithm.advantage in ("grpo", "dr_grpo", "rloo")
    if group_relative and rollout.group_size < 2:
        found.append(
            f"rollout.group_size is 1, but algorithm.advantage={algorithm.advantage} compares rollouts of one prompt"
        )
    if config.filter.strategy != "none" and config.filter.metric == "reward_std" and rollout.group_size < 2:
        found.append("rollout.group_size is 1: the filter has no reward variance to rank groups by")
    if config.optim.micro_batch > config.optim.mini_batch:
        found.append(
            f"optim.micro_batch ({config.optim.micro_batch}) is larger than optim.mini_batch ({config.optim.mini_batch})"
        )
    if algorithm.credit == "turn" and algorithm.advantage == "bi_level_gae":
        found.append(
            "algorithm.advantage=bi_level_gae gives credit per turn by itself; leave algorithm.credit at trajectory"
        )
    if rollout.max_response_tokens >= rollout.max_context_tokens:
        found.append("rollout.max_response_tokens leaves no room for a prompt in rollout.max_context_tokens")
    first, last = config.validation.first_seed, config.validation.first_seed + config.validation.seeds - 1
    train_last = rollout.train_seed + rollout.groups * config.steps * (1 + config.filter.refill) - 1
    if config.validation.every and first <= train_last and last >= rollout.train_seed:
        found.append(
            f"validation seeds {first} to {last} overlap the training seeds {rollout.train_seed} to {train_last}"
        )
    if config.filter.refill and config.filter.strategy == "none" and not config.filter.auto_every:
        found.append("filter.refill needs a filter.strategy: without one nothing is ever refilled")
    return found + _of_sources(config) + _of_networks(config) + _of_trackers(config)


def _of_sources(config: TrainConfig) -> list[str]:
    """Where rollouts come from."""
    replay, found = config.replay, []
    if bool(replay.capacity) != bool(replay.groups):
        found.append(
            f"replay.capacity is {replay.capacity} and replay.groups {replay.groups}; replay needs both above 0"
        )
    if 0 < replay.capacity < replay.groups * config.rollout.group_size:
        found.append(
            f"replay.capacity ({replay.capacity} trajectories) is smaller than one draw of replay.groups x rollout.group_size"
        )
    if config.offline.log and (config.filter.refill or replay.groups):
        found.append("offline.log leaves nothing to sample: set filter.refill and replay.groups to 0")
    if config.filter.auto_every and config.rollout.group_size < 2 and not config.offline.log:
        found.append("rollout.group_size is 1: filter.auto_every has no reward variance to choose by")
    return found


def _of_trackers(config: TrainConfig) -> list[str]:
    """Names that Accelerate knows."""
    if config.runtime.tracker == "none":
        return []
    return [
        f"runtime.tracker: '{name}' is no tracker.{did_you_mean(name, TRACKERS)} Known: {', '.join(TRACKERS)}, or none"
        for name in config.runtime.tracker.split(",")
        if name not in TRACKERS
    ]


def _of_networks(config: TrainConfig) -> list[str]:
    """What the algorithm and the backend ask of the model."""
    algorithm, found = config.algorithm, []
    if algorithm.thinking_gate and algorithm.advantage not in ("gae", "bi_level_gae"):
        found.append("algorithm.thinking_gate reads the critic: it needs algorithm.advantage gae or bi_level_gae")
    if algorithm.thinking_gate and not config.rollout.think:
        found.append("algorithm.thinking_gate needs rollout.think")
    if config.runtime.sharding != "none" and config.runtime.precision == "fp16":
        found.append("runtime.sharding has no loss scaling, which runtime.precision=fp16 needs; take bf16")
    if config.rollout.backend == "vllm" and config.filter.metric in ("entropy", "entropy_std"):
        found.append(f"filter.metric={config.filter.metric}: vLLM tells no entropies to rank groups by")
    if config.rollout.backend == "vllm" and config.model.tuning != "lora":
        found.append(
            "rollout.backend=vllm needs model.tuning=lora: vLLM keeps a stale output head when the weights of a model with "
            "tied embeddings are reloaded, and adapters need no reload"
        )
    return found
