"""Logs that inspect_ai 0.3.285 wrote itself (scripts/make_inspect_logs.py): .eval with zstd members, and .json."""

from pathlib import Path

import pytest

from analysis.readers.discover import discover
from tests.readers.conftest import counts, rows_of

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["inspect.eval", "inspect.json"])
def test_its_logs_are_read(name):
    (source,) = discover([DATA / name])
    assert source.format == "inspect_ai"
    assert counts(source) == (6, 1, 3, 6, 0.6667, 0, 0)
    rows = rows_of(source)
    assert [row["thinking_text"] for row in rows] == [
        f"{n} and {n}, call {call}" for call, n in enumerate([0, 1, 2] * 2, 1)
    ]
    assert [row["answer_text"] for row in rows] == ["It is 0.", "It is 99.", "It is 4."] * 2
    assert [row["return_"] for row in rows] == [1.0, 0.0, 1.0] * 2
    assert [row["response_truncated"] for row in rows] == [False] * 5 + [True]
    assert {(row["step"], row["split"]) for row in rows} == {(40, "val")}
