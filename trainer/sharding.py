"""Weights, gradients and optimizer state of the update in shards over the processes (torch's FSDP2): `runtime.sharding=fsdp`.

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

from ragen_diag.config import OptimConfig
from trainer.data_parallel import DataParallel, adamw
from trainer.policy import Policy


class Sharded(DataParallel):
    """A policy's sharded twin, which is trained in its place. Needs memory for a second copy of the weights to begin with."""

    in_step = True  # layers are gathered by all

    def __init__(self, policy: Policy, optim: OptimConfig, accelerator: Accelerator) -> None:
        self.accelerator, self.grad_clip, self.policy = accelerator, optim.grad_clip, policy
        self.twin: Policy = copy.deepcopy(policy).to(accelerator.device)
        mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
        for group in [*_groups(self.twin), self.twin]:
            fully_shard(group, mesh=mesh)
        # It is about in-place operations on what the policy returns; there are none.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        self.optimizer = accelerator.prepare(adamw(self.twin, optim))
        # Device and precision only: the shards exchange gradients themselves.
        self.module = accelerator.prepare_model(self.twin, evaluation_mode=True)
        accelerator.prepare_model(policy, evaluation_mode=True)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Without the whole weights inside, with the trained ones after. Not after an error: others would wait in vain."""
        for parameter in self.policy.parameters():
            parameter.data = parameter.data.new_empty(0)
        yield
        for parameter, shard in zip(self.policy.parameters(), self.twin.parameters(), strict=True):
            parameter.data = _whole(shard.detach())

    def optimizer_state(self) -> dict[str, Any]:
        """What a checkpoint holds of the optimizer, whole and on the CPU."""
        state: dict[str, Any] = self.optimizer.state_dict()
        entries = {
            index: {
                name: _whole(value).cpu() if isinstance(value, torch.Tensor) else value for name, value in entry.items()
            }
            for index, entry in state["state"].items()
        }
        return {**state, "state": entries}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Put back what `optimizer_state` returned, and take over the whole policy's weights."""
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        entries = {
            index: {
                name: _like(parameters[index], value) if value.shape == parameters[index].shape else value
                for name, value in entry.items()
            }
            for index, entry in state["state"].items()
        }
        self.optimizer.load_state_dict({**state, "state": entries})
        for parameter, shard in zip(self.policy.parameters(), self.twin.parameters(), strict=True):
            shard.copy_(_like(shard, parameter))


def _groups(policy: Policy) -> list[nn.Module]:
    """What is gathered at a time: each transformer block, and heads of another type than the weights, as FSDP asks."""
    blocks = set(policy.causal_lm._no_split_modules or ())
    heads = [head for name, head in policy.named_children() if name in ("value_head", "quality_head")]
    return [module for module in policy.modules() if type(module).__name__ in blocks] + heads


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value` in the shards of `parameter`; every process has it whole, so nothing is sent."""
    assert isinstance(parameter, DTensor)
    return distribute_tensor(
        value.detach().to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )
