"""xtuner's `{train,eval}_rollout/{train,eval}_rollout_{N}.jsonl`, checked at b934f46. The first line is a summary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.messages import as_messages, render
from analysis.readers.normal_form import (
    Rollout,
    integer,
    reward_of,
    truncated_by,
    turns_from_messages,
    turns_from_text,
    weighted_rewards,
)
from analysis.readers.record_reader import File, RecordReader, lookup


class Xtuner(RecordReader):
    """Rows of rollout_id, group_id, prompt, response, reward, reward_payload, agent."""

    name = "xtuner"
    needs = frozenset({"rollout_id", "group_id", "reward_payload", "agent"})
    step_in_path = True
    inside_run = re.compile(r"(?:train|eval)_rollout")

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row; agentic rows carry their messages."""
        if "total_len" in record and "rollout_id" not in record:
            return
        messages = lookup(record, "agent.messages")
        if messages:
            turns = turns_from_messages(messages)
        else:
            prompt = record["prompt"]
            turns = turns_from_text(
                prompt if isinstance(prompt, str) else render(as_messages(prompt)), record["response"]
            )
        turns[-1].columns["response_truncated"] = truncated_by(record.get("finish_reason"))
        if len(turns) == 1:
            turns[0].columns |= {
                "prompt_tokens": integer(record.get("prompt_len")),
                "response_tokens": integer(record.get("response_len")),
            }
        reward = record.get("reward")
        payload = record["reward_payload"]
        parts = weighted_rewards(payload)[1] if isinstance(payload, dict) else {}
        numbers: dict[str, float | None] = {name: value for name, value in parts.items() if value is not None}
        yield Rollout(
            turns,
            reward=reward_of(payload if reward is None else reward),
            reward_source="reward_payload" if reward is None else "reward",
            components=numbers if set(numbers) - {"score"} else None,
            group=str(record["group_id"]),
            group_source="group_id",
            trajectory=f"{file.path}:{record['rollout_id']}",
            columns={"env": record.get("task_name"), "error": record.get("error_msg") or None},
        )
