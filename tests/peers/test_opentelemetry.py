"""Spans made by the OpenTelemetry SDK with GenAI attributes, written as OTLP JSON lines by its own encoder."""

import json

import pytest

from analysis.readers.base import ReadOptions
from analysis.readers.discover import discover
from tests.readers.conftest import counts, rows_of


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """2 steps x 2 prompts x 2 rollouts of two turns each, in batches of five spans."""
    pytest.importorskip("opentelemetry.sdk")
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("agent")
    for step in (1, 2):
        for prompt in range(2):
            for attempt in range(2):
                with tracer.start_as_current_span("rollout") as root:
                    root.set_attributes({"rl.step": step, "rl.group_id": f"g{prompt}", "rl.reward": float(attempt)})
                    history = [message("user", text(f"question {prompt}"))]
                    for turn in range(2):
                        with tracer.start_as_current_span("chat tiny") as span:
                            reply = message(
                                "assistant", {"type": "reasoning", "content": f"think {turn}"}, text(f"say {attempt}"),
                                finish_reason="length" if turn else "stop",
                            )  # fmt: skip
                            span.set_attributes({
                                "gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny",
                                "gen_ai.input.messages": json.dumps(history),
                                "gen_ai.output.messages": json.dumps([reply]),
                                "gen_ai.response.finish_reasons": [reply["finish_reason"]],
                                "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3,
                            })  # fmt: skip
                            history += [reply, message("user", text("go on"))]
    spans = memory.get_finished_spans()
    path = tmp_path_factory.mktemp("otel") / "traces.jsonl"
    with path.open("w") as handle:
        for first in range(0, len(spans), 5):
            handle.write(MessageToJson(encoder.encode_spans(spans[first : first + 5]), indent=None) + "\n")
    return path


def message(role, *parts, **more):
    return {"role": role, "parts": list(parts), **more}


def text(content):
    return {"type": "text", "content": content}


def test_its_spans_are_read_back(exported):
    (source,) = discover([exported])
    assert source.format == "otel_genai"
    assert counts(source) == (8, 2, 4, 8, 0.5, 0, 0)
    rows = rows_of(source)
    assert len(rows) == 16
    assert [row["thinking_text"] for row in rows[:2]] == ["think 0", "think 1"]
    assert {(row["turn"], row["response_truncated"]) for row in rows} == {(0, False), (1, True)}
    assert {row["answer_text"] for row in rows} == {"say 0", "say 1"}
    assert {row["group_id"] for row in rows} == {"g0", "g1"}


def test_an_attribute_of_another_name_is_mapped(exported):
    (source,) = discover([exported], ReadOptions(format="otel_genai", mapping={"reward": "rl.step"}))
    assert {(row["step"], row["return_"]) for row in rows_of(source)} == {(1, 1.0), (2, 2.0)}
