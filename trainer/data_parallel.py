"""Backward passes and optimizer steps of the update, over the processes. Not for losses (`update.py`).

`runtime.sharding` chooses: every process holds everything (here), shares of gradients and optimizer state (`zero.py`), or of the
weights as well (`sharding.py`). Checkpoints hold the optimizer's state as one process would have it, whatever the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ragen_diag.config import OptimConfig
from trainer.policy import Policy


class DataParallel:
    """Each process sees a share of the samples, and gradients are averaged. Every method is collective: all call it, or none."""

    in_step = False
    """Whether all processes must make the same number of passes through the networks."""

    def __init__(self, policy: Policy, optim: OptimConfig, accelerator: Accelerator) -> None:
        self.accelerator, self.grad_clip = accelerator, optim.grad_clip
        self.optimizer: Any = accelerator.prepare(adamw(policy, optim))
        self.module: Any = accelerator.prepare_model(policy)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Around all passes and steps of an update."""
        yield

    def accumulating(self) -> AbstractContextManager[None]:
        """Around a pass, forward and backward, that is not the last before a step."""
        return self.accelerator.no_sync(self.module)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add to the gradients."""
        self.accelerator.backward(loss)

    def step(self) -> float:
        """Clip the gradients, step, forget them; returns their norm before clipping."""
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), self.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def optimizer_state(self) -> dict[str, Any]:
        """What a checkpoint holds of the optimizer."""
        return dict(self.optimizer.state_dict())

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, after its weights were loaded into the policy."""
        self.optimizer.load_state_dict(state)


def adamw(policy: Policy, optim: OptimConfig) -> torch.optim.AdamW:
    """The optimizer of the trained parameters, in groups with peak learning rates."""
    groups = policy.parameter_groups(lr=optim.lr, critic_lr=optim.critic_lr)
    return torch.optim.AdamW(groups, weight_decay=optim.weight_decay)
