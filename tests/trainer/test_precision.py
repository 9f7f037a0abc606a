"""Memory savers change memory, not what is learnt: gradient checkpointing, micro-batches, bf16; and trackers that are there."""

import math

import pytest
import torch

from ragen_diag.config import load_config
from ragen_diag.errors import ConfigError, MissingExtra
from trainer.loop import Trainer, train

SIZES = ["rollout.group_size=4", "rollout.max_turns=1", "optim.mini_batch=8", "algorithm.entropy_coef=0.01"]


def gradient(config, folder):
    """The policy's gradient of the first mini-batch."""
    trainer = Trainer(config, folder)
    trainer.state.step = 1
    trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
    for trajectory in trajectories:
        trajectory.turns[-1].reward = float(trajectory.member)
    found = []
    trainer.updater.optimizer.step = lambda: found.extend(
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
