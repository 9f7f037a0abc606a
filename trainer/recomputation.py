"""Gradient checkpointing of networks in evaluation mode: layers keep no activations and run again in the backward pass.

Transformers checkpoints a layer only while its `training` flag is set, which would put dropout between the policy that is trained
and the one that sampled. Here the flag is up until the layer's own forward begins, and down within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ragen_diag.errors import ModelError


def enable(causal_lm: Any) -> None:
    """Prepare a model for `recomputed`. Raises ModelError when it has no layers that could be."""
    try:
        causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except ValueError as error:
        raise _cannot(causal_lm) from error
    if not _layers(causal_lm):
        raise _cannot(causal_lm)
    for layer in _layers(causal_lm):
        layer.register_forward_pre_hook(_lower)


@contextmanager
def recomputed(network: nn.Module) -> Iterator[None]:
    """One pass through an enabled network that keeps its layers' inputs only; without gradients, or not enabled, a plain pass."""
    layers = _layers(network) if torch.is_grad_enabled() else []
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _layers(network: nn.Module) -> list[nn.Module]:
    return [m for m in network.modules() if isinstance(m, GradientCheckpointingLayer) and m.gradient_checkpointing]


def _lower(layer: nn.Module, _: Any) -> None:
    layer.training = False


def _cannot(causal_lm: Any) -> ModelError:
    return ModelError(
        f"model.gradient_checkpointing: {causal_lm.config.model_type} has no layers that transformers can checkpoint. "
        "Set it to false; a smaller optim.micro_batch saves memory as well."
    )
