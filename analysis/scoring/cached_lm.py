"""A causal language model whose prompt key/value cache is shared by many continuations. Not for generation, not for gradients.

`CachedLM` hides what differs between transformers models: wrappers (DDP, PEFT), where the body ends and the output head begins,
logit soft-capping, and which models cannot reuse a cache. `cross_scorer.py` decides what to score; this file runs the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from analysis.scoring.grouped_attention import grouped_attention
from ragen_diag.errors import ModelError

_CACHEABLE_LAYERS = {"full_attention", "sliding_attention"}
# One chunk of float32 logits: large enough to keep a GPU busy, small enough for a CPU's cache.
_LOGIT_BYTES = {"cpu": 1 << 22, "cuda": 1 << 28}
# A matrix product of fewer rows wastes the processor; 64 rows of a 152k vocabulary are 39 MB.
_FEWEST_LOGIT_ROWS = 64


class SharedPrefixLayer(DynamicLayer):
    """One layer's keys and values of one prompt, shared by every row of a batch.

    With grow=False the layer forgets what was appended, so only one layer's concatenation is alive at a time.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, *, grow: bool):
        super().__init__()
        self.keys, self.values, self.grow = keys, values, grow
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return prefix + new states for every row of the batch."""
        assert self.keys is not None and self.values is not None
        rows = key_states.shape[0]
        keys = torch.cat([self.keys.expand(rows, -1, -1, -1), key_states], dim=-2)
        values = torch.cat([self.values.expand(rows, -1, -1, -1), value_states], dim=-2)
        if self.grow:
            self.keys, self.values = keys, values
        return keys, values


@dataclass(frozen=True, slots=True)
class Prefix:
    """Key/value cache of one token sequence (batch 1)."""

    ids: tuple[int, ...]
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def crop(self, length: int) -> Prefix:
        """The cache of the first `length` tokens; shares memory with this one."""
        return Prefix(self.ids[:length], tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers))

    def cache(self, *, grow: bool) -> Cache:
        """A transformers cache that starts with this prefix."""
        return Cache(layers=[SharedPrefixLayer(k, v, grow=grow) for k, v in self.layers])

    @property
    def bytes_per_token(self) -> int:
        """Key and value bytes of one token in one layer."""
        keys, values = self.layers[0]
        return (keys.shape[1] * keys.shape[3] + values.shape[1] * values.shape[3]) * keys.element_size()


class CachedLM:
    """Runs a causal LM on continuations of cached prefixes and returns log-probs of given tokens.

    model: any transformers causal LM, or a PEFT or DDP wrapper around one; weights stay where they are.
    temperature: the log-probs are those of softmax(logits / temperature).
    """

    def __init__(self, model: Any, *, temperature: float = 1.0):
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, not {temperature}")
        self.model = model.module if hasattr(model, "module") else model
        self.temperature = temperature
        prompt_learning = bool(getattr(getattr(self.model, "active_peft_config", None), "is_prompt_learning", False))
        causal_lm = (
            self.model if prompt_learning or not hasattr(self.model, "peft_config") else _inside_peft(self.model)
        )
        self.config = causal_lm.config.get_text_config(decoder=True)
        self.device = next(causal_lm.parameters()).device
        self.cacheable = not prompt_learning and can_share_a_cache(causal_lm, self.config)
        self._causal_lm = causal_lm
        self._body_and_head: tuple[Any, Any] | None = None
        self._head_checked = not self.cacheable

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Evaluation mode without gradients; every module's training flag is put back on exit."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with torch.inference_mode(), grouped_attention(self._causal_lm):
                if self.cacheable and not self._head_checked:
                    self._body_and_head, self._head_checked = _body_and_head(self._causal_lm, self.device), True
                yield
        finally:
            for module in training:
                module.training = True

    def most_tokens(self, token_budget: int) -> int:
        """Tokens one forward pass may hold: fewer than the budget when every one of them brings a row of logits along."""
        return token_budget if self._body_and_head is not None else min(token_budget, 4 * self._logit_rows)

    @property
    def _logit_rows(self) -> int:
        return max(_FEWEST_LOGIT_ROWS, _LOGIT_BYTES.get(self.device.type, 1 << 26) // (4 * self.config.vocab_size))

    def check_length(self, longest: int) -> None:
        """Raise ModelError when a prompt and a reasoning together exceed the model's positions."""
        limit = getattr(self.config, "max_position_embeddings", None)
        if limit is not None and longest > limit:
            raise ModelError(
                f"the longest prompt and reasoning together have {longest} tokens, but the scorer takes at most {limit}. "
                "Leave the longest turns out, or score with a model of longer context."
            )

    def extend(
        self, prefix: Prefix | None, ids: Sequence[int], *, piece: int, last_only: bool
    ) -> tuple[Prefix, torch.Tensor]:
        """Append tokens to a prefix, at most `piece` per forward pass.

        Returns the longer prefix and the states of the appended tokens, (len(ids), H), or of the last alone, (1, H).
        """
        cache = DynamicCache() if prefix is None else prefix.cache(grow=True)
        states: list[torch.Tensor] = []
        for start in range(0, len(ids), piece):
            ids_1T = torch.tensor([ids[start : start + piece]], device=self.device)
            new = self._states(ids_1T, cache)[0]
            states = [new[-1:]] if last_only else [*states, new]
        return Prefix((prefix.ids if prefix else ()) + tuple(ids), _keys_and_values(cache)), torch.cat(states)

    def continue_many(self, prefix: Prefix, ids_BT: torch.Tensor) -> torch.Tensor:
        """States (B, T, H) of B right-padded continuations of one prefix; the prefix is left as it was."""
        return self._states(ids_BT, prefix.cache(grow=False))

    def logprobs(self, states_MH: torch.Tensor, next_M: torch.Tensor) -> torch.Tensor:
        """Float32 log-prob (M,) of the token that follows each state, in chunks of bounded logits."""
        head = self._body_and_head[1] if self._body_and_head is not None else torch.nn.Identity()
        parts = []
        for start in range(0, len(next_M), self._logit_rows):
            chunk = slice(start, start + self._logit_rows)
            logits = head(states_MH[chunk]).float()
            if self.temperature != 1.0:
                logits = logits / self.temperature
            parts.append(-torch.nn.functional.cross_entropy(logits, next_M[chunk], reduction="none"))
        return torch.cat(parts)

    def whole_logprobs(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Float32 log-probs (B, T-1) of tokens 1.. of whole right-padded sequences, without any cache."""
        output = self.model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), use_cache=False).logits
        # Prompt learning puts virtual tokens in front: count from the end.
        logits = output[:, output.shape[1] - ids_BT.shape[1] : -1]
        return self.logprobs(logits.reshape(-1, logits.shape[-1]), ids_BT[:, 1:].reshape(-1)).view(len(ids_BT), -1)

    def _states(self, ids_BT: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Hidden states when the head can be applied to them apart from the body, logits otherwise."""
        if self._body_and_head is None:
            return self._causal_lm(input_ids=ids_BT, past_key_values=cache, use_cache=True).logits
        return self._body_and_head[0](input_ids=ids_BT, past_key_values=cache, use_cache=True).last_hidden_state


def _keys_and_values(cache: Cache) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Tensors (1, heads, length, size) of every layer."""
    pairs = []
    for layer in cache.layers:
        assert isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None
        pairs.append((layer.keys, layer.values))
    return tuple(pairs)


def _inside_peft(model: Any) -> Any:
    """The causal LM inside a PEFT model; its injected adapter layers stay active."""
    return model.get_base_model()


def can_share_a_cache(causal_lm: Any, config: Any) -> bool:
    """Recurrent and chunked layers keep a state that cannot be cut back to a shared prefix."""
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    return not getattr(causal_lm, "_is_stateful", False) and layer_types <= _CACHEABLE_LAYERS


def _body_and_head(causal_lm: Any, device: torch.device) -> tuple[Any, Any] | None:
    """Split a causal LM in body and output head when head(body(x)) is its logits; None when it is not (soft-capping, scaling)."""
    ids_1T = torch.arange(min(8, causal_lm.get_input_embeddings().weight.shape[0]), device=device)[None]
    body, head = getattr(causal_lm, causal_lm.base_model_prefix, None), causal_lm.get_output_embeddings()
    if body is None or head is None or body is causal_lm:
        return None
    expected = causal_lm(input_ids=ids_1T, use_cache=False).logits.float()
    states = body(input_ids=ids_1T, use_cache=False)
    if not hasattr(states, "last_hidden_state"):
        return None
    found = head(states.last_hidden_state).float()
    same = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
    return (body, head) if same else None
