"""Groups that are not what group-relative advantages need."""

from __future__ import annotations

import numpy as np

from analysis.detectors.registry import detector
from analysis.detectors.windows import ids, steps_of
from analysis.measures import Measures
from analysis.run_data import RunData
from ragen_diag.findings import Family, Finding, Status


@detector("GR01", "grouping broken", Family.PIPELINE, "rollouts.group")
def grouping(run: RunData, measures: Measures, *, fail_at: float = 0.5, warn_at: float = 0.1) -> Finding:
    """GR01: rollouts of one prompt split over several groups, prompts mixed within a group, groups of one.

    fail_at, warn_at: share of groups concerned. Groups of one FAIL only when the same prompt stands in several of them in
    the same step: with every prompt sampled once there is nothing to group (PPO, evaluation), which is INCONCLUSIVE.
    Source: Search-R1#88 (same prompt, different group ids), rllm#368 (step-id collisions), verl v1 `uid` names the row.
    """
    limit = {"warn_at": warn_at, "fail_at": fail_at, "source": "public bug reports; see the page of GR01"}
    train = run.train
    train = train[train["group"] >= 0]
    if not len(train):
        return Finding("GR01", Status.SKIPPED, "no group ids in this log. To check this, log the group of each rollout")
    groups = train.groupby("group").agg(
        size=("prompt", "size"), prompts=("prompt", "nunique"), prompt=("prompt", "first"), step=("step", "first")
    )
    n = len(groups)
    per_prompt = groups.groupby([groups["step"].fillna(-1).astype("int64"), "prompt"])["size"]
    alone = (groups["size"] == 1) & (per_prompt.transform("size") > 1)
    mixed = groups["prompts"] > 1
    split_share, mixed_share = float(alone.mean()), float(mixed.mean())
    sizes = groups["size"].to_numpy()
    evidence = {
        "n_groups": n,
        "group_size_median": float(np.median(sizes)),
        "group_size_min": int(sizes.min()),
        "group_size_max": int(sizes.max()),
        "singletons_of_repeated_prompts_share": split_share,
        "groups_with_several_prompts_share": mixed_share,
    }
    share = max(split_share, mixed_share)
    if share >= warn_at:
        bad = groups[alone if split_share >= mixed_share else mixed]
        what = "hold one rollout of a prompt that others share" if split_share >= mixed_share else "mix several prompts"
        shown = train[train["group"].isin(bad.index)]
        return Finding(
            "GR01", Status.FAIL if share >= fail_at else Status.WARN, f"{share:.0%} of {n} groups {what}", evidence, limit,
            steps_of(shown), ids(shown), ids(train[~train["group"].isin(bad.index)]),
            ("a log whose id names the row, while training grouped correctly", "equal prompts drawn twice on purpose"),
            ("the group ids that reached the advantage estimator", "`--group-key` if another field names the group"),
        )  # fmt: skip
    if (sizes == 1).all():
        claim = f"all {n} groups hold one rollout: nothing group-relative can be judged (normal for PPO and evaluation)"
        return Finding(
            "GR01", Status.INCONCLUSIVE, claim, evidence, limit, check_next=("sample two or more rollouts a prompt",)
        )
    size = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
    claim = f"{n} groups of {size} rollouts, one prompt each"
    return Finding("GR01", Status.PASS, claim, evidence, limit)
