"""W&B tables on disk: `wandb/run-*/files/media/table/<key>_<step>_<hash>.table.json`, checked with wandb 0.31.

Three shapes: long tables of TRL (one row per rollout, a new table per call), wide cumulative tables of verl, RAGEN and EasyR1
(`input_1, output_1, score_1, …`, one row per step), and OpenRLHF's one sample per step. Of a cumulative key only the newest file
is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, iter_json
from analysis.readers.layout import bare_name, natural_key
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader, numeric_columns
from analysis.readers.trl import completion_turns

_KEY = re.compile(r"^(?P<key>.+?)_\d+_[0-9a-f]{8,}\.table\.json$")
_STEP_COLUMNS = ("step", "global_step", "_step", "train/global_step")
_WIDE = "\0wide"
_TEXT_COLUMNS = {"completion", "output", "response", "text", "output_1", "generations"}
_LAST_PROMPT = re.compile(r"^(.*?<\|im_start\|>assistant\n|.*?\nassistant\n|.*?<\|assistant\|>\n?)(.*)$", re.DOTALL)


class WandbTable(RecordReader):
    """{columns, data} with a text column."""

    name = "wandb_table"
    needs = frozenset({"columns", "data"})
    inside_run = re.compile(r"files|media|table|wandb")

    def claims(self, seen: Peek) -> Match | None:
        """Columns that hold generated text."""
        row = seen.having(self.needs)
        if row and isinstance(row["columns"], list) and _TEXT_COLUMNS & {str(name) for name in row["columns"]}:
            wide = "output_1" in row["columns"]
            return Match(
                0.95, f"a W&B table with columns {', '.join(map(str, row['columns'][:6]))}", "wide" if wide else "long"
            )
        return None

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """Newest file of each key whose newest table repeats the steps of the older ones."""
        by_key: dict[tuple[Path, str], list[Path]] = {}
        for path in files:
            match = _KEY.match(bare_name(path))
            by_key.setdefault((path.parent, match["key"] if match else _columns_of(path)), []).append(path)
        passed: dict[Path, str] = {}
        for paths in by_key.values():
            if len(paths) == 1:
                continue
            steps = {path: _steps_in(path) for path in paths}
            *older, newest = sorted(paths, key=lambda path: (len(steps[path]), natural_key(path)))
            if all(steps[path] <= steps[newest] for path in older):
                passed |= dict.fromkeys(older, f"older copy of the cumulative table {newest.name}")
        return [path for path in files if path not in passed], passed

    def records(self, file: File) -> Iterator[Record]:
        """Table rows as objects; a wide row becomes one record per sample."""
        for table in iter_json(file.path):
            if isinstance(table.value, Bad):
                yield table
                continue
            columns = [str(name) for name in table.value["columns"]]
            for number_, row in enumerate(table.value["data"], start=1):
                cells = dict(zip(columns, row, strict=False))
                if "output_1" not in cells:
                    yield Record(number_, cells)
                    continue
                for index in range(1, len(columns) + 1):
                    if cells.get(f"output_{index}") is not None:
                        sample = {name: cells.get(f"{name}_{index}") for name in ("input", "output", "score")}
                        yield Record(number_, {**sample, "step": cells.get("step"), _WIDE: index})

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row or wide sample."""
        step = next((integer(record[name]) for name in _STEP_COLUMNS if record.get(name) is not None), None)
        if "text" in record:
            turns = _turns_of_whole_text(str(record["text"]))
            self.say(file.notes, "prompt and response share one text column: cut at the first assistant marker")
        elif "output" in record:
            turns = turns_from_text(str(record.get("input") or ""), str(record["output"]))
        else:
            turns = completion_turns(record.get("prompt") or "", record.get("completion", record.get("response")))
        skip = {*_STEP_COLUMNS, "advantage", _WIDE}
        rewards = numeric_columns(record, skip)
        single = next((name for name in ("reward", "score", "total_reward") if record.get(name) is not None), None)
        known = [value for value in rewards.values() if value is not None]
        if single is None and len(rewards) > 1:
            self.say(file.notes, f"reward weights unknown: plain sum of {', '.join(rewards)}")
        rollout = Rollout(
            turns,
            reward=reward_of(record[single]) if single else sum(known) if known else None,
            reward_source=single or f"sum of {', '.join(rewards)}",
            components=rewards if len(rewards) > 1 or single is None else None,
            step=step,
            columns={"advantage": number(record.get("advantage"))},
        )
        if _WIDE in record:
            rollout.trajectory = f"{file.path}:{step}:{record[_WIDE]}"
            self.say(file.notes, "wide W&B tables keep a handful of generations per step, not the whole batch")
        yield rollout


def _turns_of_whole_text(text: str) -> list[Turn]:
    match = _LAST_PROMPT.match(text)
    return turns_from_text(match[1], match[2]) if match else [Turn(text, "")]


def _columns_of(path: Path) -> str:
    """What stands for the key of a table that was renamed."""
    tables = (record.value for record in iter_json(path) if isinstance(record.value, dict))
    return "\0".join(map(str, next(tables, {}).get("columns") or []))


def _steps_in(path: Path) -> set[Any]:
    steps: set[Any] = set()
    for record in iter_json(path):
        if isinstance(record.value, dict) and record.value.get("columns"):
            columns = record.value["columns"]
            index = next((columns.index(name) for name in _STEP_COLUMNS if name in columns), 0)
            steps |= {row[index] for row in record.value.get("data") or [] if len(row) > index}
    return steps
