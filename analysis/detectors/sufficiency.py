"""Whether there is enough data to say anything about training at all."""

from __future__ import annotations

from analysis.detectors.registry import detector
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import MIN_POINTS, finite
from ragen_diag.findings import Family, Finding, Status


@detector("DS01", "enough data to judge training", Family.DATA)
def sufficiency(run: RunData, measures: Measures, *, n_steps: int = MIN_POINTS, n_prompts: int = 2) -> Finding:
    """DS01: steps, prompts and rollouts a prompt. Too few is INCONCLUSIVE: a plumbing check or a quoted row, not a run.

    n_steps: what a baseline and a confirmed turn need (turning_points.MIN_POINTS). n_prompts: with one prompt nothing can
    be said about input dependence. Source: most public reports quote 1 to 12 rows; NeMo-RL#3550 (10 steps check plumbing).
    """
    limit = {"n_steps": n_steps, "n_prompts": n_prompts, "source": "turning_points.MIN_POINTS"}
    longest = max((len(finite(values)) for values in measures.series.values()), default=0)
    train = run.train
    groups = measures.groups
    evidence: dict[str, object] = {"n_steps": longest, "n_rollouts": len(train)}
    if len(train):
        evidence["n_prompts"] = int(train["prompt"].nunique())
        evidence["rollouts_per_group_median"] = float(groups["n"].median()) if len(groups) else None
    problems = []
    if longest < n_steps:
        problems.append(f"{longest} of the {n_steps} steps a trend needs" if longest else "no training steps")
    if len(train) and train["prompt"].nunique() < n_prompts:
        problems.append("one prompt only, so nothing about input dependence")
    if not longest and not len(train):
        problems = ["no rollouts and no metrics"]
    if problems:
        claim = f"too little to judge training: {'; '.join(problems)}"
        check = (
            "log every step",
            "two or more prompts with four or more rollouts each",
            "`ragen-diag plan` for sample sizes",
        )
        return Finding("DS01", Status.INCONCLUSIVE, claim, evidence, limit, check_next=check)
    rollouts = f", {len(train)} rollouts of {evidence['n_prompts']} prompts" if len(train) else ""
    return Finding("DS01", Status.PASS, f"{longest} steps{rollouts}", evidence, limit)
