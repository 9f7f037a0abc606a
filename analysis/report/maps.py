"""Plots with two dimensions: the regime plane, the cross-score heat maps, reward spread per prompt. Curves: `figures.py`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from analysis.regimes import DIVERSITY, ENTROPY, ENTROPY_LOW, MI_LOW, RegimePath, regime_path
from analysis.report.draw import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    SMALL,
    Json,
    Plot,
    Row,
    colorbar,
    finish,
    packed,
    safe,
    stacked_plot,
)
from analysis.report.series import curve_table, plain_curve
from analysis.report.thinning import thinning_note
from analysis.result import RunReport
from analysis.snr import NO_STEP, group_table
from ragen_diag.cross_scores import CrossScores
from ragen_diag.findings import Estimate
from ragen_diag.visible_text import visible

MAX_PROMPTS = 60
MAX_STEP_BINS = 120
_MIN_VISITS = 3
"""Below this many visits per prompt a prompt × step map is mostly holes."""
_BLUE_TO_ORANGE = [[0, BLUE], [0.5, "#e6e3dc"], [1, "#d97a2b"]]
_DARK_TO_LIGHT = [[0, "#27445f"], [0.5, BLUE], [1, "#f2c48d"]]
_CORNERS = {
    "input-driven": (1, 1), "template<br>collapse": (1, 0), "compressed": (0, 1), "low-entropy<br>collapse": (0, 0),
}  # fmt: skip
_PLANE_NAMES = (
    "normalised_mi", "prompt_entropy_nats", "mi_lower_nats", "retrieval_accuracy", "retrieval_chance",
    "text_retrieval_accuracy", "text_retrieval_chance", ENTROPY, DIVERSITY,
)  # fmt: skip


def regime_plot(run: RunReport, max_points: int) -> Plot:
    """Input dependence against entropy relative to the run's start, one point per measured step, joined in time."""
    title = "Regime plane"
    path = plane_path(run)
    points = [point for point in path.points if np.isfinite(point.relative_entropy)]
    if not points:
        return Plot(
            title, "", missing="Log token log-probs (entropy) and cross scores or reasoning texts, at the same steps."
        )
    step_T = np.array([point.step for point in points])
    x_T = np.array([point.relative_entropy for point in points])
    y_T = np.array([point.mi_share for point in points])
    kept = np.unique(np.linspace(0, len(points) - 1, min(len(points), max_points)).astype(int))
    variety = "H(Z|X)" if path.entropy_name == ENTROPY else "diversity within a prompt"
    in_time = [[0, GREY], [0.5, BLUE], [1, ORANGE]]
    marker = {"size": 8, "color": packed(step_T[kept]), "colorscale": in_time, "colorbar": colorbar("step")}
    way = {
        "type": "scatter", "mode": "lines+markers", "marker": marker, "line": {"color": GREY, "width": 1},
        "x": packed(x_T[kept]), "y": packed(y_T[kept]), "customdata": step_T[kept].tolist(),
        "hovertemplate": f"step %{{customdata}}<br>{variety} %{{x:.3f}} of its start<br>input dependence %{{y:.3f}}<extra></extra>",
    }  # fmt: skip
    says = (
        "Up: the reasoning depends on the prompt. Right: it is as varied as at the start. "
        f"Now: {run.regime.replace('_', ' ')}. Dashed: where low begins ({MI_LOW:g} and {ENTROPY_LOW:g})."
    )
    figure = finish([way], _plane_layout(x_T, y_T, step_T, path.mi_name, variety), 430)
    mi_name = path.mi_name.replace("_", " ")
    table = curve_table([plain_curve(step_T, x_T, f"{variety} over its start"), plain_curve(step_T, y_T, mi_name)])
    return Plot(title, says, figure, "", thinning_note(len(kept), len(points)), *table)


def plane_path(run: RunReport) -> RegimePath:
    """The run's way through the plane, from its series, by the rules of `analysis.regimes`."""
    per_step: dict[int, dict[str, Estimate]] = defaultdict(dict)
    for name in _PLANE_NAMES:
        for point in run.series.get(name, ()):
            if point.value is not None:
                interval = None if point.lo is None or point.hi is None else (point.lo, point.hi)
                per_step[point.step][name] = Estimate(point.value, interval, "", 0, 0, "")
    scores = run.data.cross_scores
    return regime_path(per_step, exact=bool(scores) and scores[-1].scorer.split(":")[0] in ("policy", "checkpoint"))


