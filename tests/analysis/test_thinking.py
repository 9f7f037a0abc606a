from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.readers.thinking import split_thinking
from analysis.thinking import logged_turns, opened, thinking_valid_rate, token_span
from ragen_diag.rollout_log import rows_to_table

OPEN, CLOSE = "<think>", "</think>"


def spell(text: str) -> list[int]:
    """Character tokens, tags several tokens long: the hard case for finding a tag."""
    return [ord(char) for char in text]


def thinking_of(response: str, *, opened_by_prompt: bool = False) -> tuple[str, bool] | None:
    span = token_span(spell(response), spell(OPEN), spell(CLOSE), opened_by_prompt=opened_by_prompt)
    return None if span is None else (response[span.start : span.end], span.closed)


@pytest.mark.parametrize(
    ("response", "opened_by_prompt", "expected"),
    [
        (f"{OPEN}go up{CLOSE}answer", False, ("go up", True)),
        (f"go up{CLOSE}answer", True, ("go up", True)),
        (f"go up{CLOSE}answer", False, ("go up", True)),  # the template opened it, nobody said so
        ("answer only", False, None),
        (f"{OPEN}cut off", False, ("cut off", False)),
        ("cut off", True, ("cut off", False)),
        (f"{OPEN}{CLOSE}answer", False, ("", True)),
        (f"{OPEN}a{OPEN}b{CLOSE}c{CLOSE}", False, (f"a{OPEN}b", True)),
        (f"{OPEN}a{CLOSE}mid{OPEN}b{CLOSE}", False, ("a", True)),
        (f"{OPEN}{CLOSE}mid{OPEN}b{CLOSE}", False, ("b", True)),  # the first block that holds anything
        (f"{OPEN}a{CLOSE}mid{OPEN}cut", False, ("a", True)),
        ("", True, ("", False)),
        ("", False, None),
    ],
)
def test_spans_of_awkward_responses(response, opened_by_prompt, expected):
    assert thinking_of(response, opened_by_prompt=opened_by_prompt) == expected


text = st.text(alphabet="ab<>/ think", max_size=12).filter(lambda s: OPEN not in s and CLOSE not in s)


@given(text, text, st.booleans())
def test_token_span_agrees_with_the_text_split(inside, after, prompt_opens):
    inside, after = f"a{inside}b", f"a{after}b"  # tags cannot form across the seams; nothing to strip
    response = (inside if prompt_opens else OPEN + inside) + CLOSE + after
    by_text = split_thinking(response, prompt="x" + OPEN if prompt_opens else "x")
    assert thinking_of(response, opened_by_prompt=prompt_opens) == (by_text.text, by_text.closed) == (inside, True)


@given(st.lists(st.integers(0, 5), max_size=30), st.booleans())
def test_a_span_lies_inside_the_response_and_holds_no_closing_tag(ids, prompt_opens):
    span = token_span(ids, [1], [2], opened_by_prompt=prompt_opens)
    if span is None:
        assert not prompt_opens
        assert 1 not in ids
        assert 2 not in ids
    else:
        assert 0 <= span.start <= span.end <= len(ids)
        assert 2 not in ids[span.start : span.end]
        assert span.closed == (span.end < len(ids))
        assert span.valid == (span.closed and span.end > span.start)


def row(**fields):
    base = {
        "run_id": "r",
        "split": "train",
        "prompt_id": "p",
        "group_id": "g",
        "trajectory_id": "t",
        "turn": 0,
        "step": 1,
    }
    return base | fields


def test_token_ids_are_used_as_sampled():
    table = rows_to_table(
        [
            row(
                prompt_ids=[5, 6],
                response_ids=[7, 8, 9, 3],
                thinking_start=1,
                thinking_end=3,
                prompt_text="hi",
                thinking_text=" x ",
            ),
            row(
                trajectory_id="u", prompt_ids=[5], response_ids=[7], thinking_start=0, thinking_end=0, prompt_text="hi"
            ),
        ]
    )
    (turn,) = logged_turns(table, "first_turn")
    assert turn.context_ids == (5, 6, 7)
    assert turn.reasoning_ids == (8, 9)
    assert (turn.context_text, turn.reasoning_text) == ("hi<think>", "x")


def test_scopes():
    rows = [
        row(turn=0, prompt_text="S0", state_text="s0", thinking_text="z0", thinking_closed=True),
        row(turn=1, prompt_text="S0 a0 S1<think>\n", state_text="s1", thinking_text="z1", thinking_closed=None),
        row(turn=2, prompt_text="long", state_text="s2", thinking_text="cut", thinking_closed=False),
        row(turn=3, prompt_text="long", state_text="s3", thinking_text="  "),
    ]
    table = rows_to_table(rows)
    assert [t.context_text for t in logged_turns(table, "first_turn")] == ["S0<think>"]
    assert [t.context_text for t in logged_turns(table, "trajectory")] == ["S0<think>", "S0 a0 S1<think>\n"]
    states = list(logged_turns(table, "state"))
    assert [t.context_text for t in states] == ["s0\n<think>", "s1\n<think>"]
    assert all(t.context_ids is None for t in states)
    with pytest.raises(ValueError, match="unknown scope 'turns'"):
        list(logged_turns(table, "turns"))
    assert opened("a<think> ") == "a<think> "


def test_valid_rate_counts_cut_off_and_empty_thinking_as_invalid():
    table = rows_to_table(
        [
            row(thinking_text="z"),
            row(thinking_text="z", thinking_closed=False),
            row(thinking_text=" "),
            row(thinking_text=None),
        ]
    )
    assert thinking_valid_rate([table]) == 0.25
    assert thinking_valid_rate([rows_to_table([row(), row()])]) is None  # nobody stored thinking: unknown, not zero
    assert thinking_valid_rate([]) is None
