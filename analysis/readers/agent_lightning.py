"""Agent Lightning: 1.x artifacts (`step_N/{train,validation}_trajectories.jsonl.zip`) and exported spans (0.2 and later).

The trajectory rows keep the last turn only. Spans carry prompts as gen_ai.prompt.N.*, completions as gen_ai.completion.0.*, and
the reward in an annotation span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common
from analysis.readers.containers import Record
from analysis.readers.gen_ai import indexed_messages
from analysis.readers.messages import render
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, truncated_by, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.thinking import strip_end_of_turn
from analysis.readers.traces import grouped_records

_SPLIT_FILE = re.compile(r"(train|validation|val|test)_trajectories")


class AgentLightning(RecordReader):
    """Rows of exactly rollout_id, reward, prompt, response."""

    name = "agent_lightning"
    needs = frozenset({"rollout_id", "reward", "prompt", "response"})
    step_in_path = True
    inside_run = re.compile(r"artifacts|step_\d+")
    assumes = ("Agent Lightning 1.x stores the last turn only: earlier turns and their thinking are not in the log",)

    def claims(self, seen: Peek) -> Match | None:
        """Exactly these keys: home-made rows with more are not claimed."""
        if any(keys == self.needs for keys in seen.key_sets):
            return Match(0.9, "records have exactly rollout_id, reward, prompt, response")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        if match := _SPLIT_FILE.search(file.path.name):
            file.split = file.options.split or ("train" if match[1] == "train" else "val")
        yield Rollout(
            turns_from_text(record["prompt"] or "", record["response"]),
            reward=reward_of(record["reward"]),
            reward_source="reward",
            trajectory=str(record["rollout_id"]) if file.step is None else f"{file.step}/{record['rollout_id']}",
        )


class AgentLightningSpans(RecordReader):
    """Spans {rollout_id, attempt_id, sequence_id, span_id, attributes}; the last attempt of each rollout counts."""

    name = "agent_lightning_spans"
    needs = frozenset({"rollout_id", "attempt_id", "sequence_id", "span_id"})

    def records(self, file: File) -> Iterator[Record]:
        """One record per rollout."""
        return grouped_records(super().records(file), lambda span: str(span["rollout_id"]))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per rollout, one turn per chat span."""
        spans = sorted(record["spans"], key=lambda span: integer(span["sequence_id"]) or 0)
        attempts = list(dict.fromkeys(span["attempt_id"] for span in spans))
        spans = [span for span in spans if span["attempt_id"] == attempts[-1]]
        if len(attempts) > 1:
            self.say(file.notes, "rollouts with several attempts: only the last attempt counts")
        turns: list[Turn] = []
        rewards: dict[str, float | None] = {}
        merged: dict[str, Any] = {}
        for span in spans:
            attributes = span.get("attributes") or {}
            merged |= {key: value for key, value in attributes.items() if not key.startswith("gen_ai.")}
            rewards |= _rewards(attributes)
            if turn := _turn(attributes):
                turns.append(turn)
        if not turns:
            raise ValueError("no completion span in the rollout")
        reward = next(iter(rewards.values()), None)
        rollout = Rollout(
            turns,
            reward=reward,
            reward_source="agentlightning.reward",
            components=rewards if len(rewards) > 1 else None,
            trajectory=record["key"],
        )
        yield apply_common(rollout, merged, file)


def _rewards(attributes: dict[str, Any]) -> dict[str, float | None]:
    found = {
        str(attributes.get(key.removesuffix("value") + "name") or key): number(value)
        for key, value in attributes.items()
        if key.startswith("agentlightning.reward.") and key.endswith(".value")
    }
    if not found and number(attributes.get("reward")) is not None:  # 0.2
        found["reward"] = number(attributes["reward"])
    return found


def _turn(attributes: dict[str, Any]) -> Turn | None:
    completions = indexed_messages(attributes, "gen_ai.completion")
    if not completions:
        return None
    prompt, answer = indexed_messages(attributes, "gen_ai.prompt"), completions[0]
    columns: dict[str, Any] = {
        "n_tool_calls": answer.n_tool_calls,
        "response_truncated": truncated_by(attributes.get("gen_ai.completion.0.finish_reason")),
    }
    for column, key in (("prompt", "prompt_token_ids"), ("response", "response_token_ids")):
        if attributes.get(key):
            columns |= {f"{column}_ids": attributes[key], f"{column}_tokens": len(attributes[key])}
    state = next((message.text for message in reversed(prompt) if message.role not in ("assistant", "system")), None)
    return Turn(strip_end_of_turn(answer.text), render(prompt), state, answer.reasoning, columns)
