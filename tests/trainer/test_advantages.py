"""Advantages against verl's numbers, literal cases, and ten-line loops on random ragged batches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer import advantages

CASES = json.loads((Path(__file__).parent / "verl_objectives.json").read_text())["cases"]
EXPECTED = [(case, key) for case in CASES for key in case["expected"]]


def tensors(case):
    return {key: torch.tensor(case[key]) for key in ("mask", "rewards", "values", "group")}


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, torch.as_tensor(expected), atol=atol, rtol=0, check_dtype=False)


@pytest.mark.parametrize(("case", "key"), [pair for pair in EXPECTED if pair[1].startswith("gae")])
def test_gae_agrees_with_verl(case, key):
    t = tensors(case)
    gamma, lam = (float(part.split("=")[1]) for part in key.split()[1:])
    found, returns = advantages.gae(t["rewards"], t["values"], t["mask"], gamma=gamma, lam=lam)
    expected = case["expected"][key]
    close(found, torch.tensor(expected["advantages_whitened"]) * t["mask"])
    close(returns * t["mask"], torch.tensor(expected["returns"]) * t["mask"])


@pytest.mark.parametrize(("case", "key"), [pair for pair in EXPECTED if pair[1].startswith(("grpo", "rloo"))])
def test_group_relative_agrees_with_verl(case, key):
    t = tensors(case)
    scores = t["rewards"].sum(dim=1)
    rloo = key == "rloo"
    found = (
        advantages.rloo(scores, t["group"])
        if rloo
        else advantages.grpo(scores, t["group"], by_std=key.endswith("True"))
    )
    close(found[:, None] * t["mask"], case["expected"][key])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reinforce_pp_agrees_with_verl_when_it_resets_at_gaps(case):
    t = tensors(case)
    found, _ = advantages.reinforce_pp(t["rewards"], t["mask"], reset_at_gaps=True)
    close(found, case["expected"]["reinforce++ gamma=1"])


def test_grpo_literal_values():
    scores, group = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.zeros(4, dtype=torch.long)
    close(advantages.grpo(scores, group), [0.8660, -0.8660, -0.8660, 0.8660], atol=1e-4)
    close(advantages.grpo(scores, group, by_std=False), [0.5, -0.5, -0.5, 0.5])
    close(advantages.rloo(scores, group), [2 / 3, -2 / 3, -2 / 3, 2 / 3])


def test_a_group_of_one_keeps_its_score():
    close(advantages.grpo(torch.tensor([3.0]), torch.tensor([7])), [3.0 / (1 + 1e-6)], atol=5e-7)
    close(advantages.rloo(torch.tensor([3.0]), torch.tensor([7])), [3.0])


def test_equal_scores_give_zero():
    close(advantages.grpo(torch.full((4,), 2.5), torch.zeros(4, dtype=torch.long)), [0.0] * 4)


def test_gae_with_a_terminal_reward_is_reward_minus_value():
    """ragen_facts 10.7: gamma = lam = 1, one terminal reward R: A_t = R - V_t, and whitening gives mean 0, variance 1."""
    mask = torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 0]])
    values = torch.tensor([[0.3, -0.2, 9.0, 0.1], [0.0, 1.0, 2.0, 9.0]])
    rewards = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0.5, 0]])
    raw, returns = advantages.gae(rewards, values, mask, whiten=False)
    close(raw, [[0.7, 1.2, 0.0, 0.9], [0.5, -0.5, -1.5, 0.0]])
    close(returns * mask, [[1.0, 1.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.0]])
    white, _ = advantages.gae(rewards, values, mask)
    chosen = white[mask.bool()]
    assert chosen.mean().item() == pytest.approx(0, abs=1e-6)
    assert chosen.var(unbiased=True).item() == pytest.approx(1, abs=1e-5)


def random_batch(seed, n=6, width=12):
    rng = np.random.default_rng(seed)
    mask, turn_end = np.zeros((n, width)), np.zeros((n, width))
    for row in range(n):
        at = int(rng.integers(0, 3))
        while at < width:
            end = min(width, at + int(rng.integers(1, 4)))
            mask[row, at:end], turn_end[row, end - 1] = 1, 1
            at = end + int(rng.integers(1, 4))
    rewards, values = rng.normal(size=(n, width)) * turn_end, rng.normal(size=(n, width))
    return (torch.tensor(array) for array in (mask, turn_end, rewards, values))


def gae_loop(rewards, values, gamma, lam):
    out, following, carried = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        carried = reward + gamma * following - value + gamma * lam * carried
        following = value
        out.append(carried)
    return out[::-1]


@pytest.mark.parametrize("seed", range(5))
def test_gae_against_a_loop_over_chosen_tokens_only(seed):
    mask, _, rewards, values = random_batch(seed)
    found, _ = advantages.gae(rewards, values, mask, gamma=0.9, lam=0.8, whiten=False)
    for row in range(len(mask)):
        chosen = mask[row].bool()
        close(
            found[row][chosen],
            gae_loop(rewards[row][chosen].tolist(), values[row][chosen].tolist(), 0.9, 0.8),
            atol=1e-6,
        )


@pytest.mark.parametrize("seed", range(5))
def test_bi_level_gae_against_loops(seed):
    """Turns first: a GAE over turn ends; then a GAE inside each turn, whose last reward is the turn's return."""
    mask, turn_end, rewards, values = random_batch(seed)
    found, _ = advantages.bi_level_gae(
        rewards, values, mask, turn_end, gamma=0.9, lam=0.8, high_level_gamma=0.7, whiten=False
    )
    for row in range(len(mask)):
        ends = torch.nonzero(turn_end[row]).flatten().tolist()
        over_turns = gae_loop(rewards[row][ends].tolist(), values[row][ends].tolist(), 0.7, 0.8)
        for index, end in enumerate(ends):
            first = ends[index - 1] + 1 if index else 0
            tokens = [t for t in range(first, end + 1) if mask[row, t]]
            inside = [0.0] * (len(tokens) - 1) + [over_turns[index] + values[row, end].item()]
            close(found[row][tokens], gae_loop(inside, values[row][tokens].tolist(), 0.9, 0.8), atol=1e-6)


