"""ROLL's `rollout_dump_data.step_{N}.jsonl` (`rollout_dump_dir`), checked at 8eb27cc: one line of equally long columns per step.

Agentic runs store each trajectory's messages as JSON text. The writer runs in a daemon process: the last file may be cut off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.messages import as_messages, render
from analysis.readers.normal_form import Rollout, integer, number, reward_of, turns_from_messages, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader


class Roll(RecordReader):
    """Columns responses, scores, global_step side by side."""

    name = "roll"
    needs = frozenset({"responses", "scores", "global_step"})
    step_in_path = True

    def claims(self, seen: Peek) -> Match | None:
        """Equally long lists."""
        for row in seen.records if seen.kind == "json" else ():
            if isinstance(row.get("responses"), list) and isinstance(row.get("scores"), list):
                return Match(0.9, "one line of equally long columns responses, scores", "RLVR")
            if isinstance(row.get("trajectory_data"), list) and isinstance(row.get("messages"), list):
                return Match(0.9, "one line of columns trajectory_data, messages", "agentic")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per position."""
        n_rows = max(len(values) for values in record.values() if isinstance(values, list))
        columns = {
            name: values for name, values in record.items() if isinstance(values, list) and len(values) == n_rows
        }
        for index in range(n_rows):
            row = {name: values[index] for name, values in columns.items()}
            yield _rollout(row)


def _rollout(row: dict[str, Any]) -> Rollout:
    if "responses" in row:
        stored = row.get("messages") or row.get("prompt") or ""
        turns = turns_from_text(render(as_messages(stored)), row["responses"])
    else:
        turns = turns_from_messages(row["messages"])
    settings = _json(row.get("sampling_params")).get("generation_config") or {}
    about = _json(row.get("trajectory_data"))
    score = next(
        (row[name] for name in ("scores", "episode_scores", "reward") if name in row), about.get("episode_score")
    )
    identity = row.get("id", about.get("group_id"))
    return Rollout(
        turns,
        reward=reward_of(score),
        reward_source="scores",
        step=integer(row.get("global_step", about.get("global_step"))),
        step_source="global_step",
        group=None if identity in (None, "") else str(identity),
        group_source="id",
        columns={
            "env": row.get("domain") or row.get("tag") or None,
            "temperature": number(settings.get("temperature")),
            "top_p": number(settings.get("top_p")),
            "max_response_tokens": integer(settings.get("max_new_tokens")),
        },
    )


def _json(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
