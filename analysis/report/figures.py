"""Which plots a run gets, and what each says. Curves over steps here, two-dimensional ones in `maps.py`, the kit in `draw.py`.

A plot whose series is absent is not drawn; it says what to log instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.report.draw import Plot, Row, stacked_plot
from analysis.report.maps import cross_score_plot, regime_plot, reward_variance_plot
from analysis.report.series import Curve, curve, curves
from analysis.result import RunReport
from ragen_diag.findings import Finding

TIED_ATOL = 1e-6
"""Returns closer than this are equal: float32 rewards differ by rounding."""
_BUCKET = re.compile(r"grad_norm[/_.]bucket_(\d+)[/_.](task|kl|entropy)$")
_LINE_KEYS = frozenset({"warn_at", "fail_at", "warn", "fail", "limit", "threshold", "floor", "ceiling"})


def run_plots(run: RunReport, max_points: int) -> list[Plot]:
    """All plots of a run in reading order, the ones that cannot be drawn included (with what to log)."""
    return [
        regime_plot(run, max_points),
        _information(run, max_points),
        _retrieval(run, max_points),
        _reward(run, max_points),
        _zero_variance(run, max_points),
        _echo_trap(run, max_points),
        cross_score_plot(run),
        reward_variance_plot(run, max_points),
        _length(run, max_points),
        _optimizer(run, max_points),
        _gradient_buckets(run, max_points),
    ]


def finding_plot(run: RunReport, finding: Finding, max_points: int) -> Plot | None:
    """The series a finding is about, with its threshold lines and its window of steps; None when no series belongs to it.

    A series belongs to a finding that names it under evidence["series"] (a name or a list), or that has a number under
    its name in evidence or threshold.
    """
    named = finding.evidence.get("series", [])
    candidates = (
        [named]
        if isinstance(named, str)
        else [name for name in named if isinstance(name, str)]
        if isinstance(named, list)
        else []
    )
    candidates += [key for key in (*finding.threshold, *finding.evidence) if key not in candidates]
    candidates += [
        series
        for key in finding.threshold
        for series in run.series
        if key.startswith(f"{series}_") and series not in candidates
    ]
    shown = list({entry.name: entry for entry in curves(run, candidates)}.values())[:3]
    if not shown:
        return None
    rows = [
        Row(entry.label, [entry], lines=_threshold_lines(finding.threshold, entry, alone=len(shown) == 1))
        for entry in shown
    ]
    says = f"{finding.code} on {', '.join(entry.label for entry in shown)}; shaded: the steps the finding is about; dashed: its limits."
    return stacked_plot(
        f"{finding.code}: the series behind it", says, rows, max_points=max_points, window=finding.steps
    )


def _threshold_lines(threshold: Mapping[str, Any], entry: Curve, *, alone: bool) -> list[tuple[float, str]]:
    lines = []
    for key, value in threshold.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
            continue
        if key == entry.name or key.startswith(f"{entry.name}_") or (alone and key in _LINE_KEYS):
            lines.append(
                (float(value), f"{key.removeprefix(entry.name).strip('_').replace('_', ' ') or 'limit'} {value:g}")
            )
    return lines


def _drawn_or_missing(
    title: str, says: str, rows: list[Row], what_to_log: str, max_points: int, note: str = ""
) -> Plot:
    rows = [row for row in rows if row.curves]
    if not rows:
        return Plot(title, says, missing=what_to_log)
    return stacked_plot(title, says, rows, max_points=max_points, note=note)


def _information(run: RunReport, max_points: int) -> Plot:
    entropy = curves(run, [("conditional_entropy_nats", "H(Z|X) of the thinking"), ("entropy_nats", "policy entropy")])
    bracket = curves(run, [("mi_lower_nats", "MI, lower end"), ("mi_upper_nats", "MI, upper end")])
    return _drawn_or_missing(
        "Entropy of the reasoning and its mutual information with the prompt",
        "Entropy kept while the mutual information falls is template collapse; both falling is low-entropy collapse. Bands: 95 %.",
        [Row("entropy", entropy), Row("I(X;Z)", bracket, fill_between=len(bracket) == 2)],
        "Log the log-probs of the sampled tokens (entropy) and cross scores (mutual information).",
        max_points,
    )


def _retrieval(run: RunReport, max_points: int) -> Plot:
    shown = curves(run, [("retrieval_accuracy", "reasoning finds its own prompt"), ("retrieval_chance", "chance")])
    return _drawn_or_missing(
        "Can the prompt be told from the reasoning?",
        "Share of reasonings whose own prompt scores best. Near chance, the reasoning no longer depends on the prompt.",
        [Row("share", shown)],
        "Log cross scores, or reasoning texts of at least two rollouts per prompt.",
        max_points,
    )


def _reward(run: RunReport, max_points: int) -> Plot:
    rows = [
        Row("reward", curves(run, [("reward_mean", "mean reward"), ("val_reward_mean", "validation")])),
        Row(
            "success",
            curves(run, [("success_rate", "training"), ("val_success_rate", "validation success"), "task_score_mean"]),
        ),
        Row("in-group std", curves(run, [("reward_std_in_group", "reward std inside a group")])),
    ]
    return _drawn_or_missing(
        "Reward, success, and the spread inside a group",
        "The spread inside a group is what group-relative advantages learn from; it usually falls before the reward does.",
        rows,
        "Log one reward per rollout and a group id.",
        max_points,
    )


def _zero_variance(run: RunReport, max_points: int) -> Plot:
    kinds, note = tied_groups_by_kind(run)
    if not kinds:
        kinds = curves(run, [("zero_variance_share", "groups without reward spread")])
    return _drawn_or_missing(
        "Groups without signal, by kind",
        "Groups whose rollouts all earned the same return teach nothing: all wrong (too hard, or a broken grader), all right (too easy).",
        [Row("share of groups", kinds)],
        "Log one reward per rollout and a group id with two or more rollouts.",
        max_points,
        note,
    )


def tied_groups_by_kind(run: RunReport) -> tuple[list[Curve], str]:
    """Share of tied groups per step as curves (all, all wrong, all right, other ties), and how kinds were told apart.

    Groups with fewer than two finite returns do not count. Empty when the log has no steps or no such group.
    """
    table = run.data.train
    table = (
        table[(table["group"] >= 0) & table["step"].notna() & np.isfinite(table["return_"])] if len(table) else table
    )
    if not len(table):
        return [], ""
    groups = table.groupby(["step", "group"], observed=True).agg(
        low=("return_", "min"), high=("return_", "max"), n=("return_", "size"), success=("success", "mean")
    )
    groups = groups[groups["n"] >= 2]
    if not len(groups):
        return [], ""
    tied = groups["high"] - groups["low"] <= TIED_ATOL
    judged = groups["success"].notna().any()
    right = groups["success"] == 1 if judged else groups["high"] >= table["return_"].max() - TIED_ATOL
    wrong = groups["success"] == 0 if judged else groups["low"] <= table["return_"].min() + TIED_ATOL
    per_step = pd.DataFrame(
        {
            "all tied": tied,
            "all wrong": tied & wrong & ~right,
            "all right": tied & right,
            "other ties": tied & ~right & ~wrong,
        }
    )
    shares = per_step.groupby(level="step").mean()
    note = (
        ""
        if judged
        else "No success flag in the log: a tie at the highest return of the run counts as right, at the lowest as wrong."
    )
    return [
        _plain_curve(shares[kind], kind, "share") for kind in shares if kind == "all tied" or shares[kind].any()
    ], note


def _plain_curve(values: pd.Series, label: str, unit: str) -> Curve:
    empty = np.full(len(values), np.nan)
    return Curve(label, label, unit, values.index.to_numpy(dtype=np.int64), values.to_numpy(dtype=float), empty, empty)


def _echo_trap(run: RunReport, max_points: int) -> Plot:
    signals = [
        "reward_std_in_group",
        "conditional_entropy_nats",
        "mi_lower_nats",
        "thinking_tokens_mean",
        "reward_mean",
        "grad_norm",
    ]
    shown = curves(run, signals)
    onsets = signal_onsets(run)
    rows = [
        Row(
            entry.label,
            [entry],
            marks=[(onsets[entry.name], f"step {onsets[entry.name]}")] if entry.name in onsets else (),
        )
        for entry in shown
    ]
    if len(shown) < 2:
        return Plot(
            "Order of events (Echo Trap)",
            "",
            missing="Log at least two of: in-group reward std, H(Z|X), reward, gradient norm per step.",
        )
    says = "Echo Trap order: reward spread falls first, entropy turns, then reward falls and the gradient norm spikes."
    if onsets and (first := min(onsets, key=lambda name: onsets[name])) and "reward_mean" in onsets:
        says += f" Here {first.replace('_', ' ')} turned at step {onsets[first]}, {onsets['reward_mean'] - onsets[first]} steps before the reward."
    return stacked_plot("Order of events (Echo Trap)", says, rows, max_points=max_points)


def signal_onsets(run: RunReport) -> dict[str, int]:
    """Step at which each signal turned, from the findings' evidence under "onset_steps" ({series name: step})."""
    onsets: dict[str, int] = {}
    for finding in run.findings:
        found = finding.evidence.get("onset_steps")
        if isinstance(found, Mapping):
            onsets.update({str(name): int(step) for name, step in found.items() if isinstance(step, (int, float))})
    return onsets


