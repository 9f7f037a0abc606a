"""The embedded model: small, standard, able to read any text, and naming what it sees."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_diag.config import load_config
from trainer.policy import TINY_MODEL
from trainer.rollout import RolloutEngine
from trainer.setup import build_agent, training_settings


def test_size():
    sizes = {path.name: path.stat().st_size for path in TINY_MODEL.iterdir()}
    assert sum(sizes.values()) < 3_000_000
    assert max(sizes.values()) < 1_000_000
    assert "MODEL_CARD.md" in sizes


def test_it_is_a_standard_transformers_model():
    model = AutoModelForCausalLM.from_pretrained(TINY_MODEL)
    tokenizer = AutoTokenizer.from_pretrained(TINY_MODEL)
    assert model.dtype == torch.float32
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    for tag in ("<think>", "</think>", "<answer>", "</answer>", "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer.encode(tag)) == 1
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True).endswith("<think>")


@pytest.fixture(scope="module")
def trajectories():
    config = load_config("demo", ["runtime.threads=1"])
    torch.set_num_threads(1)
    agent = build_agent(config, for_training=False)
    engine = RolloutEngine(config.env, config.rollout, run_seed=0)
    loop = agent.loop(config.rollout, training_settings(config.rollout))
    return engine.collect(loop, range(123, 123 + 32), group_size=1, split="val")


def test_its_prompts_are_short(trajectories):
    """A longer first prompt means that an environment's wording changed after the tokenizer was made: make the model again."""
    assert max(len(trajectory.turns[0].prompt_ids) for trajectory in trajectories) <= 80


def test_its_thinking_names_the_state(trajectories):
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    assert sum(turn.reply.format_valid for turn in turns) / len(turns) > 0.95

    def named(turn, label):
        return re.search(rf"{label}: (\(\d, \d\))", turn.state_text)[1] in turn.reply.thinking

    first = [trajectory.turns[0] for trajectory in trajectories]
    for label in ("Goal", "Player"):
        assert sum(named(turn, label) for turn in first) / len(first) > 0.9, label
    assert sum(named(turn, "Goal") for turn in turns) / len(turns) > 0.85


def test_what_it_thinks_is_what_it_does(trajectories):
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    assert sum(all(move in turn.reply.thinking for move in turn.reply.actions) for turn in turns) / len(turns) > 0.95
