from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from analysis.information import UNITS, measure, measure_by_turn, saturation_notice, zscore_ema
from ragen_diag.cross_scores import CrossScores
from tests.planted.worlds import World


def matrix(
    scores, column, *, tokens=None, weights=None, scope="first_turn", scorer="policy", turn=None, prompts=None
) -> CrossScores:
    scores, column = np.asarray(scores, dtype=float), np.asarray(column)
    n = scores.shape[1]
    return CrossScores(
        step=1,
        split="train",
        scope=scope,
        scorer=scorer,
        logprob_sum_RN=scores,
        tokens_R=np.asarray(tokens if tokens is not None else np.full(len(column), 10)),
        column_R=column,
        weights_N=np.asarray(weights if weights is not None else np.full(n, 1 / n)),
        prompt_ids_N=tuple(prompts or (f"p{j}" for j in range(n))),
        trajectory_ids_R=tuple(f"t{r}" for r in range(len(column))),
        turn_R=np.asarray(turn if turn is not None else np.zeros(len(column), int)),
    )


def drawn(world: World, n: int, k, seed: int = 0, **options) -> CrossScores:
    return world.draw(n, k, np.random.default_rng(seed)).cross(**options)


def test_worked_example_and_the_reference_names_agree():
    found = measure(matrix([[-2, -6], [-4, -8], [-5, -3], [-9, -4]], [0, 0, 1, 1], tokens=[2, 4, 2, 4]))
    expected = {
        "mi_lower_nats": 0.65066,
        "mi_batch_nats": 0.65066,
        "mi_per_token_proxy": 0.44180,
        "prompt_entropy_nats": 0.69315,
        "mi_upper_bound": 0.69315,
        "conditional_entropy_nats_per_token": 1.125,
        "conditional_entropy_nats_per_sequence": 3.25,
        "reasoning_entropy_nats_per_sequence": 3.9007,
        "mi_zscore": 2.27935,
        "mi_zscore_seq": 0.77248,
        "mi_upper_nats": 3.75,  # (4 + 4 + 2 + 5) / 4
        "margin_nats_per_token": (4 / 2 + 4 / 4 + 2 / 2 + 5 / 4) / 4,
        "retrieval_accuracy": 1.0,
        "retrieval_chance": 0.5,
    }
    assert set(found) == set(UNITS)
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, abs=1e-4), name
    # Two prompts: numbers, but no interval over prompts that would look sure.
    assert found["mi_lower_nats"].ci95 is None
    assert "too few prompts" in found["mi_lower_nats"].method


def test_planted_world_is_found_and_every_estimate_says_what_it_is():
    world = World(slots=4, values=4, copy_prob=0.5, template_share=0.2)
    batch = world.draw(128, 8, np.random.default_rng(1))
    found = measure(batch.cross())
    for name, truth in {
        "mi_nats": world.mi_nats,
        "mi_batch_nats": batch.batch_mi_nats(),
        "conditional_entropy_nats_per_sequence": world.conditional_entropy_nats,
    }.items():
        assert found[name].ci95[0] < truth < found[name].ci95[1], name
    assert found["mi_lower_nats"].ci95[0] < world.mi_nats < found["mi_upper_nats"].ci95[1]
    assert found["p_no_dependence"].value == pytest.approx(1 / 1001)
    for name, estimate in found.items():
        assert estimate.unit == UNITS[name]
        assert (estimate.n_rollouts, estimate.n_prompts) == (1024, len(batch.columns()[0]))
        assert estimate.method
        assert estimate.ci95[0] <= estimate.value <= estimate.ci95[1]


def test_a_pure_template_reads_zero():
    found = measure(drawn(World(template_share=1.0), 32, 4))
    assert found["mi_nats"].value == pytest.approx(0.0, abs=1e-9)
    assert found["mi_lower_nats"].value == pytest.approx(0.0, abs=1e-9)
    assert found["margin_nats_per_token"].value == pytest.approx(0.0, abs=1e-9)
    assert found["p_no_dependence"].value == 1.0
    # All prompts tie: retrieval is chance, not the luck of the lowest index.
    n = found["retrieval_accuracy"].n_prompts
    assert found["retrieval_accuracy"].value == pytest.approx(1 / n)


def test_saturation_is_said_and_the_midpoint_withheld():
    found = measure(drawn(World(slots=8, values=6, copy_prob=0.9), 8, 16))
    assert found["mi_lower_nats"].value == pytest.approx(np.log(8), abs=1e-3)
    assert found["mi_nats"].value is None
    assert "insufficient prompts" in found["mi_nats"].method
    assert "at 100% of its ceiling" in saturation_notice(found)
    assert saturation_notice(measure(drawn(World(copy_prob=0.2), 32, 4))) is None


def test_unequal_rollouts_never_exceed_the_prompt_entropy():
    rollouts = np.array([1, 1, 1, 13, 2, 7])
    found = measure(drawn(World(slots=8, values=6, copy_prob=1.0), 6, rollouts))
    assert found["mi_lower_nats"].value <= found["prompt_entropy_nats"].value + 1e-9
    assert found["normalised_mi"].value == pytest.approx(1.0)


