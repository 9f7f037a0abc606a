"""Rollouts that a training hands over while it runs, as plain dictionaries. Not a file format: nothing here is detected.

Names: prompt and response (text, or messages), or messages alone; reward (a number, or named parts); thinking, group, success,
advantage, split, trajectory; and every further column of the rollout-log schema under its own name (logprobs, response_ids,
response_truncated, thinking_start, ...).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.normal_form import Rollout, reward_of, turns_from_messages, weighted_rewards
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.trl import completion_turns
from ragen_diag.errors import did_you_mean
from ragen_diag.rollout_log import SCHEMA

FIELDS = (
    "prompt",
    "response",
    "messages",
    "reward",
    "thinking",
    "group",
    "success",
    "advantage",
    "split",
    "trajectory",
)
_DECIDED_HERE = {
    "run_id",
    "step",
    "group_id",
    "prompt_id",
    "rollout_index",
    "trajectory_id",
    "turn",
    "n_turns",
    "return_",
}
_COLUMNS = set(SCHEMA.names) - _DECIDED_HERE - {"prompt_text", "response_text", "thinking_text"}
_PER_TURN = {"response_ids", "prompt_ids", "logprobs", "entropies", "thinking_start", "thinking_end", "response_tokens",
             "prompt_tokens", "response_truncated"}  # fmt: skip


class InMemory(RecordReader):
    """Dictionaries with the names above, and `step`, which the caller adds."""

    name = "in-memory rollout"

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per dictionary. Raises KeyError without text, ValueError for a name that means nothing."""
        for name in record:
            if name != "step" and name not in FIELDS and name not in _COLUMNS:
                raise ValueError(
                    f"no field '{name}'.{did_you_mean(name, [*FIELDS, *_COLUMNS])} Known: {', '.join(FIELDS)}"
                )
        values = {name: _plain(value) for name, value in record.items()}
        if values.get("messages") is not None:
            turns = turns_from_messages(values["messages"], prompt=values.get("prompt"))
        else:
            turns = completion_turns(values.get("prompt") or "", values["response"])
        columns = {name: value for name, value in values.items() if name in _COLUMNS and value is not None}
        own = {name: columns.pop(name) for name in _PER_TURN & set(columns)}
        if own and len(turns) > 1:
            raise ValueError(
                f"{', '.join(sorted(own))}: given once for {len(turns)} turns; feed one-turn rollouts for them"
            )
        turns[0].columns |= own
        turns[0].reasoning = values.get("thinking") or turns[0].reasoning
        reward = values.get("reward")
        parts = weighted_rewards(reward)[1] if isinstance(reward, dict) else {}
        yield Rollout(
            turns,
            reward=weighted_rewards(reward)[0] if parts else reward_of(reward),
            reward_source="reward",
            components=parts or None,
            step=values["step"],
            group=None if values.get("group") is None else str(values["group"]),
            group_source=None if values.get("group") is None else "explicit id",
            split=values.get("split"),
            trajectory=None if values.get("trajectory") is None else str(values["trajectory"]),
            columns=columns,
        )


def _plain(value: Any) -> Any:
    """Scalars and arrays of numpy, torch or jax as Python values."""
    return value.tolist() if hasattr(value, "tolist") else value
