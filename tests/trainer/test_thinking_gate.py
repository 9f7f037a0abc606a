"""The thinking-quality critic: where it is read, what it is taught, and what its sigmoid does to the advantage."""

import math

import numpy as np
import pytest
import torch

from trainer import thinking_gate
from trainer.batch import make_batch
from trainer.loop import Trainer

GATED = ["algorithm.advantage=gae", "algorithm.thinking_gate=true", "rollout.group_size=4"]


@pytest.fixture
def played(small, tmp_path):
    trainer = Trainer(small(*GATED), tmp_path / "unused")
    trainer.state.step = 1
    trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
    return trainer, trajectories


def test_it_is_read_once_a_turn_at_the_first_token_after_the_thinking(played):
    trainer, trajectories = played
    tokenizer = trainer.agent.tokenizer
    batch = make_batch(trajectories, pad_id=trainer.agent.pad_id)
    target = thinking_gate.quality_target(batch, trajectories, tokenizer)
    close = tokenizer.convert_tokens_to_ids("</think>")
    for row, owner in enumerate(batch.owner_B.tolist()):
        at = torch.nonzero(target.read_BT[row])[:, 0].tolist()
        turns = trajectories[owner].turns
        assert len(at) == len(turns)
        for position, turn in zip(at, turns, strict=True):
            if close in turn.sample.ids:
                assert batch.ids_BT[row, position] == close
            else:
                assert batch.turn_end_BT[row, position] == 1


def test_labels_say_whose_return_lies_above_the_mean(played):
    trainer, trajectories = played
    for member, trajectory in enumerate(trajectories):
        trajectory.turns[-1].reward = float(member)
    batch = make_batch(trajectories, pad_id=0)
    target = thinking_gate.quality_target(batch, trajectories, trainer.agent.tokenizer)
    mean = sum(t.return_ for t in trajectories) / len(trajectories)
    for row, owner in enumerate(batch.owner_B.tolist()):
        expected = float(trajectories[owner].return_ > mean)
        assert (target.label_BT[row][batch.mask_BT[row] > 0] == expected).all()


def test_the_sigmoid_of_a_turns_logit_scales_all_its_tokens(played):
    trainer, trajectories = played
    batch = make_batch(trajectories, pad_id=0)
    target = thinking_gate.quality_target(batch, trajectories, trainer.agent.tokenizer)
    quality_BT = torch.where(target.read_BT > 0, batch.turn_BT.float() + 1, torch.full_like(batch.mask_BT, 99.0))
    found = thinking_gate.gate(batch, quality_BT, target)
    for turn in (0, 1):
        values = found[batch.turn_BT == turn]
        assert values == pytest.approx([1 / (1 + math.exp(-(turn + 1)))] * len(values))
    assert (found[batch.mask_BT == 0] == 0).all()


def test_an_untrained_head_halves_the_advantage(played, small, tmp_path):
    trainer, trajectories = played
    plain = Trainer(small("algorithm.advantage=gae", "rollout.group_size=4"), tmp_path / "plain")
    gated, ungated = (t._score(trajectories, 1.0).credit.advantages_BT for t in (trainer, plain))
    torch.testing.assert_close(gated, 0.5 * ungated)


def test_it_learns_what_it_is_taught(played):
    trainer, trajectories = played
    for trajectory in trajectories:
        trajectory.turns[-1].reward = float(trajectory.member)
    scored = trainer._score(trajectories, 1.0)
    losses = [trainer.updater.run(scored, rng=np.random.default_rng(0))["thinking_quality_loss"] for _ in range(6)]
    assert losses[-1] < 0.9 * losses[0]