def test_few_distinct_prompts_use_their_weights():
    batch = World(copy_prob=0.7, n_states=3).draw(60, 4, np.random.default_rng(0))
    found = measure(batch.cross())
    states, _, weights = batch.columns()
    assert len(states) == 3
    assert found["prompt_entropy_nats"].value == pytest.approx(-(weights * np.log(weights)).sum())
    assert found["retrieval_chance"].value == pytest.approx((weights**2).sum())
    assert found["mi_batch_nats"].ci95[0] < batch.batch_mi_nats() < found["mi_batch_nats"].ci95[1]
    # Leaving out one of ~20 groups with the same prompt changes little; leaving out the prompt changes much.
    assert found["mi_nats"].value == pytest.approx(found["mi_lower_nats"].value, abs=0.05)
    assert found["mi_upper_nats"].value > found["mi_lower_nats"].value + 0.3


def test_a_foreign_scorer_gives_the_lower_end_only():
    world = World(copy_prob=0.6)
    cross = drawn(world, 64, 8, critic=World(copy_prob=0.3))
    found = measure(cross)
    assert found["mi_upper_nats"].value is None
    assert "only the lower end is a bound" in found["mi_upper_nats"].method
    assert found["mi_lower_nats"].value < world.mi_nats
    assert "foreign scorer" in found["conditional_entropy_nats_per_token"].method
    state = dataclasses.replace(drawn(world, 64, 8), scope="state")
    assert measure(state)["mi_upper_nats"].value is None
    checkpoint = dataclasses.replace(drawn(world, 64, 8), scorer="checkpoint:runs/a")
    assert measure(checkpoint)["mi_upper_nats"].value is not None


def test_one_prompt_or_no_scores_is_insufficient():
    for cross in (
        matrix(np.full((4, 1), -3.0), [0, 0, 0, 0]),
        matrix(np.full((4, 2), np.nan), [0, 0, 1, 1]),
        matrix(np.zeros((0, 2)), []),
    ):
        found = measure(cross)
        assert set(found) == set(UNITS)
        assert all(estimate.value is None and "two different prompts" in estimate.method for estimate in found.values())


def test_rows_with_unscored_pairs_are_left_out_and_counted():
    cross = drawn(World(), 16, 4)
    broken = cross.logprob_sum_RN.copy()
    broken[5, 0] = np.nan
    found = measure(dataclasses.replace(cross, logprob_sum_RN=broken))
    assert found["mi_lower_nats"].n_rollouts == 63
    assert "1 rows with unscored pairs left out" in found["mi_lower_nats"].method


def test_impossible_under_other_prompts_is_infinite_margin_not_a_crash():
    scores = np.full((8, 4), -np.inf)
    scores[np.arange(8), np.repeat(np.arange(4), 2)] = -5.0
    found = measure(matrix(scores, np.repeat(np.arange(4), 2)))
    assert found["mi_lower_nats"].value == pytest.approx(np.log(4))
    assert found["margin_nats_per_token"].value is None
    assert found["mi_upper_nats"].value is None


def test_trajectory_scope_compares_within_turns():
    world = World(copy_prob=0.5)
    first, second = drawn(world, 24, 2, seed=1), drawn(World(template_share=1.0), 24, 2, seed=2)
    r1, n1 = first.logprob_sum_RN.shape
    r2, n2 = second.logprob_sum_RN.shape
    scores = np.full((r1 + r2, n1 + n2), np.nan)
    scores[:r1, :n1], scores[r1:, n1:] = first.logprob_sum_RN, second.logprob_sum_RN
    cross = matrix(
        scores,
        np.concatenate([first.column_R, second.column_R + n1]),
        tokens=np.concatenate([first.tokens_R, second.tokens_R]),
        weights=np.concatenate([first.weights_N, second.weights_N]) / 2,
        scope="trajectory",
        turn=np.repeat([0, 1], [r1, r2]),
        prompts=first.prompt_ids_N + second.prompt_ids_N,
    )
    apart = measure_by_turn(cross)
    assert set(apart) == {0, 1}
    assert apart[0]["mi_lower_nats"].value == pytest.approx(measure(first)["mi_lower_nats"].value)
    assert apart[1]["mi_lower_nats"].value == pytest.approx(0.0, abs=1e-9)
    together = measure(cross)
    assert together["mi_lower_nats"].value == pytest.approx(apart[0]["mi_lower_nats"].value / 2)
    assert together["p_no_dependence"].value < 0.01
    # A first prompt seen in both turns is one sampling unit.
    shared = dataclasses.replace(cross, prompt_ids_N=tuple(f"g{j % 20}" for j in range(n1 + n2)))
    assert measure(shared)["mi_lower_nats"].ci95 is not None


def test_zscore_ema_follows_the_first_value_rule():
    crosses = [drawn(World(copy_prob=q), 16, 4, seed=s) for s, q in enumerate((0.2, 0.5, 0.8))]
    series = zscore_ema(crosses)
    assert series[0]["mi_zscore_ema_seq"] == pytest.approx(measure(crosses[0])["mi_zscore_seq"].value)
    assert len(series) == 3
    assert series[2]["mi_zscore_ema_seq"] > series[0]["mi_zscore_ema_seq"]


def test_same_seed_same_numbers():
    cross = drawn(World(), 32, 4)
    assert measure(cross, seed=5) == measure(cross, seed=5)
    assert measure(cross, seed=5)["mi_batch_nats"].ci95 != measure(cross, seed=6)["mi_batch_nats"].ci95


@pytest.mark.parametrize(("n", "k", "limit_s"), [(8, 16, 1.0), (64, 8, 5.0)])
def test_fast_enough_to_run_while_training(n, k, limit_s):
    cross = drawn(World(slots=6, values=5), n, k)
    start = time.process_time()
    measure(cross)
    assert time.process_time() - start < limit_s
