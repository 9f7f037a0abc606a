"""One page per finding code: what it measures, why, false alarms, an example, what to do, thresholds and their origin.

The pages are what `ragen-diag explain CODE` prints and what the documentation shows. Data only; nothing is imported.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def codes() -> tuple[str, ...]:
    """Every finding code, sorted."""
    names = [entry.name for entry in files(__name__).iterdir() if entry.name.endswith(".md")]
    return tuple(sorted(name.removesuffix(".md") for name in names))


def page(code: str) -> str:
    """The page of one code, Markdown. Raises KeyError for an unknown code."""
    if code not in codes():
        raise KeyError(code)
    return files(__name__).joinpath(f"{code}.md").read_text(encoding="utf-8")


def title(code: str) -> str:
    """Title of one code, from the first line of its page. Raises KeyError for an unknown code."""
    return page(code).split("\n", 1)[0].split(" · ", 1)[1]
