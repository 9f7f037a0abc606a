from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.information import measure
from analysis.uncertainty import (
    cluster_means,
    jackknife_interval,
    jackknife_se,
    permutation_p,
    permuted_scores,
    row_means,
    share_interval,
    stratified_bootstrap,
)
from tests.planted.worlds import World


def test_jackknife_of_a_mean_is_the_t_interval():
    values = np.array([1.0, 4.0, 2.0, 8.0, 5.0])
    replicates = cluster_means(values, np.arange(5))
    assert jackknife_se(replicates) == pytest.approx(values.std(ddof=1) / np.sqrt(5))
    expected = stats.t.interval(0.95, 4, values.mean(), values.std(ddof=1) / np.sqrt(5))
    assert jackknife_interval(replicates) == pytest.approx(expected)
    low, high = jackknife_interval(replicates, allowance=0.5)
    assert (low, high) == pytest.approx((expected[0] - 0.5, expected[1] + 0.5))


def test_too_few_prompts_or_undefined_replicates_give_no_interval():
    assert jackknife_interval(np.array([1.0, 2.0, 0.5, 1.0])) is None
    assert jackknife_interval(np.array([1.0, np.nan, 1.0, 1.0, 1.0, 1.0])) is None
    assert jackknife_interval(np.array([np.nan, 1.0, 1.0, 1.0, 1.0])) is None
    assert np.isnan(jackknife_se(np.array([1.0])))


def test_cluster_and_row_means_differ_when_clusters_are_unequal():
    values, cluster = np.array([0.0, 0.0, 0.0, 1.0]), np.array([7, 7, 7, 9])
    assert cluster_means(values, cluster).tolist() == [0.5, 1.0, 0.0]
    assert row_means(values, cluster).tolist() == [0.25, 1.0, 0.0]
    assert np.isnan(cluster_means(values[:3], cluster[:3])[1])


def test_share_interval_is_clopper_pearson_when_rows_are_independent():
    hits = np.array([1.0] * 7 + [0.0] * 13)
    low, high = share_interval(row_means(hits, np.arange(20)), 20)
    exact = stats.binomtest(7, 20).proportion_ci(method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=0.02)


def test_share_interval_widens_with_clustering_and_never_ends_at_a_point():
    clustered = np.repeat([1.0, 0.0] * 5, 8)
    low, high = share_interval(row_means(clustered, np.repeat(np.arange(10), 8)), 80)
    free_low, free_high = stats.binomtest(40, 80).proportion_ci(method="exact")
    assert high - low > 2 * (free_high - free_low)
    assert share_interval(row_means(np.ones(80), np.repeat(np.arange(10), 8)), 80) == pytest.approx(
        (0.6915, 1.0), abs=1e-4
    )
    assert share_interval(row_means(np.zeros(80), np.repeat(np.arange(10), 8)), 80)[1] == pytest.approx(
        0.3085, abs=1e-4
    )
    assert share_interval(np.array([0.5]), 3) is None


@pytest.mark.parametrize("n_rows", [2, 4, 16])
def test_stratified_bootstrap_covers_the_mean_of_fixed_strata(n_rows):
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, 40)
    stratum, weight = np.repeat(np.arange(40), n_rows), np.full(40 * n_rows, 1 / (40 * n_rows))
    covered = 0
    for _ in range(400):
        values = centres[stratum] + rng.exponential(1.0, len(stratum)) - 1.0
        low, high = stratified_bootstrap(values, weight, stratum, n_boot=300, rng=rng)
        covered += low <= centres.mean() <= high
    assert 0.92 <= covered / 400 <= 0.985


def test_stratified_bootstrap_withholds_without_repeats():
    rng = np.random.default_rng(0)
    values, weight = rng.normal(size=20), np.full(20, 0.05)
    assert stratified_bootstrap(values, weight, np.arange(20), rng=rng) is None
    mostly_pairs = np.concatenate([np.repeat(np.arange(9), 2), [9, 10]])
    assert stratified_bootstrap(values, weight, mostly_pairs, rng=rng) is not None


def test_permutation_p_counts_the_observed_assignment():
    assert permutation_p(3.0, np.array([1.0, 2.0, 3.0, 4.0])) == 3 / 5
    assert permutation_p(9.0, np.zeros(999)) == 1 / 1000
    scores = np.zeros((12, 3))
    observed, shuffled = permuted_scores(
        scores, np.repeat(np.arange(3), 4), np.full(12, 1 / 12), n_perm=50, rng=np.random.default_rng(0)
    )
    assert permutation_p(observed, shuffled) == 1.0


def test_permutation_shuffles_rows_against_columns():
    scores = np.where(np.repeat(np.arange(4), 3)[:, None] == np.arange(4), 0.0, -5.0)
    observed, shuffled = permuted_scores(
        scores, np.repeat(np.arange(4), 3), np.full(12, 1 / 12), n_perm=500, rng=np.random.default_rng(0)
    )
    assert observed == 0.0
    assert shuffled.mean() == pytest.approx(-5.0 * 0.75, abs=0.1)


COVERED = {
    "weak": World(slots=4, values=4, copy_prob=0.2),
    "medium": World(slots=4, values=4, copy_prob=0.5),
    "mostly template": World(slots=4, values=4, copy_prob=0.5, template_share=0.9),
    "few states": World(slots=1, values=8, copy_prob=0.9),
}


@pytest.mark.calibration
@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize(("n", "k"), [(32, 4), (64, 8)])
def test_intervals_cover_the_closed_form(name, n, k):
    """300 draws here (two standard errors are 2.5 points); docs/calibration.md has the table of 1,000.

    An estimate withheld near saturation has no interval to be wrong.
    """
    world, draws = COVERED[name], 300
    hits = {"mi_nats": [], "mi_batch_nats": [], "conditional_entropy_nats_per_sequence": []}
    bracket = 0
    for draw in range(draws):
        batch = world.draw(n, k, np.random.default_rng([11, draw, n]))
        found = measure(batch.cross(), names=[*hits, "mi_lower_nats", "mi_upper_nats"], seed=draw, n_boot=300)
        truths = {"mi_nats": world.mi_nats, "mi_batch_nats": batch.batch_mi_nats()}
        truths["conditional_entropy_nats_per_sequence"] = world.conditional_entropy_nats
        for metric, truth in truths.items():
            if (ends := found[metric].ci95) is not None:
                hits[metric].append(ends[0] <= truth <= ends[1])
        bracket += found["mi_lower_nats"].ci95[0] <= world.mi_nats <= found["mi_upper_nats"].ci95[1]
    assert min(map(len, hits.values())) >= 0.9 * draws
    assert {metric: np.mean(hit) for metric, hit in hits.items() if not 0.915 <= np.mean(hit) <= 0.985} == {}
    assert bracket / draws >= 0.94


@pytest.mark.calibration
def test_permutation_test_holds_its_level():
    policy, critic = World(copy_prob=0.0), World(copy_prob=0.5)
    p = []
    for draw in range(600):
        cross = policy.draw(32, 4, np.random.default_rng([3, draw])).cross(critic=critic)
        p.append(measure(cross, names=["p_no_dependence"], seed=draw, n_perm=200)["p_no_dependence"].value)
    assert 0.03 <= np.mean(np.array(p) <= 0.05) <= 0.07
