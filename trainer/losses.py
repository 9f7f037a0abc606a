"""What is minimised:

token losses, KL forms and their aggregation. Pure functions of tensors and masks, no model, no configuration.

A loss is always sum(weights_BT * token_loss_BT), and the weights come from the whole mini-batch: adding up micro-
batches of any size gives the same number and the same gradient. Numbers agree with verl v0.6.1 (`core_algos.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """Per-token results of the clipped objective, each (B, T)."""

    loss: Tensor
    clipped: Tensor
    """1 where the upper clip decided the loss."""
    clipped_dual: Tensor
    """1 where the dual clip decided the loss (negative advantages only)."""


def aggregation_weights(mask_BT: Tensor, mode: str) -> Tensor:
    """Weight of each token, (B, T), zero outside the mask.

    token-mean: 1 / all tokens (PPO, DAPO). seq-mean-token-mean: 1 / (sequences x tokens of its sequence) (GRPO).
    seq-mean-token-sum: 1 / sequences (Dr.GRPO). Sequences without a trained token do not count.
    """
    mask_BT = mask_BT.float()
    len_tokens_B = mask_BT.sum(dim=1, keepdim=True)
    n_sequences = (len_tokens_B > 0).sum().clamp(min=1)
    if mode == "token-mean":
        return mask_BT / mask_BT.sum().clamp(min=1)
    if mode == "seq-mean-token-mean":
        return mask_BT / len_tokens_B.clamp(min=1) / n_sequences
    if mode == "seq-mean-token-sum":
        return mask_BT / n_sequences
    raise ValueError(f"unknown loss aggregation {mode!r}")


def policy_loss(
    logp_BT: Tensor, old_logp_BT: Tensor, advantages_BT: Tensor, *, clip_low: float, clip_high: float, clip_dual: float
) -> PolicyTerms:
    """PPO's clipped objective per token: max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = exp(logp - old).

    clip_dual (c): for A < 0 the loss is at most -A c; 0 is off. Sources: arXiv:1707.06347 eq. 7; dual clip
    arXiv:1912.09729 eq. 5; clip-higher arXiv:2503.14476 sec. 3.1.
    """
    ratio_BT = (logp_BT - old_logp_BT).clamp(-20, 20).exp()
    plain_BT = -advantages_BT * ratio_BT
    bounded_BT = -advantages_BT * ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    loss_BT = torch.maximum(plain_BT, bounded_BT)
    clipped_dual_BT = torch.zeros_like(loss_BT)
    if clip_dual > 0:
        limit_BT = -advantages_BT * clip_dual
        negative_BT = advantages_BT < 0
        clipped_dual_BT = (negative_BT & (loss_BT > limit_BT)).to(loss_BT.dtype)
        loss_BT = torch.where(negative_BT, torch.minimum(loss_BT, limit_BT), loss_BT)
    return PolicyTerms(loss_BT, (bounded_BT > plain_BT).to(loss_BT.dtype), clipped_dual_BT)


def kl_nats(logp_BT: Tensor, ref_logp_BT: Tensor, estimator: str) -> Tensor:
    """Per-token KL(policy || reference) estimate from one sampled token, (B, T), nats.

    k1 = log-ratio (unbiased, any sign), k2 = half its square, k3 = exp(-k1) - 1 + k1 (unbiased, never negative; clamped to 10).
    Source: Schulman, "Approximating KL divergence" (2020); clamps as in verl.
    """
    log_ratio_BT = logp_BT - ref_logp_BT
    if estimator == "k1":
        return log_ratio_BT
    if estimator == "k2":
        return 0.5 * log_ratio_BT**2
    if estimator == "k3":
        inverse_BT = (-log_ratio_BT).clamp(-20, 20)
        return (inverse_BT.exp() - inverse_BT - 1).clamp(-10, 10)
    raise ValueError(f"unknown KL estimator {estimator!r}")


def truncated_importance(logp_BT: Tensor, sampler_logp_BT: Tensor, *, cap: float) -> Tensor:
    """min(trainer's probability / sampler's, cap) per token, (B, T): corrects for a generation backend with other numerics.

    Truncation bounds the variance at the price of a small bias. Source: Ionides, "Truncated Importance Sampling" (2008), used
    on tokens as in verl's `rollout_is`. Ratios that are not known (nan) count as 1.
    """
    return (logp_BT - sampler_logp_BT).clamp(-20, 20).exp().clamp(max=cap).nan_to_num(nan=1.0)


def value_loss(values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, *, clip: float) -> Tensor:
    """Half the squared error of the critic per token, (B, T); the larger of plain and clipped to old +- clip (0 is off)."""
    plain_BT = (values_BT - returns_BT) ** 2
    if clip <= 0:
        return 0.5 * plain_BT
    held_BT = torch.minimum(torch.maximum(values_BT, old_values_BT - clip), old_values_BT + clip)
    return 0.5 * torch.maximum(plain_BT, (held_BT - returns_BT) ** 2)
