"""Plots with two dimensions: the regime plane, the cross-score heat map, reward variance per prompt. Curves: `figures.py`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.report.draw import BLUE, GREY, ORANGE, Plot, Row, safe, stacked_plot, to_json
from analysis.report.series import Curve, curve, curve_table
from analysis.report.thinning import thinning_note
from analysis.result import RunReport
from ragen_diag.cross_scores import CrossScores

MAX_PROMPTS = 60
MAX_STEP_BINS = 120
_MIN_VISITS = 3
"""Below this many visits per prompt a prompt × step map is mostly holes."""
_CALM = [[0, "#24405e"], [0.35, "#3b7dc4"], [0.7, "#b9cfe6"], [1, "#f4b26b"]]
CORNERS = {"input-driven": (1, 1), "template collapse": (1, 0), "compressed": (0, 1), "low-entropy collapse": (0, 0)}


def regime_plot(run: RunReport, max_points: int) -> Plot:
    """Input dependence against entropy relative to the run's start, one point per measured step, joined in time."""
    from plotly.graph_objects import Figure, Scatter

    title = "Regime plane"
    entropy = curve(run, "conditional_entropy_nats", "H(Z|X)") or curve(run, "entropy_nats", "policy entropy")
    dependence = input_dependence(run)
    if entropy is None or dependence is None:
        return Plot(
            title, "", missing="Log token log-probs (entropy) and cross scores or reasoning texts (input dependence)."
        )
    steps, at_entropy, at_dependence = np.intersect1d(entropy.step_T, dependence.step_T, return_indices=True)
    value_T = entropy.value_T[at_entropy]
    start = np.nanmedian(value_T[: max(len(value_T) // 10, 1)]) if len(value_T) else np.nan
    if not len(steps) or not start > 0:
        return Plot(
            title,
            "",
            missing="Entropy and input dependence were never measured at the same step, or entropy starts at zero.",
        )
    x_T, y_T = value_T / start, dependence.value_T[at_dependence]
    kept = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), max_points)).astype(int))
    figure = Figure()
    path = {"x": x_T[kept].astype(np.float32), "y": y_T[kept].astype(np.float32), "customdata": steps[kept]}
    marker = {
        "size": 7,
        "color": steps[kept],
        "colorscale": [[0, GREY], [0.5, BLUE], [1, ORANGE]],
        "colorbar": {"title": {"text": "step"}, "thickness": 10},
    }
    hover = "step %{customdata}<br>entropy %{x:.3f} of the start<br>input dependence %{y:.3f}<extra></extra>"
    figure.add_trace(
        Scatter(
            **path,
            mode="lines+markers",
            marker=marker,
            line={"color": GREY, "width": 1},
            hovertemplate=hover,
            showlegend=False,
        )
    )
    _label_path(figure, x_T, y_T, steps)
    figure.update_xaxes(
        title_text=f"{safe(entropy.label)}, relative to the run's start",
        range=[-0.05, max(1.3, float(np.nanmax(x_T)) * 1.08)],
    )
    figure.update_yaxes(
        title_text=safe(dependence.label),
        range=[min(-0.12, float(np.nanmin(y_T)) - 0.05), max(1.12, float(np.nanmax(y_T)) * 1.05)],
    )
    says = f"Regime: {run.regime.replace('_', ' ')}. Upper right: reasoning varies and depends on the input. Lower right: template collapse."
    headers, table = curve_table(
        [Curve("entropy", "entropy / start", "", steps, x_T, x_T * np.nan, x_T * np.nan), dependence]
    )
    return Plot(
        title, says, to_json(figure, 420, hovermode="closest"), "", thinning_note(len(kept), len(steps)), headers, table
    )


def input_dependence(run: RunReport) -> Curve | None:
    """How much the reasoning depends on the prompt, 0 = not at all, 1 = fully, per step.

    Retrieval above chance, (accuracy - chance) / (1 - chance), else the lower end of the MI over H(X) (metrics.md §7).
    """
    accuracy, chance = curve(run, "retrieval_accuracy"), curve(run, "retrieval_chance")
    if accuracy is not None and chance is not None:
        steps, at_accuracy, at_chance = np.intersect1d(accuracy.step_T, chance.step_T, return_indices=True)
        chance_T = chance.value_T[at_chance]
        with np.errstate(divide="ignore", invalid="ignore"):
            value_T = np.where(chance_T < 1, (accuracy.value_T[at_accuracy] - chance_T) / (1 - chance_T), np.nan)
        label = "retrieval above chance"
    else:
        lower, ceiling = curve(run, "mi_lower_nats"), _prompt_entropy_nats(run)
        if lower is None or not ceiling:
            return None
        steps, value_T, label = lower.step_T, lower.value_T / ceiling, "MI / H(X)"
    empty = np.full(len(steps), np.nan)
    return None if np.isnan(value_T).all() else Curve("input_dependence", label, "", steps, value_T, empty, empty)


