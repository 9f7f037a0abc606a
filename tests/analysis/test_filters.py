"""Group filters: RAGEN-2's rules to the group, and the default rules where the reference misbehaves."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.filters import REFERENCE_NAMES, FilterSetting, group_scores, select_by_score, select_groups
from ragen_diag.errors import ConfigError, PathNotFound

CASES = json.loads(gzip.decompress((Path(__file__).parent / "data/ragen2_filter_cases.json.gz").read_bytes()))


def reference(**fields):
    return FilterSetting(exact_reference=True, **fields)


def test_every_reference_case_keeps_the_same_groups():
    assert len(CASES["cases"]) == 6048
    for name, strategy, value, keep, include_zero, metric, mode, eps, expected in CASES["cases"]:
        setting = reference(
            strategy=strategy, value=value, keep=keep, include_zero=include_zero, mode=mode, eps=eps,
            metric=REFERENCE_NAMES.get(metric, metric),
        )  # fmt: skip
        rewards_PG = np.array(CASES["inputs"][name])
        kept = select_groups(rewards_PG, setting)
        scores = group_scores(rewards_PG, setting.metric).astype(np.float32)
        # Ties are interchangeable: same count, same scores.
        assert sorted(scores[kept]) == sorted(scores[np.array(expected, dtype=int)]), (name, setting, expected)


@pytest.mark.parametrize(
    ("scores", "fields", "expected"),
    [  # RAGEN's tests/test_rollout_filter.py and the measured table of its misbehaviours
        ([1, 1, 1], {"value": 0.6, "mode": "softmax"}, [0, 1]),
        ([4, 3, 2, 1], {"value": 0.6}, [0, 1]),
        ([0, 0, 0], {"value": 0.9}, []),
        ([4, 2, 0, 0], {"value": 1.0}, [0, 1, 2, 3]),
        ([10, 1, 0, 0], {"value": 0.9, "mode": "softmax", "include_zero": False}, [0]),
        ([3, 1, 1, 0], {"value": 0.9, "include_zero": False}, [0, 1, 2]),
        ([5, 4.8, 3.3, 1, 0.1, 0.05, 0, 0], {"value": 0.9, "mode": "softmax"}, [0, 1, 2]),
        ([0.5, 0.5, 0.48, 0.4, 0.35, 0.25, 0, 0], {"value": 0.9, "mode": "softmax"}, [0, 1, 2, 3, 4, 5, 6]),
        ([0.006, 0.004, 0.001], {"value": 0.9}, []),
        ([0.006, 0.004, 0.001], {"value": 0.9, "eps": 0.0}, [0, 1]),
        ([3, 1, 2], {"value": 0.9, "keep": "smallest"}, [0, 1, 2]),
        ([3, 0, 2], {"value": 0.9, "keep": "smallest"}, []),
        ([2, -1, 0.5], {"value": 0.9, "metric": "reward"}, [0]),
        ([0.1] * 10, {"value": 0.999999999, "eps": 0.0}, []),
        ([4, 1, 3, 2], {"strategy": "min_p", "value": 0.5}, [0, 2, 3]),
        ([0.1, 0.2, 0.21, 0.4], {"strategy": "min_p", "value": 0.5, "keep": "smallest"}, [0, 1]),
        ([1, 2, 3, 4], {"strategy": "top_k_abs", "value": 3.9}, [1, 2, 3]),
        ([1, 2, 3, 4], {"strategy": "top_k_abs", "value": 0}, [3]),
    ],
)  # fmt: skip
def test_documented_behaviour_of_the_reference(scores, fields, expected):
    assert select_by_score(np.array(scores), reference(**fields)).tolist() == expected


@pytest.mark.parametrize("value", [0.5, 1.0])
def test_reference_on_no_groups_and_on_groups_of_one(value):
    assert select_groups(np.empty((0, 4)), reference(value=value)).tolist() == []
    assert select_groups(np.ones((2, 1)), reference(value=value)).tolist() == ([0, 1] if value == 1 else [])


def test_reference_top_k_share_loses_a_group_to_rounding_and_the_default_does_not():
    scores = np.arange(100.0)
    assert len(select_by_score(scores, reference(strategy="top_k", value=0.29))) == 28
    assert len(select_by_score(scores, FilterSetting(strategy="top_k", value=0.29))) == 29


@pytest.mark.parametrize(
    ("scores", "fields", "expected"),
    [
        ([0.006, 0.004, 0.001], {"value": 0.9}, [0, 1]),
        ([3, 0, 2], {"value": 0.6, "keep": "smallest"}, [1]),
        ([2, -1, 0.5], {"value": 0.9, "metric": "reward"}, [0, 2]),
        ([0.1] * 10, {"value": 0.999999999, "eps": 0.0}, list(range(10))),
        ([0, 0, 0], {"value": 0.9}, [0, 1, 2]),
        ([0, 0, 0], {"value": 0.9, "include_zero": False}, []),
        ([2, 1, 0, 0], {"strategy": "top_k", "value": 0.5, "include_zero": False}, [0]),
        ([np.nan, 2, 1], {"value": 0.5}, [1]),
        ([np.nan, np.nan], {"value": 0.5}, [0, 1]),
        ([9, 1, 5], {"value": 0.9}, [0, 2]),
        ([-3, -1, -2], {"strategy": "min_p", "value": 0.5, "metric": "reward"}, [1, 2]),
        ([], {"value": 0.5}, []),
        ([1, 2], {"strategy": "none"}, [0, 1]),
        ([1e-11, 2e-11], {"value": 1.0, "include_zero": False}, [0, 1]),
    ],
)  # fmt: skip
def test_default_rules(scores, fields, expected):
    assert select_by_score(np.array(scores, dtype=float), FilterSetting(**fields)).tolist() == expected


settings = st.builds(
    FilterSetting,
    strategy=st.sampled_from(["top_p", "top_k", "top_k_abs", "min_p"]),
    value=st.floats(0, 2),
    mode=st.sampled_from(["linear", "softmax"]),
    keep=st.sampled_from(["largest", "smallest"]),
)
# Multiples of 1/64: exactly representable, so that scaling by powers of two changes no comparison.
scores_P = arrays(np.float64, st.integers(1, 12), elements=st.integers(-640, 640).map(lambda i: i / 64))


@given(scores_P, settings, st.sampled_from([2.0**-20, 0.25, 1024.0]))
def test_default_rules_are_scale_free_and_never_empty(scores, setting, scale):
    kept = select_by_score(scores, setting)
    assert len(kept)
    assert np.array_equal(kept, select_by_score(scores * scale, setting))


@given(scores_P, settings)
def test_no_dropped_group_beats_a_kept_one(scores, setting):
    kept = select_by_score(scores, setting)
    dropped = np.setdiff1d(np.arange(len(scores)), kept)
    sign = 1 if setting.keep == "largest" else -1
    if len(dropped):
        assert (sign * scores[kept]).min() >= (sign * scores[dropped]).max()


def test_group_scores():
    values = np.array([[1.0, 3.0, np.nan], [0.1, 0.1, 0.1], [5.0, np.nan, np.nan], [np.nan] * 3])
    np.testing.assert_allclose(group_scores(values, "reward_std"), [np.sqrt(2), 0.0, np.nan, np.nan])
    np.testing.assert_allclose(group_scores(values, "reward"), [2.0, 0.1, 5.0, np.nan])
    np.testing.assert_allclose(group_scores(values, "reward_sum"), [4.0, 0.3, 5.0, np.nan])
    assert group_scores(np.full((1, 16), 0.1), "entropy_std")[0] == 0.0
    with pytest.raises(ValueError, match="groups, rollouts"):
        group_scores(np.ones(3))


def test_quantity_says_what_to_pass():
    assert FilterSetting(metric="entropy_std").quantity == "entropy"
    assert FilterSetting(metric="length").quantity == "length"
    assert FilterSetting(metric="reward_sum").quantity == "reward"
    lengths = np.array([[10.0, 12.0], [50.0, 60.0]])
    shortest = FilterSetting(strategy="top_k", value=0.5, metric="length", keep="smallest")
    assert select_groups(lengths, shortest).tolist() == [0]


def test_yaml_round_trip(tmp_path):
    setting = FilterSetting(strategy="min_p", value=0.2, include_zero=False)
    path = tmp_path / "filter.yaml"
    path.write_text(setting.to_yaml(["chosen from run-a", "two\nlines"]))
    assert path.read_text().startswith("# chosen from run-a\n# two\n# lines\nstrategy: min_p\n")
    assert FilterSetting.load(path) == setting


def test_all_problems_of_a_file_are_reported_together(tmp_path):
    path = tmp_path / "filter.yaml"
    path.write_text("strategie: top_p\nvalue: -1\nmetric: reward_variances\ninclude_zero: 3\n")
    with pytest.raises(ConfigError) as caught:
        FilterSetting.load(path)
    message = str(caught.value)
    for part in (
        "filter.yaml",
        "Did you mean 'strategy'",
        "value is -1",
        "metric is 'reward_variances'",
        "include_zero is 3",
    ):
        assert part in message
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match="keys and values"):
        FilterSetting.load(path)
    path.write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        FilterSetting.load(path)
    with pytest.raises(PathNotFound):
        FilterSetting.load(tmp_path / "absent.yaml")


def test_reference_metric_names_are_understood():
    assert FilterSetting.from_mapping({"metric": "reward_variance"}).metric == "reward_std"
