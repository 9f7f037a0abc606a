"""The drawing kit of the report's plots: one look, stacked line plots, JSON for plotly.js. Knows no metric names.

Colours of text and grid are set by the page (light and dark); here only the data colours, chosen to be told apart on both
backgrounds and by colour-blind readers. plotly is imported when the first figure is drawn.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from analysis.report.series import Curve, curve_table, thinning_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BLUE, ORANGE, TEAL, PURPLE, GREY, RED = "#3b7dc4", "#d0742a", "#2a9283", "#8f66b8", "#8a929c", "#c9483e"
PALETTE = (BLUE, ORANGE, TEAL, PURPLE, GREY)
ROW_HEIGHT_PX = 170
_LOG_SCALE_RATIO = 1e3


@dataclass(frozen=True)
class Plot:
    """One plot of the report with its text alternative; `figure_json` None = not drawn, and `missing` says what to log."""

    title: str
    says: str
    """What to see here, in one or two sentences; also the accessible name of the drawing."""
    figure_json: str | None = None
    missing: str = ""
    note: str = ""
    """What was thinned or sampled."""
    headers: list[str] = field(default_factory=list)
    rows: list[list[object]] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One row of a stacked line plot; all its curves share a unit."""

    label: str
    curves: Sequence[Curve]
    fill_between: bool = False
    """Shade the area between the first two curves (a bracket)."""
    lines: Sequence[tuple[float, str]] = ()
    """Horizontal threshold lines as (value, label)."""
    marks: Sequence[tuple[int, str]] = ()
    """Vertical marks as (step, label)."""


def safe(text: str) -> str:
    """Text that plotly.js draws as it stands: plotly reads a few HTML tags in labels, so markup is escaped."""
    return html.escape(text, quote=False)


def stacked_plot(
    title: str,
    says: str,
    rows: Sequence[Row],
    *,
    max_points: int,
    window: tuple[int, int] | None = None,
    note: str = "",
) -> Plot:
    """Draw line rows over a shared step axis, one under the other; `window` shades a range of steps in every row."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.16 / max(len(rows), 2))
    colour = 0
    for number, row in enumerate(rows, start=1):
        if row.fill_between and len(row.curves) > 1:
            _add_bracket(figure, row.curves[0].thinned(max_points), row.curves[1].thinned(max_points), number)
        for entry in row.curves:
            _add_curve(figure, entry.thinned(max_points), number, PALETTE[colour % len(PALETTE)])
            colour += 1
        _add_marks(figure, row, number)
        _scale_y(figure, row, number)
    if window is not None:
        figure.add_vrect(
            x0=window[0] - 0.5, x1=window[1] + 0.5, fillcolor=ORANGE, opacity=0.13, line_width=0, layer="below"
        )
    figure.update_xaxes(title_text="training step", row=len(rows), col=1)
    shown = [entry for row in rows for entry in row.curves]
    headers, table = curve_table(shown)
    notes = " ".join(text for text in (note, thinning_of(shown, max_points)) if text)
    return Plot(
        title,
        says,
        to_json(figure, 70 + ROW_HEIGHT_PX * len(rows) + (60 if len(rows) == 1 else 0)),
        "",
        notes,
        headers,
        table,
    )


def to_json(figure: Figure, height_px: int, *, hovermode: str = "x unified") -> str:
    """Finish a figure with the report's look and give plotly.js JSON, safe inside a script element."""
    figure.update_layout(
        template="none",
        height=height_px,
        margin={"l": 62, "r": 14, "t": 34, "b": 46},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode=hovermode,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )
    figure.update_yaxes(automargin=True, zeroline=False)
    figure.update_xaxes(zeroline=False)
    parsed = json.loads(figure.to_json())
    parsed["layout"].pop("template", None)
    return json.dumps(parsed, separators=(",", ":")).replace("<", "\\u003c")


def _add_area(figure: Figure, step_T: np.ndarray, lo_T: np.ndarray, hi_T: np.ndarray, row: int, colour: str) -> None:
    from plotly.graph_objects import Scatter

    known = ~np.isnan(lo_T) & ~np.isnan(hi_T)
    outline = Scatter(
        x=np.concatenate([step_T[known], step_T[known][::-1]]).astype(np.int32),
        y=np.concatenate([hi_T[known], lo_T[known][::-1]]).astype(np.float32),
        fill="toself", fillcolor=colour, opacity=0.2, line_width=0, hoverinfo="skip", showlegend=False, mode="lines",
    )  # fmt: skip
    figure.add_trace(outline, row=row, col=1)


def _add_bracket(figure: Figure, lower: Curve, upper: Curve, row: int) -> None:
    steps, at_lower, at_upper = np.intersect1d(lower.step_T, upper.step_T, return_indices=True)
    _add_area(figure, steps, lower.value_T[at_lower], upper.value_T[at_upper], row, GREY)


def _add_curve(figure: Figure, entry: Curve, row: int, colour: str) -> None:
    from plotly.graph_objects import Scatter

    step_T = entry.step_T.astype(np.int32)
    if entry.has_band:
        _add_area(figure, step_T, entry.lo_T, entry.hi_T, row, colour)
    sparse = np.count_nonzero(~np.isnan(entry.value_T)) < 40
    figure.add_trace(
        Scatter(
            x=step_T,
            y=entry.value_T.astype(np.float32),
            name=safe(entry.label),
            mode="lines+markers" if sparse else "lines",
            marker_size=5,
            line={"color": colour, "width": 1.8},
            hovertemplate=f"%{{y:.4~g}} {safe(entry.unit)}",
        ),
        row=row,
        col=1,
    )


def _add_marks(figure: Figure, row: Row, number: int) -> None:
    for value, label in row.lines:
        figure.add_hline(
            y=value, line={"color": RED, "width": 1.4, "dash": "dash"}, row=number, col=1,
            annotation={"text": safe(label), "font": {"size": 11, "color": RED}}, annotation_position="top right",
        )  # fmt: skip
    for step, label in row.marks:
        figure.add_vline(
            x=step, line={"color": ORANGE, "width": 1.6, "dash": "dot"}, row=number, col=1,
            annotation={"text": safe(label), "font": {"size": 11, "color": ORANGE}}, annotation_position="top left",
        )  # fmt: skip


def _scale_y(figure: Figure, row: Row, number: int) -> None:
    """Title with the unit; a logarithmic axis when a positive curve spans more than three decades (gradient spikes)."""
    unit = row.curves[0].unit if row.curves else ""
    title = f"{row.label}<br>({unit})" if unit and unit != row.label else row.label
    figure.update_yaxes(title={"text": title, "font": {"size": 12}}, row=number, col=1)
    finite = [entry.value_T[np.isfinite(entry.value_T)] for entry in row.curves]
    values = np.concatenate(finite) if finite else np.array([])
    if len(values) and values.min() > 0 and values.max() / values.min() > _LOG_SCALE_RATIO and not row.lines:
        figure.update_yaxes(type="log", title_text=f"{title}, log", row=number, col=1)
