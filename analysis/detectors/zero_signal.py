"""Groups whose rollouts all earned the same return: no group-relative gradient. Three kinds with three remedies.

Truncation is looked at first: answers cut at the cap are tied whatever the task's difficulty.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import SUSTAINED, ids, recent, recent_rollouts, span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.snr import wilson
from analysis.turning_points import finite
from ragen_diag.findings import Family, Finding, Status

NEEDS = "rollouts.return_ + rollouts.group | rollouts.return_ + rollouts.prompt | zero_variance_share"
KINDS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # kind -> (code, words, what it could also be, what to do)
    "wrong": (
        "ZS01", "all wrong", ("a grader that never says right", "answers that are never parsed"),
        ("ten responses with their parsed answers", "easier prompts, more rollouts a prompt, or partial credit"),
    ),
    "right": (
        "ZS02", "all right", ("a grader that always says right",),
        ("harder prompts; drop solved ones (dynamic sampling)", "validation on harder tasks"),
    ),
    "constant": (
        "ZS03", "tied at neither the best nor the worst return", ("a default score after failed parsing", "a coarse reward"),
        ("the distribution of returns", "each part of the reward by itself"),
    ),
}  # fmt: skip


@detector("ZS01", "zero signal: all rollouts wrong", Family.SIGNAL, NEEDS)
def all_wrong(run: RunData, measures: Measures) -> Finding:
    """ZS01: groups tied with every rollout wrong. See `zero_signal`."""
    return zero_signal(run, measures, "wrong")


@detector("ZS02", "zero signal: all rollouts right", Family.SIGNAL, NEEDS)
def all_right(run: RunData, measures: Measures) -> Finding:
    """ZS02: groups tied with every rollout right. See `zero_signal`."""
    return zero_signal(run, measures, "right")


@detector("ZS03", "zero signal: constant reward", Family.SIGNAL, NEEDS)
def constant_reward(run: RunData, measures: Measures) -> Finding:
    """ZS03: groups tied at a return that is neither the run's best nor its worst. See `zero_signal`."""
    return zero_signal(run, measures, "constant")


def zero_signal(run: RunData, measures: Measures, kind: str, *, warn_at: float = 0.5, fail_at: float = 0.8) -> Finding:
    """Share of recent groups whose rollouts all earned the same return; the commonest kind carries the status.

    warn_at, fail_at: share of the groups with two or more scored rollouts, over the last fifth of the steps (at least
    SUSTAINED). With rollouts the lower end of the 95 % interval must reach the limit. FAIL needs SUSTAINED steps, or a log
    without steps. Defaults from our runs, not from a paper. Fewer steps than that warn at most: one all-correct batch is
    no finding. A tied group has advantage exactly zero (GRPO, DeepSeekMath, arXiv:2402.03300, sec. 4.1.2); remedy:
    dynamic sampling (DAPO, arXiv:2503.14476).
    """
    code, words, could, check = KINDS[kind]
    limit = {
        "warn_at": warn_at,
        "fail_at": fail_at,
        "sustained_steps": SUSTAINED,
        "source": "ours; see the page of " + code,
    }
    shares = _from_rollouts(measures, warn_at) or _from_series(measures)
    if shares is None:
        return Finding(code, Status.INCONCLUSIVE, "no group has two scored rollouts", threshold=limit)
    total, lower, by_kind, n, n_steps, steps = shares
    evidence = {"tied_share": total, "tied_share_lower": lower, "n_groups": n, "n_steps": n_steps,
                **{f"{name}_share": value for name, value in by_kind.items()}}  # fmt: skip
    if kind != max(by_kind, key=lambda name: by_kind[name]) or total == 0:
        claim = f"{by_kind[kind]:.0%} of recent groups are {words}"
        return Finding(code, Status.PASS, claim, evidence, limit, steps)
    status = Status.PASS
    if lower >= warn_at:
        status = Status.FAIL if lower >= fail_at and (n_steps >= SUSTAINED or steps is None) else Status.WARN
    if kind == "right" and status != Status.PASS and _was_learned(measures):
        claim = f"solved: {total:.0%} of groups are tied, all right, after a start that had signal; nothing is left to learn here"
        return Finding(code, Status.PASS, claim, evidence, limit, steps, check_next=check)
    parts = ", ".join(f"{name} {value:.0%}" for name, value in by_kind.items() if value > 0)
    if not n and kind == "constant":
        parts = "the log does not say at which return"
    size = f"{n} groups in " if n else ""
    claim = f"{total:.0%} of groups are tied ({parts}) over {size}the last {n_steps} step{'s' if n_steps != 1 else ''}"
    cut = finite(measures.series.get("truncated_share"))
    if status != Status.PASS and len(cut) and float(recent(cut).mean()) >= 0.3:
        evidence["truncated_share"] = float(recent(cut).mean())
        claim += f"; {recent(cut).mean():.0%} of responses are cut at the cap, look there first"
        could = ("truncation: unfinished answers earn the same", *could)
        check = ("LT01", *check)
    rollouts = recent_rollouts(run)
    tied_groups = (
        measures.groups[measures.groups["tied"] == 1]["group"] if len(measures.groups) else pd.Series(dtype="int64")
    )
    tied = rollouts["group"].isin(tied_groups) if len(rollouts) else pd.Series(dtype="bool")
    return Finding(code, status, claim, evidence, limit, steps, ids(rollouts[tied]), ids(rollouts[~tied]), could, check)


