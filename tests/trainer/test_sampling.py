"""The sampler against whole forward passes, and its random streams."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainer.policy import SplitLM
from trainer.sampling import SamplingSettings, TransformersSampler, draw, sampling_logprobs, stream


@pytest.fixture(scope="module")
def lm():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.5,
    )  # fmt: skip
    return SplitLM(LlamaForCausalLM(config).eval())


def whole_logprobs(lm, context, ids, settings):
    logits = lm.causal_lm(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1].float()
    logp = sampling_logprobs(logits, settings)
    return logp.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist(), (
        -(logp.exp() * logp.clamp(min=-1e4)).sum(-1)
    ).tolist()


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(6),
        SamplingSettings(6, temperature=0.7),
        SamplingSettings(6, top_k=3),
        SamplingSettings(6, top_p=0.6),
    ],
)
def test_three_turns_of_ragged_rows_match_whole_forward_passes(lm, settings):
    sampler = TransformersSampler(lm, settings, end_ids=[1], pad_id=0)
    rows, contexts = [0, 1, 2], [[5, 6], [7, 8, 9, 10, 11], [4]]
    streams = [stream(0, row) for row in rows]
    for turn in range(3):
        samples = sampler.sample(rows, contexts, streams)
        for context, sample in zip(contexts, samples, strict=True):
            logprobs, entropies = whole_logprobs(lm, context, sample.ids, settings)
            assert sample.logprobs == pytest.approx(logprobs, abs=1e-4)
            assert sample.entropies == pytest.approx(entropies, abs=1e-4)
            assert sample.cut == (sample.ids[-1] != 1)
            assert 1 not in sample.ids[:-1]
        contexts = [
            context + sample.ids + [2 + turn] * (row + 1)
            for row, context, sample in zip(rows, contexts, samples, strict=True)
        ]
        if turn == 0:  # a row ends
            rows, contexts, streams = rows[1:], contexts[1:], streams[1:]


def test_a_rewritten_context_starts_afresh(lm):
    settings = SamplingSettings(4)
    sampler = TransformersSampler(lm, settings, end_ids=[1], pad_id=0)
    sampler.sample([0], [[5, 6]], [stream(1)])
    sample = sampler.sample([0], [[9, 9, 9]], [stream(2)])[0]
    assert sample.logprobs == pytest.approx(whole_logprobs(lm, [9, 9, 9], sample.ids, settings)[0], abs=1e-4)


def test_a_row_samples_the_same_alone_and_in_company(lm):
    settings = SamplingSettings(8)
    alone = TransformersSampler(lm, settings, end_ids=[1], pad_id=0).sample([3], [[5, 6]], [stream(7, 3)])[0]
    together = TransformersSampler(lm, settings, end_ids=[1], pad_id=0).sample(
        [1, 3], [[9, 9, 9, 9], [5, 6]], [stream(7, 1), stream(7, 3)]
    )[1]
    assert alone.ids == together.ids


def test_members_of_a_group_read_their_prompt_once(lm, monkeypatch):
    """Four rollouts of two ragged prompts, interleaved: two prompts are read, and every later turn matches whole passes."""
    read = []
    states = lm.states
    monkeypatch.setattr(lm, "states", lambda ids, **named: read.append(tuple(ids.shape)) or states(ids, **named))
    settings = SamplingSettings(5)
    sampler = TransformersSampler(lm, settings, end_ids=[1], pad_id=0)
    contexts = [[5, 6], [7, 8, 9, 10], [5, 6], [7, 8, 9, 10]]
    streams = [stream(0, row) for row in range(4)]
    for turn in range(2):
        samples = sampler.sample(range(4), contexts, streams)
        if turn == 0:
            assert read[0] == (2, 4)
            assert len({tuple(sample.ids) for sample in samples}) == 4, "members share the prompt, not the chance"
        for context, sample in zip(contexts, samples, strict=True):
            assert sample.logprobs == pytest.approx(whole_logprobs(lm, context, sample.ids, settings)[0], abs=1e-4)
        contexts = [context + sample.ids + [2] for context, sample in zip(contexts, samples, strict=True)]


def test_streams_differ_by_key_and_repeat():
    assert stream(1, 2).random() == stream(1, 2).random()
    assert len({stream(1, 2).random(), stream(2, 1).random(), stream(1, 3).random()}) == 3


def test_draw_follows_the_distribution():
    logp = torch.tensor([[0.2, 0.0, 0.5, 0.3]]).log().expand(40_000, 4)
    uniform = torch.from_numpy(np.random.default_rng(0).random(40_000))
    counts = torch.bincount(draw(logp, uniform), minlength=4) / 40_000
    torch.testing.assert_close(counts, torch.tensor([0.2, 0.0, 0.5, 0.3]), atol=0.01, rtol=0)


def test_draw_never_takes_an_impossible_token():
    logp = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log().expand(3, 4)
    assert draw(logp, torch.tensor([0.0, 0.5, 1 - 1e-12], dtype=torch.float64)).tolist() == [1, 2, 2]


def test_truncation_literal_values():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    top_k = sampling_logprobs(logits, SamplingSettings(1, top_k=2)).exp()
    torch.testing.assert_close(top_k, torch.tensor([[0.625, 0.375, 0.0]]))
    top_p = sampling_logprobs(logits, SamplingSettings(1, top_p=0.45)).exp()
    torch.testing.assert_close(top_p, torch.tensor([[1.0, 0.0, 0.0]]))
    torch.testing.assert_close(
        sampling_logprobs(logits, SamplingSettings(1, temperature=0.5)).exp(), torch.tensor([[25.0, 9.0, 4.0]]) / 38
    )
