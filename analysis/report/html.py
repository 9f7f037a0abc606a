"""Write the HTML report: one offline file of at most 5 MB that loads nothing from anywhere.

Texts from logs are shown as text: every template expression passes `visible` (control and direction characters) and a length
cap before jinja's autoescaping, and a content security policy allows only this file's own scripts to run, by their hashes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.report import labels, words
from analysis.report.draw import Plot
from analysis.report.page import Budget, Page, build_page, rollouts_per_run
from analysis.report.viewer import choose, read_turns
from analysis.result import Report
from ragen_diag.errors import InternalError, RunFolderError
from ragen_diag.findings import Status
from ragen_diag.rollout_log import write_atomically
from ragen_diag.visible_text import cut, one_line, visible

MAX_BYTES = 5_000_000
_HERE = Path(__file__).parent
_MAX_EXPRESSION_CHARS = 20_000
BUDGETS = (
    Budget(series_points=600, rollouts=60, text_chars=4_000, plotted_runs=12),
    Budget(series_points=300, rollouts=60, text_chars=2_000, plotted_runs=12),
    Budget(series_points=150, rollouts=40, text_chars=1_000, plotted_runs=12),
    Budget(series_points=80, rollouts=40, text_chars=600, plotted_runs=6),
    Budget(series_points=80, rollouts=0, text_chars=300, plotted_runs=2),
)
"""Tried in order until the page fits."""


def write_html(report: Report, path: Path, *, tables: Mapping[str, Iterable[pa.Table]] | None = None) -> Path:
    """Write the report to `path` (atomically) and return it.

    tables: run name -> log tables (`LogSource.tables()`), to show every turn of the chosen rollouts: one streaming pass per
    run, memory bounded by the selection. Without it the viewer shows first turns.
    Raises RunFolderError when the file cannot be written.
    """
    turns = {
        run.name: read_turns(tables[run.name], choose(run, rollouts_per_run(report, BUDGETS[0])))
        for run in report.runs
        if tables is not None and run.name in tables
    }
    for budget in BUDGETS:
        content = render(build_page(report, budget, turns)).encode("utf-8")
        if len(content) <= MAX_BYTES:
            break
    else:
        raise InternalError(
            f"{path}: the report of {len(report.runs)} runs does not fit {MAX_BYTES:,} bytes. Analyze fewer runs at once."
        )
    try:
        write_atomically(path, lambda temporary: temporary.write_bytes(content))
    except OSError as error:
        raise RunFolderError(f"{path}: cannot write the report ({error}). Choose another path with --html.") from error
    return path


def render(page: Page) -> str:
    """The page as HTML text."""
    environment = _environment()
    drawn: list[Plot] = []

    def register(plot: Plot) -> int:
        """Number a plot for the page: its drawing and its data meet under this id."""
        drawn.append(plot)
        return len(drawn)

    script, style = _static("report.js"), _static("report.css")
    return environment.get_template("report.html.j2").render(
        page=page,
        drawn=drawn,
        register=register,
        style=Markup(style),
        script=Markup(script),
        plotly_gzip_base64=Markup(_packed_plotly()),
        hashes=[_script_hash(script), _script_hash(_static("plotly-cartesian.min.js"))],
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_as_shown,
    )
    environment.filters.update(
        number=words.number,
        words=words.words,
        steps=words.steps_text,
        check_title=words.title_of,
        label=labels.label,
        amount=labels.amount,
        interval=labels.interval,
        one_line=one_line,
        cut=cut,
        figure_json=_figure_json,
    )
    environment.globals.update(symbols=words.SYMBOLS, Status=Status, count_text=words.count_text)
    return environment


def _as_shown(value: Any) -> Any:
    """Make every expression of the templates safe to look at; our own markup passes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(cut(str(value), _MAX_EXPRESSION_CHARS))
    return value


def _figure_json(plot: Plot) -> Markup:
    """Figure JSON inside a script element: `to_json` has escaped every `<`."""
    return Markup(plot.figure_json or "null")


@cache
def _static(name: str) -> str:
    return (_HERE / "static" / name).read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    packed = gzip.compress(_static("plotly-cartesian.min.js").encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def _script_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
