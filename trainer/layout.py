"""How some samples lie in one pass through the networks. Not for which samples pass together (`update.py`).

Three ways give the same numbers: padded to the longest (`batch.py`), end to end in one row (`packing.py`), or behind the prompts
they begin with, each of which is read once (`shared_prompts.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

ROUNDING = (1e-4, 5e-2)
"""What two ways may differ by, as a share of the states' norm: float32, half precision. Measured on small models: under 2e-7 and
1e-3; a trained model is deeper."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """D beginnings of P tokens, all real."""

    ids_DP: Tensor
    of_row_B: Tensor
    """which of them each row goes on from"""


@dataclass(frozen=True, slots=True)
class Layout:
    """B rows of T tokens: whole samples, or what follows on their prompts."""

    ids_BT: Tensor
    positions_BT: Tensor
    """index of each token within its sample"""
    attention_BT: Tensor | None
    """1 on real tokens, behind prompts (B, P + T). None in a packed row: a new sample begins wherever positions do not go on"""
    mask_BT: Tensor
    """1 on the tokens the policy chose; never on the first column"""
    prompts: Prompts | None = None

    @property
    def n_tokens(self) -> int:
        """Tokens that pass, padding included."""
        return self.ids_BT.numel() + (0 if self.prompts is None else self.prompts.ids_DP.numel())

    def to(self, device: torch.device) -> Layout:
        """The same on a device."""
        prompts = self.prompts and Prompts(self.prompts.ids_DP.to(device), self.prompts.of_row_B.to(device))
        attention_BT = None if self.attention_BT is None else self.attention_BT.to(device)
        return Layout(
            self.ids_BT.to(device), self.positions_BT.to(device), attention_BT, self.mask_BT.to(device), prompts
        )

    def states(self, network: Callable[..., Tensor]) -> Tensor:
        """What `network` (`SplitLM.states` or alike) makes of the rows, (B, T, ...), with gradients through the prompts too."""
        cache = None
        if self.prompts is not None:
            cache, ids_DP = DynamicCache(), self.prompts.ids_DP
            network(ids_DP, attention_mask=None, position_ids=positions(ids_DP), cache=cache)
            cache.batch_select_indices(self.prompts.of_row_B)
        return network(self.ids_BT, attention_mask=self.attention_BT, position_ids=self.positions_BT, cache=cache)


def positions(ids_BT: Tensor) -> Tensor:
    """0, 1, 2, … along each row."""
    return torch.arange(ids_BT.shape[1], device=ids_BT.device).expand_as(ids_BT)


def difference(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference as a share of the norm expected."""
    return float((found - expected).float().norm() / expected.float().norm())
