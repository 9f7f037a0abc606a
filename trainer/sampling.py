"""Drawing replies from a causal LM: batched, with a key/value cache kept across turns. Not for prompts or environments.

Every rollout has a random stream of its own, so what it samples depends on neither its neighbours in the batch nor on
how many processes share the work, and a resumed run needs no generator state. Log-probs and entropies are those of the
distribution drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from trainer.policy import SplitLM


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are drawn."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def truncates(self) -> bool:
        """Whether some tokens are ruled out, so that the trainer's own log-probs differ from the sampler's."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(slots=True)
class Sample:
    """One reply."""

    ids: list[int] = field(default_factory=list)
    """Sampled token ids, end token included."""
    logprobs: list[float] = field(default_factory=list)
    """nats"""
    entropies: list[float] = field(default_factory=list)
    """nats, of the full distribution drawn from; empty where the backend does not tell"""
    cut: bool = True
    """The cap came before an end token."""


class Sampler(Protocol):
    """A generation backend. Contexts of one row may only grow between calls for its cache to be of use."""

    def begin(self) -> None:
        """Forget all rows."""

    def sample(
        self, rows: Sequence[int], contexts: Sequence[Sequence[int]], streams: Sequence[np.random.Generator]
    ) -> list[Sample]:
        """One reply for each row; rows that are not asked for are dropped."""
        ...


class GrowingLayer(DynamicLayer):
    """Keys and values in a buffer that doubles, instead of being copied whole at every token."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append and return everything so far."""
        if not self.is_initialized:
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self.length = 0
            self.keys_buffer, self.values_buffer = key_states[:, :, :0], value_states[:, :, :0]
        end = self.length + key_states.shape[2]
        if end > self.keys_buffer.shape[2]:
            self.keys_buffer = self._grown(self.keys_buffer, key_states, 2 * end)
            self.values_buffer = self._grown(self.values_buffer, value_states, 2 * end)
        self.keys_buffer[:, :, self.length : end] = key_states
        self.values_buffer[:, :, self.length : end] = value_states
        self.length = end
        self.keys, self.values = self.keys_buffer[:, :, :end], self.values_buffer[:, :, :end]
        return self.keys, self.values

    def _grown(self, buffer: Tensor, like: Tensor, capacity: int) -> Tensor:
        grown = like.new_empty((*like.shape[:2], capacity, like.shape[3]))
        grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self.keys_buffer, self.values_buffer = self.keys_buffer[indices], self.values_buffer[indices]
        self.keys, self.values = self.keys_buffer[:, :, : self.length], self.values_buffer[:, :, : self.length]


