"""Where thinking is found, by the priority rules of docs/formats.md."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.readers.thinking import split_thinking, strip_end_of_turn

# Shared machines are slow: wall time is no property of the code.
PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("response", "prompt", "expected"),
    [
        ("<think>a</think> b", None, ("a", True, "b")),
        ("<think>\n a \n</think>\n\nb", None, ("a", True, "b")),
        ("<think>a</think>x<think>c</think>y", None, ("a\nc", True, "xy")),
        ("a</think> b", "…assistant\n<think>\n", ("a", True, "b")),
        ("a</think> b", None, ("a", True, "b")),
        ("<think>cut off", None, ("cut off", False, "")),
        ("intro <think>cut off", None, ("cut off", False, "intro")),
        ("whole answer", "…assistant\n<think>\n", ("whole answer", False, "")),
        ("<think>\n\n</think>\n\nb", None, (None, None, "b")),
        ("<think></think>", None, (None, None, "")),
        ("</think>b", "…<think>", (None, None, "b")),
        # The prompt is never searched: instructions spell the tags out.
        ("plain", "Reason inside <think> </think>, then answer.\nassistant\n", (None, None, "plain")),
        ("<think>a</think>b<think>again", None, ("a\nagain", False, "b")),
        ("", None, (None, None, "")),
    ],
)
def test_split(response, prompt, expected):
    assert split_thinking(response, prompt=prompt) == expected


def test_a_field_wins_over_tags():
    assert split_thinking("answer", own_field="  why \n") == ("why", True, "answer")
    assert split_thinking("<think>a</think>b", own_field="   ") == ("a", True, "b")


def test_other_tags_on_request():
    assert split_thinking("[THINK]a[/THINK]b", tags=("[THINK]", "[/THINK]")) == ("a", True, "b")
    assert split_thinking("[THINK]a[/THINK]b").text is None


@PATIENT
@given(st.text(), st.text())
def test_tagged_text_comes_back(thinking, answer):
    tags = ("<think>", "</think>")
    if any(tag in part for tag in tags for part in (thinking, answer)):
        return
    found = split_thinking(f"<think>{thinking}</think>{answer}")
    assert found.text == (thinking.strip() or None)
    assert found.answer == answer.strip()


@PATIENT
@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "\n"])).map("".join))
def test_any_tag_soup_is_split_without_error(response):
    found = split_thinking(response)
    assert found.text is None or found.text == found.text.strip() != ""
    assert (found.closed is None) == (found.text is None)


@PATIENT
@given(st.text())
def test_end_of_turn_tokens_are_stripped_and_nothing_else(text):
    bare = strip_end_of_turn(text + "<|im_end|>\n<|endoftext|>")
    assert bare == strip_end_of_turn(text.rstrip())
    assert strip_end_of_turn("a b ") == "a b "
