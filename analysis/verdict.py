"""One word for a run from its findings. The rule, and nothing else: what is a finding was decided before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.detectors.registry import family
from ragen_diag.findings import Family, Finding, Status, Verdict

UNDECIDED_MATTERS = ("TC01", "RW02")
"""Checks whose INCONCLUSIVE keeps a run from being called healthy: the input was there and did not suffice."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and one sentence why."""

    verdict: Verdict
    reason: str


def judge(findings: Iterable[Finding]) -> Judgement:
    """The verdict, by the first rule that applies:

    1. broken_pipeline: a FAIL of the pipeline family. Nothing is said about a policy seen through a broken pipeline.
    2. collapsed: a FAIL of the policy family.
    3. watch: a FAIL of the signal family (it starves the run without breaking the policy), or any WARN.
    4. inconclusive: too little data (DS01), a crashed check, input dependence measured but undecided, or nothing passed.
    5. healthy: enough data, at least one policy or signal check passed, none complained.
    Findings rest on intervals and confirmed turns, so no verdict rests on a point estimate that crosses its threshold.
    """
    findings = [finding for finding in findings if finding.status != Status.SKIPPED]
    failed = [finding for finding in findings if finding.status == Status.FAIL]
    for wanted, word in ((Family.PIPELINE, Verdict.BROKEN_PIPELINE), (Family.POLICY, Verdict.COLLAPSED)):
        if reasons := [finding for finding in failed if family(finding.code) == wanted]:
            return Judgement(word, _because(reasons))
    warned = failed + [finding for finding in findings if finding.status == Status.WARN]
    if warned:
        return Judgement(Verdict.WATCH, _because(warned))
    undecided = [
        finding for finding in findings
        if finding.status == Status.ERROR
        or (finding.status == Status.INCONCLUSIVE and (finding.code in UNDECIDED_MATTERS or family(finding.code) == Family.DATA))
    ]  # fmt: skip
    if undecided:
        return Judgement(Verdict.INCONCLUSIVE, _because(undecided))
    passed = [
        finding for finding in findings
        if finding.status == Status.PASS and family(finding.code) in (Family.POLICY, Family.SIGNAL)
    ]  # fmt: skip
    if not passed:
        return Judgement(Verdict.INCONCLUSIVE, "no check of the policy or its signal had the input it needs")
    unseen = "" if any(finding.code == "TC01" for finding in findings) else "; input dependence was not measured"
    return Judgement(Verdict.HEALTHY, f"{len(passed)} checks of the policy and its signal passed{unseen}")


def _because(reasons: list[Finding]) -> str:
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0].code}: {reasons[0].claim}{more}"
