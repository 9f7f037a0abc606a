from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.information import reference_metrics

CASES = json.loads((Path(__file__).parent / "oracle" / "collapse_metrics.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_same_named_numbers_equal_ragen2(case):
    signature = [tuple(ids) for ids in case["prompt_signature"]]
    found = reference_metrics(np.array(case["logprob_sum"]), case["token_counts"], case["prompt_of_row"], signature)
    for name, value in case["expected"].items():
        assert found[name] == pytest.approx(value, abs=1e-6), name


def test_worked_example():
    scores = np.array([[-2.0, -6.0], [-4.0, -8.0], [-5.0, -3.0], [-9.0, -4.0]])
    found = reference_metrics(scores, np.array([2, 4, 2, 4]), np.array([0, 0, 1, 1]), ["x", "y"])
    expected = {
        "mi_estimate": 0.44180,
        "mi_seq_estimate": 0.65066,
        "mi_upper_bound": 0.69315,
        "conditional_entropy_est": 1.125,
        "conditional_entropy_seq_est": 3.25,
        "reasoning_entropy_est": 1.5668,
        "reasoning_entropy_seq_est": 3.9007,
        "marginal_std": 0.19283,
        "marginal_std_seq": 0.84130,
        "mi_zscore": 2.27935,
        "mi_zscore_seq": 0.77248,
        "retrieval_accuracy": 1.0,
        "retrieval_chance_level": 0.5,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-4), name
    same = reference_metrics(scores, np.array([2, 4, 2, 4]), np.array([0, 0, 1, 1]), ["x", "x"])
    assert same["retrieval_chance_level"] == 1.0 == same["retrieval_accuracy"]


def test_ema_starts_at_the_first_value_and_decays_by_a_tenth():
    one, two = (np.random.default_rng(seed).normal(-20, 5, (8, 4)) for seed in (0, 1))
    tokens, column = np.full(8, 10), np.repeat(np.arange(4), 2)
    first = reference_metrics(one, tokens, column, range(4))
    second = reference_metrics(two, tokens, column, range(4), ema=first)
    assert first["marginal_std_ema_seq"] == first["marginal_std_seq"]
    expected = 0.9 * first["marginal_std_seq"] + 0.1 * second["marginal_std_seq"]
    assert second["marginal_std_ema_seq"] == pytest.approx(expected)
    gain = second["mi_seq_estimate"]
    assert second["mi_zscore_ema_seq"] == pytest.approx(gain / (expected + 1e-3))