def _was_learned(measures: Measures) -> bool:
    """The first steps had groups with differing returns: the prompts were not easy, they became so."""
    shares = finite(measures.series.get("zero_variance_share"))
    return len(shares) >= 4 * SUSTAINED and float(shares.iloc[:SUSTAINED].mean()) < 0.5


_Shares = tuple[float, float, dict[str, float], int, int, tuple[int, int] | None]


def _from_rollouts(measures: Measures, warn_at: float) -> _Shares | None:
    groups = measures.groups
    if not len(groups):
        return None
    groups = groups[groups["n"] >= 2]
    if not len(groups):
        return None
    steps = np.sort(groups["step"].unique())
    window = steps[-min(len(steps), max(SUSTAINED, len(steps) // 5)) :]
    last = groups[groups["step"] >= window[0]]
    tied = int((last["tied"] == 1).sum())
    total, interval = wilson(tied, len(last))
    kind = last["kind"]
    if groups["high"].max() == groups["low"].min() and (groups["success"].isna()).all():
        # One single return all run long: 0 is what failing costs everywhere; full marks for all from the first step on are
        # rather a reward function that does not look.
        kind = kind.replace("constant", "wrong") if float(groups["high"].max()) == 0 else kind
    by_kind = {name: float((kind == name).mean()) for name in KINDS}
    real = (int(window[0]), int(window[-1])) if window[0] >= 0 else None
    # All groups tied is a fact about these groups; the interval guards shares that could be chance.
    lower = 1.0 if tied == len(last) and len(last) >= 4 else interval[0] if interval else total
    return total, lower, by_kind, len(last), len(window), real


def _correct_share(measures: Measures) -> pd.Series:
    """Share of right answers as logged: the success rate, else a task score that stays within 0 and 1; may be empty."""
    success = finite(measures.series.get("success_rate"))
    task = finite(measures.series.get("task_score_mean"))
    return success if len(success) or not task.between(0, 1).all() else task


def _from_series(measures: Measures) -> _Shares | None:
    share = recent(measures.series.get("zero_variance_share", pd.Series(dtype="float64")))
    if not len(share):
        return None
    total = float(share.mean())
    kind = "constant"
    reward = finite(measures.series.get("reward_mean")).reindex(share.index).dropna()
    best, worst = finite(measures.series.get("reward_max")), finite(measures.series.get("reward_min"))
    success = _correct_share(measures).reindex(share.index).dropna()
    if len(success):
        kind = "right" if success.mean() > 0.5 else "wrong"
    elif len(reward) and len(best) and len(worst) and best.max() > worst.min():
        kind = "right" if reward.mean() - worst.min() > best.max() - reward.mean() else "wrong"
    elif len(reward) and (reward == 0).all():
        kind = "wrong"
    by_kind = dict.fromkeys(KINDS, 0.0) | {kind: total}
    return total, total, by_kind, 0, len(share), span(share)
