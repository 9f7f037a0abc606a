"""Countdown's parser, grading, generator and file."""

import ast
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.arithmetic import NotArithmetic, evaluate
from envs.countdown import _split_of, draw_puzzle, find_expression
from envs.registry import BadOption, make


@pytest.mark.parametrize(
    ("text", "value", "used"),
    [
        ("1+2*3", 7, [1, 2, 3]),
        ("(1+2)*3", 9, [1, 2, 3]),
        ("8/4/2", 1, [8, 4, 2]),
        ("7-4-2", 1, [7, 4, 2]),
        (" -3 × (2 - 10 ÷ 4)", Fraction(3, 2), [3, 2, 10, 4]),
    ],
)
def test_values(text, value, used):
    assert evaluate(text) == (value, used)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2**9",
        "9**9**9**9",
        "1/0",
        "1/(2-2)",
        "(1",
        "1)",
        "1 2",
        "3+",
        "1.5",
        "abc",
        "__import__('os')",
        "(" * 110,
        "²",
        "1=1",
    ],
)
def test_not_arithmetic(text):
    with pytest.raises(NotArithmetic):
        evaluate(text)


expressions = st.recursive(
    st.integers(0, 50).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda part: f"({part[0]}{part[1]}{part[2]})"),
    max_leaves=8,
)


@given(expressions)
def test_agrees_with_pythons_own_parser(text):
    def exact(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        left, right = exact(node.left), exact(node.right)
        kind = type(node.op)
        return (
            left + right
            if kind is ast.Add
            else left - right
            if kind is ast.Sub
            else left * right
            if kind is ast.Mult
            else left / right
        )

    try:
        expected = exact(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        expected = None
    try:
        value, _ = evaluate(text)
    except NotArithmetic:
        value = None
    assert value == expected


def answered(action: str) -> tuple[float, dict]:
    env = make("countdown")
    env.reset(seed=0)
    env.nums, env.target = (3, 5, 2), 4
    _, reward, terminated, _, info = env.step(action)
    assert terminated
    return reward, info


def test_grades():
    assert answered("(3 + 5) / 2") == (1.0, {"action_is_valid": True, "action_is_effective": True, "success": True})
    assert answered("3 + 5 + 2")[0] == 0.1
    assert answered("2 + 2")[0] == 0.0  # right value, wrong numbers
    assert answered("5 - 1 * 1")[1] == {"action_is_valid": False, "action_is_effective": False, "success": False}


def test_splits_are_disjoint_and_targets_in_range():
    train = {draw_puzzle(seed, "train") for seed in range(300)}
    validation = {draw_puzzle(seed, "validation") for seed in range(300)}
    assert not {(tuple(sorted(nums)), target) for nums, target in train} & {
        (tuple(sorted(n)), t) for n, t in validation
    }
    assert all(10 <= target <= 99 and len(nums) in (3, 4) for nums, target in train | validation)
    assert len(validation) > 290


def test_many_puzzles_need_more_than_sums():
    def by_signed_sum(nums, target):
        sums = {0}
        for number in nums:
            sums = {total + sign * number for total in sums for sign in (1, -1)}
        return target in sums

    needs_product = [not by_signed_sum(*draw_puzzle(seed, "train")) for seed in range(200)]
    assert sum(needs_product) > 40  # RAGEN drops all of these


def test_exhaustive_search_finds_nothing_where_nothing_is():
    assert find_expression((1, 1, 1), 99) is None
    assert evaluate(find_expression((3, 3, 8, 8), 24))[0] == 24


def test_rows_of_a_file(tmp_path):
    file = tmp_path / "train.parquet"
    rows = [([n, 2, 3], n + 5) for n in range(10, 60)] + [([1, 1, 1], 99)] * 3
    pq.write_table(pa.table({"nums": [nums for nums, _ in rows], "target": [target for _, target in rows]}), file)
    env = make("countdown", path=str(file))
    seen = {env.reset(seed=seed)[0] for seed in range(60)}
    assert len(seen) == sum(_split_of(nums, target) == "train" for nums, target in rows[:50])
    assert not any("[1, 1, 1]" in observation for observation in seen)
    with pytest.raises(BadOption, match="no file"):
        make("countdown", path=str(tmp_path / "absent.parquet"))
    pq.write_table(pa.table({"numbers": [[1]]}), file)
    with pytest.raises(BadOption, match="column nums, target is missing"):
        make("countdown", path=str(file))
