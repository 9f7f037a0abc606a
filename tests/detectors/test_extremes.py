"""Every check on logs at the edge: no crash, no warning, and nothing claimed that the data cannot carry."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from analysis.detectors import all_detectors, run_detectors
from analysis.measures import Measures
from analysis.run_data import ROLLOUT_COLUMNS, RunData
from analysis.tuning import recommend, to_yaml
from analysis.verdict import judge
from ragen_diag import checks
from ragen_diag.findings import Estimate, Finding, Status, Verdict


def rollouts(n_steps: int | None, n_prompts: int, group_size: int, **columns: object) -> RunData:
    """A run of given sizes; returns are 0, 1, 0, 1, ... and every text differs unless columns say otherwise."""
    steps = n_steps or 1
    n = steps * n_prompts * group_size
    index = np.arange(n)
    frame = pd.DataFrame(
        {
            "step": index // (n_prompts * group_size) + 1 if n_steps else pd.NA,
            "split": "train",
            "group": index // group_size,
            "prompt": index // group_size,
            "prompt_id": [f"p{i}" for i in index // group_size],
            "trajectory_id": [f"t{i}" for i in index],
            "return_": (index % 2).astype(float),
            "n_turns": 1.0,
            "response_tokens": 20.0 + index % 7,
            "thinking_chars": 40.0,
            "n_thinking_turns": 1.0,
            "n_thinking_valid": 1.0,
            "response_hash": index + 1,
            "thinking_hash": index + 1,
            "top_token_share": 0.1,
            "has_env_text": 0.0,
            "error": 0.0,
        }
    ).assign(**columns)
    dtypes = {name: dtype for name, dtype in ROLLOUT_COLUMNS.items() if name in frame or dtype not in ("int64",)}
    frame = frame.reindex(columns=list(ROLLOUT_COLUMNS))
    return RunData("edge", frame.astype(dtypes), {}, pd.DataFrame(index=frame.index), [])


def metrics(**series: list[float]) -> RunData:
    empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in ROLLOUT_COLUMNS.items()})
    values = {name: pd.Series(points, index=range(len(points)), dtype="float64") for name, points in series.items()}
    return RunData("edge", empty, values, pd.DataFrame(), [], kind="metrics")


EDGES = {
    "nothing": lambda: metrics(),
    "one metric row": lambda: metrics(reward_mean=[0.5], loss=[0.0], grad_norm=[0.0], kl_nats=[0.0]),
    "all metrics nan": lambda: metrics(reward_mean=[np.nan] * 30, grad_norm=[np.nan] * 30),
    "infinite metric": lambda: metrics(loss=[np.inf] * 3 + [0.1] * 30),
    "constant metrics": lambda: metrics(
        reward_mean=[0.0] * 40, reward_std_in_group=[0.0] * 40, entropy_nats=[0.0] * 40, grad_norm=[0.0] * 40,
        kl_nats=[0.0] * 40, response_tokens_mean=[0.0] * 40, zero_variance_share=[1.0] * 40, turns_mean=[1.0] * 40,
    ),
    "one rollout": lambda: rollouts(1, 1, 1),
    "one prompt": lambda: rollouts(40, 1, 8, prompt=0),
    "one step": lambda: rollouts(1, 8, 8),
    "no steps": lambda: rollouts(None, 8, 8),
    "one rollout a prompt": lambda: rollouts(1, 10_000, 1),
    "equal rewards": lambda: rollouts(30, 4, 4, return_=1.0),
    "nan rewards": lambda: rollouts(30, 4, 4, return_=np.nan),
    "one reward": lambda: rollouts(2, 2, 2, return_=[np.nan] * 7 + [1.0]),
    "infinite reward": lambda: rollouts(20, 2, 2, return_=[np.inf] + [1.0] * 79),
    "no thinking": lambda: rollouts(30, 4, 4, thinking_hash=0, thinking_chars=0.0, n_thinking_turns=0.0, n_thinking_valid=0.0),
    "same thinking everywhere": lambda: rollouts(30, 4, 4, thinking_hash=7),
    "no group ids": lambda: rollouts(30, 4, 4, group=-1),
    "all failed": lambda: rollouts(30, 4, 4, error=1.0, return_=np.nan),
    "huge returns": lambda: rollouts(30, 4, 4, return_=np.tile([1e300, -1e300], 240)),
    "one token": lambda: rollouts(30, 4, 4, response_tokens=1.0, top_token_share=np.nan),
    "validation only": lambda: rollouts(30, 4, 4, split="val"),
}  # fmt: skip


@pytest.fixture(scope="module")
def findings() -> dict[str, list[Finding]]:
    return {name: run_detectors(make(), strict=True) for name, make in EDGES.items()}


@pytest.mark.parametrize("name", EDGES)
def test_no_crash_no_warning_one_finding_a_code(name, findings):
    found = findings[name]
    codes = [finding.code for finding in found]
    assert sorted(codes) == sorted({*codes}) == sorted(detector.code for detector in all_detectors())
    for finding in found:
        assert finding.claim and "nan" not in finding.claim.lower().split()
        assert finding.steps is None or finding.steps[0] <= finding.steps[1]


@pytest.mark.parametrize("name", EDGES)
def test_filter_tuning_never_crashes(name):
    run = EDGES[name]()
    recommendation = recommend(run, n_boot=20)
    assert "strategy:" in to_yaml(recommendation)
    assert recommendation.reasons


def status(findings: list[Finding], code: str) -> Status:
    return next(finding.status for finding in findings if finding.code == code)


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        ("nothing", Verdict.INCONCLUSIVE, {"DS01": Status.INCONCLUSIVE, "TC01": Status.SKIPPED}),
        ("one metric row", Verdict.INCONCLUSIVE, {"WM01": Status.INCONCLUSIVE, "DS01": Status.INCONCLUSIVE}),
        ("all metrics nan", Verdict.BROKEN_PIPELINE, {"NU01": Status.FAIL}),
        ("infinite metric", Verdict.WATCH, {"NU01": Status.WARN}),
        ("one rollout", Verdict.INCONCLUSIVE, {"GR01": Status.INCONCLUSIVE, "ZS01": Status.INCONCLUSIVE}),
        ("one step", Verdict.INCONCLUSIVE, {"DS01": Status.INCONCLUSIVE, "ZS01": Status.PASS, "TC01": Status.PASS}),
        ("no steps", Verdict.INCONCLUSIVE, {"DS01": Status.INCONCLUSIVE, "TC01": Status.PASS}),
        ("one rollout a prompt", Verdict.INCONCLUSIVE, {"GR01": Status.INCONCLUSIVE, "ZS01": Status.INCONCLUSIVE}),
        ("equal rewards", Verdict.WATCH, {"ZS03": Status.FAIL}),
        ("nan rewards", Verdict.INCONCLUSIVE, {"RW02": Status.INCONCLUSIVE, "ZS01": Status.SKIPPED}),
        ("all failed", Verdict.BROKEN_PIPELINE, {"RW02": Status.FAIL}),
        ("no thinking", Verdict.HEALTHY, {"TC01": Status.SKIPPED, "TV01": Status.SKIPPED}),
        ("same thinking everywhere", Verdict.COLLAPSED, {"TC01": Status.FAIL}),
        ("no group ids", Verdict.HEALTHY, {"GR01": Status.SKIPPED}),
        ("one prompt", Verdict.INCONCLUSIVE, {"DS01": Status.INCONCLUSIVE, "TC01": Status.SKIPPED}),
    ],
)
def test_edges_get_the_right_answer(name, verdict, expected, findings):
    found = findings[name]
    assert {code: status(found, code) for code in expected} == expected
    assert judge(found).verdict == verdict


def test_a_crashing_check_is_one_error_with_its_traceback():
    run = rollouts(30, 4, 4)
    measures = Measures.of(run)
    measures.groups = "not a table"  # type: ignore[assignment]
    found = run_detectors(run, measures)
    crashed = [finding for finding in found if finding.status == Status.ERROR]
    assert {"ZS01"} <= {finding.code for finding in crashed}
    assert "Traceback" in crashed[0].evidence["traceback"]
    assert judge(found).verdict == Verdict.INCONCLUSIVE
    with pytest.raises(Exception, match="str"):
        run_detectors(run, measures, strict=True)


def test_evidence_is_json():
    import json

    from analysis.result import _plain

    for make in EDGES.values():
        for finding in run_detectors(make()):
            json.dumps(_plain({"evidence": finding.evidence, "threshold": finding.threshold}), allow_nan=False)


def test_every_code_has_a_page_and_every_page_a_code():
    registered = {detector.code: detector.title for detector in all_detectors()}
    assert set(checks.codes()) == set(registered)
    for code, title in registered.items():
        text = checks.page(code)
        assert checks.title(code) == title
        for heading in (
            "What it measures",
            "Why it matters",
            "Known false alarms",
            "Example",
            "What to do",
            "Thresholds",
        ):
            assert f"\n## {heading}\n" in text, (code, heading)
    with pytest.raises(KeyError):
        checks.page("XX99")


def test_skipped_checks_say_what_to_log():
    for finding in run_detectors(metrics()):
        if finding.status == Status.SKIPPED:
            assert "To check this, log" in finding.claim


def test_no_warning_even_when_warnings_are_shown():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in EDGES.values():
            run_detectors(make())


def test_estimates_without_values_or_intervals_decide_nothing():
    unknown = Estimate(None, None, "share", 0, 0, "needs two prompts")
    bare = Estimate(0.01, None, "share", 8, 64, "no interval")
    run = rollouts(30, 4, 4)
    for estimate in (unknown, bare):
        per_step = {step: {"normalised_mi": estimate} for step in range(1, 31)}
        found = run_detectors(run, Measures.of(run, per_step=per_step, scorer="policy"), strict=True)
        assert status(found, "TC01") in (Status.PASS, Status.INCONCLUSIVE)
