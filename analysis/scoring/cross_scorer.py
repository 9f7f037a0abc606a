"""Cross-score matrix: log p(reasoning r | prompt j) for every pair, with the least work. Not for estimates.

What is computed once: every shared prompt prefix, every distinct prompt, every distinct reasoning per prompt. Logits are made
only where a reasoning token is predicted. The numbers are those of scoring each pair as one whole sequence, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from analysis.scoring.cached_lm import CachedLM, Prefix
from analysis.scoring.processes import Processes

Tokens = Sequence[int]
Key = tuple[int, ...]
# Key/value bytes of one layer that a batch of continuations may concatenate at once: on a CPU, what its cache holds.
_KV_BYTES = {"cpu": 1 << 22, "cuda": 1 << 29}


class CrossScorer:
    """Scores reasonings under prompts with one causal language model.

    model: transformers causal LM, or a PEFT or DDP wrapper around one. It is put in evaluation mode while scoring and back after.
    device: moves the model there first; None leaves it where it is.
    token_budget: most tokens in one forward pass.
    temperature: score softmax(logits / temperature), the distribution the reasoning was sampled from.
    """

    def __init__(
        self,
        model: Any,
        *,
        device: str | torch.device | None = None,
        token_budget: int = 8192,
        temperature: float = 1.0,
    ):
        if token_budget < 1:
            raise ValueError(f"token_budget must be at least 1, not {token_budget}")
        self.lm = CachedLM(model if device is None else model.to(device), temperature=temperature)
        self.token_budget = token_budget

    def score(
        self,
        prompts: Sequence[Tokens],
        reasonings: Sequence[Tokens],
        *,
        pairs_RN: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Return float64 (R, N), nats: Σ_t log p(reasoning_r[t] | prompt_j, reasoning_r[:t]).

        prompts: N token-id sequences; reasonings: R token-id sequences, none of either empty.
        pairs_RN: bool (R, N), the pairs to score; the others are nan. None = all.
        progress: called with (scored pairs, pairs to score), counting this process's share only.

        Under torch.distributed the call is collective: every rank must pass the same arguments, scores a share, and gets the
        whole matrix. Raises ValueError for an empty sequence, ModelError for one beyond the model's context.
        """
        columns, column_N = _distinct(prompts, "prompt")
        rows, row_R = _distinct(reasonings, "reasoning")
        wanted_RN = np.ones((len(row_R), len(column_N)), bool) if pairs_RN is None else np.asarray(pairs_RN, bool)
        if wanted_RN.shape != (len(row_R), len(column_N)):
            raise ValueError(f"pairs_RN has shape {wanted_RN.shape}, expected {(len(row_R), len(column_N))}")
        if not columns or not rows:
            return np.full(wanted_RN.shape, np.nan)
        wanted = np.zeros((len(rows), len(columns)), bool)
        np.logical_or.at(wanted, (row_R[:, None], column_N[None, :]), wanted_RN)
        self.lm.check_length(max(map(len, columns)) + max(map(len, rows)))

        processes = Processes()
        processes.require_same((columns, rows, wanted.tobytes()))
        mine = processes.share(wanted, order=sorted(range(len(columns)), key=lambda column: columns[column]))
        scores = np.zeros(wanted.shape)
        done, total = 0, int(mine.sum())
        with self.lm.scoring():
            for column, batch, sums in self._scored(columns, rows, mine):
                scores[batch, column] = sums
                done += len(batch)
                if progress is not None:
                    progress(done, total)
        scores = processes.sum(scores, self.lm.device)
        return np.where(wanted_RN, scores[row_R][:, column_N], np.nan)

    @property
    def _piece(self) -> int:
        return self.lm.most_tokens(self.token_budget)

    def _scored(
        self, columns: list[Key], rows: list[Key], wanted: np.ndarray
    ) -> Iterator[tuple[int, list[int], np.ndarray]]:
        """Yield (column, rows, log-prob sums) in batches; columns in lexicographic order, so neighbours share prefixes."""
        prefix: Prefix | None = None
        for column in sorted(np.flatnonzero(wanted.any(axis=0)).tolist(), key=lambda column: columns[column]):
            members = sorted(np.flatnonzero(wanted[:, column]).tolist(), key=lambda row: len(rows[row]))
            if not self.lm.cacheable:
                for batch in self._packed(members, rows, extra=len(columns[column])):
                    yield column, batch, self._whole(columns[column], [rows[row] for row in batch])
                continue
            prefix, last_state = self._prompt(prefix, columns[column])
            room = _KV_BYTES.get(self.lm.device.type, 1 << 28) // prefix.bytes_per_token
            for batch in self._packed(members, rows, context=len(prefix.ids), room=room):
                yield column, batch, self._continuations(prefix, last_state, [rows[row] for row in batch])

    def _packed(
        self, members: list[int], rows: list[Key], *, extra: int = 0, context: int = 0, room: int | None = None
    ) -> Iterator[list[int]]:
        """Cut length-sorted rows into batches: padded tokens within the budget, context tokens within `room`."""
        batch: list[int] = []
        for row in members:
            count, length = len(batch) + 1, len(rows[row]) + extra
            if batch and (count * length > self._piece or (room is not None and count * (context + length) > room)):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _prompt(self, previous: Prefix | None, prompt: Tokens) -> tuple[Prefix, torch.Tensor]:
        """Cache of `prompt`, reusing what it shares with the previous one, and the state (1, H) that predicts the next token."""
        shared = 0 if previous is None else _common_prefix(previous.ids, prompt)
        # The last token is always run again: its state predicts the first reasoning token.
        kept = min(shared, len(prompt) - 1)
        start = previous.crop(kept) if previous is not None and kept else None
        prefix, states = self.lm.extend(start, prompt[kept:], piece=self._piece, last_only=True)
        return prefix, states

    def _continuations(self, prefix: Prefix, last_state: torch.Tensor, batch: list[Key]) -> np.ndarray:
        """Log-prob sums (B,) of reasonings that follow one cached prompt."""
        lengths = torch.tensor([len(row) for row in batch], device=self.lm.device)
        if len(batch) == 1 and len(batch[0]) > self._piece:
            row = torch.tensor(batch[0], device=self.lm.device)
            _, states = self.lm.extend(prefix, batch[0][:-1], piece=self._piece, last_only=False)
            return self.lm.logprobs(torch.cat([last_state, states]), row).double().sum().cpu().numpy()[None]
        ids_BT = _right_padded(batch, self.lm.device)
        first_B = self.lm.logprobs(last_state.expand(len(batch), -1), ids_BT[:, 0])
        if ids_BT.shape[1] == 1:
            return first_B.double().cpu().numpy()
        # Right padding is invisible to a causal model, so no mask is needed: padded positions are dropped here.
        states_BTH = self.lm.continue_many(prefix, ids_BT[:, :-1])
        real_BT = torch.arange(1, ids_BT.shape[1], device=self.lm.device)[None, :] < lengths[:, None]
        rest = torch.zeros(real_BT.shape, dtype=torch.float64, device=self.lm.device)
        rest[real_BT] = self.lm.logprobs(states_BTH[real_BT], ids_BT[:, 1:][real_BT]).double()
        return (first_B.double() + rest.sum(dim=1)).cpu().numpy()

    def _whole(self, prompt: Tokens, batch: list[Key]) -> np.ndarray:
        """Log-prob sums (B,) from whole sequences, for models whose state cannot be shared."""
        ids_BT = _right_padded([[*prompt, *row] for row in batch], self.lm.device)
        logprobs = self.lm.whole_logprobs(ids_BT).double().cpu().numpy()[:, len(prompt) - 1 :]
        return np.array([logprobs[b, : len(row)].sum() for b, row in enumerate(batch)])


def _distinct(sequences: Sequence[Tokens], what: str) -> tuple[list[Key], np.ndarray]:
    """Distinct sequences in order of first appearance, and which of them each one is."""
    index: dict[tuple[int, ...], int] = {}
    which = []
    for position, sequence in enumerate(sequences):
        key = tuple(int(token) for token in sequence)
        if not key:
            raise ValueError(f"{what} {position} is empty: leave it out before scoring")
        which.append(index.setdefault(key, len(index)))
    return list(index), np.array(which, dtype=np.int64)


def _common_prefix(a: Tokens, b: Tokens) -> int:
    """Length of the longest common prefix."""
    for position, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return position
    return min(len(a), len(b))


def _right_padded(batch: Sequence[Tokens], device: torch.device) -> torch.Tensor:
    """Token ids (B, T), shorter rows padded with 0 on the right."""
    ids = np.zeros((len(batch), max(map(len, batch))), dtype=np.int64)
    for position, row in enumerate(batch):
        ids[position, : len(row)] = row
    return torch.from_numpy(ids).to(device)
