"""Everything measured about one run, in one place: what detectors, the verdict and the report read.

Estimates of information and text come from outside (information.py, text.py, online cross scores); this file adds what
follows from RunData alone: per-step series, reward signal, Echo Trap and regime path. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.echo_trap import EchoTrap, echo_trap
from analysis.regimes import RegimePath, regime_path
from analysis.run_data import RunData
from analysis.score import Score, score_of
from analysis.snr import group_table, signal_estimates, step_signal
from ragen_diag.findings import Estimate
from ragen_diag.metric_names import METRICS

StepEstimates = Mapping[int, Mapping[str, Estimate]]

_MEANS = {
    # series name -> rollout column whose mean over a step's rollouts it is
    "success_rate": "success",
    "response_tokens_mean": "response_tokens",
    "thinking_tokens_mean": "thinking_tokens",
    "truncated_share": "truncated",
    "format_valid_share": "format_valid",
    "turns_mean": "n_turns",
    "tool_calls_mean": "tool_calls",
    "entropy_nats": "entropy",
    "advantage_mean": "advantage",
    "kept_group_share": "kept",
    "repetition_share": "top_token_share",
    "env_text_share": "has_env_text",
}
EXTRA_SERIES: dict[str, str] = {
    # computed here, never logged: unit and definition
    "repetition_share": "share: mean over rollouts of the commonest word's share of the response",
    "env_text_share": "share of rollouts whose response holds an environment or chat-role marker",
    "distinct_response_share": "share: distinct first responses per group over rollouts, mean over groups",
    "intraclass_correlation": "ratio: between-prompt over total variance of the return",
    "rv_spread_ratio": "ratio: Std(RV) / Mean(RV) over prompts",
    "effective_groups": "groups: (sum RV)^2 / sum RV^2",
    "all_right_share": "share of groups tied with all rollouts right",
    "all_wrong_share": "share of groups tied with all rollouts wrong",
    "constant_share": "share of groups tied at neither",
    "normalised_mi": "share: lower MI bound over H(X)",
    "text_retrieval_accuracy": "share: prompts recognised from the reasoning's text",
}


@dataclass
class Measures:
    """See the module docstring. Build with `Measures.of`."""

    per_step: StepEstimates = field(default_factory=dict)
    """Step -> name -> estimate. Names: mi_lower_nats, mi_upper_nats, normalised_mi, prompt_entropy_nats,
    conditional_entropy_nats_per_token, retrieval_accuracy, retrieval_chance, retrieval_above_chance, p_no_dependence,
    text_mi_lower_nats, text_retrieval_accuracy, text_retrieval_chance, within_prompt_diversity,
    cross_prompt_template_share. Absent name = not measured. Step -1 holds a log without steps."""
    whole_run: Mapping[str, Estimate] = field(default_factory=dict)
    """The same names over the whole run, and the signal estimates of snr.py over its last steps."""
    scorer: str | None = None
    """Who scored the cross scores: 'policy', 'checkpoint:<path>', a foreign model's name; None = nobody."""
    series: dict[str, pd.Series] = field(default_factory=dict)
    """Per-step values by name: recomputed from rollouts where they allow it, else as logged."""
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    """`snr.group_table` of the run; empty for metrics-only logs."""
    echo_trap: EchoTrap | None = None
    regime: RegimePath | None = None

    @cached_property
    def score(self) -> Score:
        """How the run's best score moved."""
        return score_of(self.series)

    @classmethod
    def of(
        cls,
        run: RunData,
        *,
        per_step: StepEstimates | None = None,
        whole_run: Mapping[str, Estimate] | None = None,
        scorer: str | None = None,
    ) -> Measures:
        """Complete the estimates given with everything that follows from the run itself."""
        per_step = per_step or {}
        groups = group_table(run) if len(run.rollouts) else pd.DataFrame()
        series = _series(run, groups, per_step)
        returns = run.train["return_"].to_numpy(dtype="float64") if len(run.rollouts) else np.array([])
        returns = returns[np.isfinite(returns)]
        limits, spread = None, None
        if len(returns):
            limits = (float(returns.min()), float(returns.max()))
            # Sparse rewards put both percentiles on one value; their scale is then the range.
            spread = float(np.subtract(*np.percentile(returns, [95, 5]))) or limits[1] - limits[0]
        estimates = dict(whole_run or {})
        if len(groups):
            estimates = signal_estimates(_last_steps(groups)) | estimates
        return cls(
            per_step=per_step,
            whole_run=estimates,
            scorer=scorer,
            series=series,
            groups=groups,
            echo_trap=echo_trap(series, return_range=limits, spread=spread),
            regime=regime_path(per_step, exact=scorer is not None and scorer.split(":")[0] in ("policy", "checkpoint")),
        )


