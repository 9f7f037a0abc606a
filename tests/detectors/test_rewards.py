"""RW01: a format part that is 0 because nobody breaks the format is told from one that nobody ever earns."""

import pandas as pd

from analysis.detectors import run_detectors
from ragen_diag.findings import Status
from tests.planted.runs import draw


def rw01(run):
    return next(finding for finding in run_detectors(run, strict=True) if finding.code == "RW01")


def test_a_penalty_nobody_incurs_is_no_default():
    run = draw("learning", 3).run
    run.reward_components = pd.DataFrame({"task": run.rollouts["return_"], "format": 0.0}, index=run.rollouts.index)
    run.rollouts["format_valid"] = 1.0
    assert rw01(run).status == Status.PASS
    run.rollouts["format_valid"] = 0.5
    assert (rw01(run).status, rw01(run).evidence["constant_scores"]) == (Status.WARN, {"format": 0.0})
    run.rollouts["format_valid"] = float("nan")  # nobody knows whether the format was kept
    assert rw01(run).status == Status.WARN