def _prompt_entropy_nats(run: RunReport) -> float | None:
    for name in ("prompt_entropy_nats", "prompt_entropy"):
        if name in run.metrics:
            return run.metrics[name].value
    if not run.data.cross_scores:
        return None
    weights_N = run.data.cross_scores[-1].weights_N
    return float(-(weights_N * np.log(np.maximum(weights_N, 1e-300))).sum())


def _label_path(figure: object, x_T: np.ndarray, y_T: np.ndarray, steps: np.ndarray) -> None:
    for position, word in ((0, "start"), (-1, "end")):
        figure.add_annotation(  # type: ignore[attr-defined]
            x=float(x_T[position]), y=float(y_T[position]), text=f"{word}, step {int(steps[position])}", showarrow=True, arrowhead=0, ax=28, ay=-24,
        )  # fmt: skip
    for name, (right, top) in CORNERS.items():
        figure.add_annotation(  # type: ignore[attr-defined]
            xref="paper", yref="paper", x=0.99 if right else 0.01, y=0.99 if top else 0.01, text=name, showarrow=False,
            xanchor="right" if right else "left", yanchor="top" if top else "bottom", font={"size": 11, "color": GREY},
        )  # fmt: skip


def cross_score_plot(run: RunReport) -> Plot:
    """Heat map of prompt × prompt: how well the reasoning of one prompt fits every other, clustered."""
    from plotly.graph_objects import Figure, Heatmap

    title = "Cross scores: whose reasoning fits which prompt"
    says = "Rows: the prompt a reasoning was written for. Columns: the prompt it is scored under. A clear diagonal: the reasoning depends on the input."
    matrix = next(
        (entry for entry in reversed(run.data.cross_scores) if len(entry.prompt_ids_N) > 1 and len(entry.tokens_R)),
        None,
    )
    if matrix is None:
        return Plot(title, says, missing="Measure cross scores during training, or offline with --scorer MODEL.")
    fit_NN, columns = fit_by_prompt(matrix)
    order = _cluster(fit_NN)
    fit_NN, columns = fit_NN[np.ix_(order, order)], columns[order]
    labels = [safe(matrix.prompt_ids_N[column][:12]) for column in columns]
    reach = float(np.nanquantile(np.abs(fit_NN), 0.98)) or 1.0
    heat = Heatmap(
        z=fit_NN.astype(np.float32), colorscale=_CALM, zmin=-reach, zmax=reach, colorbar={"title": {"text": "nats/token"}, "thickness": 10},
        customdata=[[[row, column] for column in labels] for row in labels],
        hovertemplate="written for %{customdata[0]}<br>scored under %{customdata[1]}<br>%{z:.3f} nats/token<extra></extra>",
    )  # fmt: skip
    figure = Figure(heat)
    figure.update_xaxes(title_text="scored under prompt (clustered)", showticklabels=False, constrain="domain")
    figure.update_yaxes(
        title_text="written for prompt", showticklabels=False, autorange="reversed", scaleanchor="x", constrain="domain"
    )
    own = float(np.mean(np.diag(fit_NN)))
    other = float(np.mean(fit_NN[~np.eye(len(fit_NN), dtype=bool)]))
    note = f"Step {matrix.step}, {matrix.split}, {matrix.scope.replace('_', ' ')}, scorer {matrix.scorer}; per token, minus the row's mean."
    if len(columns) < len(matrix.prompt_ids_N):
        note += f" Showing {len(columns)} of {len(matrix.prompt_ids_N)} prompts, evenly spaced."
    rows: list[list[object]] = [["own prompt (diagonal)", own], ["other prompts", other], ["difference", own - other]]
    return Plot(
        title,
        says,
        to_json(figure, 470, hovermode="closest"),
        "",
        note,
        ["mean score, nats/token above the row's mean", "value"],
        rows,
    )


def fit_by_prompt(matrix: CrossScores) -> tuple[np.ndarray, np.ndarray]:
    """Mean per-token score of each prompt's reasonings under each prompt, minus the row's mean; and the columns shown.

    Returns float (M, M) in nats per token and int (M,), M <= MAX_PROMPTS prompts that have a reasoning.
    """
    columns = np.unique(matrix.column_R)
    if len(columns) > MAX_PROMPTS:
        columns = columns[np.linspace(0, len(columns) - 1, MAX_PROMPTS).astype(int)]
    per_token_RN = matrix.logprob_sum_RN / np.maximum(matrix.tokens_R, 1)[:, None]
    rows = [per_token_RN[matrix.column_R == column].mean(axis=0) for column in columns]
    fit_NN = np.array([row - row.mean() for row in rows])[:, columns]
    return fit_NN, columns


