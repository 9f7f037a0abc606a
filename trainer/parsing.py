"""What the policy said: thinking, answer and actions of one reply, as text and as a span of sampled tokens.

Not for judging actions (the environment does) or for scoring (`agent_loop.py` adds the format penalty).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.prompts import CLOSE_ANSWER, CLOSE_THINK, OPEN_ANSWER, OPEN_THINK

_THINK_ANSWER = re.compile(rf"\A(?P<think>.*?){CLOSE_THINK}\s*{OPEN_ANSWER}(?P<answer>.*?){CLOSE_ANSWER}", re.DOTALL)
_ANSWER = re.compile(rf"\A(?P<answer>.*?){CLOSE_ANSWER}", re.DOTALL)
_TAGS = re.compile("|".join(map(re.escape, (OPEN_THINK, CLOSE_THINK, OPEN_ANSWER, CLOSE_ANSWER))))


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, taken apart."""

    thinking: str | None
    """Text between the think tags, exactly as sampled; None without thinking. Cut-off thinking is kept."""
    thinking_closed: bool
    answer: str | None
    actions: tuple[str, ...]
    """Parts of the answer between separators, stripped, empty ones dropped, at most the allowed number."""
    format_valid: bool
    """The tags came in the required order."""


def parse_reply(text: str, *, think: bool, separator: str, max_actions: int) -> Reply:
    """Take apart what followed the opening tag (which is part of the prompt and not of `text`).

    Text after the answer is ignored; the format counts as followed.
    """
    match = (_THINK_ANSWER if think else _ANSWER).match(text)
    thinking, closed = (text.split(CLOSE_THINK, 1)[0], CLOSE_THINK in text) if think else (None, False)
    if match is None:
        return Reply(thinking, closed, None, (), False)
    answer = _TAGS.sub("", match["answer"]).strip()
    parts = (part.strip() for part in answer.split(separator))
    return Reply(thinking, closed, answer, tuple(part for part in parts if part)[:max_actions], True)


def thinking_span(response_ids: Sequence[int], tokenizer: Any) -> tuple[int, int] | None:
    """[start, end) of the thinking tokens in a reply that began inside the thinking; None while the closing tag is missing.

    Only tokens that lie wholly before `</think>` count, so a token that straddles the tag is in neither.
    """
    close_id = tokenizer.convert_tokens_to_ids(CLOSE_THINK)
    if close_id is not None and close_id != tokenizer.unk_token_id:
        return (0, list(response_ids).index(close_id)) if close_id in response_ids else None
    text = _decode(tokenizer, response_ids)
    if CLOSE_THINK not in text:
        return None
    tag_at = text.index(CLOSE_THINK)
    low, high = 0, len(response_ids)  # the largest prefix whose text ends at or before the tag
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(_decode(tokenizer, response_ids[:middle])) <= tag_at else (low, middle - 1)
    return 0, low


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
