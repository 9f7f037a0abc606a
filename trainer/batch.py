"""Rollouts as padded tensors to train on. Not for credit (`credit.py`) or updates (`update.py`).

A sample is one token sequence with the tokens the policy chose in it. As long as a turn's prompt continues the turn
before, id for id, they share a sample (`full` context: one sample per rollout); a rewritten prompt (`window`,
`single_turn`) starts a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.layout import Layout, positions
from trainer.trajectory import Trajectory, Turn


@dataclass(slots=True)
class Batch:
    """B samples of at most T tokens, right-padded. mask_BT is 1 on tokens the policy chose."""

    ids_BT: Tensor
    attention_BT: Tensor
    mask_BT: Tensor
    old_logp_BT: Tensor
    """nats, as sampled; 0 outside the mask"""
    turn_BT: Tensor
    """turn index of each chosen token; -1 elsewhere"""
    turn_end_BT: Tensor
    """1 on the last chosen token of each turn"""
    owner_B: Tensor
    """position of the sample's rollout in the list the batch was made of"""
    fresh_B: Tensor
    """1 where the current policy sampled it, 0 where it is replayed"""

    def __len__(self) -> int:
        return len(self.ids_BT)

    @property
    def lengths_B(self) -> Tensor:
        """Tokens of each sample, prompt included."""
        return self.attention_BT.sum(dim=1)

    def padded(self, rows: np.ndarray) -> Layout:
        """Some samples, padded to the longest of them."""
        width = int(self.lengths_B[rows].max())
        ids_BT, attention_BT, mask_BT = (t[rows, :width] for t in (self.ids_BT, self.attention_BT, self.mask_BT))
        return Layout(ids_BT, positions(ids_BT), attention_BT, mask_BT)

    def spread(self, values_N: Tensor) -> Tensor:
        """Values of the chosen tokens, in row-major order, as (B, T) with zeros elsewhere."""
        spread_BT = torch.zeros(self.mask_BT.shape, dtype=values_N.dtype)
        spread_BT[self.mask_BT.bool()] = values_N
        return spread_BT


def make_batch(trajectories: Sequence[Trajectory], *, pad_id: int) -> Batch:
    """Tensors of all rollouts' samples."""
    samples = [(owner, turns) for owner, trajectory in enumerate(trajectories) for turns in _runs(trajectory)]
    ends = [len(turns[-1][1].prompt_ids) + len(turns[-1][1].sample.ids) for _, turns in samples]
    shape = (len(samples), max(ends, default=0))
    batch = Batch(
        ids_BT=torch.full(shape, pad_id),
        attention_BT=torch.zeros(shape, dtype=torch.long),
        mask_BT=torch.zeros(shape),
        old_logp_BT=torch.zeros(shape),
        turn_BT=torch.full(shape, -1),
        turn_end_BT=torch.zeros(shape),
        owner_B=torch.tensor([owner for owner, _ in samples], dtype=torch.long),
        fresh_B=torch.tensor([float(not trajectories[owner].replayed) for owner, _ in samples]),
    )
    for row, (_, turns) in enumerate(samples):
        last = turns[-1][1]
        batch.ids_BT[row, : ends[row]] = torch.tensor(last.prompt_ids + last.sample.ids)
        batch.attention_BT[row, : ends[row]] = 1
        for index, turn in turns:
            start, end = len(turn.prompt_ids), len(turn.prompt_ids) + len(turn.sample.ids)
            batch.mask_BT[row, start:end] = 1
            batch.old_logp_BT[row, start:end] = torch.tensor(turn.sample.logprobs)
            batch.turn_BT[row, start:end] = index
            batch.turn_end_BT[row, end - 1] = 1
    return batch


def _runs(trajectory: Trajectory) -> list[list[tuple[int, Turn]]]:
    """Turns grouped into samples: (turn index, turn) lists in which each prompt continues the one before."""
    runs: list[list[tuple[int, Turn]]] = []
    for index, turn in enumerate(trajectory.turns):
        before = trajectory.turns[index - 1] if index else None
        so_far = before.prompt_ids + before.sample.ids if before else None
        if so_far is not None and turn.prompt_ids[: len(so_far)] == so_far:
            runs[-1].append((index, turn))
        else:
            runs.append([(index, turn)])
    return runs