def _length(run: RunReport, max_points: int) -> Plot:
    tokens = curves(
        run,
        [("response_tokens_mean", "mean"), ("response_tokens_max", "longest"), ("thinking_tokens_mean", "thinking")],
    )
    return _drawn_or_missing(
        "Length and truncation",
        "Look at truncation before difficulty: a rollout cut at the token cap cannot be right.",
        [Row("tokens", tokens), Row("truncated", curves(run, [("truncated_share", "cut at the token cap")]))],
        "Log response lengths in tokens and the token cap.",
        max_points,
    )


def _optimizer(run: RunReport, max_points: int) -> Plot:
    return _drawn_or_missing(
        "KL and gradient norm",
        "Spikes are kept: a single step of exploding gradient is drawn at its full height.",
        [
            Row("KL", curves(run, [("kl_nats", "to the reference"), ("policy_shift_kl_nats", "old to new policy")])),
            Row("gradient", curves(run, [("grad_norm", "gradient norm before clipping")])),
        ],
        "Log the KL to the reference policy and the gradient norm before clipping.",
        max_points,
    )


def _gradient_buckets(run: RunReport, max_points: int) -> Plot:
    title, says = (
        "Gradient norm per reward-variance bucket",
        "Bucket 1 holds the groups with the least reward variance.",
    )
    by_part: dict[str, list[Curve]] = {}
    for name in sorted({*run.series, *run.data.series}):
        if (match := _BUCKET.match(name)) and (found := curve(run, name, f"{match[2]}, bucket {match[1]}")):
            by_part.setdefault(match[2], []).append(found)
    rows = [Row(f"{part} gradient", found) for part, found in by_part.items()]
    return _drawn_or_missing(
        title, says, rows, "Switch on gradient analysis in the trainer (one backward pass per bucket).", max_points
    )
