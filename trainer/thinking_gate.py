"""The thinking-quality critic of `starpo-s-gated`: its sigmoid scales a turn's advantage by how promising the thinking looks.

A linear head on the critic's states is asked at the first token after a turn's thinking (the last token of the reply when
the thinking was never closed) whether this rollout's return will lie above the batch mean, and is taught by what happened.
Turns whose thinking leads nowhere in particular so move the policy less, whichever way the dice fell. An untrained head says
1/2 everywhere. Not from a paper: RAGEN names the idea and leaves its form open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.batch import Batch
from trainer.parsing import thinking_span
from trainer.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class QualityTarget:
    """Where the head is read and what it should have said, each (B, T)."""

    read_BT: Tensor
    """1 on the token before which the head is read, one a turn"""
    label_BT: Tensor
    """1 where the rollout's return lies above the mean of all, else 0"""


def quality_target(batch: Batch, trajectories: Sequence[Trajectory], tokenizer: Any) -> QualityTarget:
    """Reading positions and labels of a batch's turns."""
    read_BT = torch.zeros_like(batch.mask_BT)
    for row, owner in enumerate(batch.owner_B.tolist()):
        for index in torch.unique(batch.turn_BT[row][batch.turn_BT[row] >= 0]).tolist():
            at = torch.nonzero(batch.turn_BT[row] == index)[:, 0]
            span = thinking_span(trajectories[owner].turns[index].sample.ids, tokenizer)
            read_BT[row, at[-1 if span is None else min(span[1], len(at) - 1)]] = 1
    returns = np.array([trajectory.return_ for trajectory in trajectories])
    above = torch.tensor(returns > returns.mean(), dtype=batch.mask_BT.dtype)
    return QualityTarget(read_BT, above[batch.owner_B][:, None].expand_as(batch.mask_BT) * batch.mask_BT)


def gate(batch: Batch, quality_BT: Tensor, target: QualityTarget) -> Tensor:
    """Sigmoid of each turn's logit on all its tokens, (B, T), zero outside the mask.

    quality_BT: the head's logits for the context before each chosen token.
    """
    gate_BT = torch.zeros_like(batch.mask_BT)
    for row in range(len(batch)):
        for at in torch.nonzero(target.read_BT[row])[:, 0].tolist():
            turn = batch.turn_BT[row] == batch.turn_BT[row, at]
            gate_BT[row][turn] = torch.sigmoid(quality_BT[row, at])
    return gate_BT
