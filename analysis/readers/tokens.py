"""Token-level columns from padded token, mask and log-prob lists. Pure list work; knows no framework."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from analysis.readers.normal_form import Turn


def runs_of(mask: Sequence[Any]) -> list[tuple[int, int]]:
    """(start, end) of each stretch of sampled tokens; masked positions are 0, False or -100."""
    spans: list[tuple[int, int]] = []
    position = 0
    for sampled, block in itertools.groupby(mask, key=lambda value: value not in (0, False, -100)):
        length = sum(1 for _ in block)
        if sampled:
            spans.append((position, position + length))
        position += length
    return spans


def add_token_columns(
    turns: list[Turn],
    ids: Sequence[int],
    mask: Sequence[Any],
    logprobs: Sequence[float] | None = None,
    advantages: Sequence[float] | None = None,
) -> bool:
    """Fill each turn's token columns from its stretch of sampled tokens; False (nothing filled) when stretches and turns differ.

    logprobs, advantages: aligned with ids, or None.
    """
    spans = runs_of(mask[: len(ids)])
    if len(spans) != len(turns):
        return False
    for turn, (start, end) in zip(turns, spans, strict=True):
        turn.columns |= {
            "prompt_ids": list(ids[:start]) or None,
            "prompt_tokens": start,
            "response_ids": list(ids[start:end]),
            "response_tokens": end - start,
        }
        if logprobs is not None and len(logprobs) >= end:
            turn.columns["logprobs"] = [float(value) for value in logprobs[start:end]]
        if advantages is not None and len(advantages) >= end:
            turn.columns["advantage"] = math.fsum(advantages[start:end]) / (end - start)
    return True
