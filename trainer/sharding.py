"""Weights, gradients and optimizer state of the update in shards over the processes (torch's FSDP2): `runtime.fsdp`.

Rollouts, scoring, diagnosis and checkpoints use the policy whole, as everywhere else: the processes sample different numbers
of tokens, so they cannot gather layers in step. While the shards are trained the whole weights are given up, and gathered
again afterwards. Not through Accelerate's FSDP, which wraps the one model there is, and is silently off on CPU.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.policy import Policy


class Shards:
    """A policy's sharded twin. Every method is collective: all processes call it, or none."""

    def __init__(self, policy: Policy, accelerator: Accelerator) -> None:
        """Needs memory for a second copy of the weights until it returns."""
        self.policy = policy
        self.module: Policy = copy.deepcopy(policy).to(accelerator.device)
        mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
        for group in [*_groups(self.module), self.module]:
            fully_shard(group, mesh=mesh)
        # It is about in-place operations on what the policy returns; there are none.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")

    @contextmanager
    def training(self) -> Iterator[None]:
        """Without the whole weights inside, with the trained ones after. Not after an error: others would wait in vain."""
        for parameter in self.policy.parameters():
            parameter.data = parameter.data.new_empty(0)
        yield
        for parameter, shard in zip(self.policy.parameters(), self.module.parameters(), strict=True):
            parameter.data = _whole(shard.detach())

    @torch.no_grad()
    def follow(self) -> None:
        """Take over the whole policy's weights, after they were loaded."""
        for parameter, shard in zip(self.policy.parameters(), self.module.parameters(), strict=True):
            shard.copy_(_like(shard, parameter))


def _groups(policy: Policy) -> list[nn.Module]:
    """What is gathered at a time: each transformer block, and heads of another type than the weights, as FSDP asks."""
    blocks = set(policy.causal_lm._no_split_modules or ())
    heads = [head for name, head in policy.named_children() if name in ("value_head", "quality_head")]
    return [module for module in policy.modules() if type(module).__name__ in blocks] + heads


def whole_optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The optimizer's state as one process would have it, on the CPU."""
    state: dict[str, Any] = optimizer.state_dict()
    entries = {
        index: {
            name: _whole(value).cpu() if isinstance(value, torch.Tensor) else value for name, value in entry.items()
        }
        for index, entry in state["state"].items()
    }
    return {**state, "state": entries}


def load_optimizer_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Put back what `whole_optimizer_state` returned, in shards where the parameters are."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    entries = {
        index: {
            name: _like(parameters[index], value) if value.shape == parameters[index].shape else value
            for name, value in entry.items()
        }
        for index, entry in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": entries})


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value` in the shards of `parameter`; every process has it whole, so nothing is sent."""
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(
        value.detach().to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )
