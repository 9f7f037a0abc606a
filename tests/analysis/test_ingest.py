"""Turn rows fold into trajectories: literal sums, missing stays missing, texts bounded and explained."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analysis.ingest import ingest
from analysis.readers.base import LogSource
from analysis.text_sample import TextSampler
from ragen_diag import rollout_log


class Tables(LogSource):
    """A log that is already in memory."""

    given: list[pa.Table]

    def tables(self):
        return iter(self.given)

    def series(self):
        return {"kl_nats": [(3, float("nan")), (2, None), (1, 0.5)]}


def source(*tables: pa.Table) -> Tables:
    found = Tables("run", Path("run"), "rollouts", "ragen_diag", "1", "in memory", [])
    found.given = list(tables)
    return found


def row(trajectory: str, turn: int, **columns) -> dict:
    base = {"run_id": "r", "step": 1, "split": "train", "group_id": "g0", "prompt_id": "p0"}
    return base | {"trajectory_id": trajectory, "turn": turn} | columns


def table(*rows: dict) -> pa.Table:
    return rollout_log.rows_to_table(rows)


TWO_TURNS = (
    row("a", 0, return_=1.5, response_ids=[5, 6, 7], logprobs=[-1.0, -2.0, -3.0], thinking_start=0, thinking_end=2,
        thinking_text="go left", response_text="go left</think>", format_valid=True, advantage=0.5, success=True),
    row("a", 1, return_=1.5, response_ids=[5], logprobs=[-4.0], response_text="x", thinking_text=" \n", format_valid=False,
        advantage=-0.1, success=True),
)  # fmt: skip


def test_turns_fold_into_one_trajectory_with_literal_sums():
    run, summary = ingest(source(table(*TWO_TURNS)))
    (rollout,) = run.rollouts.to_dict("records")
    assert rollout["first_thinking_logprob"] == -3.0
    assert rollout["thinking_tokens"] == 2
    assert rollout["response_logprob"] == -10.0
    assert rollout["response_tokens"] == 4
    assert rollout["max_turn_tokens"] == 3
    assert rollout["format_valid"] == 0.5
    assert rollout["advantage"] == pytest.approx(0.2)
    assert rollout["n_thinking_turns"] == 1, "whitespace is not thinking"
    assert (summary.n_rollouts, summary.n_turns, summary.n_groups, summary.n_with_thinking) == (1, 2, 1, 1)
    assert summary.mean_reward == 1.5


def test_a_trajectory_that_straddles_two_batches_is_one_rollout():
    together, _ = ingest(source(table(*TWO_TURNS)))
    apart, summary = ingest(source(table(TWO_TURNS[0]), table(TWO_TURNS[1])))
    assert summary.n_rollouts == 1
    assert apart.rollouts.drop(columns="split").equals(together.rollouts.drop(columns="split"))


def test_missing_is_not_zero():
    run, summary = ingest(source(table(row("a", 0), row("b", 0, return_=0.0), row("c", 0, return_=float("nan")))))
    assert summary.n_reward_missing == 2
    assert summary.mean_reward == 0.0
    for name in ("return_", "success", "response_tokens", "truncated", "advantage", "entropy", "top_token_share"):
        assert np.isnan(run.rollouts[name].to_numpy(dtype=float)[0]), name


def test_no_steps_and_no_groups_stay_unknown():
    run, summary = ingest(source(table(row("a", 0, step=None, group_id=None))))
    assert run.rollouts["step"].isna().all()
    assert run.rollouts["group"].tolist() == [-1]
    assert summary.n_steps == 0


def test_groups_are_distinct_per_split_and_step():
    rows = [row("a", 0), row("b", 0), row("c", 0, step=2), row("d", 0, split="val")]
    run, summary = ingest(source(table(*rows)))
    assert run.rollouts["group"].tolist() == [0, 0, 1, 2]
    assert summary.n_groups == 3
    assert summary.splits["val"]["n_rollouts"] == 1


def test_reward_components_align_with_rollouts():
    rows = [row("a", 0, reward_components=[("fmt", 0.1)]), row("b", 0), row("c", 0, reward_components=[("acc", 1.0)])]
    run, _ = ingest(source(table(*rows)))
    assert run.reward_components["fmt"].tolist()[0] == 0.1
    assert np.isnan(run.reward_components["fmt"].tolist()[1])
    assert run.reward_components["acc"].tolist()[2] == 1.0


def test_an_empty_log_is_an_empty_run():
    run, summary = ingest(source())
    assert len(run.rollouts) == 0 and summary.n_rollouts == 0 and summary.mean_reward is None
    assert run.series["kl_nats"].index.tolist() == [1, 3], "None was not measured; nan was logged"
    assert run.series["kl_nats"][1] == 0.5 and np.isnan(run.series["kl_nats"][3])


def test_the_text_sample_is_bounded_and_keeps_first_and_last_step(monkeypatch):
    monkeypatch.setattr("analysis.text_sample.MAX_TOTAL_CHARS", 5_000)
    sampler = TextSampler()
    for step in range(100):
        sampler.add(table(*(row(f"{step}-{k}", 0, step=step, response_text="x" * 100) for k in range(4))))
    steps = sorted(key[1] for key in sampler._steps)
    assert steps[0] == 0 and steps[-1] == 99
    assert sum(len(rows) for rows in sampler._steps.values()) * 100 <= 5_000
    assert "of 400 rollouts" in sampler.explanation
