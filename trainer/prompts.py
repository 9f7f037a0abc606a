"""What the policy is told: system text, turn text, and the exact token ids of both. Not for reading replies (`parsing.py`).

Contexts are built once and only appended to: the ids of turn k+1 are the ids of turn k, the ids the policy sampled, and
the ids of the next message. No text is rendered twice, so what was sampled is what is logged, scored and trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from envs.text_env import TextEnv

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_ANSWER, CLOSE_ANSWER = "<answer>", "</answer>"
_MARK = "qZ7reply7Zq"  # stands for a reply when the template's glue around it is measured


def system_text(env: TextEnv, *, max_actions: int, max_actions_per_turn: int, separator: str, think: bool) -> str:
    """Rules of the environment, names of the actions, budgets, and the one statement of the reply format."""
    lines = ["You are a helpful assistant.", ""]
    if env.instruction:
        lines.append(env.instruction)
    if env.action_names:
        lines.append(f"Actions: {', '.join(env.action_names)}.")
    budget = f"At most {max_actions} actions in all, {max_actions_per_turn} per turn"
    lines.append(f"{budget}, separated by {separator}." if max_actions_per_turn > 1 else f"{budget}.")
    thoughts = f"{OPEN_THINK}your thoughts{CLOSE_THINK}" if think else ""
    lines.append(f"Reply with {thoughts}{OPEN_ANSWER}your actions{CLOSE_ANSWER} and nothing else.")
    return "\n".join(lines)


def turn_text(turn: int, state: str, *, actions_left: int, previous_reward: float | None, invalid: bool = False) -> str:
    """The user's message of turn `turn` (from 0): the reward of the last turn, the state, and the actions left.

    invalid: the last reply held no usable action, and the policy is told so.
    """
    reward = "" if previous_reward is None else f"Reward: {previous_reward:g}\n"
    warning = "Your last reply held no valid action.\n" if invalid else ""
    return f"{reward}Turn {turn + 1}, {actions_left} actions left.\n{warning}{state}"


def history_text(past: Sequence[tuple[str, str, float]], *, first_turn: int) -> str:
    """Past (state, reply, reward) triples as one text block, for prompts that hold the history inside a single message."""
    blocks = [
        f"Turn {first_turn + i + 1}:\nState:\n{state}\nReply: {reply}\nReward: {reward:g}\n"
        for i, (state, reply, reward) in enumerate(past)
    ]
    return "".join(blocks)


class ChatFormat:
    """Token ids of messages under one tokenizer's chat template.

    Every reply is started for the policy by `<think>` (`<answer>` without thinking): that tag belongs to the prompt.
    """

    def __init__(self, tokenizer: Any, *, think: bool = True) -> None:
        self.tokenizer = tokenizer
        self.think = think
        self.opening_tag = OPEN_THINK if think else OPEN_ANSWER

    def first_ids(self, system: str, user: str) -> list[int]:
        """Context of the first turn, up to and including the opening tag."""
        return self._encode(self._render([_message("system", system), _message("user", user)]))

    def next_ids(self, user: str, *, last_id: int | None) -> list[int]:
        """What follows a reply: the end of the assistant's message, the next user message, and the opening tag.

        last_id: the last token the policy sampled. When it is the end-of-turn token itself, it is not repeated.
        """
        conversation = [_message("user", "."), _message("assistant", _MARK), _message("user", user)]
        rendered = self._render(conversation)
        ids = self._encode(rendered[rendered.index(_MARK) + len(_MARK) :])
        return ids[1:] if ids and ids[0] == last_id else ids

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            text = self._apply(messages)
        except TemplateError:  # templates without a system role (Gemma): the system text leads the first user message
            if messages[0]["role"] != "system":
                raise
            merged = _message("user", f"{messages[0]['content']}\n\n{messages[1]['content']}")
            text = self._apply([merged, *messages[2:]])
        return text if text.rstrip().endswith(self.opening_tag) else text + self.opening_tag

    def _apply(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=self.think
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
