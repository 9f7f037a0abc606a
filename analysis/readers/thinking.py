"""Where the thinking is in one response. One question: which text did the policy think, and was it closed?

Priority (docs/formats.md): a field of its own > <think>…</think> pairs > text before a lone </think> (the chat template already
wrote the opening tag) > an unclosed <think> > a prompt that ends in <think> with an answer that has no tag. The prompt is never
searched otherwise: instructions often spell the tags out.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_TAGS = ("<think>", "</think>")
_OTHER_MARKUPS = {
    # how it opens at the start of a response, how it closes when the template opened it: its name
    ("[THINK]", "[/THINK]"): "[THINK] … [/THINK]",
    ("<|channel|>analysis", "<|channel|>final"): "the gpt-oss analysis channel",
    ("<reasoning>", "</reasoning>"): "<reasoning> … </reasoning>",
    ("<thinking>", "</thinking>"): "<thinking> … </thinking>",
    ("<thought>", "</thought>"): "<thought> … </thought>",
    ("<reason>", "</reason>"): "<reason> … </reason>",
    ("<scratchpad>", "</scratchpad>"): "<scratchpad> … </scratchpad>",
}
_END_OF_TURN = (
    "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "<｜end▁of▁sentence｜>",
)  # fmt: skip


class Thinking(NamedTuple):
    """Thinking and answer of one response."""

    text: str | None
    """Stripped of outer white space; None = none, or empty."""
    closed: bool | None
    """None without thinking."""
    answer: str


def strip_end_of_turn(text: str) -> str:
    """Drop end-of-turn tokens at the end, which some writers keep and others skip."""
    stripped = text.rstrip()
    if not stripped.endswith(_END_OF_TURN):
        return text
    while stripped.endswith(_END_OF_TURN):
        stripped = stripped.removesuffix(next(token for token in _END_OF_TURN if stripped.endswith(token))).rstrip()
    return stripped


def split_thinking(
    response: str, *, own_field: str | None = None, prompt: str | None = None, tags: tuple[str, str] | None = None
) -> Thinking:
    """Split a response into thinking and answer.

    own_field: thinking stored apart from the response (`reasoning_content` and the like).
    prompt: the context the policy saw; only its very end is looked at.
    tags: opening and closing tag, DEFAULT_TAGS when None.
    """
    if own_field and own_field.strip():
        return Thinking(own_field.strip(), True, response.strip())
    opening, closing = tags or DEFAULT_TAGS
    if closing in response:
        return _closed(response, opening, closing)
    if opening in response:
        before, _, rest = response.partition(opening)
        return _thinking(rest, False, before)
    if prompt is not None and prompt.rstrip().endswith(opening):
        return _thinking(response, False, "")
    return Thinking(None, None, response.strip())


def _closed(response: str, opening: str, closing: str) -> Thinking:
    parts: list[str] = []
    kept: list[str] = []
    rest, is_closed = response, True
    while closing in rest:
        inside, _, rest = rest.partition(closing)
        before, tag, after = inside.partition(opening)
        if not tag and not parts and not kept:  # lone closing tag: the template opened it
            parts.append(inside)
        elif tag:
            kept.append(before)
            parts.append(after)
        else:
            kept.append(inside)
    before, tag, after = rest.partition(opening)
    kept.append(before)
    if tag:  # a second thinking that was cut off
        parts.append(after)
        is_closed = False
    return _thinking("\n".join(part.strip() for part in parts if part.strip()), is_closed, "".join(kept))


def _thinking(text: str, closed: bool, answer: str) -> Thinking:
    text = text.strip()
    return Thinking(text, closed, answer.strip()) if text else Thinking(None, None, answer.strip())


def other_markup(response: str) -> str | None:
    """Name of a thinking markup that `split_thinking` does not read by default, when the response starts with or closes it."""
    head = response.lstrip()[:40]
    return next(
        (name for (opens, closes), name in _OTHER_MARKUPS.items() if head.startswith(opens) or closes in response), None
    )
