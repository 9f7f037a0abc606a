"""The normal form every framework is brought to: one `Rollout` with its turns, and its rows in the rollout-log schema.

Shared rules only (grouping, rewards, turn splitting); no framework's field names, no files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.readers.messages import Message, as_messages, render
from analysis.readers.thinking import Thinking, split_thinking, strip_end_of_turn
from ragen_diag.rollout_log import prompt_id

_LETTER_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_TRUNCATED_REASONS = frozenset({"length", "max_tokens", "max_new_tokens", "truncated", "model_length", "max_length"})
_KNOWN_REASONS = frozenset(
    {"stop", "eos", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call", "completed", "finished"}
)


@dataclass(slots=True)
class Turn:
    """One response of the policy."""

    response: str | None
    """None when the log holds no text."""
    prompt: str | None = None
    """Whole context of this turn, as text."""
    state: str | None = None
    """What the environment showed last."""
    reasoning: str | None = None
    """Thinking stored in a field of its own."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Further columns of the rollout-log schema for this turn."""


@dataclass(slots=True)
class Rollout:
    """One trajectory, as read."""

    turns: list[Turn]
    reward: float | None = None
    """None = missing (never 0)."""
    reward_source: str | None = None
    components: dict[str, float | None] | None = None
    step: int | None = None
    step_source: str | None = None
    split: str | None = None
    group: str | None = None
    """Explicit group id; None = rollouts of one prompt, step and split are a group."""
    group_source: str | None = None
    prompt_key: Any = None
    """What identifies the prompt (text or token ids) when it is not the first turn's prompt."""
    trajectory: str | None = None
    line: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    """Further columns of the rollout-log schema, the same on every turn."""


# --- values


