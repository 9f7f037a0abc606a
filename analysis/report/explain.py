"""The explain page of a check (what `ragen-diag explain CODE` prints) as HTML for the report."""

from __future__ import annotations

from functools import cache

from markupsafe import Markup

from ragen_diag import checks


@cache
def explain_page(code: str) -> Markup | None:
    """Render the page of a code; None when the package holds none (a check of a plug-in)."""
    from markdown_it import MarkdownIt  # comes with rich

    if code not in checks.codes():
        return None
    _title, _, body = checks.page(code).lstrip().partition("\n")
    # Raw HTML stays text; headings move below the report's own so that the outline stays whole.
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(body)
    for level in (3, 2, 1):
        rendered = rendered.replace(f"<h{level}>", f"<h{level + 2}>").replace(f"</h{level}>", f"</h{level + 2}>")
    return Markup(rendered)
