from __future__ import annotations

import numpy as np
import pytest

from analysis.information import measure
from analysis.planning import METRICS, Spread, half_width, plans, prompts_needed, spread_of
from tests.planted.worlds import World


def test_half_width_of_a_known_spread():
    spread = Spread("conditional_entropy_nats_per_token", between=0.09, within=0.16)
    # t(0.975, 99) = 1.98422; sqrt((0.09 + 0.16 / 4) / 100) = 0.0360555
    assert half_width(spread, 100, 4) == pytest.approx(0.071542, abs=1e-5)
    assert half_width(spread, 3, 4) == float("inf")


def test_fewest_prompts_and_cheapest_plan():
    spread = Spread("conditional_entropy_nats_per_token", between=0.09, within=0.16)
    needed = prompts_needed(spread, 0.05, 4)
    assert half_width(spread, needed, 4) <= 0.05 < half_width(spread, needed - 1, 4)
    found = plans(spread, 0.05)
    assert found == sorted(found, key=lambda plan: plan.n_prompts * plan.n_rollouts)
    assert found[0].n_rollouts == 2
    assert prompts_needed(spread, 1e-5, 2) is None
    assert prompts_needed(spread, 100.0, 2) == 4
    with pytest.raises(ValueError, match="positive"):
        prompts_needed(spread, 0.0, 2)


@pytest.mark.calibration
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("copy_prob", [0.2, 0.5])
def test_predicts_the_observed_half_width(metric, copy_prob):
    world = World(copy_prob=copy_prob)
    pilots = [spread_of(world.draw(128, 8, np.random.default_rng([1, i])).cross(), metric) for i in range(8)]
    for n, k in ((32, 4), (64, 16), (200, 2)):
        found = [
            measure(world.draw(n, k, np.random.default_rng([2, i])).cross(), n_boot=1, n_perm=1)[metric].ci95
            for i in range(40)
        ]
        observed = np.mean([(high - low) / 2 for low, high in found])
        assert np.mean([half_width(spread, n, k) for spread in pilots]) == pytest.approx(observed, rel=0.15)


def test_refuses_a_pilot_without_repeats():
    with pytest.raises(ValueError, match="4 prompts with two rollouts each; this one has 0"):
        spread_of(World(slots=6, values=10).draw(16, 1, np.random.default_rng(0)).cross())
    with pytest.raises(ValueError, match="no plan for 'reward'"):
        spread_of(World().draw(16, 2, np.random.default_rng(0)).cross(), "reward")


def test_refuses_a_saturated_pilot():
    with pytest.raises(ValueError, match="mi_nats: insufficient prompts"):
        spread_of(World(slots=8, values=6, copy_prob=0.9).draw(16, 4, np.random.default_rng(0)).cross())
