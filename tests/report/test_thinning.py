import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analysis.report.thinning import thin_indices, thinning_note


def test_a_short_series_is_kept_whole():
    assert thin_indices(np.array([1.0, np.nan, 3.0]), 10).tolist() == [0, 1, 2]


def test_a_one_step_spike_in_ten_thousand_steps_survives():
    values = np.sin(np.arange(10_000) / 50)
    values[7_321] = 1e6
    values[2_222] = -1e6
    kept = thin_indices(values, 300)
    assert len(kept) <= 300
    assert {7_321, 2_222, 0, 9_999} <= set(kept.tolist())


def test_a_gap_stays_a_gap():
    values = np.ones(1_000)
    values[400:420] = np.nan
    kept = thin_indices(values, 60)
    assert np.isnan(values[kept]).any()
    assert not np.isnan(values[kept]).all()


def test_each_bucket_keeps_its_smallest_and_largest():
    # Budget 8: the two ends and two buckets, [5 0 9 5 5] and [1 5 8 5].
    values = np.array([5.0, 0.0, 9.0, 5.0, 5.0, 1.0, 5.0, 8.0, 5.0])
    assert thin_indices(values, 8).tolist() == [0, 1, 2, 5, 7, 8]


@given(
    hnp.arrays(float, st.integers(1, 400), elements=st.floats(allow_nan=True, allow_infinity=True)), st.integers(5, 60)
)
def test_extremes_always_survive_within_the_budget(values, max_points):
    kept = thin_indices(values, max_points)
    assert len(kept) <= max_points
    assert kept.tolist() == sorted(set(kept.tolist()))
    measured = values[~np.isnan(values)]
    if len(measured):
        assert np.nanmax(values[kept]) == measured.max()
        assert np.nanmin(values[kept]) == measured.min()


def test_too_small_a_budget_is_refused():
    with pytest.raises(ValueError, match="at least 5"):
        thin_indices(np.zeros(100), 4)


def test_the_note_says_what_was_left_out():
    assert thinning_note(5, 5) == ""
    assert "300 of 10,000 steps" in thinning_note(300, 10_000)
