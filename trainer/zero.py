"""DeepSpeed's ZeRO, stages 1 and 2: optimizer state, and at 2 gradients, in shards over the processes, weights whole in each.

`runtime.sharding=zero1` or `zero2`, in a plain data-parallel launch. Not through Accelerate's DeepSpeed, which believes in one process
where there is no GPU. Stage 3 shards the weights as well, which rollouts need whole; `sharding.py` gathers them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ragen_diag.config import OptimConfig
from trainer.data_parallel import DataParallel, adamw
from trainer.policy import Policy

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's state of a parameter, besides its step."""


class Zero(DataParallel):
    """A policy in a DeepSpeed engine, whose weights stay in the policy's own type and place."""

    in_step = True  # stage 2 exchanges gradients in every backward pass

    def __init__(self, policy: Policy, optim: OptimConfig, accelerator: Accelerator, *, stage: int) -> None:
        import deepspeed

        optimizer = adamw(policy, optim)
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._group_sizes = [len(group["params"]) for group in optimizer.param_groups]
        # Losses are shares of a whole mini-batch, and its number of passes varies: DeepSpeed's own counting is off.
        config = {
            "train_batch_size": accelerator.num_processes,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": optim.grad_clip,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 10**9,
        }
        whole = accelerator.prepare_model(policy, evaluation_mode=True)  # device and precision only
        self.module, self.optimizer, _, _ = deepspeed.initialize(
            model=whole, optimizer=optimizer, config=config, dist_init_required=False
        )

    def accumulating(self) -> AbstractContextManager[None]:
        """Around a pass that is not the last before a step: DeepSpeed is told in `backward`."""
        return nullcontext()

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add to the gradients."""
        self.module.set_gradient_accumulation_boundary(last)
        self.module.backward(loss)

    def step(self) -> float:
        """Clip the gradients, step, forget them; returns their norm before clipping."""
        self.module.step()
        return float(self.module.get_global_grad_norm())

    def optimizer_state(self) -> dict[str, Any]:
        """What a checkpoint holds of the optimizer, whole and on the CPU."""
        from deepspeed.utils import safe_get_full_optimizer_state

        numbers = iter(range(len(self.parameters)))
        groups = [
            {**group, "params": [next(numbers) for _ in range(size)]}
            for group, size in zip(self.optimizer.param_groups, self._group_sizes, strict=True)
        ]
        shards = list(self.optimizer.optimizer.state.values())
        if not shards:  # before the first step
            return {"state": {}, "param_groups": groups}
        self._link_state()
        entries = {
            index: {"step": shards[0]["step"].cpu().clone()}  # one each: AdamW counts it up in place
            | {name: safe_get_full_optimizer_state(parameter, name).cpu() for name in MOMENTS}
            for index, parameter in enumerate(self.parameters)
        }
        return {"state": entries, "param_groups": groups}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what `optimizer_state` returned, and take over the policy's weights."""
        from deepspeed.utils import safe_set_full_optimizer_state

        self.optimizer.refresh_fp32_params()
        if not state["state"]:
            return
        self._step_at_rate_0()
        self._link_state()
        for shard in self.optimizer.optimizer.state.values():
            shard["step"].fill_(state["state"][0]["step"])
        for index, parameter in enumerate(self.parameters):
            for name in MOMENTS:
                value = state["state"][index][name].to(parameter.device)
                safe_set_full_optimizer_state(parameter, value, name)

    def _step_at_rate_0(self) -> None:
        """Before the first step, DeepSpeed has no state that could be filled."""
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        nothing = torch.stack([(0.0 * parameter).sum() for parameter in self.parameters]).sum()
        self.backward(nothing, last=True)
        self.step()

    def _link_state(self) -> None:
        """DeepSpeed links parameters and optimizer state once, when the first group has been stepped and the others have none."""
        from deepspeed.utils import lazy_init_hp_params_optimizer_state

        zero = self.optimizer
        for parameters, shard in zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True):
            lazy_init_hp_params_optimizer_state(parameters, shard, zero.optimizer.state)
