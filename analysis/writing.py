"""Which writing systems a text uses. A policy that has lost its language writes many at once. Counts; judges nothing."""

from __future__ import annotations

import re

SCRIPTS: dict[str, re.Pattern[str]] = {
    # Greek is left out: formulas use it. Chinese and Japanese share characters and count as one.
    "latin": re.compile(r"[A-Za-z\u00c0-\u024f]"),
    "cyrillic": re.compile(r"[\u0400-\u052f]"),
    "hebrew": re.compile(r"[\u05d0-\u05ea]"),
    "arabic": re.compile(r"[\u0620-\u06ff\u0750-\u077f]"),
    "indic": re.compile(r"[\u0900-\u0dff]"),
    "thai": re.compile(r"[\u0e00-\u0eff]"),
    "georgian or armenian": re.compile(r"[\u0531-\u058f\u10a0-\u10ff]"),
    "hangul": re.compile(r"[\u1100-\u11ff\uac00-\ud7af]"),
    "chinese or japanese": re.compile(r"[\u3040-\u30ff\u3400-\u9fff]"),
}
MIN_LETTERS = 3
"""A letter or two of a script is a symbol."""
SCANNED_CHARS = 4000


def scripts_used(text: str) -> int:
    """Number of writing systems with at least MIN_LETTERS letters in the first SCANNED_CHARS characters."""
    scanned = text[:SCANNED_CHARS]
    if scanned.isascii():
        return int(len(SCRIPTS["latin"].findall(scanned)) >= MIN_LETTERS)
    return sum(len(letters.findall(scanned)) >= MIN_LETTERS for letters in SCRIPTS.values())
