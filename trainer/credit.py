"""From returns to per-token advantages: which rule of `advantages.py` the configuration asks for, on a batch of rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen_diag.config import AlgorithmConfig
from trainer import advantages
from trainer.batch import Batch
from trainer.losses import kl_nats
from trainer.thinking_gate import QualityTarget
from trainer.trajectory import Trajectory

CRITIC_RULES = ("gae", "bi_level_gae")


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages (B, T), zero outside the mask, and the critic's targets (B, T), None without one."""

    advantages_BT: Tensor
    returns_BT: Tensor | None = None
    quality: QualityTarget | None = None
    """What the thinking-quality critic is taught; None without the gate."""


def assign(
    batch: Batch,
    trajectories: Sequence[Trajectory],
    config: AlgorithmConfig,
    *,
    values_BT: Tensor | None = None,
    ref_logp_BT: Tensor | None = None,
    kept_share: float = 1.0,
) -> Credit:
    """Advantages of every chosen token. values_BT: needed by gae and bi_level_gae; ref_logp_BT: by kl_in=reward."""
    penalty_BT = torch.zeros_like(batch.mask_BT)
    if ref_logp_BT is not None and config.kl_coef > 0 and config.kl_in == "reward":
        penalty_BT = config.kl_coef * kl_nats(batch.old_logp_BT, ref_logp_BT, config.kl_estimator) * batch.mask_BT
    if config.advantage in (*CRITIC_RULES, "reinforce_pp"):
        credit = _from_token_rewards(batch, _token_rewards(batch, trajectories, config) - penalty_BT, values_BT, config)
    else:
        credit = Credit(_group_relative(batch, trajectories, config, penalty_BT))
    scale = {"none": 1.0, "linear": kept_share, "sqrt": kept_share**0.5}[config.filter_loss_scaling]
    if config.zero_task_advantage:
        scale = 0.0
    advantages_BT = credit.advantages_BT * scale
    if config.soft_reweight:
        weight_B = advantages.soft_reweight(_returns(trajectories), _groups(trajectories)).float()
        advantages_BT = advantages_BT * weight_B[batch.owner_B][:, None]
    return Credit(advantages_BT, credit.returns_BT)


def note_advantages(batch: Batch, credit: Credit, trajectories: Sequence[Trajectory]) -> None:
    """Store each turn's mean advantage with the turn, for the log."""
    for row, owner in enumerate(batch.owner_B.tolist()):
        turn_T = batch.turn_BT[row]
        for index in torch.unique(turn_T[turn_T >= 0]).tolist():
            trajectories[owner].turns[index].advantage = float(credit.advantages_BT[row][turn_T == index].mean())


def _returns(trajectories: Sequence[Trajectory]) -> Tensor:
    return torch.tensor([trajectory.return_ for trajectory in trajectories], dtype=torch.float64)


def _groups(trajectories: Sequence[Trajectory]) -> Tensor:
    return torch.tensor([trajectory.group for trajectory in trajectories])


def _group_relative(
    batch: Batch, trajectories: Sequence[Trajectory], config: AlgorithmConfig, penalty_BT: Tensor
) -> Tensor:
    by_std = config.advantage == "grpo"
    if config.credit == "turn":
        rewards = [[turn.score for turn in trajectory.turns] for trajectory in trajectories]
        for row, owner in enumerate(batch.owner_B.tolist()):
            for index in range(len(rewards[owner])):
                rewards[owner][index] -= float(penalty_BT[row][batch.turn_BT[row] == index].sum())
        credit = advantages.turn_wise(rewards, [trajectory.group for trajectory in trajectories], by_std=by_std)
        width = max(map(len, credit))
        table = torch.tensor([row + [0.0] * (width - len(row)) for row in credit])
        return table[batch.owner_B].gather(1, batch.turn_BT.clamp(min=0)) * batch.mask_BT
    kl_B = torch.zeros(len(trajectories), dtype=torch.float64).index_add(
        0, batch.owner_B, penalty_BT.sum(dim=1).double()
    )
    scores_B, group_B = _returns(trajectories) - kl_B, _groups(trajectories)
    credit_B = (
        advantages.rloo(scores_B, group_B)
        if config.advantage == "rloo"
        else advantages.grpo(scores_B, group_B, by_std=by_std)
    )
    return credit_B.float()[batch.owner_B][:, None] * batch.mask_BT


def _token_rewards(batch: Batch, trajectories: Sequence[Trajectory], config: AlgorithmConfig) -> Tensor:
    """Rewards at turn ends, (B, T): each turn's own, or the whole return at the end of the sample.

    A sample that does not hold the rest of its rollout (rewritten contexts) gets the sum of what is still to come at its end.
    """
    rewards_BT = torch.zeros_like(batch.mask_BT)
    per_turn = config.credit == "turn" or config.advantage == "bi_level_gae"
    for row, owner in enumerate(batch.owner_B.tolist()):
        earned = [turn.score for turn in trajectories[owner].turns]
        ends = torch.nonzero(batch.turn_end_BT[row]).flatten().tolist()
        last_turn = int(batch.turn_BT[row, ends[-1]])
        if per_turn:
            for end in ends:
                rewards_BT[row, end] = earned[int(batch.turn_BT[row, end])]
            rewards_BT[row, ends[-1]] += sum(earned[last_turn + 1 :])
        else:
            rewards_BT[row, ends[-1]] = sum(earned)
    return rewards_BT


def _from_token_rewards(batch: Batch, rewards_BT: Tensor, values_BT: Tensor | None, config: AlgorithmConfig) -> Credit:
    if config.advantage == "reinforce_pp":
        return Credit(advantages.reinforce_pp(rewards_BT, batch.mask_BT, gamma=config.gamma)[0])
    assert values_BT is not None, "the loop passes the critic's values for every rule in CRITIC_RULES"
    if config.advantage == "gae":
        return Credit(*advantages.gae(rewards_BT, values_BT, batch.mask_BT, gamma=config.gamma, lam=config.lam))
    return Credit(
        *advantages.bi_level_gae(
            rewards_BT,
            values_BT,
            batch.mask_BT,
            batch.turn_end_BT,
            gamma=config.gamma,
            lam=config.lam,
            high_level_gamma=config.high_level_gamma,
        )
    )
