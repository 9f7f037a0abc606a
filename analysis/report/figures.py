"""Which plots a run gets, and what each says. Curves over steps here, two-dimensional ones in `maps.py`, the kit in `draw.py`.

A plot whose series is absent is not drawn; it says what to log instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from analysis.report.draw import Plot, Row, stacked_plot
from analysis.report.labels import label
from analysis.report.maps import cross_score_plot, regime_plot, reward_variance_plot
from analysis.report.series import Curve, curve, curves
from analysis.result import RunReport

_BUCKET = re.compile(r"grad_norm[/_.]bucket_(\d+)[/_.](task|kl|entropy)$")
_TRAP_SIGNALS = (
    "reward_std_in_group", "conditional_entropy_nats", "entropy_nats", "normalised_mi", "text_retrieval_accuracy",
    "thinking_tokens_mean", "response_tokens_mean", "reward_mean", "grad_norm",
)  # fmt: skip
_TRAP_ROWS = 6


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


def _plot(title: str, says: str, rows: Sequence[Row], what_to_log: str, max_points: int) -> Plot:
    present = [row for row in rows if row.curves]
    if not present:
        return Plot(title, says, missing=what_to_log)
    return stacked_plot(title, says, present, max_points=max_points)


def _information(run: RunReport, max_points: int) -> Plot:
    per_token = curve(run, "conditional_entropy_nats_per_token") or curve(run, "conditional_entropy_nats")
    entropy = [entry for entry in (per_token, curve(run, "entropy_nats")) if entry is not None]
    bracket = curves(run, ["mi_lower_nats", "mi_upper_nats"]) or curves(run, ["text_mi_lower_nats"])
    return _plot(
        "Entropy of the reasoning, and what it says about the prompt",
        "Entropy that stays while the mutual information (MI) falls is template collapse; both falling is low-entropy "
        "collapse. Bands are 95 % intervals; the grey area is the bracket of the MI.",
        [Row("", entropy), Row("", bracket, fill_between=len(bracket) == 2)],
        "Log the log-probs of the sampled tokens (entropy) and cross scores (mutual information).",
        max_points,
    )


def _retrieval(run: RunReport, max_points: int) -> Plot:
    return _plot(
        "Can the prompt be told from the reasoning?",
        "Share of reasonings whose own prompt scores best. Near chance, the reasoning no longer depends on the prompt.",
        [
            Row("", curves(run, ["retrieval_accuracy", "retrieval_chance"])),
            Row("", curves(run, ["text_retrieval_accuracy", "text_retrieval_chance"])),
        ],
        "Log cross scores, or reasoning texts of at least two rollouts per prompt.",
        max_points,
    )


def _reward(run: RunReport, max_points: int) -> Plot:
    return _plot(
        "Reward, success, and the spread inside a group",
        "The spread inside a group is what group-relative advantages learn from; it usually falls before the reward does.",
        [
            Row("", curves(run, ["reward_mean", "val_reward_mean"])),
            Row("", curves(run, ["success_rate", "val_success_rate"])),
            Row("", curves(run, ["task_score_mean", "format_score_mean"])),
            Row("", curves(run, ["reward_std_in_group"])),
        ],
        "Log one reward per rollout and a group id.",
        max_points,
    )


def _zero_variance(run: RunReport, max_points: int) -> Plot:
    kinds = curves(run, ["all_wrong_share", "all_right_share", "constant_share"])
    return _plot(
        "Groups without signal, by kind",
        "Groups whose rollouts all earned the same return teach nothing: all wrong (too hard, or a broken grader), all "
        "right (too easy), or tied in between (a coarse or default reward).",
        [
            Row("", curves(run, ["zero_variance_share"])),
            Row("of which", [entry for entry in kinds if entry.value_T.any()]),
        ],
        "Log one reward per rollout and a group id with two or more rollouts.",
        max_points,
    )


def _echo_trap(run: RunReport, max_points: int) -> Plot:
    title = "Order of events (Echo Trap)"
    shown = curves(run, _TRAP_SIGNALS)[:_TRAP_ROWS]
    if len(shown) < 2:
        wanted = "Log at least two of these per step: in-group reward std, entropy, reward, gradient norm."
        return Plot(title, "", missing=wanted)
    says = (
        "In an Echo Trap the reward's spread falls first, entropy turns, then the reward falls and the gradient spikes."
    )
    found = next((finding.evidence for finding in run.findings if finding.code == "ET01"), {})
    turns = {name: step for name, step in found.get("turned_at_step", {}).items() if step is not None}
    if found.get("reward_fell_at_step") is not None:
        turns["reward_mean"] = found["reward_fell_at_step"]
    leads = [f"{label(name)} by {lead} steps" for name, lead in found.get("lead_steps", {}).items() if lead > 0]
    says += f" Here, ahead of the reward: {', '.join(leads)}." if leads else ""
    rows = [Row("", [entry], marks=_marks(entry, turns, found.get("gradient_spike_steps", ()))) for entry in shown]
    return stacked_plot(title, says, rows, max_points=max_points)


def _marks(entry: Curve, turns: Mapping[str, int], spike_steps: Sequence[int]) -> list[tuple[int, str]]:
    if entry.name == "grad_norm" and spike_steps:
        return [(spike_steps[0], f"first spike, step {spike_steps[0]}")]
    verb = "fell" if entry.name == "reward_mean" else "turned"
    return [(turns[entry.name], f"{verb} at step {turns[entry.name]}")] if entry.name in turns else []


def _length(run: RunReport, max_points: int) -> Plot:
    return _plot(
        "Length and truncation",
        "Look at truncation before difficulty: a rollout cut at the token cap can hardly be right.",
        [
            Row("", curves(run, ["response_tokens_mean", "response_tokens_max", "thinking_tokens_mean"])),
            Row("", curves(run, ["truncated_share"])),
        ],
        "Log response lengths in tokens and the token cap.",
        max_points,
    )


def _optimizer(run: RunReport, max_points: int) -> Plot:
    return _plot(
        "KL and gradient norm",
        "Spikes are kept: a single step of exploding gradient is drawn at its full height.",
        [Row("", curves(run, ["kl_nats", "policy_shift_kl_nats"])), Row("", curves(run, ["grad_norm"]))],
        "Log the KL to the reference policy and the gradient norm before clipping.",
        max_points,
    )


def _gradient_buckets(run: RunReport, max_points: int) -> Plot:
    by_part: dict[str, list[Curve]] = {}
    for name in sorted({*run.series, *run.data.series}):
        if (match := _BUCKET.match(name)) and (found := curve(run, name, f"bucket {match[1]}")):
            by_part.setdefault(match[2], []).append(found)
    return _plot(
        "Gradient norm per reward-variance bucket",
        "Bucket 1 holds the groups with the least reward variance: their gradient is mostly regulariser and noise.",
        [Row(f"{part} gradient", found) for part, found in by_part.items()],
        "Switch on gradient analysis in the trainer (one backward pass per bucket).",
        max_points,
    )
