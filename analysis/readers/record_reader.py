"""Base of the built-in rollout readers: streams a file's records, turns each into `Rollout`s, and batches their rows.

A framework's file says which keys its records have (`needs`) and how one record becomes rollouts (`rollouts`); everything that
is the same for all of them (bad records, overrides, provenance, batching) is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.readers.base import Match, Notes, ReadOptions
from analysis.readers.containers import Bad, Record, iter_json, open_seekable
from analysis.readers.layout import split_of, step_of, step_pattern
from analysis.readers.normal_form import Placed, Rollout, Turn, integer, number, reward_of, rollout_rows
from analysis.readers.peek import Peek, match_keys, peek
from analysis.readers.thinking import other_markup
from ragen_diag.errors import BadLog
from ragen_diag.rollout_log import BadRecord, rows_to_table

BATCH_ROWS = 1000
BATCH_CHARS = 32_000_000
MAX_SKIPPED_SHOWN = 100
_EXPECTED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


@dataclass
class File:
    """One file being read."""

    path: Path
    options: ReadOptions
    notes: Notes
    step: int | None
    """From --step-from-path, or from the path when the format keeps it there."""
    step_source: str | None
    split: str


class RecordReader:
    """Reader of one framework's log."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Keys one record must have; also what error messages compare a strange file with."""
    default_split: ClassVar[str] = "train"
    fixed_split: ClassVar[str | None] = None
    """Split of every row, for formats that only ever hold evaluations."""
    step_in_path: ClassVar[bool] = False
    """Whether file or folder names carry the step."""
    inside_run: ClassVar[re.Pattern[str] | None] = None
    """Folder names inside one run's layout, besides the usual ones."""
    assumes: ClassVar[tuple[str, ...]] = ()
    """What this format can never tell."""

    def __init__(self) -> None:
        self.placed = Placed()
        self._said: set[str] = set()

    # --- what a framework's file overrides

    def claims(self, seen: Peek) -> Match | None:
        """Decide from what can be seen; the default wants all `needs` in one of the first records."""
        return match_keys(seen, self.needs) if self.needs and seen.kind == "json" else None

    def records(self, file: File) -> Iterator[Record]:
        """Raw records of a file."""
        return iter_json(file.path)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterable[Rollout]:
        """Rollouts of one record. May raise KeyError, TypeError or ValueError: the record is then counted as bad."""
        raise NotImplementedError

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """Files to read, and those to pass over with the reason (copies, subsets)."""
        return files, {}

    # --- the reader contract

    def sniff(self, path: Path, head: bytes) -> Match | None:
        """See `base.SupportsRead`."""
        return self.claims(peek(path, head))

    def read(self, path: Path, options: ReadOptions, notes: Notes) -> Iterator[pa.Table]:
        """Stream tables of the rollout-log schema; raises BadLog under --strict only."""
        for line in self.assumes:
            self.say(notes, line)
        file = self._open(path, options, notes)
        rows: list[dict[str, Any]] = []
        n_chars = 0
        for rollout in self._settled(self.records(file), file):
            for row in rollout_rows(
                rollout, run_id=path.parent.name or ".", path=str(path), placed=self.placed, tags=options.thinking_tags
            ):
                rows.append(row)
                n_chars += len(row["prompt_text"] or "") + len(row["response_text"] or "")
            if len(rows) >= BATCH_ROWS or n_chars >= BATCH_CHARS:
                yield rows_to_table(rows)
                rows, n_chars = [], 0
        if rows:
            yield rows_to_table(rows)

    def table(
        self, records: Iterable[dict[str, Any]], *, path: Path, first_line: int = 1, split: str | None = None
    ) -> pa.Table:
        """Rows of records that are in memory, as if they stood in `path` from `first_line` on. Raises BadLog for a bad one.

        For trainings that hand over their records while they run (ragen_diag.callbacks).
        """
        file = self._open(path, ReadOptions(split=split), Notes())
        numbered = (Record(line, record) for line, record in enumerate(records, start=first_line))
        table = rows_to_table(
            row
            for rollout in self._settled(numbered, file)
            for row in rollout_rows(rollout, run_id=path.name, path=str(path), placed=self.placed)
        )
        if file.notes.skipped:
            raise BadLog(f"rollout {file.notes.skipped[0].line} of {path}: {file.notes.skipped[0].why}")
        return table

    # --- shared steps

    def say(self, notes: Notes, line: str) -> None:
        """Add one assumption, once."""
        if line not in self._said:
            self._said.add(line)
            if line not in notes.assumptions:
                notes.assumptions.append(line)

    def bad(self, file: File, line: int | None, why: str) -> None:
        """Count one bad record. Raises BadLog under --strict."""
        if file.options.strict:
            raise BadLog(f"{file.path}:{line or 0}: {why} (--strict stops at the first bad record)")
        file.notes.n_bad_rows += 1
        if len(file.notes.skipped) < MAX_SKIPPED_SHOWN:
            file.notes.skipped.append(BadRecord(str(file.path), line, why))

    def _open(self, path: Path, options: ReadOptions, notes: Notes) -> File:
        step, source = None, None
        if options.step_from_path:
            match = step_pattern(options.step_from_path).search(str(path))
            if match:
                step, source = integer(match[1]), "--step-from-path"
            else:
                self.say(
                    notes, f"--step-from-path {options.step_from_path!r} does not match {path.name}: step unknown there"
                )
        elif self.step_in_path and (found := step_of(path)):
            step, source = found
        split = options.split or self.fixed_split or split_of(path) or self.default_split
        return File(path, options, notes, step, source, split)

    def _settled(self, records: Iterable[Record], file: File) -> Iterator[Rollout]:
        """Rollouts of the records, with step and split decided."""
        for rollout in self._rollouts_of(records, file):
            self._place(rollout, file)
            yield rollout

    def _rollouts_of(self, records: Iterable[Record], file: File) -> Iterator[Rollout]:
        line, n_on_line = -1, 0  # a line may hold several records glued together
        for record in records:
            if isinstance(record.value, Bad):
                self.bad(file, record.line, record.value.why)
                continue
            if not isinstance(record.value, dict):
                self.bad(file, record.line, f"a {type(record.value).__name__} where a {self.name} record should be")
                continue
            try:
                made = list(self.rollouts(record.value, file))
                if any(not rollout.turns for rollout in made):
                    raise ValueError("no response of the policy in it")
            except _EXPECTED as error:
                self.bad(file, record.line, _explain(error, self.name))
                continue
            n_on_line = n_on_line + 1 if record.line == line else 0
            line = record.line
            for index, rollout in enumerate(made):
                if rollout.line is None:
                    rollout.line = record.line
                if rollout.trajectory is None and (len(made) > 1 or n_on_line):
                    rollout.trajectory = f"{file.path}:{record.line}:{index + n_on_line}"
                self._override(rollout, record.value, file)
                yield rollout

    def _override(self, rollout: Rollout, record: dict[str, Any], file: File) -> None:
        """Apply --reward-columns and --group-key."""
        options = file.options
        if options.reward_columns:
            values = {
                name: reward_of(record.get(name, (rollout.components or {}).get(name)))
                for name in options.reward_columns
            }
            known = [value for value in values.values() if value is not None]
            rollout.reward = sum(known) if known else None
            rollout.components = values
            rollout.reward_source = f"--reward-columns {','.join(options.reward_columns)}"
        if options.group_key:
            value = lookup(record, options.group_key)
            rollout.group = None if value is None else str(value)
            rollout.group_source = f"--group-key {options.group_key}"

    def _place(self, rollout: Rollout, file: File) -> None:
        """Decide step and split, and note what the text shows."""
        if file.step_source == "--step-from-path" or (rollout.step is None and file.step is not None):
            rollout.step, rollout.step_source = file.step, file.step_source
        elif rollout.step is not None:
            rollout.step_source = rollout.step_source or "record"
        else:
            self.say(file.notes, "no step in the log: all rollouts are one step")
        if file.options.split or rollout.split is None:
            rollout.split = file.split
        if rollout.group is None and rollout.group_source is None:
            has_prompt = rollout.prompt_key or rollout.turns[0].prompt
            self.say(
                file.notes,
                "no group id: rollouts of one prompt, step and split are a group"
                if has_prompt
                else "no group id and no prompt text: groups unknown, group checks off",
            )
        if rollout.reward is None and rollout.reward_source is None and rollout.components is None:
            self.say(file.notes, "rewards missing on some or all rollouts: left out of every reward statistic")
        markup = other_markup(rollout.turns[0].response or "") if not file.options.thinking_tags else None
        if markup:
            self.say(
                file.notes, f"responses hold {markup}, which is not read as thinking unless --thinking-tags says so"
            )


