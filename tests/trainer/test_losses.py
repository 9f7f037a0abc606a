"""Losses against verl's numbers, literal cases, and independence of the micro-batch size."""

import json
from pathlib import Path

import pytest
import torch

from trainer import losses
from trainer.advantages import masked_mean

CASES = json.loads((Path(__file__).parent / "verl_objectives.json").read_text())["cases"]
EXPECTED = [(case, key) for case in CASES for key in case["expected"]]
NAMES = ("mask", "values", "new_values", "logp", "old_logp", "ref_logp")
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def tensors(case):
    return {name: torch.tensor(case[name]) for name in NAMES}


def option(key, name):
    return key.split(f"{name}=")[1].split()[0]


@pytest.mark.parametrize(("case", "key"), [pair for pair in EXPECTED if pair[1].startswith("ppo")])
def test_policy_loss_agrees_with_verl(case, key):
    t, expected = tensors(case), case["expected"][key]
    low, high = map(float, option(key, "clip").split("/"))
    advantages = torch.tensor(case["expected"]["grpo norm_by_std=True"])
    terms = losses.policy_loss(
        t["logp"], t["old_logp"], advantages, clip_low=low, clip_high=high, clip_dual=float(option(key, "dual"))
    )
    weights = losses.aggregation_weights(t["mask"], option(key, "agg"))
    assert (terms.loss * weights).sum().item() == pytest.approx(expected["loss"], abs=1e-5)
    assert masked_mean(terms.clipped, t["mask"]).item() == pytest.approx(expected["clipfrac"], abs=1e-5)
    assert masked_mean(terms.clipped_dual, t["mask"]).item() == pytest.approx(expected["clipfrac_lower"], abs=1e-5)
    assert masked_mean(t["old_logp"] - t["logp"], t["mask"]).item() == pytest.approx(expected["approx_kl"], abs=1e-5)


@pytest.mark.parametrize(("case", "key"), [pair for pair in EXPECTED if pair[1].startswith("value")])
def test_value_loss_agrees_with_verl(case, key):
    t, expected = tensors(case), case["expected"][key]
    returns = torch.full_like(t["values"], expected["returns_constant"])
    errors = losses.value_loss(t["new_values"], t["values"], returns, clip=float(option(key, "clip")))
    weights = losses.aggregation_weights(t["mask"], option(key, "agg"))
    assert (errors * weights).sum().item() == pytest.approx(expected["loss"], abs=1e-5)


@pytest.mark.parametrize(("theirs", "ours"), [("kl kl", "k1"), ("kl mse", "k2"), ("kl low_var_kl", "k3")])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_kl_agrees_with_verl(case, theirs, ours):
    t = tensors(case)
    found = losses.kl_nats(t["logp"], t["ref_logp"], ours) * t["mask"]
    torch.testing.assert_close(found, torch.tensor(case["expected"][theirs]), atol=1e-5, rtol=0)


def test_aggregation_literal_weights():
    mask = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    expected = {
        "token-mean": [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0], [0, 0, 0]],
        "seq-mean-token-mean": [[0.25, 0.25, 0], [0.5, 0, 0], [0, 0, 0]],
        "seq-mean-token-sum": [[0.5, 0.5, 0], [0.5, 0, 0], [0, 0, 0]],
    }
    for mode, weights in expected.items():
        torch.testing.assert_close(losses.aggregation_weights(mask, mode), torch.tensor(weights))


def test_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="seq-sum"):
        losses.aggregation_weights(torch.ones(1, 1), "seq-sum")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("micro", [1, 2, 8])
def test_micro_batches_add_up_to_the_same_gradient(mode, micro):
    torch.manual_seed(0)
    mask = (torch.rand(8, 10) < 0.5).double()
    logits = torch.randn(8, 10, dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(8, 10).double() * 0.1, torch.randn(8, 1).double().expand(8, 10)
    weights = losses.aggregation_weights(mask, mode)

    def gradient(size):
        logits.grad = None
        for rows in torch.arange(8).split(size):
            terms = losses.policy_loss(
                logits[rows], old[rows], advantages[rows], clip_low=0.2, clip_high=0.28, clip_dual=3.0
            )
            (terms.loss * weights[rows]).sum().backward()
        return logits.grad.clone()

    torch.testing.assert_close(gradient(micro), gradient(8), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),  # on-policy: minus the advantage
        (1.5, 2.0, -2.4),  # good token, already likelier: clipped at 1.2
        (0.5, 2.0, -1.0),  # good token, less likely: not clipped
        (0.5, -2.0, 1.6),  # bad token, already rarer: clipped at 0.8
        (1.5, -2.0, 3.0),  # bad token, likelier: not clipped
        (5.0, -2.0, 6.0),  # bad token, far likelier: dual clip at 3
    ],
)
def test_clipping_by_hand(ratio, advantage, expected):
    logp = torch.tensor([[ratio]]).log()
    terms = losses.policy_loss(
        logp, torch.zeros(1, 1), torch.tensor([[advantage]]), clip_low=0.2, clip_high=0.2, clip_dual=3.0
    )
    assert terms.loss.item() == pytest.approx(expected, abs=1e-6)


def test_dual_clip_off():
    terms = losses.policy_loss(
        torch.tensor([[5.0]]).log(), torch.zeros(1, 1), torch.tensor([[-2.0]]), clip_low=0.2, clip_high=0.2, clip_dual=0
    )
    assert terms.loss.item() == pytest.approx(10.0, abs=1e-5)


def test_kl_by_hand():
    logp, ref = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    found = [losses.kl_nats(logp, ref, name).item() for name in ("k1", "k2", "k3")]
    assert found == pytest.approx([0.5, 0.125, 0.1065307], abs=1e-6)  # k3 = exp(-0.5) - 1 + 0.5
