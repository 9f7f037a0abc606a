"""Packed rows against padded ones: same log-probs, values, losses and gradients; and models that would mix samples, refused."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    MambaConfig,
    Qwen2MoeConfig,
    Qwen3Config,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ragen_diag.config import AlgorithmConfig, ModelConfig, OptimConfig
from ragen_diag.errors import ModelError
from trainer import packing
from trainer.batch import Batch
from trainer.credit import Credit
from trainer.loop import train
from trainer.packing import packs, refuse_mixing
from trainer.policy import Policy, SplitLM
from trainer.thinking_gate import QualityTarget
from trainer.update import Scored, Updater

SMALL_MODEL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
ARMS = {
    "grpo-lora": (AlgorithmConfig(kl_coef=0.1, entropy_coef=0.01), "lora"),
    "gae-lora": (AlgorithmConfig(advantage="gae", kl_coef=0.1, thinking_gate=True, entropy_coef=0.01), "lora"),
    "gae-full": (AlgorithmConfig(advantage="gae", kl_coef=0.1, loss_aggregation="token-mean"), "full"),
}


def ragged_batch(seed, n_samples=9, longest=60):
    """Samples of random length, each with two stretches of chosen tokens (turns) after a prompt."""
    rng = np.random.default_rng(seed)
    shape = (n_samples, longest)
    ids_BT = torch.from_numpy(rng.integers(3, 600, shape))
    attention_BT, mask_BT = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for row, length in enumerate(rng.integers(8, longest + 1, n_samples).tolist()):
        attention_BT[row, :length] = 1
        a, b, c = sorted(rng.choice(np.arange(1, length), 3, replace=False).tolist())
        mask_BT[row, a:b] = mask_BT[row, c:length] = 1
    turn_BT, owner_B = torch.where(mask_BT > 0, 0, -1), torch.arange(n_samples)
    old_logp_BT = torch.zeros(shape)
    return Batch(ids_BT, attention_BT, mask_BT, old_logp_BT, turn_BT, mask_BT, owner_B, torch.ones(n_samples))


def updater(arm, *, temperature=1.0, dtype=torch.float32, **optim):
    """An updater whose adapters, value and quality heads are no longer at their neutral start."""
    algorithm, tuning = ARMS[arm]
    config = ModelConfig(tuning=tuning, lora_rank=4)
    critic = algorithm.advantage == "gae"
    policy = Policy(config, seed=0, with_critic=critic, with_reference=True, with_gate=algorithm.thinking_gate)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in sorted(policy.named_parameters()):
            if parameter.requires_grad:
                parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
    sizes = {"mini_batch": 9, "grad_clip": 1e9, **optim}
    return Updater(policy.to(dtype), algorithm, OptimConfig(**sizes), Accelerator(cpu=True), temperature=temperature)


def scored(batch, updater):
    """Credit drawn at random, ratios of a policy that has moved a little, the rest as measured."""
    rng = np.random.default_rng(7)
    moved_BT = torch.from_numpy(rng.normal(0, 0.2, batch.mask_BT.shape)).float() * batch.mask_BT
    batch.old_logp_BT = updater.score(batch, "logp") + moved_BT
    noise_BT = torch.from_numpy(rng.normal(size=batch.mask_BT.shape)).float() * batch.mask_BT
    if updater.algorithm.advantage != "gae":
        return Scored(batch, Credit(noise_BT), None, updater.score(batch, "reference"))
    target = QualityTarget(batch.mask_BT, (noise_BT > 0).float()) if updater.algorithm.thinking_gate else None
    credit = Credit(noise_BT, noise_BT.flip(0) * batch.mask_BT, target)
    return Scored(batch, credit, updater.score(batch, "value"), updater.score(batch, "reference"))


def gradient(updater, given):
    """(metrics, gradient) of one optimizer step on the whole batch."""
    found = []
    updater.engine.optimizer.step = lambda: found.extend(
        (name, p.grad.clone().flatten()) for name, p in updater.policy.named_parameters() if p.grad is not None
    )
    measured = updater.run(given, rng=np.random.default_rng(0))
    return measured, torch.cat([part for _, part in found])


def assert_same_scores(found, expected, batch):
    """Of every network that is there, to 1e-5."""
    critic = ["value"] if expected.policy.with_critic else []
    gate = ["quality"] if expected.policy.quality_head is not None else []
    for what in ["logp", "reference", *critic, *gate]:
        wanted = expected.score(batch, what)
        assert wanted.abs().sum() > 1
        torch.testing.assert_close(found.score(batch, what), wanted, atol=1e-5, rtol=0)


def assert_same_step(found, expected, limit):
    """Two of `gradient`: gradients to a share of their norm, and the metrics."""
    (told, found_gradient), (measured, expected_gradient) = found, expected
    assert expected_gradient.norm() > 1
    assert (found_gradient - expected_gradient).norm() <= limit * expected_gradient.norm()
    for name, value in measured.items():
        assert told[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_samples_are_scored_like_padded_ones(arm, temperature):
    batch = ragged_batch(seed=3)
    padded = updater(arm, temperature=temperature, micro_batch=4)
    packed = updater(arm, temperature=temperature, pack_tokens=128)
    assert sum(len(rows) > 1 for rows in packed.micro_batches(batch, np.arange(9))) >= 2
    assert_same_scores(packed, padded, batch)
    assert not torch.equal(padded.score(batch, "logp"), padded.score(batch, "reference"))
    rows = packed.micro_batches(batch, np.arange(9))[0]
    with torch.no_grad():
        alone = [padded.policy(padded.layout(batch, rows[i : i + 1]), temperature).entropy_N for i in range(len(rows))]
        together = packed.policy(packed.layout(batch, rows), temperature).entropy_N
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=0)


def test_a_score_asks_one_network_only(monkeypatch):
    batch, both = ragged_batch(seed=4), updater("gae-lora")
    expected = {what: both.score(batch, what) for what in ("logp", "value", "quality")}
    monkeypatch.setattr(both.policy, "judge", None)
    assert torch.equal(both.score(batch, "logp"), expected["logp"])
    monkeypatch.undo()
    monkeypatch.setattr(both.policy, "act", None)
    for what in ("value", "quality"):
        assert torch.equal(both.score(batch, what), expected[what])


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(torch.float64, 1e-8), (torch.float32, 3e-6)],  # float32: as far as padded micro-batches of 1 and 9 are apart
    ids=["float64", "float32"],
)
def test_one_step_has_the_gradient_of_padded_samples_whatever_the_budget(arm, dtype, limit):
    batch = ragged_batch(seed=0)
    padded = updater(arm, dtype=dtype, micro_batch=9)
    given = scored(batch, padded)
    expected = gradient(padded, given)
    for budget in (1, 100, 10_000):  # each sample alone, a few together, all in one row
        assert_same_step(gradient(updater(arm, dtype=dtype, pack_tokens=budget), given), expected, limit)


def test_gradient_checkpointing_packs_too(small, tmp_path):
    sizes = ["algorithm.kl_coef=0.01", "optim.mini_batch=4", "model.gradient_checkpointing=true"]
    plain, packed = (
        train(small(*sizes, f"optim.pack_tokens={n}"), tmp_path / str(n), progress=False).metrics for n in (0, 512)
    )
    for mine, theirs in zip(plain, packed, strict=True):
        for name in ("loss", "grad_norm", "kl_nats", "entropy_nats", "reward_mean"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), name


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 100))
def test_packs_hold_every_sample_once_and_keep_to_the_budget(lengths, budget):
    lengths_B, rows = np.array(lengths), np.arange(len(lengths))[::2]
    found = packs(lengths_B, rows, budget)
    assert sorted(np.concatenate(found).tolist()) == rows.tolist()
    assert all(lengths_B[pack].sum() <= budget or len(pack) == 1 for pack in found)
    light = [pack for pack in found if 2 * lengths_B[pack].sum() <= budget]
    assert len(light) <= 1  # two half-empty packs would have been one


def test_first_fit_decreasing_by_hand():
    found = packs(np.array([5, 9, 2, 4, 7, 3]), np.arange(6), budget=10)
    assert [pack.tolist() for pack in found] == [[1], [4, 5], [0, 3], [2]]


def test_a_row_is_the_samples_end_to_end():
    batch = ragged_batch(seed=5, n_samples=3, longest=12)
    row = packing.packed(batch, np.array([2, 0]))
    lengths = batch.lengths_B.tolist()
    assert row.ids_BT[0].tolist() == batch.ids_BT[2, : lengths[2]].tolist() + batch.ids_BT[0, : lengths[0]].tolist()
    assert row.positions_BT[0].tolist() == [*range(lengths[2]), *range(lengths[0])]
    assert row.mask_BT.sum() == batch.mask_BT[[0, 2]].sum()


@pytest.mark.parametrize(
    "config",
    [
        Qwen3Config(**SMALL_MODEL, **HEADS, head_dim=16),
        Gemma3TextConfig(**SMALL_MODEL, **HEADS, head_dim=16, sliding_window=4),
        Qwen2MoeConfig(**SMALL_MODEL, **HEADS, **EXPERTS),
        GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2),
    ],
    ids=lambda config: config.model_type,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_models_that_keep_packed_sequences_apart(config, dtype, attention):
    refuse_mixing(random_lm(config, dtype, attention))


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), torch.float32),  # recurrent state
        (
            Lfm2Config(**SMALL_MODEL, **HEADS, layer_types=["conv", "full_attention"]),
            torch.float32,
        ),  # short convolution
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), torch.float32),  # no position ids
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), torch.bfloat16),
    ],
    ids=["mamba", "lfm2", "bloom", "bloom-bfloat16"],
)
def test_models_that_would_mix_them_are_refused(config, dtype):
    with pytest.raises(ModelError, match=rf"\({config.model_type}, attention.*Set optim.pack_tokens=0"):
        refuse_mixing(random_lm(config, dtype, "eager"))


def test_an_attention_that_takes_no_notice_of_positions_is_refused_at_the_start(small, tmp_path, monkeypatch):
    name = "plain_causal"  # registered without a mask function, so transformers makes it no block-diagonal mask
    ALL_ATTENTION_FUNCTIONS.register(name, ALL_ATTENTION_FUNCTIONS["sdpa"])
    loaded = AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        AutoModelForCausalLM, "from_pretrained", lambda *a, **kw: loaded(*a, **kw, attn_implementation=name)
    )
    with pytest.raises(ModelError, match="would mix packed samples"):
        train(small("optim.pack_tokens=512"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "run.yaml").exists()


def random_lm(config, dtype, attention):
    torch.manual_seed(0)
    return SplitLM(AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval())
