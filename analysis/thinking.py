"""X and Z of logged turns: which context, which reasoning, in the three scopes. Text inside one response is split by the readers.

X ends with the opening tag, Z lies strictly between the tags (docs/metrics.md §1). Token ids are used whenever the log holds
them: exactly what was sampled, after exactly what the policy saw. Turns without closed, non-empty thinking have no Z.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCOPES = ("first_turn", "state", "trajectory")
OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
COLUMNS = (
    "step",
    "split",
    "group_id",
    "prompt_id",
    "trajectory_id",
    "turn",
    "state_text",
    "prompt_text",
    "thinking_text",
    "thinking_closed",
    "prompt_ids",
    "response_ids",
    "thinking_start",
    "thinking_end",
    "temperature",
    "model_version",
)


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Thinking inside the sampled tokens of one response."""

    start: int
    """First thinking token: one past the opening tag."""
    end: int
    """One past the last thinking token."""
    closed: bool

    @property
    def valid(self) -> bool:
        """Closed and not empty."""
        return self.closed and self.end > self.start


def token_span(
    response_ids: Sequence[int], opening: Sequence[int], closing: Sequence[int], *, opened_by_prompt: bool
) -> TokenSpan | None:
    """Find the first thinking in a response; None when there is none.

    opening, closing: token ids of the tags (one or several tokens each). opened_by_prompt: the context already ends in the
    opening tag. A response that opens again while inside keeps the second tag as thinking; of repeated blocks the first non-empty
    one counts; a closing tag without any opening one ends thinking that began with the response.
    """
    ids, position, found = list(response_ids), 0, None
    inside = opened_by_prompt or _find(ids, closing, 0) < _find(ids, opening, 0)
    while True:
        if not inside:
            start = _find(ids, opening, position)
            if start >= len(ids):
                return found
            position = start + len(opening)
        end = _find(ids, closing, position)
        span = TokenSpan(position, min(end, len(ids)), end < len(ids))
        if span.valid or not span.closed:
            return span if span.valid or found is None else found
        found, position, inside = found or span, end + len(closing), False


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """One turn with its reasoning. Token ids are None when the log has none (foreign logs; `state` scope)."""

    step: int | None
    split: str
    group: str
    prompt_id: str
    trajectory_id: str
    turn: int
    context_text: str | None
    reasoning_text: str | None
    context_ids: tuple[int, ...] | None
    reasoning_ids: tuple[int, ...] | None
    temperature: float | None
    model_version: str | None


def logged_turns(table: pa.Table, scope: str) -> Iterator[LoggedTurn]:
    """Turns of a rollout-log table that hold a reasoning, with X and Z in the given scope.

    first_turn: turn 0 under its prompt. trajectory: every turn under its whole context. state: later turns under the current
    observation alone, which only exists as text. Raises ValueError for an unknown scope.
    """
    if scope not in SCOPES:
        raise ValueError(f"unknown scope {scope!r}: one of {', '.join(SCOPES)}")
    names = [name for name in COLUMNS if name in table.column_names]
    for row in table.select(names).to_pylist():
        if scope == "first_turn" and row["turn"] != 0:
            continue
        turn = _state_turn(row) if scope == "state" else _context_turn(row)
        if turn is not None:
            yield turn


def thinking_valid_rate(tables: Sequence[pa.Table]) -> float | None:
    """Share of turns whose thinking is present, closed and not empty; None without turns or when no turn stores thinking."""
    turns = valid = stored = 0
    for table in tables:
        for text, closed in zip(
            table.column("thinking_text").to_pylist(), table.column("thinking_closed").to_pylist(), strict=True
        ):
            turns += 1
            stored += text is not None
            valid += bool(text and text.strip() and closed is not False)
    return valid / turns if turns and stored else None


def opened(context: str) -> str:
    """The context, ending in the opening tag (which is part of X)."""
    return context if context.rstrip().endswith(OPEN_THINK) else context + OPEN_THINK


def _context_turn(row: dict[str, Any]) -> LoggedTurn | None:
    """Turn under the context that the policy saw."""
    context, reasoning = None, None
    ids, start, end = row.get("response_ids"), row.get("thinking_start"), row.get("thinking_end")
    if row.get("prompt_ids") and ids and start is not None and end is not None and 0 <= start < end <= len(ids):
        context, reasoning = tuple(row["prompt_ids"]) + tuple(ids[:start]), tuple(ids[start:end])
    text = (row.get("thinking_text") or "").strip()
    if row.get("thinking_closed") is False or (not text and reasoning is None):
        return None
    prompt = row.get("prompt_text")
    return _turn(row, opened(prompt) if prompt else None, text or None, context, reasoning)


def _state_turn(row: dict[str, Any]) -> LoggedTurn | None:
    """Turn under its observation alone."""
    text, state = (row.get("thinking_text") or "").strip(), row.get("state_text")
    if not text or not state or row.get("thinking_closed") is False:
        return None
    return _turn(row, opened(state.rstrip() + "\n"), text, None, None)


def _turn(
    row: dict[str, Any],
    context_text: str | None,
    reasoning_text: str | None,
    context_ids: tuple[int, ...] | None,
    reasoning_ids: tuple[int, ...] | None,
) -> LoggedTurn:
    return LoggedTurn(
        step=row.get("step"),
        split=row["split"],
        group=row.get("group_id") or row["prompt_id"],
        prompt_id=row["prompt_id"],
        trajectory_id=row["trajectory_id"],
        turn=row["turn"],
        context_text=context_text,
        reasoning_text=reasoning_text,
        context_ids=context_ids,
        reasoning_ids=reasoning_ids,
        temperature=row.get("temperature"),
        model_version=row.get("model_version"),
    )


def _find(ids: list[int], tag: Sequence[int], start: int) -> int:
    """Position of a tag at or after `start`; len(ids) when it is not there."""
    tag = list(tag)
    for position in range(start, len(ids) - len(tag) + 1):
        if ids[position : position + len(tag)] == tag:
            return position
    return len(ids)
