"""The drawing kit of the report's plots: one look, stacked line plots, JSON for plotly.js. Knows no metric names.

Figures are built as plain plotly.js JSON: plotly's Python objects check the same properties at a quarter of a second a plot, so
the tests use them for that (`tests/report/test_figures.py`) and the report does not. Colours of text and grid are set by the
page, which also brightens the data colours in the dark. Rows carry their curves' names in their title, in the curve's colour,
instead of a legend: that stays readable on a phone.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.report.series import Curve, curve_table, thinning_of

BLUE, ORANGE, TEAL, PURPLE, GREY, RED = "#3574b8", "#c0651f", "#1f877a", "#8a5fb4", "#757e88", "#c2453b"
"""report.js knows these and their dark counterparts."""
PALETTE = (BLUE, ORANGE, TEAL, PURPLE, GREY, RED)
ROW_HEIGHT_PX = 150
SMALL = {"size": 12}
_GAP_PX = 52
_LOG_SCALE_RATIO = 1e3
_TITLE_CHARS = 52
_SPARSE = 40

Json = dict[str, Any]


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
    """Shown before the curves' names; "" when they say enough."""
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
    title: str, says: str, rows: Sequence[Row], *, max_points: int, window: tuple[int, int] | None = None
) -> Plot:
    """Draw line rows over a shared step axis, one under the other; `window` shades a range of steps in every row."""
    inner_px = len(rows) * ROW_HEIGHT_PX + (len(rows) - 1) * _GAP_PX
    data: list[Json] = []
    shapes: list[Json] = []
    notes: list[Json] = []
    layout: Json = {
        "xaxis": {"title": {"text": "training step", "font": SMALL}, "anchor": f"y{len(rows)}".replace("y1", "y")}
    }
    for number, row in enumerate(rows, start=1):
        axis = f"y{number}" if number > 1 else "y"
        top = 1 - (number - 1) * (ROW_HEIGHT_PX + _GAP_PX) / inner_px
        scale = {"domain": [max(top - ROW_HEIGHT_PX / inner_px, 0), top], "nticks": 5, **_scale(row)}
        layout[f"yaxis{number}" if number > 1 else "yaxis"] = scale
        data += _traces(row, number, axis, max_points)
        notes.append(_row_title(row, number, axis))
        shapes += [_line(axis, RED, "dash", y=value) for value, _ in row.lines]
        shapes += [_line(axis, ORANGE, "dot", x=step) for step, _ in row.marks]
        notes += [_note(axis, label, RED, y=value) for value, label in row.lines]
        notes += [_note(axis, label, ORANGE, x=step) for step, label in row.marks]
    if window is not None:
        half = 0.5 if window[0] == window[1] else 0.0
        ends = {"x0": window[0] - half, "x1": window[1] + half, "y0": 0, "y1": 1, "yref": "paper"}
        shapes.append(
            {"type": "rect", **ends, "fillcolor": ORANGE, "opacity": 0.15, "line": {"width": 0}, "layer": "below"}
        )
    layout |= {"shapes": shapes, "annotations": notes, "hovermode": "x unified", "hoversubplots": "axis"}
    shown = [entry for row in rows for entry in row.curves]
    figure = finish(data, layout, inner_px + 92)
    return Plot(title, says, figure, "", thinning_of(shown, max_points), *curve_table(shown))


