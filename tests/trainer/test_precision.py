"""Memory savers change memory, not what is learnt: gradient checkpointing, micro-batches, bf16; and trackers that are there."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, OPTConfig

from ragen_diag.config import ModelConfig, load_config
from ragen_diag.errors import ConfigError, MissingExtra, ModelError
from trainer import recomputation
from trainer.layout import Layout, positions
from trainer.loop import Trainer, train
from trainer.policy import Policy

SIZES = ["rollout.group_size=4", "rollout.max_turns=1", "optim.mini_batch=8", "algorithm.entropy_coef=0.01"]


def gradient(config, folder):
    """The policy's gradient of the first mini-batch."""
    trainer = Trainer(config, folder)
    trainer.state.step = 1
    trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
    for trajectory in trajectories:
        trajectory.turns[-1].reward = float(trajectory.member)
    found = []
    trainer.updater.engine.optimizer.step = lambda: found.extend(
        p.grad.clone().flatten() for p in trainer.agent.policy.parameters() if p.grad is not None
    )
    trainer._learn(trajectories, 1.0)
    return torch.cat(found)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_gradient_checkpointing_gives_the_same_gradient(small, tmp_path, tuning):
    plain, saved = (
        gradient(small(*SIZES, f"model.tuning={tuning}", f"model.gradient_checkpointing={on}"), tmp_path / on)
        for on in ("false", "true")
    )
    assert plain.norm() > 0
    torch.testing.assert_close(plain, saved, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_gradient_checkpointing_keeps_less_for_the_backward_pass(tuning):
    kept = {
        on: _kept_bytes(Policy(_model(on, tuning), seed=0, with_critic=True, with_reference=False)) for on in (0, 1)
    }
    assert kept[1] < 0.35 * kept[0]  # measured 0.16; what is left is the heads' logits and each layer's input


def _model(checkpointing, tuning):
    return ModelConfig(gradient_checkpointing=bool(checkpointing), tuning=tuning)


def _kept_bytes(policy):
    """Bytes of the activations that a pass of 4 x 200 tokens, 20 of each chosen, keeps for the backward pass."""
    ids_BT = torch.arange(800).view(4, 200) % 600
    mask_BT = (positions(ids_BT) >= 180).float()
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        stats = policy(Layout(ids_BT, positions(ids_BT), torch.ones_like(ids_BT), mask_BT))
    assert stats.logp_N.requires_grad and stats.value_N.requires_grad
    return sum(kept.values())


def test_recomputed_layers_have_no_dropout():
    """OPT's layers drop out by their own flag, which transformers wants up for checkpointing."""
    config = OPTConfig(
        vocab_size=64, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2, dropout=0.5
    )
    torch.manual_seed(0)
    causal_lm = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.arange(20)[None]
    expected = torch.autograd.grad(causal_lm(input_ids=ids).logits.square().sum(), causal_lm.lm_head.weight)[0]
    recomputation.enable(causal_lm)
    with recomputation.recomputed(causal_lm):
        logits = causal_lm(input_ids=ids).logits
    assert not any(module.training for module in causal_lm.modules())
    found = torch.autograd.grad(logits.square().sum(), causal_lm.lm_head.weight)[0]
    torch.testing.assert_close(found, expected)
    assert not any(module.training for module in causal_lm.modules())


def test_a_model_that_cannot_be_checkpointed_is_refused():
    class Plain(torch.nn.Linear):
        config = OPTConfig()

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
            raise ValueError("not supported")

    with pytest.raises(ModelError, match=r"opt has no layers that transformers can checkpoint\. Set it to false"):
        recomputation.enable(Plain(2, 2))


def test_accumulation_over_micro_batches_gives_the_same_gradient(small, tmp_path):
    one, two, eight = (gradient(small(*SIZES, f"optim.micro_batch={n}"), tmp_path / str(n)) for n in (1, 2, 8))
    torch.testing.assert_close(one, eight, atol=1e-6, rtol=0)
    torch.testing.assert_close(two, eight, atol=1e-6, rtol=0)


def test_mixed_precision_trains_and_tells_the_gap(small, tmp_path):
    rows = train(small(*SIZES, "runtime.precision=bf16"), tmp_path / "run", progress=False).metrics
    assert all(0 < row["sampler_trainer_logprob_gap"] < 0.1 for row in rows)
    assert all(math.isfinite(row["loss"]) and row["grad_norm"] > 0 for row in rows)
    assert rows[0]["policy_shift_kl_nats"] == pytest.approx(0, abs=1e-4)  # the first ratios are between equals


def test_trackers_by_name(small, tmp_path):
    with pytest.raises(ConfigError, match=r"'tensorbord' is no tracker. Did you mean 'tensorboard'\?"):
        load_config(None, ["runtime.tracker=tensorbord"])
    with pytest.raises(MissingExtra, match="needs the package aim"):
        train(small("runtime.tracker=tensorboard,aim"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "run.yaml").exists()


def test_the_tracker_gets_the_numbers(small, tmp_path):
    result = train(small("steps=1", "runtime.tracker=tensorboard"), tmp_path / "run", progress=False)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = {path.parent for path in (tmp_path / "run" / "tracker").rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    assert events.Scalars("reward_mean")[0].value == pytest.approx(result.metrics[0]["reward_mean"])