def number(value: Any) -> float | None:
    """A float from a number, bool or numeric string; None for everything else. NaN stays NaN."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def integer(value: Any) -> int | None:
    """A whole number from 5, 5.0, "5" or ["5", "5"]; None for everything else."""
    if isinstance(value, list) and value:
        value = value[0]
    as_float = number(value)
    if as_float is None or not math.isfinite(as_float) or as_float != int(as_float):
        return None
    return int(as_float)


def reward_of(value: Any) -> float | None:
    """A reward in any stored shape: number, numeric string, letter grade, list (summed), {"score": …}; None = missing."""
    if isinstance(value, str) and value in _LETTER_GRADES:
        return _LETTER_GRADES[value]
    if isinstance(value, list):
        parts = [reward_of(item) for item in value]
        known = [part for part in parts if part is not None]
        return (
            math.fsum(known) if known and not any(math.isnan(part) for part in known) else (math.nan if known else None)
        )
    if isinstance(value, dict):
        return reward_of(next((value[key] for key in ("score", "reward", "value", "total") if key in value), None))
    return number(value)


def weighted_rewards(value: Any) -> tuple[float | None, dict[str, float | None]]:
    """Total and parts of {name: {"score", "weight"} | number | null}; null parts are unscored, not 0."""
    if not isinstance(value, dict):
        return reward_of(value), {}
    total, parts = 0.0, {}
    for name, entry in value.items():
        score = reward_of(entry)
        parts[str(name)] = score
        weight = number(entry.get("weight")) if isinstance(entry, dict) else None
        total += (score or 0.0) * (1.0 if weight is None else weight)
    scored = any(score is not None for score in parts.values())
    return (total if scored else None), parts


def truncated_by(finish_reason: Any) -> bool | None:
    """Whether a finish reason means the token cap; None when it is absent or unknown."""
    if not isinstance(finish_reason, str):
        return None
    reason = finish_reason.lower()
    return True if reason in _TRUNCATED_REASONS else False if reason in _KNOWN_REASONS else None


# --- turns

_BARE_TURN = re.compile(r"\n(?:user|tool|environment)\n(.*?)\nassistant\n", re.DOTALL)
_CHATML_TURN = re.compile(
    r"(?:<\|im_end\|>\s*)?<\|im_start\|>(?:user|tool|environment)\n(.*?)(?:<\|im_end\|>)?\s*<\|im_start\|>assistant\n",
    re.DOTALL,
)


def turns_from_text(prompt: str, response: str) -> list[Turn]:
    """Turns of a decoded prompt and response; environment text between role lines of the response separates them.

    Bare role lines are only believed when the prompt ends in one, so that prose is never cut.
    """
    bare = prompt.rstrip().removesuffix("<think>").rstrip().endswith(("\nassistant", "<|im_start|>assistant"))
    pattern = (
        _CHATML_TURN if "<|im_start|>" in response else _BARE_TURN if bare and "\nassistant\n" in response else None
    )
    turns: list[Turn] = []
    start, context, state = 0, prompt, last_user_text(prompt)
    for match in pattern.finditer(response) if pattern else ():
        turns.append(Turn(strip_end_of_turn(response[start : match.start()]), context, state))
        start, context, state = match.end(), prompt + response[: match.end()], match[1].strip()
    turns.append(Turn(strip_end_of_turn(response[start:]), context, state))
    return turns


def last_user_text(prompt: str) -> str | None:
    """Text of the last user message of a decoded chat prompt; None when it has no role lines."""
    start = max(prompt.rfind("\nuser\n"), prompt.rfind("<|im_start|>user\n"))
    if start < 0 and not prompt.startswith("user\n"):
        return None
    text = prompt[prompt.index("user\n", max(start, 0)) + len("user\n") :]
    ends = [end for end in (text.find("\nassistant\n"), text.find("<|im_end|>")) if end >= 0]
    return text[: min(ends)].strip() if ends else text.strip()


def turns_from_messages(conversation: Any, *, prompt: Any = None) -> list[Turn]:
    """One turn per assistant message. `prompt`: messages before the conversation, whose assistant messages are examples."""
    before = as_messages(prompt) if prompt is not None else []
    messages = [Message(m.role, m.text, m.reasoning, m.n_tool_calls, sampled=False) for m in before]
    if isinstance(conversation, str) and prompt is not None:
        messages.append(Message("assistant", conversation))
    else:
        messages += as_messages(conversation)
    turns = []
    for index, message in enumerate(messages):
        if message.role != "assistant" or not message.sampled:
            continue
        state = next((m.text for m in reversed(messages[:index]) if m.role not in ("assistant", "system")), None)
        columns = {"n_tool_calls": message.n_tool_calls, "response_truncated": truncated_by(message.finish_reason)}
        turns.append(Turn(strip_end_of_turn(message.text), render(messages[:index]), state, message.reasoning, columns))
    return turns


# --- rows


@dataclass
class Placed:
    """Running state of one run: positions inside groups and rollouts seen before."""

    group_sizes: dict[tuple[str, int | None, str], int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    current: tuple[str, int] | None = None
    n_blocks: int = 0
    n_repeated: int = 0

    def position(self, split: str, step: int | None, group: str) -> int:
        """Index of the next rollout inside its group."""
        index = self.group_sizes.get((split, step, group), 0)
        self.group_sizes[(split, step, group)] = index + 1
        return index

    def note_repeat(self, split: str, step: int | None, prompt: str, response: str) -> None:
        """Count a rollout whose step, prompt and response came before in another stretch of the log (a resumed run)."""
        if step is None:
            return
        if self.current != (split, step):
            self.current = (split, step)
            self.n_blocks += 1
        key = hash((split, step, prompt, response))
        if self.seen.setdefault(key, self.n_blocks) != self.n_blocks:
            self.n_repeated += 1


def rollout_rows(
    rollout: Rollout, *, run_id: str, path: str, placed: Placed, tags: tuple[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of the rollout-log schema, one per turn. `rollout.step` and `.split` are already decided."""
    first = rollout.turns[0]
    key: str | Sequence[int] = rollout.prompt_key if rollout.prompt_key is not None else (first.prompt or "")
    prompt = prompt_id(key)
    split = rollout.split or "train"
    if rollout.group is not None:
        group, group_source = rollout.group, rollout.group_source or "explicit id"
    elif key:
        group, group_source = prompt, rollout.group_source or "identical prompt"
    else:
        group, group_source = None, "unknown"
    placed.note_repeat(split, rollout.step, prompt, "\0".join(turn.response or "" for turn in rollout.turns))
    shared = {
        "run_id": run_id,
        "step": rollout.step,
        "split": split,
        "group_id": group,
        "prompt_id": prompt,
        "rollout_index": None if group is None else placed.position(split, rollout.step, group),
        "trajectory_id": rollout.trajectory or f"{path}:{rollout.line}",
        "n_turns": len(rollout.turns),
        "return_": rollout.reward,
        "reward_components": list(rollout.components.items()) if rollout.components else None,
        "source_path": path,
        "source_line": rollout.line,
        "step_source": rollout.step_source if rollout.step is not None else None,
        "group_source": group_source,
        "reward_source": rollout.reward_source if rollout.reward is not None else None,
        **rollout.columns,
    }
    for index, turn in enumerate(rollout.turns):
        thinking = _thinking_of(turn, tags)
        if turn.response is not None and "n_tool_calls" not in turn.columns:
            turn.columns["n_tool_calls"] = turn.response.count("<tool_call>")
        yield {
            **shared,
            "turn": index,
            "state_text": turn.state,
            "prompt_text": turn.prompt,
            "response_text": turn.response,
            "thinking_text": thinking.text,
            "thinking_closed": thinking.closed,
            "answer_text": thinking.answer if turn.response is not None else None,
            **turn.columns,
        }


def _thinking_of(turn: Turn, tags: tuple[str, str] | None) -> Thinking:
    if turn.response is None:
        return Thinking(turn.reasoning or None, True if turn.reasoning else None, "")
    return split_thinking(turn.response, own_field=turn.reasoning, prompt=turn.prompt, tags=tags)
