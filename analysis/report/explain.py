"""The explain page of a check (`ragen_diag/checks/CODE.md`, what `ragen-diag explain CODE` prints) as HTML for the report."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

from markupsafe import Markup


class ExplainPage(NamedTuple):
    """A check's page: its title and its body."""

    title: str
    body: Markup


@cache
def explain_page(code: str) -> ExplainPage | None:
    """Read the page of a code; None when the package holds none (a check of a plug-in)."""
    from markdown_it import MarkdownIt  # comes with rich

    page = resources.files("ragen_diag") / "checks" / f"{code}.md"
    if not code.isalnum() or not page.is_file():
        return None
    heading, _, body = page.read_text(encoding="utf-8").lstrip().partition("\n")
    title = heading.lstrip("# ").removeprefix(code).strip(" :—–-·")
    # Raw HTML stays text; headings move below the report's own so that the outline stays whole.
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(body)
    for level in (3, 2, 1):
        rendered = rendered.replace(f"<h{level}>", f"<h{level + 3}>").replace(f"</h{level}>", f"</h{level + 3}>")
    return ExplainPage(title, Markup(rendered))