def finish(data: Sequence[Json], layout: Mapping[str, Any], height_px: int) -> str:
    """Add the report's look to a figure and give plotly.js JSON, safe inside a script element."""
    calm = {"zeroline": False, "ticks": ""}
    axes = {
        key: {**calm, **({"automargin": True} if key.startswith("y") else {}), **value}
        for key, value in layout.items()
        if key.startswith(("xaxis", "yaxis"))
    }
    look = {
        "height": height_px,
        "margin": {"l": 48, "r": 14, "t": 46, "b": 46},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "showlegend": False,
    }
    figure = {"data": list(data), "layout": {**look, **layout, **axes}}
    # `<` could open a tag inside the page's script element; U+2028 and the like are escaped by json itself.
    return json.dumps(figure, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def packed(values: np.ndarray) -> Json:
    """An array as plotly.js reads it from base64: float32 (nan kept) or int32, two dimensions with their shape."""
    array = values.astype("<i4" if np.issubdtype(values.dtype, np.integer) else "<f4")
    content: Json = {
        "dtype": array.dtype.str[1:],
        "bdata": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }
    return content if array.ndim == 1 else {**content, "shape": ", ".join(map(str, array.shape))}


def colorbar(title: str) -> Json:
    """A thin colour scale with its unit."""
    return {"title": {"text": title, "font": SMALL}, "thickness": 9, "outlinewidth": 0}


def _colours(row: Row, number: int) -> list[str]:
    """A single curve takes its row's colour; several start over, so that a row is read by itself."""
    first = number - 1 if len(row.curves) == 1 else 0
    return [PALETTE[(first + position) % len(PALETTE)] for position in range(len(row.curves))]


def _row_title(row: Row, number: int, axis: str) -> Json:
    """Row label, curve names in their colours, unit; broken into two lines when long."""
    pairs = zip(_colours(row, number), row.curves, strict=True)
    names = [f"<span style='color:{colour}'>{safe(entry.label)}</span>" for colour, entry in pairs]
    unit = row.curves[0].unit if row.curves else ""
    unit = f" ({safe(unit)})" if unit not in ("", row.label, "reward", "norm") else ""
    half = len(names) // 2 if len(row.label) + sum(len(entry.label) + 3 for entry in row.curves) > _TITLE_CHARS else 0
    joined = " · ".join(names[:half]) + " ·<br>" + " · ".join(names[half:]) if half else " · ".join(names)
    text = (f"{safe(row.label)}: " if row.label else "") + joined + unit
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": f"{axis} domain", "y": 1.03, "yanchor": "bottom"}
    return {"text": text, "showarrow": False, "align": "left", "font": {"size": 12.5}, **place}


def _traces(row: Row, number: int, axis: str, max_points: int) -> list[Json]:
    traces = []
    shown = [entry.thinned(max_points) for entry in row.curves]
    if row.fill_between and len(shown) > 1:
        steps, at_lower, at_upper = np.intersect1d(shown[0].step_T, shown[1].step_T, return_indices=True)
        traces.append(_area(steps, shown[0].value_T[at_lower], shown[1].value_T[at_upper], axis, GREY))
    for colour, entry in zip(_colours(row, number), shown, strict=True):
        if entry.has_band:
            traces.append(_area(entry.step_T, entry.lo_T, entry.hi_T, axis, colour))
        sparse = np.count_nonzero(~np.isnan(entry.value_T)) < _SPARSE
        traces.append(
            {
                "type": "scatter", "x": packed(entry.step_T), "y": packed(entry.value_T), "yaxis": axis,
                "name": safe(entry.label), "mode": "lines+markers" if sparse else "lines", "marker": {"size": 5},
                "line": {"color": colour, "width": 1.8}, "hovertemplate": f"%{{y:.4~g}} {safe(entry.unit)}",
            }
        )  # fmt: skip
    return traces


def _area(step_T: np.ndarray, lo_T: np.ndarray, hi_T: np.ndarray, axis: str, colour: str) -> Json:
    known = ~np.isnan(lo_T) & ~np.isnan(hi_T)
    return {
        "type": "scatter", "mode": "lines", "yaxis": axis, "fill": "toself", "fillcolor": colour, "opacity": 0.2,
        "x": packed(np.concatenate([step_T[known], step_T[known][::-1]])),
        "y": packed(np.concatenate([hi_T[known], lo_T[known][::-1]])),
        "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _line(axis: str, colour: str, dash: str, *, x: float | None = None, y: float | None = None) -> Json:
    """A line across the row at a level, or down the row at a step."""
    stroke = {"type": "line", "line": {"color": colour, "width": 1.4, "dash": dash}}
    if y is not None:
        return {**stroke, "xref": "x domain", "x0": 0, "x1": 1, "yref": axis, "y0": y, "y1": y}
    return {**stroke, "xref": "x", "x0": x, "x1": x, "yref": f"{axis} domain", "y0": 0, "y1": 1}


def _note(axis: str, text: str, colour: str, *, x: float | None = None, y: float | None = None) -> Json:
    font = {"text": safe(text), "showarrow": False, "font": {"size": 11, "color": colour}}
    if y is not None:
        return {**font, "xref": "x domain", "x": 1, "xanchor": "right", "yref": axis, "y": y, "yanchor": "bottom"}
    return {**font, "xref": "x", "x": x, "xanchor": "left", "yref": f"{axis} domain", "y": 1, "yanchor": "top"}


def _scale(row: Row) -> Json:
    """From zero, so that noise does not look like news; logarithmic over more than three decades (gradient spikes)."""
    finite = [entry.value_T[np.isfinite(entry.value_T)] for entry in row.curves]
    values = np.concatenate(finite) if finite else np.array([])
    spiky = len(values) and values.min() > 0 and values.max() / values.min() > _LOG_SCALE_RATIO and not row.lines
    return {"type": "log"} if spiky else {"rangemode": "tozero"}
