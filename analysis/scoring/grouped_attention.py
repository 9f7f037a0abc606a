"""Scaled dot-product attention that leaves grouped keys and values grouped on a CPU. Not a new attention: same numbers, fewer copies.

transformers repeats every key and value once per query head of its group before it calls PyTorch's kernel with a mask, as
continuations of a cached prompt need one. PyTorch's CPU kernel reads grouped heads as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "ragen_diag_grouped_sdpa"


@contextmanager
def grouped_attention(causal_lm: Any) -> Iterator[None]:
    """Let a CPU model that attends through PyTorch's `sdpa` use grouped heads; any other model is left as it is."""
    config = causal_lm.config.get_text_config(decoder=True)
    on_cpu = next(causal_lm.parameters()).device.type == "cpu"
    if not on_cpu or getattr(config, "_attn_implementation", None) != "sdpa":
        yield
        return
    AttentionInterface.register(_NAME, _grouped_sdpa)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def _grouped_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention output (batch, length, heads, size) for query (batch, heads, length, size) and grouped key and value."""
    if attention_mask is None or options.get("position_bias") is not None or options.get("dropout"):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=options.get("scaling"), enable_gqa=True
    )
    return output.transpose(1, 2).contiguous(), None