def _last_steps(groups: pd.DataFrame) -> pd.DataFrame:
    """Groups of the last fifth of the steps: what the run is now, not what it was on average."""
    steps = np.sort(groups["step"].unique())
    return groups[groups["step"] >= steps[-max(1, len(steps) // 5)]]


def _series(run: RunData, groups: pd.DataFrame, per_step: StepEstimates) -> dict[str, pd.Series]:
    computed: dict[str, pd.Series] = {}
    train = run.train
    stepped = train[train["step"].notna()] if len(train) else train
    if len(stepped):
        computed |= _from_rollouts(stepped)
        signal = step_signal(groups[groups["step"] >= 0]) if len(groups) else pd.DataFrame()
        computed |= {name: signal[name] for name in signal if name in METRICS or name in EXTRA_SERIES}
        validation = run.split("val")
        if len(validation) and len(run.split("train")):
            steps = validation[validation["step"].notna()]
            by_step = steps.groupby(steps["step"].astype("int64"))
            computed["val_success_rate"] = by_step["success"].mean()
            computed["val_reward_mean"] = by_step["return_"].mean()
    computed |= _from_estimates(per_step)
    computed = {name: values for name, values in computed.items() if values.notna().any()}
    return {**run.series, **computed}


def _from_rollouts(stepped: pd.DataFrame) -> dict[str, pd.Series]:
    step = stepped["step"].astype("int64")
    by_step = stepped.groupby(step)
    found = {name: by_step[column].mean() for name, column in _MEANS.items()}
    for name, column, how in (
        ("reward_max", "return_", "max"),
        ("reward_min", "return_", "min"),
        ("reward_std_batch", "return_", "std"),
        ("advantage_max", "advantage", "max"),
        ("advantage_min", "advantage", "min"),
        ("response_tokens_max", "response_tokens", "max"),
        ("response_tokens_min", "response_tokens", "min"),
    ):
        found[name] = by_step[column].agg(how)
    thinking = by_step[["n_thinking_valid", "n_turns"]].sum(min_count=1)
    if (stepped["n_thinking_turns"] > 0).any():
        found["thinking_valid_rate"] = thinking["n_thinking_valid"] / thinking["n_turns"]
    tokens = by_step[["thinking_logprob", "thinking_tokens_all"]].sum(min_count=1)
    found["conditional_entropy_nats"] = -tokens["thinking_logprob"] / tokens["thinking_tokens_all"]
    hashed = stepped[(stepped["response_hash"] != 0) & (stepped["group"] >= 0)]
    if len(hashed):
        per_group = hashed.groupby([step.loc[hashed.index], "group"])["response_hash"].agg(["nunique", "size"])
        per_group = per_group[per_group["size"] >= 2]
        found["distinct_response_share"] = (per_group["nunique"] / per_group["size"]).groupby(level=0).mean()
    return {name: values.rename_axis("step") for name, values in found.items()}


def _from_estimates(per_step: StepEstimates) -> dict[str, pd.Series]:
    """Point values of the estimates that are also series; their intervals stay in `per_step`."""
    names = ("mi_lower_nats", "mi_upper_nats", "retrieval_accuracy", "normalised_mi", "text_retrieval_accuracy")
    found = {}
    for name in names:
        values = {step: e[name].value for step, e in sorted(per_step.items()) if step >= 0 and name in e}
        if values:
            found[name] = pd.Series(values, dtype="float64").rename_axis("step")
    return found
