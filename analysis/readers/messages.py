"""Chat messages in every dialect a log may use, as (role, text, reasoning, tool calls). No files, no rollouts.

Dialects: OpenAI chat, Anthropic content blocks, inspect_ai and OpenTelemetry parts, ShareGPT from/value, LangChain's serialised
constructors, ART choices.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
    "tool_response": "tool",
    "ipython": "tool",
}
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")


@dataclass(slots=True)
class Message:
    """One message of a conversation."""

    role: str
    text: str
    """Visible text, tool calls written out as <tool_call>{…}</tool_call>."""
    reasoning: str | None = None
    n_tool_calls: int = 0
    sampled: bool = True
    """Written by the policy when role is 'assistant' (false for few-shot examples)."""
    finish_reason: str | None = None


def as_message(raw: Any) -> Message:
    """Read one message of any dialect. Raises ValueError when it has neither a role nor a known shape."""
    if isinstance(raw, str):
        return Message("user", raw)
    if not isinstance(raw, dict):
        raise ValueError(f"a message is a {type(raw).__name__}, not an object")
    if isinstance(raw.get("message"), dict) and "finish_reason" in raw:  # OpenAI Choice, as ART stores it
        message = as_message(raw["message"])
        message.finish_reason = raw["finish_reason"]
        return message
    if raw.get("type") == "constructor" and isinstance(raw.get("kwargs"), dict):  # LangChain
        return _langchain(raw)
    role = raw.get("role") or raw.get("from") or raw.get("type")
    if not isinstance(role, str):
        raise ValueError(f"a message without role (keys {sorted(raw)})")
    content = raw.get("content", raw.get("value", raw.get("parts")))
    text, reasoning, calls = _content(content)
    for key in _REASONING_KEYS:
        if isinstance(raw.get(key), str) and raw[key].strip():
            reasoning = raw[key]
            break
    calls += [call for call in _listed(raw.get("tool_calls")) if call]
    if isinstance(raw.get("function_call"), dict):
        calls.append(raw["function_call"])
    role = _ROLES.get(role.lower(), role.lower())
    written = "\n".join(f"<tool_call>{_call_text(call)}</tool_call>" for call in calls)
    return Message(
        role,
        "\n".join(part for part in (text, written) if part),
        reasoning,
        len(calls),
        sampled=raw.get("trainable") is not False,
        finish_reason=raw.get("finish_reason") or raw.get("stop_reason"),
    )


def as_messages(raw: Any) -> list[Message]:
    """Read a conversation: a list of messages, its JSON text, or a plain string (one user message)."""
    if isinstance(raw, str):
        if raw.lstrip()[:1] == "[":
            try:
                parsed = json.loads(raw)
            except ValueError:
                return [Message("user", raw)]
            if isinstance(parsed, list) and all(isinstance(item, dict) for item in parsed):
                return [as_message(item) for item in parsed]
        return [Message("user", raw)]
    if isinstance(raw, dict):
        return [as_message(raw)]
    if not isinstance(raw, list):
        raise ValueError(f"a conversation is a {type(raw).__name__}, not a list")
    return [as_message(item) for item in raw if item is not None]


def render(messages: list[Message]) -> str:
    """Text of a context: bare role lines, as decoders that skip special tokens leave them."""
    return "".join(f"{message.role}\n{message.text}\n" for message in messages) + "assistant\n"


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    return list(value) if isinstance(value, (list, tuple)) else [value] if isinstance(value, dict) else []


def _call_text(call: Any) -> str:
    if isinstance(call, str):
        try:
            call = json.loads(call)  # verifiers stores each call as a JSON string
        except ValueError:
            return call
    function = call.get("function") if isinstance(call, dict) else None
    source = function if isinstance(function, dict) else call
    if not isinstance(source, dict):
        return json.dumps(call, ensure_ascii=False)
    arguments = source.get("arguments", source.get("args", source.get("input", {})))
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # arguments that are no JSON are shown as the policy wrote them
            arguments = json.loads(arguments)
    name = source.get("name") or (function if isinstance(function, str) else None)
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _content(content: Any) -> tuple[str, str | None, list[Any]]:
    """Text, reasoning and tool calls of a message's content: a string, or a list of parts."""
    if content is None:
        return "", None, []
    if isinstance(content, str):
        return content, None, []
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return str(content), None, []
    texts: list[str] = []
    reasonings: list[str] = []
    calls: list[Any] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if kind in ("reasoning", "thinking"):
            reasonings.append(
                str(part.get("reasoning") or part.get("thinking") or part.get("content") or part.get("text") or "")
            )
        elif kind in ("tool_call", "tool_use"):
            calls.append(part)
        elif kind in ("tool_call_response", "tool_result"):
            value = next((part[key] for key in ("response", "result", "content") if part.get(key) is not None), "")
            texts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        elif isinstance(part.get("text", part.get("content")), str):
            texts.append(str(part.get("text", part.get("content"))))
        elif kind:
            texts.append(f"<{kind}>")  # images and files: a placeholder keeps prompts with and without them apart
    return "\n".join(texts), "\n".join(reasonings) or None, calls


def _langchain(raw: dict[str, Any]) -> Message:
    kwargs = raw["kwargs"]
    extra = kwargs.get("additional_kwargs") or {}
    name = str((raw.get("id") or [""])[-1])
    role = {"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"}.get(
        name.removesuffix("Chunk"), kwargs.get("type", "user")
    )
    return as_message(
        {
            "role": role,
            "content": kwargs.get("content"),
            "tool_calls": kwargs.get("tool_calls") or extra.get("tool_calls"),
            **{key: extra[key] for key in _REASONING_KEYS if extra.get(key)},
        }
    )
