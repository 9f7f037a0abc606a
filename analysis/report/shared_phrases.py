"""Phrases that the reasoning of most prompts shares, to be highlighted in the rollout viewer. For the eye, not for a verdict."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from analysis.run_data import TextRow

WORDS = 5
"""Words of a phrase: shorter ones are everyday language."""
QUARTERS = 4
MIN_PROMPTS = 4
MIN_SHARE = 0.5
_MAX_TEXT_CHARS = 4_000
_WORD = re.compile(r"\S+")


class Segment(NamedTuple):
    """A stretch of text; `shared` when it belongs to a phrase of most prompts."""

    text: str
    shared: bool


class SharedPhrases:
    """Word 5-grams found in the thinking of at least half of the prompts (and four of them) in some quarter of the run.

    By quarters, because a template appears when the policy collapses, and prompts may never come back.
    """

    def __init__(self, texts: Iterable[TextRow]) -> None:
        rows = list(texts)
        steps = sorted({row.step for row in rows if row.step is not None})
        quarter_of = {step: position * QUARTERS // len(steps) for position, step in enumerate(steps)}
        self._shared: set[tuple[str, ...]] = set()
        for quarter in range(QUARTERS):
            self._shared |= _shared(
                [row for row in rows if (quarter_of[row.step] if row.step is not None else 0) == quarter]
            )

    def __bool__(self) -> bool:
        return bool(self._shared)

    def segments(self, text: str) -> list[Segment]:
        """Split a text into shared and other stretches; joined they are the text again."""
        words = list(_WORD.finditer(text))
        marked = [False] * len(words)
        for start in range(len(words) - WORDS + 1):
            if tuple(word[0].lower() for word in words[start : start + WORDS]) in self._shared:
                marked[start : start + WORDS] = [True] * WORDS
        segments: list[Segment] = []
        end = 0
        for position, word in enumerate(words):
            # White space between two marked words belongs to the phrase.
            begin = end if position and marked[position] == marked[position - 1] else word.start()
            if begin > end:
                _append(segments, text[end:begin], False)
            _append(segments, text[begin : word.end()], marked[position])
            end = word.end()
        if end < len(text):
            _append(segments, text[end:], False)
        return segments


def _shared(rows: Iterable[TextRow]) -> set[tuple[str, ...]]:
    prompts_of: dict[tuple[str, ...], set[int]] = defaultdict(set)
    prompts: set[int] = set()
    for row in rows:
        words = [word.lower() for word in _WORD.findall(row.thinking_text[:_MAX_TEXT_CHARS])]
        if len(words) < WORDS:
            continue
        prompts.add(row.prompt)
        for start in range(len(words) - WORDS + 1):
            prompts_of[tuple(words[start : start + WORDS])].add(row.prompt)
    needed = max(MIN_PROMPTS, MIN_SHARE * len(prompts))
    return {phrase for phrase, found in prompts_of.items() if len(found) >= needed}


def _append(segments: list[Segment], text: str, shared: bool) -> None:
    if segments and segments[-1].shared == shared:
        segments[-1] = Segment(segments[-1].text + text, shared)
    else:
        segments.append(Segment(text, shared))
