"""ZS01-ZS03 name the kind of a tie: all wrong, all right, or a constant, from rollouts and from logged series."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from analysis.detectors import run_detectors
from ragen_diag.findings import Status
from tests.planted.runs import draw


def statuses(run):
    return {f.code: f.status for f in run_detectors(run, strict=True) if f.code.startswith("ZS")}


@pytest.mark.parametrize(("value", "code"), [(0.0, "ZS01"), (1.0, "ZS03"), (0.37, "ZS03")])
def test_one_return_all_run_long_is_named_by_its_value_when_success_is_not_logged(value, code):
    run = draw("learning", 3).run
    run.rollouts = run.rollouts.assign(return_=value, success=np.nan)
    assert statuses(run) == {"ZS01": Status.PASS, "ZS02": Status.PASS, "ZS03": Status.PASS} | {code: Status.FAIL}


def test_a_task_score_tells_a_solved_task_from_a_constant_reward_in_a_log_of_metrics():
    planted = draw("learning", 3).run
    steps = pd.RangeIndex(1, 81)

    def run(score_end: float, tied_start: float) -> object:
        series = {
            "task_score_mean": pd.Series(np.interp(steps, [1, 40], [0.2, score_end]), index=steps),
            "zero_variance_share": pd.Series(np.interp(steps, [1, 40], [tied_start, 0.95]), index=steps),
        }
        return dataclasses.replace(planted, rollouts=planted.rollouts.iloc[:0], series=series, kind="metrics")

    assert statuses(run(1.0, 0.1)) == {"ZS01": Status.PASS, "ZS02": Status.PASS, "ZS03": Status.PASS}
    assert statuses(run(1.0, 0.9))["ZS02"] == Status.FAIL
    assert statuses(run(0.01, 0.1))["ZS01"] == Status.FAIL
