"""Prompts that several samples begin with, read once: keys and values of the prompt serve all, and gradients flow back into it.

A group's rollouts begin with one prompt, and all prompts of an environment with one system text, so this is where most of the
tokens of short rollouts are. Not for sampling (`sampling.py` reads a group's prompt once as well).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from analysis.scoring.cached_lm import can_share_a_cache
from trainer.batch import Batch
from trainer.layout import ROUNDING, Layout, Prompts, difference, positions
from trainer.policy import SplitLM

WORTH = 0.1
"""Share of the tokens that must be saved to make up for a second, small pass."""
PROBE_TOKENS = 9


def in_order_of_prompts(batch: Batch, rows: np.ndarray) -> np.ndarray:
    """`rows` with equal beginnings next to each other; of one prompt, the shortest first."""
    lengths_B, first_B = batch.lengths_B.numpy(), _first_chosen(batch.mask_BT)
    ids_BT = batch.ids_BT.numpy()
    return np.array(sorted(rows, key=lambda row: (ids_BT[row, : first_B[row]].tobytes(), lengths_B[row])))


def behind_prompts(batch: Batch, rows: np.ndarray) -> Layout:
    """What follows on the beginnings that cost the fewest tokens in all; padded whole samples where none saves enough."""
    whole = batch.padded(rows)
    # The last token before a chosen one stays behind the prompt: its state predicts the chosen one.
    n_tokens, saved = _cheapest_beginning(whole.ids_BT.numpy(), int(_first_chosen(whole.mask_BT).min()) - 1)
    if saved < WORTH * whole.n_tokens:
        return whole
    ids_DP, of_row_B = torch.unique(whole.ids_BT[:, :n_tokens], dim=0, return_inverse=True)
    ids_BT, positions_BT, mask_BT = (t[:, n_tokens:] for t in (whole.ids_BT, whole.positions_BT, whole.mask_BT))
    return Layout(ids_BT, positions_BT, whole.attention_BT, mask_BT, Prompts(ids_DP, of_row_B))


def _first_chosen(mask_BT: Tensor) -> np.ndarray:
    """Column of each sample's first chosen token."""
    return mask_BT.numpy().argmax(axis=1)


def _cheapest_beginning(ids_BT: np.ndarray, longest: int) -> tuple[int, int]:
    """Length P, at most `longest`, for which D distinct beginnings and B remainders have the fewest tokens; and the tokens saved.

    Those are P (B - D). As long as D does not change, a longer beginning saves more, so only lengths at which rows part come into
    question.
    """
    if longest <= 0:
        return 0, 0
    ordered = ids_BT[np.lexsort(ids_BT[:, :longest].T[::-1])]
    differ = ordered[1:, :longest] != ordered[:-1, :longest]
    part_at = np.where(differ.any(axis=1), differ.argmax(axis=1), longest)
    lengths = np.unique([*part_at, longest])
    n_distinct = 1 + (part_at[:, None] < lengths).sum(axis=0)
    saved = lengths * (len(ids_BT) - n_distinct)
    return int(lengths[saved.argmax()]), int(saved.max())


@torch.no_grad()
def can_share(lm: SplitLM) -> bool:
    """Whether a sequence has the same states behind a cached beginning: not with recurrent layers, for instance."""
    config = lm.causal_lm.config.get_text_config()
    if not can_share_a_cache(lm.causal_lm, config) or getattr(lm.causal_lm, "is_gradient_checkpointing", False):
        return False
    ids_1T = torch.arange(PROBE_TOKENS, device=lm.device)[None] % config.vocab_size
    attention_1T, half = torch.ones_like(ids_1T), PROBE_TOKENS // 2
    positions_1T = positions(ids_1T)
    whole = Layout(ids_1T, positions_1T, attention_1T, attention_1T)
    beginning = Prompts(ids_1T[:, :half], torch.zeros(1, dtype=torch.long, device=lm.device))
    behind = Layout(ids_1T[:, half:], positions_1T[:, half:], attention_1T, attention_1T[:, half:], beginning)
    limit = ROUNDING[int(next(lm.causal_lm.parameters()).dtype not in (torch.float32, torch.float64))]
    return difference(behind.states(lm.states), whole.states(lm.states)[:, half:]) <= limit