def _plane_layout(x_T: np.ndarray, y_T: np.ndarray, step_T: np.ndarray, mi_name: str, variety: str) -> Json:
    x_max, y_max = max(1.3, float(x_T.max()) * 1.08), max(1.05, float(y_T.max()) * 1.05)
    x_min, y_min = -0.05, min(-0.12, float(y_T.min()) - 0.05)
    dashed = {"type": "line", "line": {"color": RED, "width": 1.2, "dash": "dash"}}
    notes: list[Json] = []
    for position, word in ((0, "start"), (-1, "end")):
        # Pointing towards the middle of the plane, clear of its corners' names.
        away = {"ax": -56 if x_T[position] > x_max / 2 else 56, "ay": -34 if y_T[position] < y_max / 2 else 34}
        place = {"x": float(x_T[position]), "y": float(y_T[position]), "arrowhead": 0, "arrowcolor": GREY, **away}
        notes.append({"text": f"{word}, step {step_T[position]}", "font": SMALL, **place})
    for name, (right, top) in _CORNERS.items():
        side = "right" if right else "left"
        place = {"xref": "paper", "yref": "paper", "x": 0.99 if right else 0.01, "y": 0.99 if top else 0.01}
        anchor = {"xanchor": side, "yanchor": "top" if top else "bottom", "align": side, "showarrow": False}
        notes.append({"text": name, "font": {"size": 12, "color": GREY}, **place, **anchor})
    y_title = f"input dependence: {safe(mi_name.replace('_', ' '))}"
    return {
        "xaxis": {"title": {"text": f"{variety}, relative to the run's start", "font": SMALL}, "range": [x_min, x_max]},
        "yaxis": {"title": {"text": y_title, "font": SMALL}, "range": [y_min, y_max]},
        "shapes": [
            {**dashed, "x0": x_min, "x1": x_max, "y0": MI_LOW, "y1": MI_LOW},
            {**dashed, "x0": ENTROPY_LOW, "x1": ENTROPY_LOW, "y0": y_min, "y1": y_max},
        ],
        "annotations": notes,
    }


def cross_score_plot(run: RunReport) -> Plot:
    """Heat maps of prompt × prompt, first and last matrix: how well one prompt's reasoning fits every other prompt."""
    title = "Whose reasoning fits which prompt"
    says = (
        "Rows: the prompt a reasoning was written for. Columns: the prompt it is scored under. A clear diagonal means "
        "that the reasoning depends on its input; without one it would fit any prompt."
    )
    matrices = [entry for entry in run.data.cross_scores if len(entry.prompt_ids_N) > 1 and len(entry.tokens_R)]
    if not matrices:
        return Plot(title, says, missing="Measure cross scores during training, or offline with --scorer MODEL.")
    shown = [matrices[0], matrices[-1]] if matrices[-1].step != matrices[0].step else matrices[-1:]
    fits = [fit_by_prompt(matrix) for matrix in shown]
    reach = max(float(np.nanquantile(np.abs(fit_NN), 0.99)) for fit_NN, _ in fits) or 1.0
    scale = {"colorscale": _BLUE_TO_ORANGE, "cmin": -reach, "cmax": reach, "colorbar": colorbar("nats/<br>token")}
    layout: Json = {"coloraxis": scale, "annotations": []}
    data: list[Json] = []
    rows: list[list[object]] = []
    for position, (matrix, (fit_NN, prompts)) in enumerate(zip(shown, fits, strict=True)):
        order = _cluster(fit_NN)
        labels = [f"{prompt}: {safe(visible(matrix.prompt_ids_N[prompt][:12]))}" for prompt in prompts[order]]
        data.append(_heat_map(fit_NN[np.ix_(order, order)], labels, position))
        _place_heat_map(layout, position, len(shown), matrix.step)
        own = float(np.mean(np.diag(fit_NN)))
        other = float(np.mean(fit_NN[~np.eye(len(fit_NN), dtype=bool)])) if len(fit_NN) > 1 else None
        rows.append([matrix.step, own, other, None if other is None else own - other])
    last = shown[-1]
    note = f"{last.split}, {last.scope.replace('_', ' ')}, scorer {last.scorer}; per token, minus the row's mean; clustered."
    if len(fits[-1][1]) < len(last.prompt_ids_N):
        note += f" Showing {len(fits[-1][1])} of {len(last.prompt_ids_N)} prompts, evenly spaced."
    headers = ["step", "own prompt (nats/token)", "other prompts (nats/token)", "difference"]
    return Plot(title, says, finish(data, layout, 400), "", note, headers, rows)


def _heat_map(fit_NN: np.ndarray, labels: list[str], position: int) -> Json:
    axes = {"xaxis": f"x{position + 1}", "yaxis": f"y{position + 1}"} if position else {}
    hover = "written for %{y}<br>scored under %{x}<br>%{z:.3f} nats/token<extra></extra>"
    return {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": packed(fit_NN),
        "coloraxis": "coloraxis",
        "hovertemplate": hover,
        **axes,
    }


