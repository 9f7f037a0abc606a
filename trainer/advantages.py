"""How much better than expected was it: advantages from rewards. Pure functions of tensors and masks, no model, no configuration.

Shapes: B sequences, T positions. `mask_BT` is 1 on tokens the policy chose; positions between turns (observations) are
0 and are stepped over. Group ids are integers, equal for rollouts of one prompt. Names follow verl v0.6.1
(`core_algos.py`), whose numbers these functions reproduce; where its multi-turn behaviour would lose credit, the
deviation is an argument and said so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over mask == 1; nan over an empty mask."""
    return (values * mask).sum() / mask.sum()


def masked_whiten(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Shift and scale to mean 0 and unbiased variance 1 over the mask; (x - mean) / sqrt(var + 1e-8), zero outside the mask.

    With fewer than two masked tokens there is no variance, and values are returned masked but unchanged.
    """
    n_tokens = mask_BT.sum()
    if n_tokens < 2:
        return values_BT * mask_BT
    mean = masked_mean(values_BT, mask_BT)
    variance = masked_mean((values_BT - mean) ** 2, mask_BT) * n_tokens / (n_tokens - 1)
    return (values_BT - mean) * torch.rsqrt(variance + 1e-8) * mask_BT


def _group_statistics(scores_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, unbiased std (1 for singletons) and size of each element's group, each of shape (B,)."""
    _, index_B = torch.unique(group_B, return_inverse=True)
    n_groups = int(index_B.max()) + 1 if len(index_B) else 0
    size_G = torch.zeros(n_groups, dtype=scores_B.dtype).index_add(0, index_B, torch.ones_like(scores_B))
    mean_G = torch.zeros_like(size_G).index_add(0, index_B, scores_B) / size_G
    squares_G = torch.zeros_like(size_G).index_add(0, index_B, (scores_B - mean_G[index_B]) ** 2)
    std_G = torch.where(size_G > 1, (squares_G / (size_G - 1).clamp(min=1)).sqrt(), torch.ones_like(size_G))
    return mean_G[index_B], std_G[index_B], size_G[index_B]


def grpo(scores_B: Tensor, group_B: Tensor, *, by_std: bool = True, eps: float = 1e-6) -> Tensor:
    """(score - group mean) / (group std + eps), shape (B,); by_std=False is Dr.GRPO.

    A group of one has nothing to be compared with: mean 0 and std 1 are used, as in verl.
    Source: DeepSeekMath, arXiv:2402.03300, sec. 4.1.2; Dr.GRPO, arXiv:2503.20783.
    """
    mean_B, std_B, size_B = _group_statistics(scores_B, group_B)
    centred_B = scores_B - torch.where(size_B > 1, mean_B, torch.zeros_like(mean_B))
    return centred_B / (std_B + eps) if by_std else centred_B


def rloo(scores_B: Tensor, group_B: Tensor) -> Tensor:
    """Score minus the mean of the *other* rollouts of its prompt, shape (B,). A group of one keeps its score.

    Source: arXiv:2402.14740, sec. 3.3.
    """
    mean_B, _, size_B = _group_statistics(scores_B, group_B)
    return torch.where(size_B > 1, (scores_B - mean_B) * size_B / (size_B - 1).clamp(min=1), scores_B)


def reinforce_pp(
    rewards_BT: Tensor, mask_BT: Tensor, *, gamma: float = 1.0, reset_at_gaps: bool = False
) -> tuple[Tensor, Tensor]:
    """REINFORCE++: discounted reward-to-go, whitened over the batch; returns (advantages, returns), both (B, T).

    reset_at_gaps: verl's behaviour, where the return starts afresh at every position outside the mask, so that in a talk of
    several turns only the last turn earns a final reward. The trainer leaves it off: positions outside the mask are stepped over.
    Source: arXiv:2501.03262.
    """
    returns_BT, running_B = torch.zeros_like(rewards_BT), torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        chosen_B = mask_BT[:, t] > 0
        if reset_at_gaps:
            running_B = rewards_BT[:, t] + gamma * running_B
            returns_BT[:, t] = running_B
            running_B = running_B * mask_BT[:, t]
        else:
            running_B = torch.where(chosen_B, rewards_BT[:, t] + gamma * running_B, running_B)
            returns_BT[:, t] = running_B * chosen_B
    return masked_whiten(returns_BT, mask_BT), returns_BT


def gae(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, *, gamma: float = 1.0, lam: float = 1.0, whiten: bool = True
) -> tuple[Tensor, Tensor]:
    """Token-level generalized advantage estimation; returns (advantages, returns), both (B, T), zero advantage outside the mask.

    Positions outside the mask pass the next value and advantage through; a reward placed on one is lost.
    Source: arXiv:1506.02438, eq. 16; masking as in verl v0.6.1.
    """
    advantages_BT = torch.zeros_like(rewards_BT)
    next_value_B, next_advantage_B = torch.zeros_like(rewards_BT[:, 0]), torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
        advantage_B = delta_B + gamma * lam * next_advantage_B
        chosen_B = mask_BT[:, t] > 0
        next_value_B = torch.where(chosen_B, values_BT[:, t], next_value_B)
        next_advantage_B = torch.where(chosen_B, advantage_B, next_advantage_B)
        advantages_BT[:, t] = next_advantage_B
    returns_BT = advantages_BT + values_BT
    return (masked_whiten(advantages_BT, mask_BT) if whiten else advantages_BT * mask_BT), returns_BT


def bi_level_gae(
    rewards_BT: Tensor,
    values_BT: Tensor,
    mask_BT: Tensor,
    turn_end_BT: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    high_level_gamma: float = 0.95,
    whiten: bool = True,
) -> tuple[Tensor, Tensor]:
    """GAE over turns, whose result is the reward of a GAE over the tokens inside each turn; returns (advantages, returns).

    turn_end_BT: 1 on the last chosen token of each turn, whatever its reward (RAGEN takes positions with non-zero
    reward, and so loses turns that earn nothing). At turn ends with rewards r_i and values V_i: delta_i = r_i + g
    V_{i+1} - V_i, A_i = delta_i + g lam A_{i+1}; A_i + V_i then stands in for the reward of the turn's last token,
    after which nothing follows. Source: RAGEN (VAGEN), `core_algos.py` at 20daedc, lines 128-230.
    """
    turn_rewards_BT = rewards_BT.clone()
    for row in range(rewards_BT.shape[0]):
        next_value, next_advantage = rewards_BT.new_zeros(()), rewards_BT.new_zeros(())
        for t in reversed(torch.nonzero(turn_end_BT[row] > 0).flatten().tolist()):
            delta = rewards_BT[row, t] + high_level_gamma * next_value - values_BT[row, t]
            next_advantage = delta + high_level_gamma * lam * next_advantage
            next_value = values_BT[row, t]
            turn_rewards_BT[row, t] = next_advantage + next_value
    advantages_BT = torch.zeros_like(rewards_BT)
    next_value_B, next_advantage_B = torch.zeros_like(rewards_BT[:, 0]), torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        inside_B = (turn_end_BT[:, t] == 0).to(rewards_BT.dtype)  # at a turn end nothing follows
        delta_B = turn_rewards_BT[:, t] + gamma * next_value_B * inside_B - values_BT[:, t]
        advantage_B = delta_B + gamma * lam * next_advantage_B * inside_B
        chosen_B = mask_BT[:, t] > 0
        next_value_B = torch.where(chosen_B, values_BT[:, t], next_value_B)
        next_advantage_B = torch.where(chosen_B, advantage_B, next_advantage_B)
        advantages_BT[:, t] = next_advantage_B
    returns_BT = advantages_BT + values_BT
    return (masked_whiten(advantages_BT, mask_BT) if whiten else advantages_BT * mask_BT), returns_BT


def turn_wise(
    turn_rewards: Sequence[Sequence[float]], group: Sequence[int], *, by_std: bool = True
) -> list[list[float]]:
    """Credit per turn:

    the rewards from a turn on, compared with the same turn of the prompt's other rollouts; one list per rollout.

    A turn that no other rollout of the group reached has no comparison and gets 0.
    """
    to_go = [[sum(rewards[turn:]) for turn in range(len(rewards))] for rewards in turn_rewards]
    credit = [[0.0] * len(rewards) for rewards in turn_rewards]
    for turn in range(max(map(len, to_go), default=0)):
        rows = [row for row, returns in enumerate(to_go) if turn < len(returns)]
        scores_B = torch.tensor([to_go[row][turn] for row in rows], dtype=torch.float64)
        group_B = torch.tensor([group[row] for row in rows])
        _, _, size_B = _group_statistics(scores_B, group_B)
        compared_B = grpo(scores_B, group_B, by_std=by_std) * (size_B > 1)
        for row, value in zip(rows, compared_B.tolist(), strict=True):
            credit[row][turn] = value
    return credit


def soft_reweight(scores_B: Tensor, group_B: Tensor) -> Tensor:
    """Weight of each rollout: its group's reward std over the largest one, shape (B,). Singletons count as std 0."""
    _, std_B, size_B = _group_statistics(scores_B, group_B)
    std_B = std_B * (size_B > 1)
    return std_B / (std_B.max() + 1e-6)
