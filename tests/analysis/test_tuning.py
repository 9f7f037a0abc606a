"""Filter tuning on groups whose best filter is known."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.filters import FilterSetting
from analysis.tuning import FLOOR, OFF, candidates, recommend, to_yaml
from tests.detectors.test_extremes import metrics, rollouts


def run_with(std_of_group: list[float], n_steps: int = 12, size: int = 16, seed: int = 0):
    """Every step holds one group per given std; returns are normal around 0."""
    rng = np.random.default_rng(seed)
    scale = np.tile(np.repeat(std_of_group, size), n_steps)
    return rollouts(n_steps, len(std_of_group), size, return_=rng.normal(0, 1, len(scale)) * scale)


def test_groups_without_signal_are_dropped():
    recommendation = recommend(run_with([1, 1, 1, 1, 0, 0, 0, 0]))
    assert recommendation.setting != OFF and not recommendation.setting.include_zero
    chosen = next(row for row in recommendation.table if row.setting == recommendation.setting)
    assert chosen.kept_group_share == pytest.approx(0.5)
    assert chosen.kept_variance_share == pytest.approx(1.0)
    # All signal, half the noise of groups without any: sum of noise² falls from 4·(1/16 + 1/4) + 4/4 to its first part.
    assert chosen.snr_gain == pytest.approx(np.sqrt((4 * (1 / 16 + 0.25) + 4 * 0.25) / (4 * (1 / 16 + 0.25))), rel=0.02)
    assert recommendation.confidence > 0.99


def test_equal_groups_want_no_filter():
    recommendation = recommend(run_with([1.0] * 8))
    assert recommendation.setting == OFF
    assert "no filter beats none" in recommendation.reasons[0]
    assert any("well below 1" in reason for reason in recommendation.reasons)


def test_floor_holds():
    recommendation = recommend(run_with([1] + [0] * 15))
    kept = {row.setting: row.kept_group_share for row in recommendation.table}
    assert recommendation.setting == OFF or kept[recommendation.setting] >= FLOOR
    assert any("were left out" in reason for reason in recommendation.reasons)
    free = recommend(run_with([1] + [0] * 15), floor=0.0)
    assert free.setting != OFF


def test_noise_prior_is_stated_and_a_measured_one_changes_the_answer():
    run = run_with([1, 1, 1, 1, 0.4, 0.4, 0.4, 0.4])
    assert any("prior" in reason for reason in recommend(run).reasons)
    quiet, loud = recommend(run, noise=0.0), recommend(run, noise=5.0)
    assert any("measured" in reason for reason in loud.reasons)
    kept = [
        next(r for r in rec.table if r.setting == FilterSetting("top_k", 0.5, include_zero=False))
        for rec in (quiet, loud)
    ]
    assert kept[0].snr_gain < kept[1].snr_gain


def test_table_holds_every_candidate_once_and_shares_are_shares():
    recommendation = recommend(run_with([2, 1, 0.5, 0.1, 0, 0]))
    assert [row.setting for row in recommendation.table] == candidates()
    assert recommendation.table[0].snr_gain == 1.0
    assert sum(row.best_share for row in recommendation.table) == pytest.approx(1.0)
    for row in recommendation.table:
        assert 0 < row.kept_group_share <= 1 and 0 < row.prompt_coverage <= 1
        assert row.snr_gain_ci95[0] <= row.snr_gain <= row.snr_gain_ci95[1]
        assert row.retrieval_kept is None


def test_file_is_what_train_takes(tmp_path):
    recommendation = recommend(run_with([1, 1, 0, 0]))
    path = tmp_path / "filter.yaml"
    path.write_text(to_yaml(recommendation))
    assert FilterSetting.load(path) == recommendation.setting
    header = path.read_text().split("strategy:")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert "groups" in header and "expected SNR" in header


def test_too_little_data_recommends_nothing_with_a_reason():
    for run in (metrics(), rollouts(1, 8, 8), rollouts(30, 1, 8), rollouts(30, 8, 8, return_=1.0)):
        recommendation = recommend(run)
        assert recommendation.setting == OFF and recommendation.confidence is None
        assert "are needed" in recommendation.reasons[0]


def test_same_seed_same_table():
    run = run_with([1, 0.5, 0, 0])
    assert recommend(run, seed=3).to_dict() == recommend(run, seed=3).to_dict()


def test_retrieval_of_kept_and_dropped_groups():
    from tests.planted.runs import draw

    planted = draw("learning", 0)
    first = planted.run.rollouts.head(64)["trajectory_id"].tolist()
    cross = planted.run.cross_scores[0]
    import dataclasses

    planted.run.cross_scores = [dataclasses.replace(cross, trajectory_ids_R=tuple(first))]
    table = recommend(planted.run).table
    assert table[0].retrieval_kept is not None and table[0].retrieval_dropped is None
    assert any(row.retrieval_dropped is not None for row in table)