def _place_heat_map(layout: Json, position: int, n_shown: int, step: int) -> None:
    number = str(position + 1) if position else ""
    width = (1 - 0.06 * (n_shown - 1)) / n_shown
    start = position * (width + 0.06)
    hidden = {"showticklabels": False, "showgrid": False, "type": "category"}
    layout[f"xaxis{number}"] = {**hidden, "domain": [start, min(start + width, 1)], "anchor": f"y{number}"}
    layout[f"yaxis{number}"] = {**hidden, "autorange": "reversed", "anchor": f"x{number}"}
    place = {"xref": "paper", "yref": "paper", "x": start, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    layout["annotations"].append({"text": f"step {step}", "showarrow": False, "font": SMALL, **place})


def fit_by_prompt(matrix: CrossScores) -> tuple[np.ndarray, np.ndarray]:
    """Mean per-token score of each prompt's reasonings under each prompt, minus the row's mean; and the columns shown.

    Returns float (M, M) in nats per token and int (M,), M <= MAX_PROMPTS prompts that have a reasoning.
    """
    columns = np.unique(matrix.column_R)
    if len(columns) > MAX_PROMPTS:
        columns = columns[np.linspace(0, len(columns) - 1, MAX_PROMPTS).astype(int)]
    per_token_RN = matrix.logprob_sum_RN / np.maximum(matrix.tokens_R, 1)[:, None]
    rows = [per_token_RN[matrix.column_R == column].mean(axis=0) for column in columns]
    return np.array([row - row.mean() for row in rows])[:, columns], columns


def _cluster(fit_NN: np.ndarray) -> np.ndarray:
    if len(fit_NN) < 3 or not np.isfinite(fit_NN).all():
        return np.arange(len(fit_NN))
    from scipy.cluster.hierarchy import leaves_list, linkage

    return leaves_list(linkage(fit_NN, method="average"))


def reward_variance_plot(run: RunReport, max_points: int) -> Plot:
    """In-group reward std per prompt over steps; as quantiles over groups when prompts hardly ever come back."""
    title = "Reward spread per prompt over steps"
    groups = group_table(run.data) if len(run.data.rollouts) else pd.DataFrame(columns=["step", "std"])
    groups = groups[(groups["step"] != NO_STEP) & groups["std"].notna()]
    if not len(groups):
        return Plot(
            title, "", missing="Log one reward per rollout, a group id with two or more rollouts, and the step."
        )
    visits = groups.groupby("prompt").size()
    if visits.median() >= _MIN_VISITS and len(visits) > 1 and groups["step"].nunique() > 1:
        return _spread_map(title, groups, int(visits.median()))
    quantiles = groups.groupby("step")["std"].quantile(np.array([0.1, 0.5, 0.9])).unstack()
    names = {0.1: "lowest tenth", 0.5: "median group", 0.9: "highest tenth"}
    shown = [
        plain_curve(quantiles.index.to_numpy(), quantiles[q].to_numpy(), name, "reward") for q, name in names.items()
    ]
    says = "Spread of the reward inside each group of a step. Prompts hardly ever come back in this run, so groups are shown."
    return stacked_plot(title, says, [Row("in-group std", shown)], max_points=max_points)


def _spread_map(title: str, groups: pd.DataFrame, visits: int) -> Plot:
    first, last = int(groups["step"].min()), int(groups["step"].max())
    width = max(-(-(last - first + 1) // min(MAX_STEP_BINS, visits)), 1)
    means = groups.groupby("prompt")["std"].mean().sort_values()
    chosen = means.index[np.unique(np.linspace(0, len(means) - 1, min(len(means), MAX_PROMPTS)).astype(int))]
    frame = groups[groups["prompt"].isin(chosen)]
    starts = first + (frame["step"] - first) // width * width
    wide = (
        frame.assign(bin=starts)
        .pivot_table(index="prompt", columns="bin", values="std", aggfunc="max")
        .reindex(index=chosen)
    )
    heat = {
        "type": "heatmap", "x": wide.columns.tolist(), "y": [f"prompt {code}" for code in wide.index],
        "z": packed(wide.to_numpy(dtype=float)), "colorscale": _DARK_TO_LIGHT, "zmin": 0, "colorbar": colorbar("std"),
        "hovertemplate": "from step %{x}<br>%{y}<br>std %{z:.3f}<extra></extra>",
    }  # fmt: skip
    hidden = {"showticklabels": False, "type": "category", "showgrid": False}
    layout = {
        "xaxis": {"title": {"text": "training step", "font": SMALL}, "showgrid": False},
        "yaxis": {"title": {"text": "prompts, by mean spread", "font": SMALL}, **hidden},
    }
    notes = []
    if len(chosen) < len(means):
        notes.append(f"Showing {len(chosen)} of {len(means)} prompts, evenly spaced by their mean spread.")
    if width > 1:
        notes.append(f"Bins of {width} steps; the largest spread of a bin is drawn. Blank: the prompt did not come up.")
    rows: list[list[object]] = [
        [f"prompt {code}", float(means[code]), int((frame["prompt"] == code).sum())]
        for code in dict.fromkeys([*chosen[:5], *chosen[-5:]])
    ]
    says = "Dark rows teach nothing: every rollout of the prompt earns the same. Light ones carry the learning signal."
    headers = ["prompt (least and most spread)", "mean in-group std", "groups"]
    return Plot(title, says, finish([heat], layout, 400), "", " ".join(notes), headers, rows)
