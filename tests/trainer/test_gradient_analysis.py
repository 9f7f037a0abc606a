"""Gradients per reward-variance bucket, against plain backward passes, and their signal-to-noise."""

import copy

import numpy as np
import pytest
import torch

from analysis.snr import gradient_snr
from ragen_diag.config import DiagnosticsConfig
from ragen_diag.rollout_log import read_metrics
from trainer import gradient_analysis
from trainer.loop import Trainer, train

SETTINGS = ["rollout.groups=3", "rollout.group_size=4", "rollout.max_turns=1", "optim.mini_batch=12", "optim.micro_batch=3",
            "algorithm.entropy_coef=0.01", "algorithm.kl_coef=0.1", "model.tuning=lora"]  # fmt: skip


@pytest.fixture(params=["false", "true"], ids=["kept", "recomputed"])
def measured(small, tmp_path, request):
    """A trainer, a scored step with reward variance in some groups, and what the analysis said of it."""
    checkpointing = f"model.gradient_checkpointing={request.param}"  # several backward passes through one forward
    trainer = Trainer(small(*SETTINGS, checkpointing), tmp_path / "run")
    trainer.state.step = 1
    torch.manual_seed(0)
    for parameter in trainer.agent.policy.parameters():  # adapters start at zero, and with them the KL's gradient
        if parameter.requires_grad:
            parameter.data += 0.02 * torch.randn_like(parameter)
    trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
    for trajectory in trajectories:  # group 0 tied, group 1 and 2 with growing spread
        trajectory.turns[-1].reward = trajectory.group * (trajectory.member % 2)
        trajectory.turns[-1].penalty = 0.0
    scored = trainer._score(trajectories, 1.0)
    row = gradient_analysis.measure(trainer.updater, scored, trajectories, DiagnosticsConfig(gradient_buckets=3))
    return trainer, trajectories, scored, row


def plain_gradient(trainer, trajectories, scored, group, component):
    """The ten-line way: one backward pass over the whole group at once."""
    owner = np.array([t.group for t in trajectories])[scored.batch.owner_B.numpy()]
    rows = np.flatnonzero(owner == group)
    updater = trainer.updater
    updater.policy.zero_grad()
    stats = updater.policy(updater.layout(scored.batch, rows), 1.0)
    terms, _ = updater.terms(stats, updater.chosen(scored.batch, updater.per_token(scored, rows), rows))
    terms[component].backward()
    parts = [
        p.grad if p.grad is not None else torch.zeros_like(p) for p in updater.policy.parameters() if p.requires_grad
    ]
    gradient = torch.cat([part.flatten() for part in parts]).clone()
    updater.policy.zero_grad()
    return gradient.double()


def test_norms_are_those_of_plain_backward_passes(measured):
    trainer, trajectories, scored, row = measured
    for bucket, group in ((1, 0), (2, 1), (3, 2)):
        for component in ("task", "kl", "entropy"):
            expected = plain_gradient(trainer, trajectories, scored, group, component).norm().item()
            assert row[f"grad_norm/bucket_{bucket}/{component}"] == pytest.approx(expected, rel=1e-3, abs=1e-7), (
                component
            )
        assert row[f"grad_norm/bucket_{bucket}/n_groups"] == 1
    assert row["grad_norm/bucket_1/task"] == 0
    assert row["grad_norm/bucket_1/entropy"] > 0
    assert row["grad_norm/bucket_1/reward_std"] == 0
    assert row["grad_norm/bucket_3/reward_std"] == pytest.approx(2 / 3**0.5)
    assert row["grad_norm/all/n_groups"] == 3


def test_snr_is_that_of_the_gram_matrix(measured):
    trainer, trajectories, scored, row = measured
    gradients = torch.stack([plain_gradient(trainer, trajectories, scored, group, "task") for group in range(3)])
    assert row["gradient_snr"] == pytest.approx(gradient_snr((gradients @ gradients.T).numpy()).value, rel=1e-3)


def test_noise_ratio_is_the_tied_groups_norm_over_the_others(measured):
    trainer, trajectories, scored, row = measured
    whole = [
        sum(plain_gradient(trainer, trajectories, scored, g, name) for name in ("task", "kl", "entropy")).norm().item()
        for g in range(3)
    ]
    assert row["gradient_noise_ratio"] == pytest.approx(whole[0] / np.mean(whole[1:]), rel=1e-3)


def test_it_changes_nothing(measured):
    trainer, trajectories, scored, _ = measured
    before = copy.deepcopy(trainer.agent.policy.trained_state())
    gradient_analysis.measure(trainer.updater, scored, trajectories, DiagnosticsConfig())
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.agent.policy.trained_state().items())
    assert all(parameter.grad is None for parameter in trainer.agent.policy.parameters())


@pytest.mark.parametrize(
    ("stds", "options", "expected"),
    [
        ([3, 1, 2, 0], {"gradient_buckets": 2}, [[3, 1], [2, 0]]),
        ([0, 1, 2, 3, 4], {"gradient_buckets": 2}, [[0, 1], [2, 3, 4]]),  # the remainder goes to the last
        ([1, 0], {"gradient_buckets": 6}, [[1], [0]]),
        ([float("nan"), 1], {"gradient_buckets": 6}, [[1]]),
        ([float("nan")], {"gradient_buckets": 6}, []),
        ([0.5, 7, 1.0, 5.0], {"gradient_bucket_mode": "fixed_rv"}, [[0], [2], [3, 1]]),
    ],
)
def test_buckets(stds, options, expected):
    found = gradient_analysis._buckets(np.array(stds, dtype=float), DiagnosticsConfig(**options))
    assert [bucket.tolist() for bucket in found] == expected


def test_the_schedule_and_the_series_in_the_log(small, tmp_path):
    config = small("steps=4", "diagnostics.gradient_every=3", "algorithm.entropy_coef=0.01", "rollout.max_turns=1")
    train(config, tmp_path / "run", progress=False)
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows if row["grad_norm/all/entropy"] is not None] == [1, 3]
    assert rows[0]["grad_norm/bucket_2/task"] is not None
    assert "grad_norm/bucket_2/kl" not in rows[0]
