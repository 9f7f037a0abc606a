"""The verdict rule, line by line, and the regimes it leans on."""

from __future__ import annotations

import pytest

from analysis.regimes import Regime, classify, pooled, regime_path
from analysis.verdict import judge
from ragen_diag.findings import Estimate, Finding, Status, Verdict


def found(*pairs: tuple[str, Status]) -> list[Finding]:
    return [Finding(code, status, f"{code} says so") for code, status in pairs]


P, W, F, N, S, E = Status.PASS, Status.WARN, Status.FAIL, Status.INCONCLUSIVE, Status.SKIPPED, Status.ERROR


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([("TC01", F), ("NU01", F)], Verdict.BROKEN_PIPELINE),
        ([("ZS01", F), ("TC01", F)], Verdict.COLLAPSED),
        ([("ZS01", F), ("DS01", P)], Verdict.WATCH),
        ([("KL01", W), ("DS01", N)], Verdict.WATCH),
        ([("HE01", P), ("DS01", N)], Verdict.INCONCLUSIVE),
        ([("HE01", P), ("DS01", P), ("TC01", N)], Verdict.INCONCLUSIVE),
        ([("HE01", P), ("DS01", P), ("KL01", N)], Verdict.HEALTHY),
        ([("HE01", P), ("DS01", P), ("GN01", E)], Verdict.INCONCLUSIVE),
        ([("NU01", P), ("DS01", P), ("TC01", S)], Verdict.INCONCLUSIVE),
        ([("NZ01", P), ("ZS01", P), ("DS01", P)], Verdict.HEALTHY),
        ([], Verdict.INCONCLUSIVE),
    ],
)
def test_rule(findings, verdict):
    assert judge(found(*findings)).verdict == verdict


def test_reason_names_the_finding_and_what_was_not_measured():
    assert judge(found(("TC01", F), ("ET01", F))).reason == "TC01: TC01 says so (and 1 more)"
    assert "input dependence was not measured" in judge(found(("HE01", P), ("DS01", P))).reason
    assert "not measured" not in judge(found(("HE01", P), ("DS01", P), ("TC01", P))).reason


@pytest.mark.parametrize(
    ("mi", "entropy", "regime"),
    [
        ((0.4, 0.6), (0.8, 1.1), Regime.INPUT_DRIVEN),
        ((0.0, 0.1), (0.8, 1.1), Regime.TEMPLATE_COLLAPSE),
        ((0.4, 0.6), (0.1, 0.2), Regime.COMPRESSED),
        ((0.0, 0.1), (0.1, 0.2), Regime.LOW_ENTROPY_COLLAPSE),
        ((0.1, 0.2), (0.8, 1.1), Regime.UNKNOWN),
        ((0.4, 0.6), (0.3, 0.4), Regime.UNKNOWN),
        ((0.4, 0.6), None, Regime.INPUT_DRIVEN),
        ((0.0, 0.1), None, Regime.UNKNOWN),
        (None, (0.8, 1.1), Regime.UNKNOWN),
    ],
)
def test_regimes_are_decided_on_intervals(mi, entropy, regime):
    assert classify(mi, entropy) == regime


def estimate(value: float | None, half: float | None = 0.05) -> Estimate:
    interval = None if value is None or half is None else (value - half, value + half)
    return Estimate(value, interval, "share", 8, 64, "test")


def test_pooling_narrows_as_independent_estimates_do():
    mean, interval = pooled([estimate(0.2, 0.1)] * 4)
    assert mean == pytest.approx(0.2) and interval == pytest.approx((0.15, 0.25))
    assert pooled([estimate(0.2), estimate(0.3, None)])[1] is None
    assert pooled([estimate(None)])[1] is None


def path(values: list[float], **options: object):
    per_step = {
        step: {"normalised_mi": estimate(value), "conditional_entropy_nats_per_token": estimate(0.8)}
        for step, value in enumerate(values)
    }
    return regime_path(per_step, **options)


def test_a_blind_scorer_collapses_nothing():
    assert path([0.02] * 6).final == Regime.TEMPLATE_COLLAPSE
    assert path([0.02] * 6, exact=False).final == Regime.UNKNOWN
    # It saw dependence at the start, so it is not blind.
    assert path([0.6, 0.6, 0.6, 0.3, 0.02, 0.02], exact=False).final == Regime.TEMPLATE_COLLAPSE
    assert path([0.6] * 6, exact=False).final == Regime.INPUT_DRIVEN


def test_one_axis_for_the_whole_path():
    per_step = {
        1: {"retrieval_accuracy": estimate(0.9), "retrieval_chance": estimate(0.125)},
        2: {"normalised_mi": estimate(0.5)},
        3: {"normalised_mi": estimate(0.5)},
    }
    found_path = regime_path(per_step)
    assert found_path.mi_name == "normalised_mi" and [point.step for point in found_path.points] == [2, 3]
    assert regime_path({}).final == Regime.UNKNOWN