class TransformersSampler:
    """Samples with a transformers causal LM in this process, on its device."""

    def __init__(self, lm: SplitLM, settings: SamplingSettings, *, end_ids: Sequence[int], pad_id: int) -> None:
        self.lm, self.settings, self.pad_id = lm, settings, pad_id
        self.end_ids = frozenset(end_ids)
        self.device = lm.device
        self.begin()

    def begin(self) -> None:
        """Forget all rows."""
        self._rows: list[int] = []
        self._seen: list[list[int]] = []  # ids whose keys and values are in the cache, per row
        self._cache = Cache(layer_class_to_replicate=GrowingLayer)
        self._attend = torch.zeros(
            (0, 0), dtype=torch.long, device=self.device
        )  # (rows, cache columns): 0 marks a hole

    @torch.no_grad()
    def sample(
        self, rows: Sequence[int], contexts: Sequence[Sequence[int]], streams: Sequence[np.random.Generator]
    ) -> list[Sample]:
        """One reply for each row; rows that are not asked for are dropped."""
        self._keep(rows, contexts)
        if any(self._seen):
            fresh = [list(context[len(seen) :]) for context, seen in zip(contexts, self._seen, strict=True)]
            hidden = self._read(fresh)
        else:
            hidden = self._read_distinct(contexts)
        self._seen = [list(context) for context in contexts]
        return self._draw(self.lm.logits(hidden), streams)

    def _read(self, fresh: Sequence[Sequence[int]]) -> Tensor:
        """Bring new ids of every row into the cache: hidden states (rows, hidden) of each row's last one."""
        width = max(map(len, fresh))
        ids = torch.full((len(fresh), width), self.pad_id)
        real = torch.zeros((len(fresh), width), dtype=torch.long)
        for i, row in enumerate(fresh):
            ids[i, : len(row)], real[i, : len(row)] = torch.tensor(row), 1
        hidden = self._forward(ids.to(self.device), real.to(self.device))
        last = real.sum(dim=1).to(self.device) - 1
        return hidden[torch.arange(len(fresh), device=self.device), last]

    def _read_distinct(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """`_read` into an empty cache, each context once: the members of a group begin with the same one."""
        index: dict[tuple[int, ...], int] = {}
        which = torch.tensor([index.setdefault(tuple(context), len(index)) for context in contexts], device=self.device)
        self._attend = self._attend[: len(index)]
        hidden = self._read(list(index))
        if len(index) < len(contexts):
            self._cache.batch_select_indices(which)
            self._attend, hidden = self._attend[which], hidden[which]
        return hidden

    def _draw(self, logits: Tensor, streams: Sequence[np.random.Generator]) -> list[Sample]:
        cap = self.settings.max_tokens
        uniform = torch.from_numpy(np.stack([stream.random(cap) for stream in streams])).to(self.device)  # (rows, cap)
        samples = [Sample() for _ in streams]
        for t in range(cap):
            logp = sampling_logprobs(logits, self.settings)
            token_B = draw(logp, uniform[:, t])
            entropy_B = -(logp.exp() * logp.clamp(min=-1e4)).sum(dim=-1)
            chosen_B = logp.gather(1, token_B[:, None])[:, 0]
            for sample, token, logprob, entropy in zip(
                samples, token_B.tolist(), chosen_B.tolist(), entropy_B.tolist(), strict=True
            ):
                if sample.cut:  # still open
                    sample.ids.append(token)
                    sample.logprobs.append(logprob)
                    sample.entropies.append(entropy)
                    sample.cut = token not in self.end_ids
            open_B = torch.tensor([sample.cut for sample in samples], device=self.device)
            if t == cap - 1 or not bool(open_B.any()):
                return samples  # the last tokens enter the cache with the next context
            ids = torch.where(open_B, token_B, self.pad_id)[:, None]
            logits = self.lm.logits(self._forward(ids, open_B.long()[:, None])[:, 0])
            for seen, sample in zip(self._seen, samples, strict=True):
                if sample.cut:
                    seen.append(sample.ids[-1])
        return samples

    def _keep(self, rows: Sequence[int], contexts: Sequence[Sequence[int]]) -> None:
        """Bring the cache to exactly these rows; start afresh when one of them is unknown or its context was rewritten."""
        at = {row: i for i, row in enumerate(self._rows)}
        extends = all(
            row in at
            and len(context) > len(self._seen[at[row]])
            and list(context[: len(self._seen[at[row]])]) == self._seen[at[row]]
            for row, context in zip(rows, contexts, strict=True)
        )
        if not extends:
            self.begin()
            self._seen = [[] for _ in rows]
            self._attend = torch.zeros((len(rows), 0), dtype=torch.long, device=self.device)
        elif list(rows) != self._rows:
            index = torch.tensor([at[row] for row in rows], device=self.device)
            self._cache.batch_select_indices(index)
            self._attend = self._attend[index]
            self._seen = [self._seen[at[row]] for row in rows]
        self._rows = list(rows)

    def _forward(self, ids: Tensor, real: Tensor) -> Tensor:
        """Hidden states (rows, new columns, hidden) of new tokens; columns with real == 0 become holes nobody attends to."""
        positions = self._attend.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - real
        self._attend = torch.cat([self._attend, real], dim=1)
        return self.lm.states(ids, attention_mask=self._attend, position_ids=positions, cache=self._cache)


def sampling_logprobs(logits: Tensor, settings: SamplingSettings) -> Tensor:
    """Log-probs (rows, vocabulary) of the distribution drawn from: tempered, then restricted by top-k, then by top-p."""
    logp = torch.log_softmax(logits / settings.temperature, dim=-1)
    if settings.top_k > 0:
        kth = logp.topk(min(settings.top_k, logp.shape[-1]), dim=-1).values[:, -1:]
        logp = torch.log_softmax(logp.masked_fill(logp < kth, float("-inf")), dim=-1)
    if settings.top_p < 1:
        ordered, order = logp.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter(1, order, before >= settings.top_p)
        logp = torch.log_softmax(logp.masked_fill(dropped, float("-inf")), dim=-1)
    return logp


def draw(logp: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-CDF sampling: token ids (rows,) for uniform numbers in [0, 1); never a token of probability zero."""
    mass = logp.double().exp().cumsum(dim=-1)
    return torch.searchsorted(mass, (uniform.double() * mass[:, -1])[:, None], right=True)[:, 0].clamp(
        max=logp.shape[-1] - 1
    )


def stream(*key: int) -> np.random.Generator:
    """The random stream of one rollout, a pure function of its key (run seed, prompt seed, member, ...)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
