"""Names that home-made and generic logs use for the same things: reward, step, group, success, split. Looked up, never guessed
from values; the framework readers do not need them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from analysis.readers.normal_form import Rollout, integer, number, reward_of, weighted_rewards
from analysis.readers.record_reader import File, lookup

_REWARD = (
    "reward",
    "score",
    "return",
    "total_reward",
    "return_",
    "rewards",
    "rl.reward",
    "final_reward",
    "episode_reward",
)
_STEP = (
    "step",
    "global_step",
    "training_step",
    "train_step",
    "iteration",
    "rl.step",
    "rl.global_step",
    "ckpt_step",
    "checkpoint",
)
_GROUP = (
    "group_id",
    "group",
    "prompt_id",
    "problem_id",
    "example_id",
    "question_id",
    "task_id",
    "rl.group_id",
    "group_index",
)
_SUCCESS = ("success", "is_correct", "correct", "solved", "passed")
_SPLIT = ("split", "phase")
_NESTED = ("", "metadata.", "extra.", "info.", "extra_info.", "metadata.attributes.")


def find(record: dict[str, Any], names: Iterable[str]) -> tuple[str, Any] | None:
    """First present (name, value) among `names`, at the top level or one level down in metadata."""
    for name in names:
        for prefix in _NESTED:
            value = lookup(record, prefix + name)
            # A dictionary under the name of a number is a namespace ("rewards": {...}) unless it holds that number.
            if value is not None and not (prefix == "" and isinstance(value, dict) and reward_of(value) is None):
                return prefix + name, value
    return None


def has_reward_field(record: dict[str, Any]) -> bool:
    """Whether the record has a field for the reward, even when it is null."""
    return any(name in record for name in _REWARD) or find(record, _REWARD) is not None


def apply_common(rollout: Rollout, record: dict[str, Any], file: File) -> Rollout:
    """Fill reward, step, group, success and split from well-known names, or from --map where that is given."""
    mapping = file.options.mapping or {}
    reward = _mapped(record, mapping, "reward") or find(record, _REWARD) or _parts(record)
    step = _mapped(record, mapping, "step") or find(record, _STEP)
    group = _mapped(record, mapping, "group") or find(record, _GROUP)
    success = _mapped(record, mapping, "success") or find(record, _SUCCESS)
    split = _mapped(record, mapping, "split") or find(record, _SPLIT)
    if reward and rollout.reward is None:
        rollout.reward, rollout.reward_source = reward_of(reward[1]), reward[0]
        if rollout.reward is None and isinstance(reward[1], dict):
            rollout.reward, rollout.components = weighted_rewards(reward[1])
    if step and rollout.step is None:
        rollout.step, rollout.step_source = integer(step[1]), step[0]
    if group and rollout.group is None and isinstance(group[1], (str, int)):
        rollout.group, rollout.group_source = str(group[1]), group[0]
    if success and isinstance(success[1], (bool, int, float)):
        rollout.columns.setdefault("success", bool(success[1]))
    if split and isinstance(split[1], str):
        word = split[1].lower()
        rollout.split = (
            "train" if word.startswith("train") else "val" if word.startswith(("val", "eval", "test", "dev")) else None
        )
    advantage = number(record.get("advantage"))
    if advantage is not None:
        rollout.columns.setdefault("advantage", advantage)
    return rollout


def _parts(record: dict[str, Any]) -> tuple[str, Any] | None:
    """A reward that is an object of named numbers."""
    for name in _REWARD:
        parts = record.get(name)
        if (
            isinstance(parts, dict)
            and parts
            and all(part is None or reward_of(part) is not None for part in parts.values())
        ):
            return name, parts
    return None


def _mapped(record: dict[str, Any], mapping: dict[str, str], column: str) -> tuple[str, Any] | None:
    if column not in mapping:
        return None
    value = lookup(record, mapping[column])
    return None if value is None else (mapping[column], value)
