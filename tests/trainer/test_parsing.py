"""Replies taken apart: tags, actions, and the exact token span of the thinking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.parsing import parse_reply, thinking_span


def parse(text, **changes):
    return parse_reply(text, **{"think": True, "separator": "||", "max_actions": 2, **changes})


def test_a_good_reply():
    reply = parse(" go up </think><answer> Up || Right </answer>")
    assert (reply.thinking, reply.thinking_closed, reply.answer) == (" go up ", True, "Up || Right")
    assert reply.actions == ("Up", "Right")
    assert reply.format_valid


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("x</think> \n <answer>Up</answer> trailing", ("Up",)),  # blanks between tags and text after them are ignored
        ("x</think><answer>Up||||Down||Left</answer>", ("Up", "Down")),  # empty parts dropped, then the first two
        ("x</think><answer></answer>", ()),
        ("x</think><answer>a\nb</answer>", ("a\nb",)),
        ("x</think><answer><think>Up</answer>", ("Up",)),  # stray tags are no part of an action
    ],
)
def test_actions(text, actions):
    reply = parse(text)
    assert reply.actions == actions
    assert reply.format_valid


@pytest.mark.parametrize(
    "text",
    ["", "no tags", "x</think>", "x</think><answer>Up", "<answer>Up</answer>", "x</think>so <answer>Up</answer>"],
)
def test_broken_format(text):
    reply = parse(text)
    assert not reply.format_valid
    assert reply.actions == ()
    assert reply.answer is None


def test_unclosed_thinking_is_kept_and_marked():
    reply = parse("never ends")
    assert (reply.thinking, reply.thinking_closed) == ("never ends", False)


def test_without_thinking():
    reply = parse(" Up || Left </answer>", think=False)
    assert (reply.thinking, reply.actions, reply.format_valid) == (None, ("Up", "Left"), True)


@given(st.text())
def test_any_text_parses(text):
    reply = parse(text)
    assert len(reply.actions) <= 2
    assert all(action == action.strip() and action for action in reply.actions)


class Letters:
    """A tokenizer of single characters, in which no tag is one token."""

    unk_token_id = 0

    def convert_tokens_to_ids(self, token):
        return ord(token) if len(token) == 1 else 0

    def decode(self, ids, **_):
        return "".join(map(chr, ids))


class Pieces(Letters):
    """A tokenizer that merges text across the closing tag."""

    pieces = ("go ", "up</", "think", "><answer>", "Up")

    def decode(self, ids, **_):
        return "".join(self.pieces[i] for i in ids)


class OneToken(Letters):
    def convert_tokens_to_ids(self, token):
        return 99 if token == "</think>" else 0


def test_span_with_the_tag_as_one_token():
    assert thinking_span([5, 6, 99, 7], OneToken()) == (0, 2)
    assert thinking_span([99], OneToken()) == (0, 0)
    assert thinking_span([5, 6], OneToken()) is None


@given(st.text(alphabet="ab</think> ", max_size=30), st.text(alphabet="ab<", max_size=10))
def test_span_with_the_tag_spelt_out(before, after):
    text = f"{before}</think>{after}"
    start, end = thinking_span([ord(c) for c in text], Letters())
    assert text[start:end] == text.split("</think>")[0]


def test_a_token_that_straddles_the_tag_is_not_thinking():
    assert thinking_span([0, 1, 2, 3, 4], Pieces()) == (0, 1)
