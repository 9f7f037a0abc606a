from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.entropy import NO_STEP, from_rollouts
from analysis.information import measure
from tests.planted.worlds import World


def frame(**columns) -> pd.DataFrame:
    n = len(next(iter(columns.values())))
    base = {
        "step": pd.array([1] * n, dtype="Int64"),
        "prompt": np.arange(n),
        "first_thinking_logprob": np.full(n, np.nan),
        "thinking_tokens": np.full(n, np.nan),
        "thinking_logprob": np.full(n, np.nan),
        "thinking_tokens_all": np.full(n, np.nan),
    }
    return pd.DataFrame(base | columns)


def test_per_token_of_the_first_turn_prompts_weigh_equally():
    found = from_rollouts(
        frame(
            step=pd.array([3, 3, 3, 7, None], dtype="Int64"),
            prompt=[0, 0, 1, 0, 0],
            first_thinking_logprob=[-10.0, -30.0, -6.0, np.nan, -4.0],
            thinking_tokens=[10.0, 10.0, 2.0, 5.0, 4.0],
        )
    )
    assert set(found) == {3, NO_STEP}  # step 7 logged no log-probs: absent, not zero
    assert found[3].value == pytest.approx(((1.0 + 3.0) / 2 + 3.0) / 2)
    assert (found[3].unit, found[3].n_prompts, found[3].n_rollouts, found[3].ci95) == ("nats/token", 2, 3, None)
    assert "first turn" in found[3].method


def test_all_turns_stand_in_and_zero_tokens_are_not_zero_entropy():
    found = from_rollouts(
        frame(
            prompt=[0, 1, 2],
            first_thinking_logprob=[np.nan, np.nan, 0.0],
            thinking_tokens=[np.nan, np.nan, 0.0],
            thinking_logprob=[-4.0, -9.0, np.nan],
            thinking_tokens_all=[2.0, 3.0, np.nan],
        )
    )
    assert found[1].value == pytest.approx(2.5)
    assert "all turns" in found[1].method
    assert from_rollouts(frame(prompt=[])) == {}


def test_same_number_as_the_matrix_of_the_same_rollouts():
    batch = World(copy_prob=0.5).draw(40, 4, np.random.default_rng(0))
    cross = batch.cross()
    matched = cross.logprob_sum_RN[np.arange(160), cross.column_R]
    found = from_rollouts(
        frame(prompt=cross.column_R, first_thinking_logprob=matched, thinking_tokens=cross.tokens_R.astype(float))
    )[1]
    counts = np.bincount(cross.column_R)
    if (counts == 4).all():
        assert found.value == pytest.approx(measure(cross)["conditional_entropy_nats_per_token"].value)
    truth = batch.world.conditional_entropy_nats
    per_sequence = from_rollouts(
        frame(prompt=cross.column_R, first_thinking_logprob=matched, thinking_tokens=np.ones(160))
    )[1]
    assert per_sequence.ci95[0] < truth < per_sequence.ci95[1]
