"""Turning points and the phases of the Echo Trap on series whose events are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.echo_trap import Phase, echo_trap
from analysis.turning_points import baseline, change_points, fall_from_peak, first_turn, shift, spikes


def series(*parts: tuple[int, float], noise: float = 0.02, seed: int = 0) -> pd.Series:
    """Constant pieces (length, level) with noise of that standard deviation; steps from 1."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(n, level) for n, level in parts])
    return pd.Series(values + noise * rng.normal(size=len(values)), index=range(1, len(values) + 1))


def test_change_points_are_found_and_noise_has_none():
    assert change_points(series((30, 1.0), (30, 2.0), (40, 0.5)).to_numpy()) == [30, 60]
    assert change_points(series((100, 1.0)).to_numpy()) == []
    assert change_points(np.ones(50)) == []
    assert len(change_points(series((3000, 1.0), (3000, 3.0)).to_numpy())) == 1


def test_baseline_is_robust_to_one_outlier():
    points = series((40, 1.0))
    points.iloc[3] = 50
    assert baseline(points).median == pytest.approx(1.0, abs=0.05)
    assert baseline(points).sigma < 0.2


def test_first_turn_says_where_and_when_it_was_known():
    turn = first_turn(series((40, 1.0), (40, 0.3)), 0.5)
    assert turn.step in (41, 42) and turn.confirmed_step <= 50
    assert first_turn(series((80, 1.0)), 0.5) is None
    blip = series((40, 1.0), (2, 0.1), (40, 1.0))
    assert first_turn(blip, 0.5) is None
    assert first_turn(series((80, 0.0)), 0.5) is None
    assert first_turn(series((5, 1.0), (5, 0.1)), 0.5) is None


def test_fall_from_peak_lasts_or_recovers():
    fall = fall_from_peak(series((30, 0.3), (30, 0.7), (30, 0.1)))
    assert abs(fall.step - 61) <= 1 and not fall.recovered and fall.peak == pytest.approx(0.7, abs=0.05)
    assert fall_from_peak(series((30, 0.3), (20, 0.7), (10, 0.1), (30, 0.7))).recovered
    noisy = [fall_from_peak(series((90, 0.5), noise=0.15, seed=seed), spread=1.0) for seed in range(50)]
    assert sum(fall is not None and not fall.recovered for fall in noisy) == 0


def test_shift_on_short_and_long_series():
    assert shift(pd.Series([0.16, 0.118, 0.064])).moved(-1, 0.2)
    assert not shift(pd.Series([0.275, 0.1625, 0.194])).moved(-1, 0.2)
    assert shift(pd.Series([1.0])) is None
    assert shift(series((20, 1.0), (20, 2.0))).moved(+1, 0.5)
    assert not shift(series((40, 1.0), noise=0.3)).moved(+1, 0.1)
    rises = [shift(series((60, 1.0), noise=0.2, seed=seed)).moved(+1, 0.01) for seed in range(200)]
    assert np.mean(rises) < 0.06


def test_spikes_need_to_be_large_and_rare():
    points = series((60, 1.0), noise=0.2)
    assert spikes(points) == []
    points.loc[40] = 12.0
    assert spikes(points) == [40]
    assert spikes(points.iloc[:10]) == []


HEALTHY = {
    "reward_mean": series((100, 0.5)),
    "reward_std_in_group": series((100, 0.4)),
    "entropy_nats": series((100, 0.8)),
}


def test_phases():
    def trap(**changed: pd.Series):
        return echo_trap(HEALTHY | changed, return_range=(0.0, 1.0), spread=1.0)

    assert trap().phase == Phase.HEALTHY
    std = series((40, 0.4), (60, 0.1))
    warned = trap(reward_std_in_group=std)
    assert warned.phase == Phase.EARLY_WARNING and warned.announced_step < 55
    fallen = series((70, 0.5), (30, 0.1))
    trapped = trap(reward_std_in_group=std, reward_mean=fallen)
    assert trapped.phase == Phase.TRAPPED
    assert trapped.lead_steps["reward_std_in_group"] == pytest.approx(30, abs=3)
    assert trapped.announced_step < trapped.fall.step
    gradient = series((100, 0.3))
    gradient.loc[[72, 80]] = 9.0
    assert trap(reward_std_in_group=std, reward_mean=fallen, grad_norm=gradient).phase == Phase.IRREVERSIBLE


def test_a_crash_is_not_said_to_be_foreseeable():
    fallen = series((70, 0.5), (30, 0.02))
    result = echo_trap(
        HEALTHY | {"reward_mean": fallen, "reward_std_in_group": series((70, 0.4), (30, 0.02))}, return_range=(0, 1)
    )
    assert result.phase == Phase.CRASHED and "foretold" in result.reason


def test_a_solved_task_is_no_trap():
    reward = pd.Series(np.interp(np.arange(100), [0, 50], [0.4, 0.97]), index=range(1, 101))
    std = np.sqrt(reward * (1 - reward))
    assert (
        echo_trap({"reward_mean": reward, "reward_std_in_group": std}, return_range=(0.0, 1.0)).phase == Phase.HEALTHY
    )
    assert echo_trap({"success_rate": reward, "reward_std_in_group": std}).phase == Phase.HEALTHY


def test_entropy_that_falls_while_the_reward_rises_is_learning():
    rising = pd.Series(np.linspace(0.2, 0.8, 100), index=range(1, 101)) + series((100, 0.01)).to_numpy()
    falling = series((40, 0.8), (60, 0.2))
    assert echo_trap({"reward_mean": rising, "entropy_nats": falling}).phase == Phase.HEALTHY
    assert echo_trap(HEALTHY | {"entropy_nats": falling}, return_range=(0, 1)).phase == Phase.EARLY_WARNING


def test_short_or_empty_runs_are_inconclusive():
    assert echo_trap({}).phase == Phase.INCONCLUSIVE
    assert echo_trap({"reward_mean": series((10, 0.5))}).phase == Phase.INCONCLUSIVE
    assert echo_trap({"reward_mean": pd.Series([np.nan] * 50)}).phase == Phase.INCONCLUSIVE


def test_a_chance_dip_before_a_crash_is_not_where_the_reward_fell():
    """Scores of a real draw of a constant 0.5 with a crash planted at the 49th point; the last dip begins at the 36th."""
    before = [0.45, 0.66, 0.44, 0.53, 0.45, 0.53, 0.56, 0.69, 0.55, 0.56, 0.53, 0.38, 0.33, 0.52, 0.47, 0.5, 0.58, 0.38, 0.39,
              0.59, 0.48, 0.42, 0.58, 0.61, 0.67, 0.67, 0.56, 0.66, 0.55, 0.55, 0.61, 0.62, 0.52, 0.66, 0.66, 0.45, 0.34,
              0.56, 0.39, 0.62, 0.48, 0.66, 0.42, 0.55, 0.45, 0.44, 0.5, 0.58]  # fmt: skip
    scores = pd.Series([*before, *[0.05, 0.02, 0.03] * 10], index=range(1, 79))
    fall = fall_from_peak(scores, spread=1.0)
    assert fall.step == 49 and not fall.recovered and fall.confirmed_step >= fall.step
