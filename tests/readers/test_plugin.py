"""The reader printed in docs/adding-a-reader.md works as it stands, and plug-ins are found through the entry point."""

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from analysis.readers import registry
from analysis.readers.discover import discover
from ragen_diag.errors import NothingReadable, UsageError
from tests.readers.conftest import rows_of

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-reader.md"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Install modules as plug-ins: call with {entry name: 'module:Class'}."""

    def install(**entries: str):
        found = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in entries.items()]
        monkeypatch.setattr(
            registry, "entry_points", lambda group: found if group == registry.ENTRY_POINT_GROUP else []
        )
        registry.rollout_readers.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    monkeypatch.undo()
    registry.rollout_readers.cache_clear()


def test_the_documented_reader(installed, tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "documented_reader.py").write_text(code, encoding="utf-8")
    log = tmp_path / "attempts.jsonl"
    attempt = {"text": "<think>left</think>go", "points": 0.5}
    log.write_text(
        "\n".join(json.dumps({"maze": "m", "round": 2, "attempt": attempt}) for _ in range(3)) + '\n{"maze": 1}'
    )
    with pytest.raises(NothingReadable):
        discover([log])
    installed(maze_gym="documented_reader:MazeGym")
    (source,) = discover([log])
    rows = rows_of(source)
    assert source.format == "maze_gym"
    assert [(row["step"], row["return_"], row["thinking_text"], row["rollout_index"]) for row in rows] == [
        (2, 0.5, "left", 0),
        (2, 0.5, "left", 1),
        (2, 0.5, "left", 2),
    ]
    assert source.notes.skipped[0].why == "not a maze_gym record: key 'attempt' is missing"
    assert any("maze-gym keeps no log-probs" in line for line in source.notes.assumptions)


def test_broken_plug_ins_are_named(installed, tmp_path):
    installed(nope="no_such_module:Reader")
    with pytest.raises(UsageError, match="plug-in 'nope'"):
        registry.rollout_readers()
    (tmp_path / "clash.py").write_text("class Reader:\n    name = 'verl'\n")
    installed(clash="clash:Reader")
    with pytest.raises(UsageError, match="takes the name of a built-in format"):
        registry.rollout_readers()


def test_every_format_is_documented():
    page = (PAGE.parent / "formats.md").read_text(encoding="utf-8")
    assert [
        name for name in (*registry.rollout_readers(), *registry.metrics_readers()) if f"`{name}`" not in page
    ] == []