def test_bi_level_gae_gives_credit_to_turns_that_earned_nothing():
    """RAGEN takes positions with non-zero reward for turn ends; a first turn without reward must still be its own turn."""
    mask, turn_end = torch.ones(1, 4), torch.tensor([[0.0, 1, 0, 1]])
    rewards, values = torch.tensor([[0.0, 0, 0, 1]]), torch.zeros(1, 4)
    found, _ = advantages.bi_level_gae(rewards, values, mask, turn_end, high_level_gamma=0.5, whiten=False)
    close(found, [[0.5, 0.5, 1.0, 1.0]])


def test_reinforce_pp_steps_over_observations():
    mask, rewards = torch.tensor([[1.0, 0, 1, 1]]), torch.tensor([[0.0, 5, 0, 2]])
    _, returns = advantages.reinforce_pp(rewards, mask, gamma=0.5)
    close(returns, [[0.5, 0.0, 1.0, 2.0]])


def test_turn_wise_compares_the_same_turn():
    found = advantages.turn_wise([[0, 1], [0, 0], [1]], [0, 0, 0], by_std=False)
    close(torch.tensor(found[0]), [1 - 2 / 3, 0.5])
    close(torch.tensor(found[1]), [-2 / 3, -0.5])
    close(torch.tensor(found[2]), [1 / 3])


def test_turn_wise_without_comparison_is_zero():
    assert advantages.turn_wise([[0.0, 1.0], [1.0]], [0, 0])[0][1] == 0.0


def test_soft_reweight_is_the_share_of_the_largest_std():
    scores, group = torch.tensor([0.0, 2.0, 0.0, 1.0, 5.0]), torch.tensor([0, 0, 1, 1, 2])
    close(advantages.soft_reweight(scores, group), [1.0, 1.0, 0.5, 0.5, 0.0])


def test_whitening_a_single_token_leaves_it():
    close(advantages.masked_whiten(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])), [[3.0, 0.0]])
