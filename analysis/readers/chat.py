"""Generic chat logs: OpenAI messages (`openai_chat`) and ShareGPT conversations (`sharegpt`), as JSON lines or one array.

The fallback everybody converts to. Reward, step and group are looked for under their usual names, at the top level or in
metadata. A data set without rewards loads too, with every reward check off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common, has_reward_field
from analysis.readers.normal_form import Rollout, turns_from_messages
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader


class OpenAiChat(RecordReader):
    """Records with a list of {role, content} messages."""

    name = "openai_chat"
    needs = frozenset({"messages"})
    field = "messages"

    def claims(self, seen: Peek) -> Match | None:
        """Messages with roles; low confidence, because more specific formats hold messages too."""
        for row in seen.records if seen.kind == "json" else ():
            messages = row.get("messages")
            if isinstance(messages, list) and messages and isinstance(messages[0], dict) and "role" in messages[0]:
                return Match(0.5, "records have messages with role and content")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per conversation, one turn per assistant message."""
        if not has_reward_field(record) and not (file.options.mapping or {}).get("reward"):
            self.say(file.notes, "no reward in the log (a fine-tuning data set?): all reward checks are off")
        prompt = record.get("prompt") if isinstance(record.get("prompt"), list) else None
        rollout = apply_common(Rollout(turns_from_messages(record[self.field], prompt=prompt)), record, file)
        rollout.reward_source = rollout.reward_source or "none"
        trajectory = record.get("trajectory_id")
        rollout.trajectory = trajectory if isinstance(trajectory, str) else None
        yield rollout


class ShareGpt(OpenAiChat):
    """Records with conversations of {from, value}."""

    name = "sharegpt"
    needs = frozenset({"conversations"})
    field = "conversations"

    def claims(self, seen: Peek) -> Match | None:
        """Conversations with from and value (or role and content)."""
        for row in seen.records if seen.kind == "json" else ():
            turns = row.get("conversations")
            if isinstance(turns, list) and turns and isinstance(turns[0], dict) and {"from", "role"} & set(turns[0]):
                return Match(0.6, "records have conversations with from and value")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """A `system` field is the first message."""
        if isinstance(record.get("system"), str) and record["system"]:
            record = {
                **record,
                "conversations": [{"from": "system", "value": record["system"]}, *record["conversations"]],
            }
        yield from super().rollouts(record, file)
