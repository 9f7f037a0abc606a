"""Samples end to end in one row instead of padded to the longest: fewer tokens through the network, the same numbers.

A row is (1, tokens), so that every attention implementation serves it: flash attention reads the bounds of the sequences
from restarting positions in batches of one only (transformers' `_is_packed_sequence`), SDPA, eager and flex build a block-
diagonal mask from them (`masking_utils.find_packed_sequence_indices`). Not for padded samples (`batch.py`).
"""

from __future__ import annotations

import numpy as np
import torch

from ragen_diag.errors import ModelError
from trainer.batch import Batch
from trainer.layout import ROUNDING, Layout, difference, positions
from trainer.policy import SplitLM

PROBE_TOKENS = (7, 9)
"""Lengths of the two sequences that a model is tried with."""
LEAK_ROUNDING = (1e-5, 1e-3)
"""`ROUNDING` between two packs that differ in the other sequence only. Exactly 0 with masked attention, but experts round."""


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


def packed(batch: Batch, rows: np.ndarray) -> Layout:
    """Some samples end to end."""
    real_BT = batch.attention_BT[rows].bool()
    ids, mask, places = batch.ids_BT[rows], batch.mask_BT[rows], positions(batch.ids_BT[rows])
    return Layout(ids[real_BT][None], places[real_BT][None], None, mask[real_BT][None])


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
    restarting = torch.cat([positions(first), positions(second)], dim=1)
    together, behind_other = (
        lm.states(torch.cat([before, second], dim=1), attention_mask=None, position_ids=restarting)
        for before in (first, other)
    )
    apart = torch.cat(
        [lm.states(ids, attention_mask=torch.ones_like(ids), position_ids=positions(ids)) for ids in (first, second)],
        dim=1,
    )
    half = int(apart.dtype != torch.float32)
    for found, expected, limit in (
        (together, apart, ROUNDING[half]),
        (behind_other[:, n_first:], together[:, n_first:], LEAK_ROUNDING[half]),
    ):
        share = difference(found, expected)
        if not share <= limit:  # also when it is nan
            raise ModelError(
                f"optim.pack_tokens: a sequence's states change by {share:.1e} of their norm behind another one in its "
                f"row ({lm.causal_lm.config.model_type}, attention {lm.causal_lm.config._attn_implementation!r}; rounding is "
                f"up to {limit:.0e}): this model would mix packed samples. Set optim.pack_tokens=0."
            )
