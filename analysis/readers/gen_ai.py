"""OpenTelemetry GenAI traces (`otel_genai`): OTLP/JSON lines {resourceSpans}, new (1.37+, JSON message parts) and legacy (indexed
`gen_ai.prompt.N.content`) attributes.

Step, group and reward have no standard attribute: `*.step`, `*.group_id` and `*.reward` are looked for, `--map` names others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common
from analysis.readers.containers import Bad, Record
from analysis.readers.messages import Message, as_message, as_messages, render
from analysis.readers.normal_form import Rollout, Turn, integer, number, truncated_by
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.thinking import strip_end_of_turn
from analysis.readers.traces import grouped_records

_LOOSE_NAMES = {
    "reward": re.compile(r"(?:^|[._])(?:reward|score)$"),
    "step": re.compile(r"(?:^|[._])(?:global_)?step$"),
    "group_id": re.compile(r"(?:^|[._])group(?:_id)?$"),
}


class OtelGenAi(RecordReader):
    """OTLP spans with gen_ai.* attributes; one trace is one rollout, one chat span one turn."""

    name = "otel_genai"
    needs = frozenset({"resourceSpans"})

    def claims(self, seen: Peek) -> Match | None:
        """resourceSpans and gen_ai attributes somewhere in the first bytes."""
        if seen.having(self.needs) and "gen_ai." in seen.text:
            legacy = "gen_ai.prompt.0" in seen.text or "gen_ai.completion.0" in seen.text
            return Match(
                0.9, "OTLP lines with gen_ai attributes", "indexed attributes" if legacy else "message parts (1.37+)"
            )
        return None

    def records(self, file: File) -> Iterator[Record]:
        """One record per trace."""
        return grouped_records(_spans(super().records(file)), lambda span: str(span["traceId"]))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per trace."""
        spans = sorted(record["spans"], key=lambda span: number(span.get("startTimeUnixNano")) or 0.0)
        merged: dict[str, Any] = {}
        turns = []
        for span in spans:
            attributes = span["attributes"]
            merged |= {key: value for key, value in attributes.items() if not key.startswith("gen_ai.")}
            for event in span.get("events") or []:
                if str(event.get("name", "")).startswith("gen_ai.evaluation"):
                    merged |= _flat(event.get("attributes"))
            if turn := _turn(attributes):
                turns.append(turn)
        if not turns:
            raise ValueError("no chat span with text in the trace (content capture was off?)")
        for name, pattern in _LOOSE_NAMES.items():
            if name not in merged:
                found = next((key for key in merged if pattern.search(key)), None)
                if found:
                    merged[name] = merged[found]
                    self.say(file.notes, f"attribute '{found}' is taken as {name}: there is no standard one")
        yield apply_common(Rollout(turns, trajectory=record["key"]), merged, file)


def _spans(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        if isinstance(record.value, Bad) or not isinstance(record.value, dict):
            yield record
            continue
        for resource in record.value.get("resourceSpans") or []:
            for scope in resource.get("scopeSpans") or []:
                for span in scope.get("spans") or []:
                    yield Record(record.line, {**span, "attributes": _flat(span.get("attributes"))})


def _flat(attributes: Any) -> dict[str, Any]:
    return {item["key"]: _value(item.get("value") or {}) for item in attributes or []}


def _value(value: dict[str, Any]) -> Any:
    if "intValue" in value:
        return integer(value["intValue"])
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values") or []]
    return next((value[key] for key in ("stringValue", "doubleValue", "boolValue") if key in value), None)


def _turn(attributes: dict[str, Any]) -> Turn | None:
    if "gen_ai.output.messages" in attributes:
        outputs = as_messages(json.loads(attributes["gen_ai.output.messages"]))
        system = json.loads(attributes.get("gen_ai.system_instructions") or "[]")
        prompt = [as_message({"role": "system", "parts": system})] if system else []
        prompt += as_messages(json.loads(attributes.get("gen_ai.input.messages") or "[]"))
    else:
        outputs, prompt = (
            indexed_messages(attributes, "gen_ai.completion"),
            indexed_messages(attributes, "gen_ai.prompt"),
        )
    if not outputs:
        return None
    answer = outputs[0]
    reasons = attributes.get("gen_ai.response.finish_reasons") or [answer.finish_reason]
    columns = {
        "n_tool_calls": answer.n_tool_calls,
        "response_truncated": truncated_by(reasons[0]),
        "prompt_tokens": integer(attributes.get("gen_ai.usage.input_tokens")),
        "response_tokens": integer(attributes.get("gen_ai.usage.output_tokens")),
        "temperature": number(attributes.get("gen_ai.request.temperature")),
        "top_p": number(attributes.get("gen_ai.request.top_p")),
        "max_response_tokens": integer(attributes.get("gen_ai.request.max_tokens")),
        "model_version": attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model"),
    }
    state = next((message.text for message in reversed(prompt) if message.role not in ("assistant", "system")), None)
    return Turn(strip_end_of_turn(answer.text), render(prompt), state, answer.reasoning, columns)


def indexed_messages(attributes: dict[str, Any], prefix: str) -> list[Message]:
    """Messages of attributes `<prefix>.<n>.role`, `.content`, `.tool_calls.<k>.name` and so on (OpenLLMetry)."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.(.+)$")
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    for key, value in attributes.items():
        match = pattern.match(key)
        if not match:
            continue
        index, name = int(match[1]), match[2]
        call = re.match(r"tool_calls\.(\d+)\.(.+)$", name)
        if call:
            calls.setdefault(index, {}).setdefault(int(call[1]), {})[call[2]] = value
        else:
            found.setdefault(index, {})[name] = value
    messages = []
    for index in sorted(set(found) | set(calls)):
        raw = {"role": "assistant", **found.get(index, {})}
        if index in calls:
            raw["tool_calls"] = [calls[index][position] for position in sorted(calls[index])]
        messages.append(as_message(raw))
    return messages
