"""Advantages that contradict the returns they were computed from."""

from __future__ import annotations

import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.windows import ids, steps_of
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.snr import TIE_ATOL
from ragen_diag.findings import Family, Finding, Status

# What is looked at: a copy of every column would double what a run of 400,000 rollouts needs.
_COLUMNS = ["step", "group", "trajectory_id", "return_", "kept", "advantage", "advantage_absmax"]


def _with_group_mean(run: RunData) -> pd.DataFrame:
    """Training rollouts with their distance from their group's mean return and the group's size."""
    train = run.train
    train = train.loc[(train["group"] >= 0) & train["return_"].notna(), _COLUMNS]
    grouped = train.groupby("group")["return_"]
    distance = (train["return_"] - grouped.transform("mean")).abs()
    return train.assign(distance=distance, size=grouped.transform("size"))


@detector(
    "AD01", "advantages exactly zero although scores differ", Family.PIPELINE,
    "rollouts.advantage + rollouts.return_ | advantage_max + advantage_min + reward_max + reward_min",
)  # fmt: skip
def zero_advantages(run: RunData, measures: Measures, *, fail_at: float = 0.5, warn_at: float = 0.1) -> Finding:
    """AD01: exact zeros where a difference in return must give a non-zero advantage. An absolute fact: one step can FAIL.

    fail_at, warn_at: share of rollouts in mixed groups, off their group's mean and not filtered out, whose advantage is 0.
    From series: steps with reward_max > reward_min and advantage_max = advantage_min = 0.
    Source: mlsys#106 (all advantages 0, scores 0..1), SkyRL#1492 ((N-1)/N of step samples have advantage 0).
    """
    limit = {"warn_at": warn_at, "fail_at": fail_at, "source": "public bug reports; see the page of AD01"}
    check = ("whether rewards are summed before the advantage is computed", "the group ids the estimator received",
             "the response mask")  # fmt: skip
    if len(run.rollouts) and run.train["advantage"].notna().any():
        train = _with_group_mean(run)
        scale = max(1.0, float(train["return_"].abs().max())) if len(train) else 1.0
        judged = train[
            (train["size"] >= 2)
            & (train["distance"] > 1e-3 * scale)
            & (train["kept"] != 0)
            & train["advantage"].notna()
        ]
        if not len(judged):
            return Finding(
                "AD01", Status.INCONCLUSIVE, "no group with differing returns has advantages", threshold=limit
            )
        zero = judged["advantage_absmax"].fillna(judged["advantage"].abs()) == 0
        share = float(zero.mean())
        status = Status.FAIL if share >= fail_at else Status.WARN if share >= warn_at else Status.PASS
        claim = f"{share:.0%} of {len(judged)} rollouts in groups with differing returns have advantage exactly 0"
        return Finding(
            "AD01", status, claim, {"zero_share": share, "n_rollouts": len(judged)}, limit, steps_of(judged),
            ids(judged[zero]), ids(judged[~zero]), ("only the last step of a trajectory is given its advantage",), check,
        )  # fmt: skip
    frame = pd.DataFrame(
        {name: measures.series[name] for name in ("advantage_max", "advantage_min", "reward_max", "reward_min")}
    )
    frame = frame.dropna()
    mixed = frame[frame["reward_max"] > frame["reward_min"]]
    if not len(mixed):
        return Finding("AD01", Status.INCONCLUSIVE, "no step with differing scores and advantages", threshold=limit)
    zero = (mixed["advantage_max"] == 0) & (mixed["advantage_min"] == 0)
    share = float(zero.mean())
    status = Status.FAIL if share >= fail_at else Status.WARN if share >= warn_at else Status.PASS
    low, high = mixed["reward_min"].min(), mixed["reward_max"].max()
    claim = f"every advantage is exactly 0 in {int(zero.sum())} of {len(mixed)} steps whose scores run from {low:g} to {high:g}"
    steps = (int(mixed.index[0]), int(mixed.index[-1]))
    evidence = {"zero_share_of_steps": share, "n_steps": len(mixed), "score_min": float(low), "score_max": float(high)}
    return Finding("AD01", status, claim, evidence, limit, steps, check_next=check)


@detector("AD02", "reward noise amplified to full-size advantages", Family.PIPELINE, "rollouts.return_")
def amplified_noise(run: RunData, measures: Measures, *, noise: float = 1e-3, warn_at: float = 0.2) -> Finding:
    """AD02: groups whose returns differ only at noise level, which dividing by the group's std turns into signal.

    noise: spread inside a group as a share of the run's return scale (the larger of range and largest magnitude).
    warn_at: share of the groups that are not exactly tied. Source: verl#6348 (spread 1e-5 amplified to ±0.62).
    """
    limit = {"noise_share_of_scale": noise, "warn_at": warn_at, "source": "verl#6348; the share is ours"}
    train = run.train
    group = train["group"].where(train["return_"].notna() & (train["group"] >= 0))
    returns = train["return_"].groupby(group)
    spread = returns.max() - returns.min()
    spread = spread[spread > 0]
    if not len(spread):
        return Finding("AD02", Status.INCONCLUSIVE, "no group has two different returns", threshold=limit)
    low, high = returns.min().min(), returns.max().max()
    scale = float(max(high - low, abs(low), abs(high)))
    tiny = spread <= noise * scale
    # Rounding of float32 sums is no reward at all; what lies between it and `noise` is what training would amplify.
    share = float(tiny.mean())
    advantage = train["advantage_absmax"].groupby(group).max()[spread.index][tiny]
    evidence = {
        "noise_group_share": share,
        "n_groups": len(spread),
        "largest_noise_spread_reward": float(spread[tiny].max()) if tiny.any() else None,
        "largest_advantage_there": float(advantage.max()) if advantage.notna().any() else None,
        "float_tie_atol": TIE_ATOL,
    }
    if share < warn_at:
        return Finding(
            "AD02", Status.PASS, f"{share:.0%} of {len(spread)} untied groups differ by noise only", evidence, limit
        )
    seen = advantage.notna().any()
    effect = (
        f"; their advantages reach {advantage.max():.2g}" if seen else "; dividing by the group std would amplify it"
    )
    claim = f"{share:.0%} of {len(spread)} untied groups differ by less than {noise:g} of the reward's scale{effect}"
    shown = train[train["group"].isin(spread[tiny].index)]
    return Finding(
        "AD02", Status.WARN, claim, evidence, limit, steps_of(shown), ids(shown), (),
        ("a deliberate tiny tie-breaking reward",), ("drop the std division (Dr. GRPO) or round the reward",),
    )  # fmt: skip
