"""Samples behind the prompts they share against whole ones: same log-probs, values, losses and gradients, for fewer tokens."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_packing import (
    ARMS,
    EXPERTS,
    HEADS,
    SMALL_MODEL,
    assert_same_scores,
    assert_same_step,
    gradient,
    ragged_batch,
    random_lm,
    scored,
    updater,
)
from transformers import BloomConfig, Gemma3TextConfig, GPT2Config, Lfm2Config, MambaConfig, Qwen2MoeConfig, Qwen3Config

from trainer import recomputation
from trainer.shared_prompts import _cheapest_beginning, can_share, in_order_of_prompts

SYSTEM_TOKENS, PROMPT_TOKENS = 12, (20, 23, 31)


def grouped_batch(seed=0, members=3):
    """Three groups whose prompts begin with one system text, their members shuffled."""
    batch = ragged_batch(seed, n_samples=3 * members, longest=70)
    order = np.random.default_rng(seed).permutation(3 * members)
    for place, row in enumerate(order.tolist()):
        group = place // members
        batch.ids_BT[row, :SYSTEM_TOKENS] = 5
        prompt = slice(SYSTEM_TOKENS, PROMPT_TOKENS[group])
        batch.ids_BT[row, prompt] = torch.arange(PROMPT_TOKENS[group])[prompt] + 10 * (group + 1)
        batch.mask_BT[row] = 0
        batch.mask_BT[row, PROMPT_TOKENS[group] : 35 + place] = 1
        batch.mask_BT[row, 40 + place : 50 + place] = 1
        batch.attention_BT[row] = (torch.arange(70) < 50 + place).long()
    return batch


def alone(arm, **optim):
    """An updater that shares nothing."""
    whole = updater(arm, **optim)
    whole.shares_prompts = False
    return whole


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_those_of_whole_samples(arm, temperature):
    batch = grouped_batch()
    whole, sharing = (make(arm, temperature=temperature, micro_batch=4) for make in (alone, updater))
    layouts = [sharing.layout(batch, part) for part in sharing.micro_batches(batch, np.arange(9))]
    assert sum(layout.prompts is not None for layout in layouts) >= 2
    assert_same_scores(sharing, whole, batch)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(torch.float64, 1e-7), (torch.float32, 3e-6)],  # norms and logits are in float32 whatever the weights
    ids=["float64", "float32"],
)
def test_one_step_has_the_gradient_of_whole_samples(arm, dtype, limit):
    batch = grouped_batch(seed=1)
    whole = alone(arm, dtype=dtype, micro_batch=9)
    told = scored(batch, whole)
    expected = gradient(whole, told)
    for micro_batch in (2, 4, 9):
        assert_same_step(gradient(updater(arm, dtype=dtype, micro_batch=micro_batch), told), expected, limit)


def test_what_is_read_once_by_hand():
    batch, sharing = grouped_batch(members=4), updater("grpo-lora", micro_batch=4)
    parts = sharing.micro_batches(batch, np.arange(12))
    layouts = [sharing.layout(batch, part) for part in parts]
    # A group a micro-batch: its prompt but for the last token once, then up to 61 - 19 tokens of four replies, and so on.
    widths = [int(batch.lengths_B[part].max()) for part in parts]
    sizes = [tuple(layout.prompts.ids_DP.shape) for layout in layouts]
    assert sorted(sizes) == [(1, 19), (1, 22), (1, 30)]
    assert [layout.n_tokens for layout in layouts] == [
        p + 4 * (width - p) for (_, p), width in zip(sizes, widths, strict=True)
    ]
    mixed = sharing.layout(batch, np.array([part[0] for part in parts]))
    assert tuple(mixed.prompts.ids_DP.shape) == (1, SYSTEM_TOKENS)  # three prompts, one system text
    assert sharing.layout(batch, parts[0][:1]).prompts is None


def test_samples_without_a_common_beginning_stay_whole_and_in_order_of_length():
    batch, sharing = ragged_batch(seed=2), updater("grpo-lora", micro_batch=4)
    assert all(sharing.layout(batch, part).prompts is None for part in sharing.micro_batches(batch, np.arange(9)))
    lengths = batch.lengths_B.numpy()
    assert (
        np.concatenate(sharing.micro_batches(batch, np.arange(9))).tolist() == lengths.argsort(kind="stable").tolist()
    )


def test_equal_prompts_are_neighbours_and_of_one_prompt_the_shortest_is_first():
    batch = grouped_batch(seed=3, members=4)
    ordered = in_order_of_prompts(batch, np.arange(12))
    assert sorted(ordered.tolist()) == list(range(12))
    of = [int(batch.ids_BT[row, SYSTEM_TOKENS]) for row in ordered]
    assert len(set(of[:4])) == len(set(of[4:8])) == len(set(of[8:])) == 1
    lengths = batch.lengths_B[ordered].tolist()
    assert all(lengths[start : start + 4] == sorted(lengths[start : start + 4]) for start in (0, 4, 8))


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=7, max_size=7), min_size=1, max_size=8),
    st.integers(-1, 7),
)
def test_the_cheapest_beginning_is_that_of_a_search_over_all(rows, longest):
    ids_BT = np.array(rows)
    n_tokens, saved = _cheapest_beginning(ids_BT, longest)
    savings = [p * (len(rows) - len({tuple(row[:p]) for row in rows})) for p in range(max(longest, 0) + 1)]
    assert saved == max(savings) == savings[n_tokens]


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        (Qwen3Config(**SMALL_MODEL, **HEADS, head_dim=16), True),
        (Gemma3TextConfig(**SMALL_MODEL, **HEADS, head_dim=16, sliding_window=4), True),
        (Qwen2MoeConfig(**SMALL_MODEL, **HEADS, **EXPERTS), True),
        (GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2), True),
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), True),
        (MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), False),
        (Lfm2Config(**SMALL_MODEL, **HEADS, layer_types=["conv", "full_attention"]), False),
    ],
    ids=lambda config: getattr(config, "model_type", None),
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_models_whose_prompts_can_be_shared(config, shares, attention):
    if attention == "sdpa" and config.model_type in ("bloom", "mamba"):
        pytest.skip("has no such attention")
    assert can_share(random_lm(config, torch.float32, attention)) == shares


def test_layers_that_run_again_in_the_backward_pass_share_nothing():
    """They would append to the prompt's cache a second time."""
    lm = random_lm(Qwen3Config(**SMALL_MODEL, **HEADS, head_dim=16), torch.float32, "sdpa")
    recomputation.enable(lm.causal_lm)
    assert not can_share(lm)


def test_a_cache_that_changes_the_states_is_noticed():
    lm = random_lm(Qwen3Config(**SMALL_MODEL, **HEADS, head_dim=16), torch.float32, "eager")
    states = lm.states
    lm.states = lambda ids, **inputs: states(ids, **{**inputs, "cache": None, "attention_mask": None})
    assert not can_share(lm)