def lookup(record: Any, dotted: str) -> Any:
    """Value at `a.b.c` of nested objects; an exact key with dots in it wins. None when absent."""
    if isinstance(record, dict) and dotted in record:
        return record[dotted]
    value = record
    for key in dotted.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def parquet_records(path: Path, columns: list[str] | None = None, batch_rows: int = 256) -> Iterator[Record]:
    """Rows of a Parquet file as records; one Bad when the file is torn."""
    number_ = 0
    try:
        with open_seekable(path) as handle, pq.ParquetFile(pa.PythonFile(handle)) as table:
            for batch in table.iter_batches(batch_size=batch_rows, columns=columns):
                for row in batch.to_pylist():
                    number_ += 1
                    yield Record(number_, row)
    except (pa.ArrowException, OSError) as error:
        yield Record(number_ + 1, Bad(f"not a complete Parquet file: {str(error).splitlines()[0]}"))


def numeric_columns(record: dict[str, Any], exclude: Iterable[str]) -> dict[str, float | None]:
    """Named numbers of a record (null kept as None), for reward components."""
    skip = set(exclude)
    return {
        key: number(value)
        for key, value in record.items()
        if key not in skip and not isinstance(value, str) and (value is None or number(value) is not None)
    }


def single_turn(prompt: str, response: str, **columns: Any) -> list[Turn]:
    """One turn of text."""
    return [Turn(response, prompt, columns=columns)]


def _explain(error: Exception, name: str) -> str:
    if isinstance(error, KeyError):
        return f"not a {name} record: key {error} is missing"
    return f"not a {name} record: {error}"
