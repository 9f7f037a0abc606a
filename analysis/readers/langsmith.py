"""LangSmith run exports: JSON lines, an array, {runs: […]} or {data: […]}, bulk Parquet.

A trace is a rollout, an LLM run a turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common
from analysis.readers.containers import Record
from analysis.readers.messages import Message, as_message, as_messages, render
from analysis.readers.normal_form import Rollout, Turn, number, truncated_by
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, lookup, parquet_records
from analysis.readers.thinking import strip_end_of_turn
from analysis.readers.traces import grouped_records


class LangSmith(RecordReader):
    """Runs {run_type, trace_id, inputs, outputs}."""

    name = "langsmith"
    needs = frozenset({"run_type", "trace_id", "inputs"})

    def claims(self, seen: Peek) -> Match | None:
        """Runs, or an object that wraps a list of them."""
        direct = match_keys(seen, sorted(self.needs)) if seen.kind in ("json", "parquet") else None
        if direct:
            return direct
        for row in seen.records:
            inner = _wrapped(row)
            if inner and self.needs <= set(inner[0]):
                return Match(0.9, "an object with a list of LangSmith runs")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """One record per trace."""
        with file.path.open("rb") as handle:
            is_parquet = handle.read(4) == b"PAR1"
        rows = parquet_records(file.path) if is_parquet else super().records(file)
        return grouped_records(_unwrapped(rows), lambda run: str(run["trace_id"]))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per trace."""
        runs = sorted(record["spans"], key=lambda run: str(run.get("dotted_order") or run.get("start_time") or ""))
        root = next((run for run in runs if not run.get("parent_run_id")), runs[0])
        # Exports round start times: with equal ones the longer history came later.
        answered = [
            (str(run.get("start_time")), turn) for run in runs if run["run_type"] == "llm" and (turn := _turn(run))
        ]
        turns = [turn for _, turn in sorted(answered, key=lambda item: (item[0], len(item[1].prompt or "")))]
        if not turns:
            raise ValueError("no LLM run with outputs in the trace")
        feedback = {
            name: number(stats.get("avg")) for name, stats in (_parsed(root.get("feedback_stats")) or {}).items()
        }
        rollout = Rollout(turns, trajectory=record["key"], columns={"error": root.get("error") or None})
        if feedback:
            name, rollout.reward = next(iter(feedback.items()))
            rollout.reward_source = f"feedback_stats.{name}"
            rollout.components = feedback if len(feedback) > 1 else None
            if len(feedback) > 1:
                self.say(
                    file.notes,
                    f"several feedback scores ({', '.join(feedback)}): the first is the reward, all are components",
                )
        apply_common(rollout, {"metadata": (_parsed(root.get("extra")) or {}).get("metadata") or {}}, file)
        if rollout.group is None and root.get("reference_example_id"):
            rollout.group, rollout.group_source = str(root["reference_example_id"]), "reference_example_id"
        yield rollout


def _wrapped(row: Any) -> list[Any] | None:
    if isinstance(row, dict) and "run_type" not in row:
        for key in ("runs", "data"):
            if isinstance(row.get(key), list) and row[key] and isinstance(row[key][0], dict):
                return row[key]
    return None


def _unwrapped(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        inner = _wrapped(record.value)
        if inner is None:
            yield record
        else:
            yield from (Record(index, run) for index, run in enumerate(inner, start=1))


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


def _turn(run: dict[str, Any]) -> Turn | None:
    inputs, outputs = _parsed(run["inputs"]) or {}, _parsed(run.get("outputs")) or {}
    answer, reason = _answer(outputs)
    if answer is None:
        return None
    raw = inputs.get("messages", inputs.get("input", inputs.get("prompts", [])))
    if isinstance(raw, list) and raw and isinstance(raw[0], list):
        raw = raw[0]  # LangChain batches conversations
    prompt = as_messages(raw)
    state = next((message.text for message in reversed(prompt) if message.role not in ("assistant", "system")), None)
    columns = {"n_tool_calls": answer.n_tool_calls, "response_truncated": truncated_by(reason)}
    return Turn(strip_end_of_turn(answer.text), render(prompt), state, answer.reasoning, columns)


def _answer(outputs: dict[str, Any]) -> tuple[Message | None, Any]:
    choice = lookup(outputs, "choices.0")
    if isinstance(choice, dict) and "message" in choice:
        return as_message(choice["message"]), choice.get("finish_reason")
    generation = lookup(outputs, "generations.0.0") or lookup(outputs, "generations.0")
    if isinstance(generation, dict):
        reason = lookup(generation, "generation_info.finish_reason")
        if isinstance(generation.get("message"), dict):
            return as_message(generation["message"]), reason
        return Message("assistant", str(generation.get("text", ""))), reason
    messages = outputs.get("messages") or outputs.get("output")
    if isinstance(messages, list) and messages:
        return as_message(messages[-1]), None
    if isinstance(messages, (dict, str)):
        return (as_message(messages) if isinstance(messages, dict) else Message("assistant", messages)), None
    return None, None
