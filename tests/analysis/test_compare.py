"""Paired differences against hand-worked numbers; refusals instead of wrong comparisons."""

import numpy as np
import pytest

from analysis.compare import paired_difference


def test_matched_proportions_against_hand_computation():
    before = np.array([0.0] * 6 + [1.0] * 4)
    after = np.array([1.0] * 5 + [0.0] + [1.0] * 3 + [0.0])  # 5 gained, 1 lost, n = 10
    estimate = paired_difference(before, after)
    assert estimate.value == pytest.approx(0.4)
    # cells + 1/2: 5.5 and 1.5 of 12; half = 1.95996 * sqrt(7 - 16/12) / 12
    assert estimate.ci95 == pytest.approx((4 / 12 - 0.388808, 4 / 12 + 0.388808), abs=1e-4)


def test_continuous_outcomes_use_student_t():
    estimate = paired_difference(np.array([0.0, 0.0, 0.0]), np.array([1.0, 2.0, 3.0]), unit="reward")
    assert estimate.value == 2.0
    assert estimate.ci95 == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5)


def test_missing_pairs_are_left_out_and_no_pair_is_no_number():
    nan = float("nan")
    assert paired_difference(np.array([nan, 1.0]), np.array([0.0, nan])).value is None
    assert paired_difference(np.array([nan, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])).n_prompts == 2


def test_coverage_of_the_matched_interval():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        before = rng.random(256) < 0.4
        after = np.where(before, rng.random(256) < 0.8, rng.random(256) < 0.3)
        low, high = paired_difference(before.astype(float), after.astype(float)).ci95
        hits += low <= (0.4 * 0.8 + 0.6 * 0.3) - 0.4 <= high
    assert 0.93 <= hits / 1000 <= 0.97
