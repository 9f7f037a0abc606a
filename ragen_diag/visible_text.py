"""Text from logs made safe to look at: control and direction characters become visible, long texts are cut and say so.

For terminals and for the HTML report alike. Not an HTML escaper (the templates autoescape), and it never changes what is stored.
"""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls except tab and newline: could move the cursor or colour the terminal
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"  # zero-width and bidirectional: could reorder what is read
    "\u2028\u2029"  # line separators that only some programs break at
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"  # lone surrogates, interlinear and tag characters
)


def visible(text: str) -> str:
    """Replace every character that would not be seen, or would move others, by a visible name; keep tabs and newlines.

    A carriage return before a newline is dropped (it is a Windows line end, not something the policy hid).
    """
    return _INVISIBLE.sub(_name, text.replace("\r\n", "\n"))


def cut(text: str, limit_chars: int, *, keep: str = "head") -> str:
    """Shorten to `limit_chars` characters of the text plus a note of how many are missing; keep: 'head' or 'tail'."""
    if len(text) <= limit_chars:
        return text
    note = cut_note(len(text) - limit_chars)
    return f"{note} {text[len(text) - limit_chars :]}" if keep == "tail" else f"{text[:limit_chars]}{note}"


def cut_note(n_chars: int) -> str:
    """What stands where characters are missing."""
    return f"… ({n_chars:,} characters cut)".replace(",", "\u202f")


def one_line(text: str, limit_chars: int | None = None) -> str:
    """Visible text on a single line, whitespace runs as one space, cut with a bare ellipsis."""
    line = " ".join(visible(text).split())
    return line if limit_chars is None or len(line) <= limit_chars else f"{line[: max(limit_chars - 1, 0)]}…"


def _name(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures: ESC shows as ␛
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩"
