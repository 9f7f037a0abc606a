"""Langfuse blob exports: `observations_v2/*.jsonl` (older: observations/) joined with `scores/*.jsonl` on trace_id.

A trace is a rollout, a GENERATION a turn. The column list is partly from the documentation, partly from memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common
from analysis.readers.containers import Bad, Record, iter_json
from analysis.readers.messages import as_message, as_messages, render
from analysis.readers.normal_form import Rollout, Turn, integer, number, truncated_by
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.thinking import strip_end_of_turn
from analysis.readers.traces import grouped_records

_TYPES = {"GENERATION", "SPAN", "AGENT", "EVENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}


class Langfuse(RecordReader):
    """Observations {trace_id, type, input, output}."""

    name = "langfuse"
    needs = frozenset({"trace_id", "type", "input", "output"})
    inside_run = re.compile(r"observations(?:_v2)?|scores|traces")

    def __init__(self) -> None:
        super().__init__()
        self._scores: dict[Path, dict[str, dict[str, float | None]]] = {}

    def claims(self, seen: Peek) -> Match | None:
        """Observations by their type; scores belong to them."""
        for row in seen.records if seen.kind == "json" else ():
            if self.needs <= set(row) and str(row["type"]).upper() in _TYPES:
                return Match(0.9, "records have trace_id, type, input, output", "observations")
        if match_keys(seen, ["data_type", "name", "trace_id", "value"]):
            return Match(0.9, "records are Langfuse scores", "scores")
        return None

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """Score files are read together with the observations beside them."""
        scores = {path: "read together with the observations" for path in files if _is_scores(path)}
        return [path for path in files if path not in scores], scores

    def records(self, file: File) -> Iterator[Record]:
        """One record per trace."""
        return grouped_records(super().records(file), lambda row: str(row["trace_id"]))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per trace."""
        rows = record["spans"]
        root = next((row for row in rows if not row.get("parent_observation_id")), rows[0])
        generations = [row for row in rows if str(row["type"]).upper() == "GENERATION"]
        turns = [
            turn for row in sorted(generations, key=lambda row: str(row.get("start_time"))) if (turn := _turn(row))
        ]
        if not turns:
            raise ValueError("no generation with output in the trace")
        turns.sort(key=lambda turn: len(turn.prompt or ""))  # equal start times: the history only grows
        scores = self._scores_beside(file).get(record["key"], {})
        rollout = Rollout(turns, trajectory=record["key"], components=scores if len(scores) > 1 else None)
        if scores:
            name = "reward" if "reward" in scores else next(iter(scores))
            rollout.reward, rollout.reward_source = scores[name], f"scores.{name}"
        metadata = _parsed(root.get("metadata"))
        yield apply_common(rollout, {"metadata": metadata if isinstance(metadata, dict) else {}}, file)

    def _scores_beside(self, file: File) -> dict[str, dict[str, float | None]]:
        """Scores by trace id, from the file's folder and a `scores` folder beside it; read once per pass over the log."""
        folder = file.path.parent
        if folder in self._scores:
            return self._scores[folder]
        found = self._scores[folder] = {}
        for place in (folder.parent / "scores", folder / "scores", folder):
            for path in sorted(place.glob("*.json*")) if place.is_dir() else ():
                if place == folder and not _is_scores(path):
                    continue
                for record in iter_json(path):
                    row = record.value
                    if isinstance(row, Bad):
                        self.bad(replace(file, path=path), record.line, row.why)
                    elif isinstance(row, dict) and row.get("trace_id") and row.get("name"):
                        found.setdefault(str(row["trace_id"]), {})[str(row["name"])] = number(row.get("value"))
        return found


def _is_scores(path: Path) -> bool:
    first = next(iter(iter_json(path)), None)
    return (
        first is not None and isinstance(first.value, dict) and {"trace_id", "value", "data_type"} <= set(first.value)
    )


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _turn(row: dict[str, Any]) -> Turn | None:
    output = _parsed(row.get("output"))
    if not output:
        return None
    if isinstance(output, list):
        output = output[-1]
    answer = as_message(
        output if isinstance(output, dict) and "role" in output else {"role": "assistant", "content": output}
    )
    given = _parsed(row.get("input"))
    prompt = as_messages(given.get("messages", []) if isinstance(given, dict) else given or [])
    state = next((message.text for message in reversed(prompt) if message.role not in ("assistant", "system")), None)
    usage = _parsed(row.get("usage_details")) or {}
    columns = {
        "n_tool_calls": answer.n_tool_calls,
        "response_truncated": truncated_by(answer.finish_reason),
        "prompt_tokens": integer(usage.get("input")),
        "response_tokens": integer(usage.get("output")),
        "model_version": row.get("provided_model_name"),
    }
    return Turn(strip_end_of_turn(answer.text), render(prompt), state, answer.reasoning, columns)
