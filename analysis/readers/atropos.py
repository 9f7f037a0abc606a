"""Atropos's saved groups (`data_path_to_save_groups`), read at 296a0bc: one group per line.

There is no step and no prompt field. Groups with equal scores are skipped by default and over-long ones dropped: only surviving
groups are in the file, so zero-variance shares mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, Turn, number, reward_of, turns_from_messages
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.tokens import add_token_columns, runs_of

_MASKED_LOGPROB = 1.0


class Atropos(RecordReader):
    """Groups {tokens, masks, scores, messages}."""

    name = "atropos"
    needs = frozenset({"tokens", "masks", "scores"})
    assumes = ("only surviving groups are in the file: Atropos skips groups whose scores are all equal (default on)",)

    def claims(self, seen: Peek) -> Match | None:
        """Lists of equal length; a cut first record still shows its first keys."""
        for row in seen.records if seen.kind == "json" else ():
            if (
                isinstance(row.get("tokens"), list)
                and isinstance(row.get("masks"), list)
                and isinstance(row.get("scores", []), list)
            ):
                return Match(0.9, "records have tokens, masks, scores: one group per line")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """The members of one group."""
        n = len(record["scores"])
        messages = record.get("messages") or [None] * n
        logprobs = record.get("inference_logprobs") or [None] * n
        advantages = record.get("advantages") or [None] * n
        group = ",".join(map(str, record["tokens"][0][:8])) + f"@{record[_LINE]}"
        for index in range(n):
            ids, mask = record["tokens"][index], record["masks"][index]
            turns = _turns(messages[index], mask)
            values = logprobs[index]
            if values and any(value == _MASKED_LOGPROB for s, e in runs_of(mask) for value in values[s:e]):
                values = None
            advantage = advantages[index]
            per_token = advantage if isinstance(advantage, list) and len(advantage) == len(ids) else None
            add_token_columns(turns, ids, mask, values, per_token)
            start = runs_of(mask)[0][0] if runs_of(mask) else 0
            yield Rollout(
                turns,
                reward=reward_of(record["scores"][index]),
                reward_source="scores",
                group=group,
                group_source="line",
                prompt_key=None if turns[0].prompt else ids[:start],
                columns={} if per_token else {"advantage": number(advantage)},
            )

    def records(self, file: File) -> Iterator[Any]:
        """Groups with their line number."""
        for record in super().records(file):
            if isinstance(record.value, dict):
                record.value[_LINE] = record.line
            yield record


_LINE = "\0line"


def _turns(messages: Any, mask: list[int]) -> list[Turn]:
    if isinstance(messages, list):
        return turns_from_messages(messages)
    if isinstance(messages, str):
        return [Turn(messages)]
    return [Turn(None) for _ in runs_of(mask)]
