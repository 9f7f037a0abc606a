"""Which tokens get which credit, on hand-made rollouts."""

import dataclasses

import pytest
import torch

from ragen_diag.config import AlgorithmConfig
from trainer.batch import make_batch
from trainer.credit import assign, note_advantages
from trainer.parsing import Reply
from trainer.sampling import Sample
from trainer.trajectory import Trajectory, Turn


def rollout(group, member, rewards, *, rewritten=False):
    """One turn per reward, two sampled tokens each, a one-token prompt in front of every turn."""
    trajectory = Trajectory(group, member, seed=group)
    context = []
    for reward in rewards:
        context = [9] if rewritten else [*context, 9]
        turn = Turn(
            "", list(context), Sample([1, 2], [-1.0, -2.0], [0.0, 0.0], False), "", Reply("", True, "", (), True)
        )
        turn.reward = reward
        trajectory.turns.append(turn)
        context = [*context, 1, 2]
    return trajectory


def credit(trajectories, **changes):
    options = {key: changes.pop(key) for key in ("values_BT", "ref_logp_BT", "kept_share") if key in changes}
    batch = make_batch(trajectories, pad_id=0)
    return batch, assign(batch, trajectories, dataclasses.replace(AlgorithmConfig(), **changes), **options)


def chosen(batch, credit_, row):
    return credit_.advantages_BT[row][batch.mask_BT[row].bool()].tolist()


PAIR = [rollout(0, 0, [0.0, 1.0]), rollout(0, 1, [0.0])]


def test_group_relative_credit_covers_all_turns():
    batch, found = credit(PAIR, advantage="dr_grpo")
    assert chosen(batch, found, 0) == [0.5] * 4
    assert chosen(batch, found, 1) == [-0.5] * 2
    assert (found.advantages_BT[batch.mask_BT == 0] == 0).all()


def test_turn_credit_differs_between_turns():
    trio = [rollout(0, 0, [1.0, 0.0]), rollout(0, 1, [0.0, 1.0]), rollout(0, 2, [0.0, 0.0])]
    batch, found = credit(trio, advantage="dr_grpo", credit="turn")
    assert chosen(batch, found, 0) == pytest.approx([1 / 3, 1 / 3, -1 / 3, -1 / 3])
    assert chosen(batch, found, 1) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_a_rewritten_context_gives_one_sample_a_turn_with_the_whole_credit():
    batch, found = credit([rollout(0, 0, [0.0, 1.0], rewritten=True), rollout(0, 1, [0.0])], advantage="dr_grpo")
    assert batch.owner_B.tolist() == [0, 0, 1]
    assert [chosen(batch, found, row) for row in range(3)] == [[0.5, 0.5], [0.5, 0.5], [-0.5, -0.5]]


def test_gae_places_the_return_at_the_end_or_at_each_turn():
    values = torch.zeros(1, 6)
    _, whole = credit([rollout(0, 0, [1.0, 2.0])], advantage="gae", values_BT=values)
    assert whole.returns_BT[0].tolist() == [3.0, 3, 3, 3, 3, 3]
    _, per_turn = credit([rollout(0, 0, [1.0, 2.0])], advantage="gae", credit="turn", values_BT=values)
    assert per_turn.returns_BT[0, 1:].tolist() == [3.0, 3.0, 2.0, 2.0, 2.0]


def test_penalties_are_part_of_the_score():
    pair = [rollout(0, 0, [0.0]), rollout(0, 1, [0.0])]
    pair[0].turns[0].penalty = -0.1
    batch, found = credit(pair, advantage="dr_grpo")
    assert chosen(batch, found, 0) == pytest.approx([-0.05, -0.05])


def test_kl_in_reward_lowers_the_return():
    ref = torch.zeros(2, 6)
    batch, found = credit(PAIR, advantage="dr_grpo", kl_coef=0.1, kl_in="reward", kl_estimator="k1", ref_logp_BT=ref)
    # k1 sums logp - ref: -6 over four tokens, -3 over two; scores 1.6 and 0.3
    assert chosen(batch, found, 0) == pytest.approx([0.65] * 4)
    assert chosen(batch, found, 1) == pytest.approx([-0.65] * 2)


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_filter_loss_scaling(scaling, factor):
    batch, found = credit(PAIR, advantage="dr_grpo", filter_loss_scaling=scaling, kept_share=0.25)
    assert chosen(batch, found, 0) == [0.5 * factor] * 4


def test_zero_task_advantage_and_soft_reweight():
    batch, found = credit(PAIR, zero_task_advantage=True)
    assert not found.advantages_BT.any()
    quiet = [rollout(1, 0, [0.5]), rollout(1, 1, [0.0])]
    batch, found = credit([*PAIR, *quiet], advantage="dr_grpo", soft_reweight=True)
    assert chosen(batch, found, 0) == pytest.approx([0.5] * 4, abs=1e-5)
    assert chosen(batch, found, 2) == pytest.approx([0.125] * 2, abs=1e-5)


def test_turns_remember_their_mean_advantage():
    pair = [rollout(0, 0, [0.0, 1.0]), rollout(0, 1, [0.0])]
    batch, found = credit(pair, advantage="dr_grpo")
    note_advantages(batch, found, pair)
    assert [turn.advantage for turn in pair[0].turns] == [0.5, 0.5]