def _cluster(fit_NN: np.ndarray) -> np.ndarray:
    if len(fit_NN) < 3 or not np.isfinite(fit_NN).all():
        return np.arange(len(fit_NN))
    from scipy.cluster.hierarchy import leaves_list, linkage

    return leaves_list(linkage(fit_NN, method="average"))


def reward_variance_plot(run: RunReport, max_points: int) -> Plot:
    """In-group reward std per prompt over steps; as quantiles over groups when prompts hardly ever come back."""
    title = "Reward spread per prompt over steps"
    table = run.data.train
    table = (
        table[(table["group"] >= 0) & table["step"].notna() & np.isfinite(table["return_"])] if len(table) else table
    )
    spread = (
        table.groupby(["step", "prompt", "group"], observed=True)["return_"].std(ddof=1).dropna()
        if len(table)
        else pd.Series(dtype=float)
    )
    if not len(spread):
        return Plot(
            title, "", missing="Log one reward per rollout, a group id with two or more rollouts, and the step."
        )
    by_prompt = spread.groupby(level="prompt").size()
    if by_prompt.median() >= _MIN_VISITS and len(by_prompt) > 1 and spread.index.get_level_values("step").nunique() > 1:
        return _spread_map(title, spread)
    quantiles = spread.groupby(level="step").quantile([0.1, 0.5, 0.9]).unstack()
    shown = [_quantile_curve(quantiles[q], f"{q:.0%} of groups below") for q in (0.1, 0.5, 0.9)]
    says = "Spread of the reward inside each group: the lowest tenth, the median and the highest tenth of the groups of a step."
    return stacked_plot(
        title,
        says,
        [Row("in-group std", shown)],
        max_points=max_points,
        note="Prompts hardly ever come back, so groups are shown.",
    )


def _quantile_curve(values: pd.Series, label: str) -> Curve:
    empty = np.full(len(values), np.nan)
    return Curve(
        label, label, "reward", values.index.to_numpy(dtype=np.int64), values.to_numpy(dtype=float), empty, empty
    )


def _spread_map(title: str, spread: pd.Series) -> Plot:
    from plotly.graph_objects import Figure, Heatmap

    steps = np.unique(spread.index.get_level_values("step").to_numpy(dtype=np.int64))
    bins = np.array_split(steps, min(len(steps), MAX_STEP_BINS))
    edges = np.array([chunk[0] for chunk in bins])
    means = spread.groupby(level="prompt").mean().sort_values()
    chosen = means.index[np.unique(np.linspace(0, len(means) - 1, min(len(means), MAX_PROMPTS)).astype(int))]
    frame = spread[spread.index.get_level_values("prompt").isin(chosen)].reset_index(name="std")
    frame["bin"] = edges[np.searchsorted(edges, frame["step"].to_numpy(dtype=np.int64), side="right") - 1]
    wide = frame.pivot_table(index="prompt", columns="bin", values="std", aggfunc="max").reindex(
        index=chosen, columns=edges
    )
    heat = Heatmap(
        x=edges, y=[f"prompt {code}" for code in wide.index], z=wide.to_numpy(dtype=np.float32), colorscale=_CALM, zmin=0,
        colorbar={"title": {"text": "std"}, "thickness": 10}, hovertemplate="step %{x}<br>%{y}<br>std %{z:.3f}<extra></extra>",
    )  # fmt: skip
    figure = Figure(heat)
    figure.update_xaxes(title_text="training step")
    figure.update_yaxes(title_text="prompts, least spread at the bottom", showticklabels=False, type="category")
    note = " ".join(
        text for text in (
            f"Showing {len(chosen)} of {len(means)} prompts, evenly spaced by their mean spread." if len(chosen) < len(means) else "",
            f"{len(steps):,} steps in {len(edges)} bins, the largest spread of a bin is drawn." if len(edges) < len(steps) else "",
        ) if text
    )  # fmt: skip
    rows: list[list[object]] = [
        [f"prompt {code}", float(means[code]), int((frame["prompt"] == code).sum())]
        for code in [*chosen[:5], *chosen[-5:]]
    ]
    says = "Dark rows teach nothing: every rollout of the prompt earns the same. Light rows carry the learning signal."
    return Plot(
        title,
        says,
        to_json(figure, 420, hovermode="closest"),
        "",
        note,
        ["prompt (least and most spread)", "mean in-group std", "groups"],
        rows,
    )
