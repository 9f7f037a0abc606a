"""MetaMathQA: grading, reachable retries, files of both schemas, disjoint splits."""

import json
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.metamathqa import _own_problems, answers_match
from envs.registry import BadOption, MissingExtra, make
from envs.word_problems import TEMPLATES


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("5", "$5$", True),  # RAGEN compares strings: $5$ is not 5 there
        ("5", "5.0", True),
        ("1200", "1,200 stickers", True),
        ("3/28", "\\frac{3}{28}", True),
        ("0.05", "x = .05", True),
        ("-2", "−2", True),
        ("5", "The answer is 5.", True),
        ("5", "55", False),
        ("5", "-5", False),
        ("5", "4 or 5", False),  # every arm at once
        ("5", " ".join(map(str, range(100))), False),
        ("5", "", False),
        ("5", "10/2", True),
        ("5", "5/0", False),
        ("5", "25 ^ 1", False),
    ],
)
def test_numbers(gold, answer, same):
    assert answers_match(gold, answer) is same


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("x+1", "1+x", True),
        ("\\sqrt{8}", "2\\sqrt{2}", True),
        ("(1,2)", "(1, 2)", True),
        ("\\sqrt{2}", "\\sqrt{3}", False),
        ("\\sqrt{2}", "9^{9^9}", False),
        ("\\sqrt{2}", "2^{99999999}", False),
        ("\\sqrt{2}", "99999999!", False),
    ],
)
def test_algebra(gold, answer, same):
    pytest.importorskip("math_verify")
    assert answers_match(gold, answer) is same


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_breaks_the_algebra(text):
    pytest.importorskip("math_verify")
    assert answers_match("\\sqrt{17}+x", text) in (True, False)


def test_retries_halve_the_reward():
    env = make("metamathqa")
    question, _ = env.reset(seed=1)
    assert env.answer == "4"
    observation, reward, terminated, _, info = env.step("5")
    assert (reward, terminated, info["success"]) == (0.0, False, False)
    assert observation == f"{question}\nYour answer number 1 was incorrect. Think again."
    assert env.step("")[4]["action_is_valid"] is False
    assert env.step("4")[1:3] == (0.25, True)
    assert env.max_actions == 4


def test_splits_share_no_question():
    train, validation = make("metamathqa"), make("metamathqa:validation")
    asked = [{env.reset(seed=seed)[0] for seed in range(300)} for env in (train, validation)]
    assert not asked[0] & asked[1]
    assert len(asked[0]) > 250 and len(asked[1]) > 200


def test_templates_have_positive_whole_answers_that_are_not_the_only_number():
    for template in TEMPLATES:
        for low in (True, False):
            question, answer = template(lambda a, b, low=low: a if low else b, "Ada", "Ben", "beads")
            assert isinstance(answer, int) and answer > 0
            assert len(re.findall(r"\d+", question)) > 1


def test_own_set():
    problems = _own_problems()
    assert len(problems) == len({question for question, _ in problems}) >= 30
    assert all(answers_match(answer, answer) for _, answer in problems)


METAMATH = {
    "query": "What is half of {n}?",
    "response": "Divide by two.\nThe answer is: {half}",
    "type": "GSM_Rephrased",
}


def test_files(tmp_path):
    rows = [{k: v.format(n=2 * n, half=n) for k, v in METAMATH.items()} for n in range(40)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    gsm = [{"question": f"What is {n}+1?", "answer": f"Add.\n#### {n + 1}"} for n in range(40)]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, gsm)))
    first, second = (make("metamathqa", path=str(tmp_path / name)) for name in ("a.json", "a.parquet"))
    assert first.reset(seed=7)[0] == second.reset(seed=7)[0]
    assert int(first.answer) * 2 == int(re.search(r"\d+", first.question)[0])
    assert make("metamathqa", path=str(tmp_path / "b.jsonl")).reset(seed=0)[0].startswith("What is")
    (tmp_path / "c.json").write_text('[{"prompt": "?"}]')
    with pytest.raises(BadOption, match="a row has prompt"):
        make("metamathqa", path=str(tmp_path / "c.json"))


def test_missing_file_and_missing_extra(tmp_path, monkeypatch):
    with pytest.raises(BadOption, match="hf download"):
        make("metamathqa", path=str(tmp_path / "absent.json"))
    file = tmp_path / "algebra.json"
    file.write_text(json.dumps([{"query": f"Solve {n}", "response": "The answer is: x+1"} for n in range(20)]))
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(MissingExtra, match=r"ragen-diag\[envs\]"):
        make("metamathqa", path=str(file))
