"""Rollouts read back from a log: exactly what was played, also without ids; replay and offline runs resume bit for bit."""

import dataclasses

import pyarrow.parquet as pq
import pytest
import torch

from ragen_diag.config import load_config
from ragen_diag.errors import ConfigError
from ragen_diag.rollout_log import read_metrics, read_steps, step_files, write_step
from trainer.batch import make_batch
from trainer.filtering import mark_kept
from trainer.logged import LoggedGroups
from trainer.loop import Trainer, train
from trainer.trajectory import LogContext, log_rows


@pytest.fixture
def played(small, tmp_path):
    """A trainer, one step's rollouts, and the log of them."""
    trainer = Trainer(small("rollout.groups=3", "rollout.group_size=2"), tmp_path / "unused")
    trainer.state.step = 1
    trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
    context = LogContext("r", 1, "train", "e", "update-0", trainer.settings, True)
    write_step(tmp_path / "log", 1, "train", log_rows(trajectories, context, trainer.agent.tokenizer))
    return trainer, trajectories, tmp_path / "log"


def read_back(trainer, folder, groups=(0, 1, 2)):
    log = LoggedGroups.of_log(folder, trainer.agent.tokenizer, trainer.config.rollout)
    return log.load(groups, first_group=0)


def test_a_log_gives_back_the_batch_it_was_written_from(played):
    trainer, trajectories, folder = played
    mine, theirs = (make_batch(rollouts, pad_id=0) for rollouts in (trajectories, read_back(trainer, folder)))
    for field in dataclasses.fields(mine):
        assert torch.equal(getattr(mine, field.name), getattr(theirs, field.name)), field.name
    assert [t.return_ for t in read_back(trainer, folder)] == pytest.approx([t.return_ for t in trajectories])


def test_groups_are_numbered_in_the_order_asked_for(played):
    trainer, trajectories, folder = played
    found = read_back(trainer, folder, groups=(2, 0))
    assert [t.group for t in found] == [0, 0, 1, 1]
    assert [t.seed for t in found] == [t.seed for t in trajectories if t.group == 2] + [
        t.seed for t in trajectories if t.group == 0
    ]


def test_foreign_logs_without_ids_and_logprobs_are_tokenized_and_scored(played, tmp_path):
    trainer, trajectories, folder = played
    rows = [row for batch in read_steps(folder) for row in batch.to_pylist()]
    for row in rows:
        row |= dict.fromkeys(("prompt_ids", "response_ids", "logprobs", "entropies", "group_id", "turn_reward"))
    write_step(tmp_path / "foreign", 1, "train", rows)
    found = read_back(trainer, tmp_path / "foreign")
    assert [t.return_ for t in found] == pytest.approx([t.return_ for t in trajectories])
    assert [[turn.sample.ids for turn in t.turns] for t in found] == [
        [turn.sample.ids for turn in t.turns] for t in trajectories
    ]
    scored = trainer._score(found, 1.0).batch.old_logp_BT
    own = make_batch(trajectories, pad_id=0).old_logp_BT
    torch.testing.assert_close(scored[scored != 0], own[own != 0], atol=1e-4, rtol=0)


def test_failed_and_unscored_rollouts_are_no_part_of_it(played, tmp_path):
    trainer, _, folder = played
    rows = [row for batch in read_steps(folder) for row in batch.to_pylist()]
    for row in rows:
        if row["group_id"] == "0":
            row["error"] = "service down"
        if row["group_id"] == "1" and row["rollout_index"] == 0:
            row["return_"] = None
    write_step(tmp_path / "patchy", 1, "train", rows)
    log = LoggedGroups.of_log(tmp_path / "patchy", trainer.agent.tokenizer, trainer.config.rollout)
    assert len(log) == 2
    assert [(t.group, t.member) for t in log.load((0, 1), first_group=5)] == [(5, 1), (6, 0), (6, 1)]


