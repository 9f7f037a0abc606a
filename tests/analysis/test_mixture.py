"""The fast deletion of every prompt against recomputing the matrix without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.mixture import count_groups, mixtures, row_weights


def slowly(score_RN, column_R, weights_N, keep_N, own_weight_left_N):
    """(matched, mix, others) of the rows under kept prompts, by definition."""
    weights = np.where(keep_N, weights_N, 0.0)
    rows = []
    for r, c in enumerate(column_R):
        if not keep_N[c]:
            rows.append((np.nan, np.nan))
            continue
        terms = score_RN[r] - score_RN[r].max()
        mix = np.log((weights / weights.sum() * np.exp(terms)).sum()) + score_RN[r].max()
        left = weights.copy()
        left[c] = own_weight_left_N[c]
        total = left.sum()
        others = np.log((left / total * np.exp(terms)).sum()) + score_RN[r].max() if total > 0 else np.nan
        rows.append((mix, others))
    return np.array(rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), st.floats(0.1, 60.0), st.booleans())
def test_every_deletion_equals_a_fresh_computation(seed, n, spread, clustered):
    rng = np.random.default_rng(seed)
    column_R = np.concatenate([np.arange(n), rng.integers(n, size=rng.integers(0, 8))])
    score_RN = rng.normal(-30, spread, (len(column_R), n))
    groups = rng.integers(1, 4, size=n)
    weights = groups / groups.sum()
    clusters = rng.integers(0, 3, size=n) if clustered else np.arange(n)
    _, clusters = np.unique(clusters, return_inverse=True)
    found = mixtures(score_RN, column_R, weights, clusters, int(clusters.max()) + 1)
    inferred = count_groups(weights)
    left = weights - 1 / inferred if inferred > n else np.zeros(n)
    for replicate in range(clusters.max() + 2):
        keep = clusters != replicate - 1
        with np.errstate(divide="ignore"):
            literal = slowly(score_RN, column_R, weights, keep, np.zeros(n))
            grouped = slowly(score_RN, column_R, weights, keep, np.where(keep, left, 0.0))
        np.testing.assert_allclose(found.mix_RM[:, replicate], literal[:, 0], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(found.others_RM[:, replicate], literal[:, 1], rtol=1e-7, atol=1e-7)
        # Weights like 1/3, 2/3 are those of 3 groups: the leftover own weight is renormalised with everything else.
        np.testing.assert_allclose(found.other_groups_RM[:, replicate], grouped[:, 1], rtol=1e-7, atol=1e-7)
        if keep.any():
            assert found.weight_RM[:, replicate].sum() == pytest.approx(1.0)
        assert (found.weight_RM[~keep[column_R], replicate] == 0).all() or not keep.any()


def test_row_weights_follow_the_prompts_not_their_rollouts():
    assert row_weights(np.array([0, 0, 0, 1]), np.array([0.5, 0.5])).tolist() == [1 / 6, 1 / 6, 1 / 6, 0.5]


@pytest.mark.parametrize(
    ("weights", "groups"),
    [([0.5, 0.5], 2), ([0.25, 0.75], 4), ([1 / 3, 1 / 6, 0.5], 6), ([0.2**0.5, 1 - 0.2**0.5], None)],
)
def test_groups_are_read_off_the_weights(weights, groups):
    assert count_groups(np.array(weights)) == groups
