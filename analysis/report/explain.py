"""The explain page of a check (what `ragen-diag explain CODE` prints) as HTML for the report."""

from __future__ import annotations

import importlib
from functools import cache

from markupsafe import Markup


@cache
def explain_page(code: str) -> Markup | None:
    """Render the page of a code; None when the package holds none (a check of a plug-in)."""
    from markdown_it import MarkdownIt  # comes with rich

    try:
        checks = importlib.import_module("ragen_diag.checks")
    except ModuleNotFoundError:
        return None
    if code not in checks.codes():
        return None
    _title, _, body = checks.page(code).lstrip().partition("\n")
    # Raw HTML stays text; headings move below the report's own so that the outline stays whole.
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(body)
    for level in (3, 2, 1):
        rendered = rendered.replace(f"<h{level}>", f"<h{level + 3}>").replace(f"</h{level}>", f"</h{level + 3}>")
    return Markup(rendered)
