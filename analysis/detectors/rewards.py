"""Rewards that are not measurements: parser defaults, missing scores."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import ids, span, steps_of
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite
from ragen_diag.findings import Family, Finding, Status

SCORE_SERIES = ("task_score_mean", "format_score_mean", "success_rate", "reward_mean")
FORMAT_NAME = re.compile(r"format|tag|xml|style|think|penalty", re.IGNORECASE)
_LOGGED_PART = re.compile(r"^other:(?:train/)?rewards?/(?!.*(?:^|/)std$)")


def component_series(run: RunData, measures: Measures) -> dict[str, pd.Series]:
    """Per-step means of every part of the score: rollout components by their own name, logged parts, the score series."""
    parts = run.reward_components
    train = run.train
    found: dict[str, pd.Series] = {}
    if len(parts.columns) and train["step"].notna().any():
        step = train["step"].astype("float64")
        for name in parts:
            means = parts[name].reindex(train.index).groupby(step).mean().dropna()
            if len(means):
                found[str(name)] = means.set_axis(means.index.astype("int64"))
    logged = {name: name.removeprefix("other:") for name in run.series if _LOGGED_PART.match(name)}
    for name, shown in (logged | {name: name for name in SCORE_SERIES}).items():
        points = finite(measures.series.get(name))
        if len(points):
            found.setdefault(shown, points)
    return found


def _with_validation(name: str, values: pd.Series, run: RunData) -> pd.Series:
    """A score together with its validation points: a parser default is the same constant in both."""
    twin = {"task_score_mean": "val_success_rate", "reward_mean": "val_reward_mean"}.get(name)
    points = finite(run.series.get(twin)) if twin else finite(None)
    return pd.concat([values, points[~points.index.isin(values.index)]]).sort_index() if len(points) else values


@detector(
    "RW01", "score constant at a round number", Family.PIPELINE, "reward_components | task_score_mean | reward_mean"
)
def constant_score(run: RunData, measures: Measures, *, n_points: int = 3) -> Finding:
    """RW01: a part of the score that is exactly the same at every step while something else moves: a default, not a score.

    FAIL at a value strictly between the usual extremes (0.5: the answer was never parsed); WARN at 0 or below, where the
    part may really never be earned, and for a format part, which may be scored 0.5 because everyone earns it; a part that
    is always 1 is earned by everyone and normal.
    n_points: points needed. Three equal means of real batches at a round value do not happen to a score that is measured.
    Source: train-deepseek-r1#4 (accuracy 0.5 at every step), trl#6966 (format reward 0: the tag is in the prompt).
    """
    limit = {"n_points": n_points, "source": "public bug reports; see the page of RW01"}
    parts = {name: _with_validation(name, values, run) for name, values in component_series(run, measures).items()}
    long_enough = {name: values for name, values in parts.items() if len(values) >= n_points}
    constant = {
        name: float(values.iloc[0])
        for name, values in long_enough.items()
        if np.ptp(values.to_numpy()) == 0 and not _rollouts_differ(name, run, measures)
    }
    others = [finite(values) for values in measures.series.values()]
    moving = any(len(values) >= 2 and np.ptp(values.to_numpy()) > 0 for values in others)
    if not long_enough:
        return Finding("RW01", Status.INCONCLUSIVE, f"fewer than {n_points} steps with scores", threshold=limit)
    evidence: dict[str, object] = {
        "constant_scores": constant,
        "n_points": {name: len(parts[name]) for name in constant},
    }
    check = ("print ten scored rollouts with the parsed answer", "what the reward function returns when parsing fails")
    # A format part that everyone earns is constant at its weight, which is normal; at 0 nobody does.
    default = {
        name: value for name, value in constant.items() if value > 0 and value != 1 and not FORMAT_NAME.search(name)
    }
    # Failing every task is the zero-signal checks' business; here it is one part of several that nobody ever earns.
    whole = ("reward_mean", "success_rate")
    never = {name: value for name, value in constant.items() if value <= 0 and name not in whole and len(parts) > 1}
    if _format_kept(measures):  # a penalty that nobody incurs
        never = {name: value for name, value in never.items() if value < 0 or not FORMAT_NAME.search(name)}
    for suspects, status, what, could in (
        (default, Status.FAIL, "a default after failed parsing, not a score", ("a part that is switched off",)),
        (
            never,
            Status.WARN,
            "never earned, or never parsed",
            ("a part that is switched off", "a task nobody solves yet"),
        ),
    ):
        if suspects and moving:
            named = ", ".join(f"{name} is exactly {value:g}" for name, value in suspects.items())
            points = parts[next(iter(suspects))]
            claim = f"{named} at every one of {len(points)} points: {what}"
            return Finding("RW01", status, claim, evidence, limit, span(points), could_also_be=could, check_next=check)
    return Finding("RW01", Status.PASS, f"{len(long_enough)} scores vary over the run", evidence, limit)


def _format_kept(measures: Measures) -> bool:
    valid = finite(measures.series.get("format_valid_share"))
    return len(valid) > 0 and float(valid.min()) >= 0.95


def _rollouts_differ(name: str, run: RunData, measures: Measures) -> bool:
    """A mean that never moves over rollouts that do (alternating wins, say) is no default."""
    if name in run.reward_components:
        return run.reward_components[name].nunique() > 1
    spread = finite(measures.series.get("reward_std_batch"))
    return name in ("reward_mean", "success_rate") and len(spread) > 0 and float(spread.max()) > 0


@detector("RW02", "rollouts without a score", Family.PIPELINE, "rollouts.trajectory_id")
def missing_scores(run: RunData, measures: Measures, *, warn_at: float = 0.02) -> Finding:
    """RW02: rollouts whose return is missing or not finite, or that failed. FAIL when all failed.

    A log in which no rollout has a score may simply not hold it: INCONCLUSIVE, and no run is called healthy on it.

    warn_at: share of training rollouts; ours. Source: ms-swift#8123 (one NaN reward poisons the batch).
    """
    limit = {"warn_at": warn_at, "fail_at": 1.0, "source": "ours"}
    train = run.train
    if not len(train):
        return Finding("RW02", Status.SKIPPED, "no rollouts in this log. To check this, log rollouts")
    missing = ~np.isfinite(train["return_"].to_numpy(dtype="float64"))
    failed = (train["error"] == 1).to_numpy()
    share = float(missing.mean())
    evidence = {
        "missing_share": share,
        "n_missing": int(missing.sum()),
        "n_failed": int(failed.sum()),
        "n_rollouts": len(train),
    }
    check = ("the reward function's own log", "`--reward-columns` if the score has another name")
    status = Status.WARN if share >= warn_at else Status.PASS
    claim = f"{int(missing.sum())} of {len(train)} rollouts have no score"
    if share == 1:
        status = Status.FAIL if failed.all() else Status.INCONCLUSIVE
        claim = f"none of {len(train)} rollouts has a score: nothing can be said about reward or signal"
    if status == Status.PASS and failed.mean() >= warn_at:
        status, claim = Status.WARN, f"{int(failed.sum())} of {len(train)} rollouts failed and still carry a score"
        missing = failed
    return Finding(
        "RW02", status, claim, evidence, limit, steps_of(train[missing]), ids(train[missing]), check_next=check
    )  # fmt: skip
