"""Contexts are appended to, never rendered twice; any text survives the embedded tokenizer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import registry
from trainer.policy import load_tokenizer
from trainer.prompts import ChatFormat, history_text, system_text, turn_text

TOKENIZER = load_tokenizer("tiny")


@given(st.text(max_size=60))
@settings(deadline=None)
def test_the_embedded_tokenizer_keeps_any_text(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text


def test_system_text_names_everything_once():
    env = registry.make("frozen_lake:no_slip")
    text = system_text(env, max_actions=10, max_actions_per_turn=2, separator="||", think=True)
    assert env.instruction in text
    assert "Actions: Left, Down, Right, Up." in text
    assert "At most 10 actions in all, 2 per turn, separated by ||." in text
    assert text.endswith("Reply with <think>your thoughts</think><answer>your actions</answer> and nothing else.")
    assert "<think>" not in system_text(env, max_actions=10, max_actions_per_turn=2, separator="||", think=False)


def test_turn_text():
    assert turn_text(0, "S", actions_left=10, previous_reward=None) == "Turn 1, 10 actions left.\nS"
    assert turn_text(2, "S", actions_left=6, previous_reward=-0.1) == "Reward: -0.1\nTurn 3, 6 actions left.\nS"
    assert "no valid action" in turn_text(1, "S", actions_left=9, previous_reward=0.0, invalid=True)


def test_history_text_numbers_turns():
    text = history_text([("A", "up", 0.0), ("B", "down", 1.0)], first_turn=2)
    assert text == "Turn 3:\nState:\nA\nReply: up\nReward: 0\nTurn 4:\nState:\nB\nReply: down\nReward: 1\n"


@pytest.mark.parametrize("think", [True, False])
def test_prompts_end_with_the_opening_tag(think):
    chat = ChatFormat(TOKENIZER, think=think)
    tag = "<think>" if think else "<answer>"
    first = TOKENIZER.decode(chat.first_ids("rules", "state"))
    assert (
        first == f"<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\nstate<|im_end|>\n<|im_start|>assistant\n{tag}"
    )


def test_the_sampled_end_token_is_not_repeated():
    chat = ChatFormat(TOKENIZER)
    end = TOKENIZER.eos_token_id
    with_end, cut = chat.next_ids("state", last_id=end), chat.next_ids("state", last_id=5)
    assert cut == [end, *with_end]
    assert TOKENIZER.decode(with_end) == "\n<|im_start|>user\nstate<|im_end|>\n<|im_start|>assistant\n<think>"


class NoSystem:
    """A template that refuses system messages, and one that opens the thinking itself."""

    chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }};{% endfor %}{{ '[assistant]<think>\n' }}"
    )

    def apply_chat_template(self, messages, **options):
        from transformers.utils.chat_template_utils import render_jinja_template

        return render_jinja_template([messages], chat_template=self.chat_template, **{"add_generation_prompt": True})[
            0
        ][0]

    def __call__(self, text, **_):
        return {"input_ids": [ord(c) for c in text]}


def test_templates_without_a_system_role_and_with_an_open_tag():
    chat = ChatFormat(NoSystem())
    assert "".join(map(chr, chat.first_ids("rules", "state"))) == "[user]rules\n\nstate;[assistant]<think>\n"
