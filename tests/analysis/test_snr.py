"""Group statistics, step signal, gradient SNR: literal values, and the fast forms against slow loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.snr import (
    NO_STEP,
    gradient_snr,
    gradient_snr_from_norms,
    group_table,
    signal_estimates,
    step_signal,
    wilson,
)
from tests.detectors.test_extremes import rollouts


def run_of(returns: list[list[float]], success: list[list[float]] | None = None, step: int = 1):
    """One step of ragged groups."""
    flat = [value for group in returns for value in group]
    group = [index for index, values in enumerate(returns) for _ in values]
    run = rollouts(1, len(flat), 1, return_=np.array(flat), group=np.array(group), prompt=np.array(group))
    run.rollouts["step"] = pd.array([step] * len(flat), dtype="Int64")
    if success is not None:
        run.rollouts["success"] = [value for values in success for value in values]
    return run


def test_group_table_by_hand():
    table = group_table(run_of([[0, 1, 1, 0], [1, 1], [0, 0, 0], [0.5, 0.5], [1], [np.nan, np.nan], [np.nan, 0, 1]]))
    assert table["n"].tolist() == [4, 2, 3, 2, 1, 0, 2]
    np.testing.assert_allclose(table["std"], [0.57735, 0, 0, 0, np.nan, np.nan, 0.70711], atol=1e-5)
    np.testing.assert_array_equal(table["tied"], [0, 1, 1, 1, np.nan, np.nan, 0])
    assert table["kind"].tolist() == ["", "right", "wrong", "constant", "", "", ""]


def test_success_decides_the_kind_where_it_is_logged():
    table = group_table(run_of([[3.0, 3.0], [-1.0, -1.0], [0.0, 9.0]], [[1, 1], [0, 0], [0, 1]]))
    assert table["kind"].tolist() == ["right", "wrong", ""]
    # -1 is the lowest return, yet half of these rollouts succeed: the reward does not see success.
    assert group_table(run_of([[-1.0, -1.0], [0.0, 9.0]], [[0, 1], [0, 1]]))["kind"].tolist() == ["constant", ""]


def test_one_single_return_cannot_tell_right_from_wrong():
    assert group_table(run_of([[1.0, 1.0], [1.0, 1.0]]))["kind"].tolist() == ["constant", "constant"]


def test_rounding_is_no_difference():
    assert group_table(run_of([[0.1 + 0.2, 0.3], [0.0, 1.0]]))["tied"].tolist() == [1, 0]


def test_groups_without_ids_are_formed_by_step_and_prompt():
    run = rollouts(2, 2, 3, group=-1)
    assert group_table(run)["n"].tolist() == [3, 3, 3, 3]
    run.rollouts["step"] = pd.NA
    assert group_table(run)["step"].unique().tolist() == [NO_STEP]


def test_step_signal_by_hand():
    signal = step_signal(group_table(run_of([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]]))).loc[1]
    assert signal["reward_mean"] == pytest.approx(7 / 16)
    assert signal["reward_std_in_group"] == pytest.approx((0.5773503 + 0.5) / 4)
    assert signal["zero_variance_share"] == 0.5
    assert (signal["all_right_share"], signal["all_wrong_share"], signal["constant_share"]) == (0.25, 0.25, 0)
    assert signal["effective_groups"] == pytest.approx((1 / 3 + 1 / 4) ** 2 / (1 / 9 + 1 / 16))
    variances = np.array([1 / 3, 0, 0, 1 / 4])
    assert signal["rv_spread_ratio"] == pytest.approx(variances.std(ddof=1) / variances.mean())


def slow_icc(groups: list[list[float]]) -> float:
    n, k = sum(map(len, groups)), len(groups)
    grand = sum(map(sum, groups)) / n
    between = sum(len(g) * (np.mean(g) - grand) ** 2 for g in groups) / (k - 1)
    within = sum(((np.array(g) - np.mean(g)) ** 2).sum() for g in groups) / (n - k)
    n0 = (n - sum(len(g) ** 2 for g in groups) / n) / (k - 1)
    return (between - within) / (between + (n0 - 1) * within)


def test_intraclass_correlation_and_its_jackknife_equal_the_loop():
    rng = np.random.default_rng(0)
    groups = [(rng.normal(0, 1) + rng.normal(0, 1, rng.integers(3, 9))).tolist() for _ in range(12)]
    estimate = signal_estimates(group_table(run_of(groups)))["intraclass_correlation"]
    assert estimate.value == pytest.approx(slow_icc(groups))
    left_out = np.array([slow_icc(groups[:i] + groups[i + 1 :]) for i in range(12)])
    se = np.sqrt(11 / 12 * ((left_out - left_out.mean()) ** 2).sum())
    assert estimate.ci95 == pytest.approx((estimate.value - 2.200985 * se, estimate.value + 2.200985 * se))


def test_interval_of_the_icc_covers_the_planted_one():
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = rng.normal(0, 1, (40, 1)) + rng.normal(0, 1.5, (40, 8))
        estimate = signal_estimates(group_table(run_of(values.tolist())))["intraclass_correlation"]
        covered += estimate.ci95[0] <= 1 / (1 + 1.5**2) <= estimate.ci95[1]
    assert 0.89 <= covered / 100 <= 0.99


def test_undefined_is_none_not_zero():
    estimates = signal_estimates(group_table(run_of([[1.0], [0.0]])))
    assert estimates["reward_std_in_group"].value is None
    assert estimates["zero_variance_share"].value is None
    assert estimates["intraclass_correlation"].value is None
    assert estimates["reward_mean"].value == 0.5
    assert signal_estimates(group_table(run_of([[np.nan, np.nan]])))["reward_mean"].value is None


def test_wilson_by_hand():
    share, (low, high) = wilson(8, 10)
    assert (share, round(low, 4), round(high, 4)) == (0.8, 0.4902, 0.9433)
    assert wilson(0, 10)[1][0] == 0.0
    assert wilson(0, 0)[1] is None


def test_gradient_snr_by_hand_and_from_norms():
    gradients = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 1.0], [2.0, -1.0]])
    mean, centred = gradients.mean(axis=0), gradients - gradients.mean(axis=0)
    noise = (centred**2).sum() / 3 / 4
    expected = (mean @ mean - noise) / noise
    estimate = gradient_snr(gradients @ gradients.T)
    assert estimate.value == pytest.approx(expected)
    assert estimate.ci95[0] < expected < estimate.ci95[1]
    norms = np.linalg.norm(gradients, axis=1)
    assert gradient_snr_from_norms(float(np.linalg.norm(mean)), norms) == pytest.approx(expected)


def test_gradient_snr_without_signal_is_near_zero_and_without_noise_unknown():
    rng = np.random.default_rng(0)
    values = []
    for _ in range(100):
        noise = rng.normal(0, 1, (16, 50))
        values.append(gradient_snr(noise @ noise.T).value)
    assert abs(np.mean(values)) < 0.1
    assert gradient_snr(np.ones((3, 3))).value is None
    assert gradient_snr(np.ones((1, 1))).value is None
    with pytest.raises(ValueError, match="square"):
        gradient_snr(np.ones((2, 3)))