def test_memory_is_newest_first_bounded_and_without_dropped_rollouts(small, tmp_path):
    trainer = Trainer(small(), tmp_path / "unused")
    for step in (1, 2, 3):
        rows = [
            {"run_id": "r", "step": step, "split": "train", "group_id": str(group), "prompt_id": "p",
             "trajectory_id": f"{step}-{group}-{member}", "turn": 0, "return_": 1.0, "kept_by_filter": member > 0,
             "response_ids": [5], "prompt_ids": [4], "logprobs": [0.0], "rollout_index": member, "seed": step}
            for group in range(2) for member in range(3)
        ]  # fmt: skip
        write_step(tmp_path / "run", step, "train", rows)
    memory = LoggedGroups.newest(
        tmp_path / "run", trainer.agent.tokenizer, trainer.config.rollout, before=3, capacity=6
    )
    assert len(memory) == 3  # two trajectories a group
    found = memory.load((0, 1, 2), first_group=0)
    assert [(t.seed, t.member) for t in found] == [(2, 1), (2, 2), (2, 1), (2, 2), (1, 1), (1, 2)]


def test_an_empty_log_is_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="holds no training rollouts"):
        train(small(f"offline.log={tmp_path / 'nothing'}"), tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (["replay.groups=2"], "replay needs both above 0"),
        (["replay.groups=2", "replay.capacity=4"], "smaller than one draw"),
        (["offline.log=x", "replay.groups=2", "replay.capacity=400"], "leaves nothing to sample"),
        (["algorithm.thinking_gate=true"], "needs algorithm.advantage gae"),
        (["rollout.backend=vllm", "model.tuning=full"], "needs model.tuning=lora"),
    ],
)
def test_combinations_that_cannot_work(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, override)


def same(one, other, name):
    walls = {"step_wall_s", "rollout_wall_s"}
    first, second = (
        [{k: v for k, v in row.items() if k not in walls} for row in read_metrics(r)] for r in (one, other)
    )
    assert first == second, name
    for (_, _, mine), (_, _, theirs) in zip(step_files(one), step_files(other), strict=True):
        assert pq.read_table(mine).equals(pq.read_table(theirs)), name


@pytest.mark.parametrize("kind", ["replay", "offline"])
def test_resuming_bit_for_bit(small, tmp_path, played, kind):
    settings = {
        "replay": ["replay.capacity=8", "replay.groups=2", "filter.max_sigma=1.5", "optim.kl_early_stop=1"],
        "offline": [f"offline.log={played[2]}", "algorithm.kl_coef=0.01"],
    }[kind] + ["runtime.checkpoint_every=1", "rollout.max_turns=1"]
    train(small("steps=4", *settings), tmp_path / "whole", progress=False)
    train(small("steps=2", *settings), tmp_path / "parts", progress=False)
    train(small("steps=4", *settings), tmp_path / "parts", resume=True, progress=False)
    same(tmp_path / "whole", tmp_path / "parts", kind)
    rows = read_metrics(tmp_path / "whole")
    assert any(row["grad_norm"] is not None for row in rows)
    if kind == "offline":
        logged = [row for batch in read_steps(tmp_path / "whole") for row in batch.to_pylist()]
        assert {row["model_version"] for row in logged} == {f"logged in {played[2]}"}


def test_outliers_are_dropped_and_so_is_who_is_left_alone(played):
    trainer, trajectories, _ = played
    for trajectory, value in zip(trajectories, [0.0, 0.0, 0.0, 0.0, 0.0, 9.0], strict=True):
        for turn in trajectory.turns:
            turn.reward = turn.penalty = 0.0
        trajectory.turns[-1].reward = value
    share = mark_kept(trajectories, trainer.filter, max_sigma=2.0)
    assert [t.kept for t in trajectories] == [True, True, True, True, False, False]
    assert share == pytest.approx(2 / 3)
    assert mark_kept(trajectories, trainer.filter) == 1
