"""Samples end to end in one row instead of padded to the longest: fewer tokens through the network, the same numbers.

A row is (1, tokens), so that every attention implementation serves it: flash attention reads the bounds of the sequences
from restarting positions in batches of one only (transformers' `_is_packed_sequence`), SDPA, eager and flex build a block-
diagonal mask from them (`masking_utils.find_packed_sequence_indices`). Not for padded micro-batches (`update.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ragen_diag.errors import ModelError
from trainer.batch import Batch
from trainer.policy import SplitLM, placement

PROBE_TOKENS = (7, 9)
"""Lengths of the two sequences that a model is tried with."""
APART_LIMITS = (1e-4, 5e-2)
"""Rounding between a sequence in a pack and alone, as a share of its states' norm: float32, half precision. Measured on small
models: under 2e-7 and 1e-3; a trained model is deeper."""
LEAK_LIMITS = (1e-5, 1e-3)
"""The same between two packs that differ in the other sequence only. Exactly 0 with masked attention, but experts round."""


def packs(lengths_B: np.ndarray, rows: np.ndarray, budget: int) -> list[np.ndarray]:
    """`rows` in packs of at most `budget` tokens, by first fit from the longest on; a longer sample is a pack of its own.

    First fit decreasing needs at most 11/9 of the fewest possible packs, plus one (Johnson 1973; Dósa 2007).
    """
    found: list[list[int]] = []
    room: list[int] = []
    for row in rows[np.argsort(-lengths_B[rows], kind="stable")].tolist():
        length = int(lengths_B[row])
        at = next((index for index, left in enumerate(room) if left >= length), len(found))
        if at == len(found):
            found.append([])
            room.append(budget)
        found[at].append(row)
        room[at] -= length
    return [np.array(pack) for pack in found]


def packed_row(batch: Batch, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, segments and mask of some samples, each (1, tokens); segments number the samples from 1."""
    real = batch.attention_BT[rows].bool()
    segments = torch.arange(1, len(rows) + 1)[:, None].expand_as(real)
    return batch.ids_BT[rows][real][None], segments[real][None], batch.mask_BT[rows][real][None]


@torch.no_grad()
def refuse_mixing(lm: SplitLM) -> None:
    """Score two sequences in one row, each apart, and the second behind another first. Raises ModelError on a difference.

    There is one with recurrent layers and convolutions, which carry their state along, and with attention or positions that
    take no notice of position ids.
    """
    n_first, n_second = PROBE_TOKENS
    ids = (
        torch.arange(2 * n_first + n_second, device=lm.device)[None] % lm.causal_lm.config.get_text_config().vocab_size
    )
    first, other, second = ids.split([n_first, n_first, n_second], dim=1)
    numbers = torch.repeat_interleave(torch.tensor([1, 2]), torch.tensor(PROBE_TOKENS)).to(lm.device)[None]

    def states(ids_1T: Tensor, segments_1T: Tensor) -> Tensor:
        return lm.states(ids_1T, **placement(segments_1T))

    together = states(torch.cat([first, second], dim=1), numbers)
    apart = torch.cat([states(ids_1T, torch.ones_like(ids_1T)) for ids_1T in (first, second)], dim=1)
    behind_other = states(torch.cat([other, second], dim=1), numbers)
    half = int(apart.dtype != torch.float32)
    for found, expected, limit in (
        (together, apart, APART_LIMITS[half]),
        (behind_other[:, n_first:], together[:, n_first:], LEAK_LIMITS[half]),
    ):
        difference = float((found - expected).float().norm() / expected.float().norm())
        if not difference <= limit:  # also when it is nan
            raise ModelError(
                f"optim.pack_tokens: a sequence's states change by {difference:.1e} of their norm behind another one in its "
                f"row ({lm.causal_lm.config.model_type}, attention {lm.causal_lm.config._attn_implementation!r}; rounding is "
                f"up to {limit:.0e}): this model would mix packed samples. Set optim.pack_tokens=0."
            )
