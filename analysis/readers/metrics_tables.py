"""Metrics-only logs that are tables: CSV (W&B exports too), JSON lines, Parquet, trainer_state.json, sideways tables.

Hands out series under foreign names; `aliases.py` gives them their canonical ones.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.readers.aliases import canonical_names
from analysis.readers.base import Match, Notes
from analysis.readers.containers import Bad, decode, iter_json, open_binary
from analysis.readers.layout import step_of
from analysis.readers.normal_form import integer, number
from analysis.readers.peek import Peek
from analysis.readers.record_reader import parquet_records
from ragen_diag.rollout_log import BadRecord

Points = list[tuple[int, float | None]]
STEP_COLUMNS = (
    "step", "global_step", "_step", "train/global_step", "trainer/global_step", "training/global_step", "global_step/max_steps",
    "train_step", "training_step", "approx_step", "steps", "Step", "iteration", "iter", "rollout_id", "update",
    "step_from", "calls_from", "first_step",
)  # fmt: skip
_STEP_LIKE = re.compile(
    r"^(?:first_|approx_|start_)?(?:step|calls|iteration)s?(?:_from|_of_.*|_start)?$", re.IGNORECASE
)
_LABEL_COLUMNS = ("phase", "arm", "run", "run_id", "run_name", "variant", "config", "experiment", "source", "seed")
_ROLLOUT_TEXT = {"response", "completion", "output", "messages", "responses", "conversations", "generation"}
_SPLIT_LABELS = {
    "train": "",
    "training": "",
    "eval": "eval/",
    "evaluation": "eval/",
    "val": "eval/",
    "validation": "eval/",
    "test": "eval/",
}
_NOT_METRICS = {"_runtime", "_timestamp", "timestamp", "wall_time", "created_at"}


@dataclass
class MetricsLog:
    """Series of one run."""

    label: str = ""
    """Which of several runs in one file; "" = the only one."""
    series: dict[str, Points] = field(default_factory=dict)
    """By foreign name."""

    def canonical(self) -> dict[str, Points]:
        """By canonical name, steps in order."""
        names = canonical_names(self.series)
        return {names[name]: sorted(points, key=lambda point: point[0]) for name, points in self.series.items()}


class MetricsReader:
    """Base of the metrics-only readers."""

    name: str

    def claims(self, seen: Peek) -> Match | None:
        """Decide from what can be seen."""
        raise NotImplementedError

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """All series of a file, one MetricsLog per run in it."""
        raise NotImplementedError


def say(notes: Notes, line: str) -> None:
    """Add one assumption, once."""
    if line not in notes.assumptions:
        notes.assumptions.append(line)


def series_of_rows(rows: list[dict[str, Any]], notes: Notes, *, step: int | None = None) -> list[MetricsLog]:
    """Series of rows {column: value}: picks the step column, keeps every numeric column, splits rows of several runs.

    step: step of every row when no column has one.
    """
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row))
    step_column = next((name for name in STEP_COLUMNS if name in columns), None) or next(
        (name for name in columns if name and _STEP_LIKE.match(name)), None
    )
    label_column = _label_column(rows, columns)
    if step_column is None and step is None:
        epoch = " (the epoch is kept as a column)" if "epoch" in columns else ""
        say(notes, f"no step column: the row number stands for the step{epoch}")
    elif step_column not in (None, "step", "global_step", "_step"):
        say(notes, f"'{step_column}' is taken as the step")
    logs: dict[str, MetricsLog] = {}
    positions: dict[str, int] = {}
    for row in rows:
        value = str(row.get(label_column) or "") if label_column else ""
        prefix = _SPLIT_LABELS.get(value.lower(), "") if label_column else ""
        label = "" if value.lower() in _SPLIT_LABELS else value
        log = logs.setdefault(label, MetricsLog(label))
        position = positions[label] = positions.get(label, -1) + 1
        at = _step_value(row.get(step_column)) if step_column else step if step is not None else position
        if at is None:
            continue
        for name in columns:
            if name and name != step_column and name not in _NOT_METRICS:
                cell = row.get(name)
                if cell is None or cell == "":
                    continue
                as_number = number(cell)
                if as_number is not None:
                    log.series.setdefault(prefix + name, []).append((at, as_number))
    return [log for log in logs.values() if log.series]


def _step_value(value: Any) -> int | None:
    if isinstance(value, str) and "/" in value:  # ms-swift writes "5/100"
        value = value.split("/")[0]
    as_number = number(value)
    return None if as_number is None or not math.isfinite(as_number) else round(as_number)


def _label_column(rows: list[dict[str, Any]], columns: list[str]) -> str | None:
    for name in columns:
        if name in _LABEL_COLUMNS:
            cells = [str(row.get(name) or "") for row in rows]
            # Labels that never repeat name the rows of one table, not several runs.
            if set(cells) <= set(_SPLIT_LABELS) or 1 < len(set(cells)) < len(cells):
                return name
    return None


class CsvMetrics(MetricsReader):
    """Plain CSV or TSV, W&B's CSV export included."""

    name = "csv"

    def claims(self, seen: Peek) -> Match | None:
        """A header, numbers below it, and no column of rollout text."""
        if seen.kind != "text":
            return None
        rows = _csv_rows(seen.text[: seen.text.rfind("\n")] if seen.text.count("\n") > 40 else seen.text)
        if not rows or len(rows[0]) < 2:
            return None
        columns = [name for name in rows[0] if name]
        if _ROLLOUT_TEXT & {name.lower() for name in columns}:
            return None
        numeric = [name for name in columns if any(number(row.get(name)) is not None for row in rows)]
        known = [name for name, to in canonical_names(columns).items() if not to.startswith("other:")]
        has_step = any(name in STEP_COLUMNS or _STEP_LIKE.match(name) for name in columns)
        if not numeric or not (known or has_step or len(numeric) * 2 >= len(columns)):
            return None
        return Match(0.6, f"a table with {len(numeric)} numeric columns, {len(known)} of known meaning")

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """Rows are steps, unless the first column is called `metric`: then rows are metrics."""
        with open_binary(path) as handle:
            rows = _csv_rows(decode(handle.read()))
        if rows and next(iter(rows[0])) in ("metric", "name", "key"):
            return _sideways(rows, notes)
        renamed = _strip_run_prefix(rows)
        return series_of_rows(renamed, notes, step=None)


def _csv_rows(text: str) -> list[dict[str, Any]]:
    first = text.split("\n", 1)[0]
    delimiter = "\t" if first.count("\t") > first.count(",") else ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=delimiter)
    try:
        header = [name.strip() for name in next(reader)]
        return [dict(zip(header, row, strict=False)) for row in reader if any(cell.strip() for cell in row)]
    except (csv.Error, StopIteration):
        return []


def _strip_run_prefix(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """W&B names exported columns `<run name> - <metric>` and adds __MIN and __MAX copies."""
    if not rows or not any(" - " in name for name in rows[0]):
        return rows
    prefixes = {name.split(" - ")[0] for name in rows[0] if " - " in name}
    if len(prefixes) == 1:
        return [
            {name.split(" - ", 1)[-1]: cell for name, cell in row.items() if not name.endswith(("__MIN", "__MAX"))}
            for row in rows
        ]
    long: list[dict[str, Any]] = []
    step_name = next((name for name in rows[0] if " - " not in name), None)
    for row in rows:
        for prefix in sorted(prefixes):
            cells = {
                name.split(" - ", 1)[1]: cell
                for name, cell in row.items()
                if name.startswith(f"{prefix} - ") and not name.endswith(("__MIN", "__MAX"))
            }
            long.append({"run": prefix, **({step_name: row[step_name]} if step_name else {}), **cells})
    return long


def _sideways(rows: list[dict[str, Any]], notes: Notes) -> list[MetricsLog]:
    """A table whose rows are metrics: one value each (`value`, over `steps_total` steps when given), or one column per run."""
    metric, *others = rows[0]
    if "value" in others:
        log = MetricsLog()
        for row in rows:
            value, held, total = (
                number(row["value"]),
                integer(row.get("steps_with_value")),
                integer(row.get("steps_total")),
            )
            n_steps = held if held is not None and total is not None else 1
            if value is not None:
                log.series[str(row[metric])] = [(step, value) for step in range(n_steps)]
            if total is not None and held is not None and held < total:
                say(
                    notes,
                    f"{row[metric]}: {total - held} of {total} steps had another value ({row.get('exception') or 'not given'})",
                )
        say(notes, "rows are metrics, not steps: each value stands for the steps the table says it held")
        return [log] if log.series else []
    say(notes, "rows are metrics and columns are runs: one value per run, no steps")
    logs = []
    for name in others:
        series: dict[str, Points] = {
            str(row[metric]): [(0, value)] for row in rows if (value := number(row.get(name))) is not None
        }
        if series:
            logs.append(MetricsLog(name, series))
    return logs


class TrainerState(MetricsReader):
    """`trainer_state.json` of transformers' Trainer: TRL, ms-swift and everything built on it."""

    name = "trainer_state"

    def claims(self, seen: Peek) -> Match | None:
        """An object with log_history."""
        found = any("log_history" in record for record in seen.records)
        return Match(0.95, "an object with log_history") if found else None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """Entries of log_history; values are averages over `logging_steps`."""
        rows: list[dict[str, Any]] = []
        for record in iter_json(path):
            if isinstance(record.value, Bad):
                notes.n_bad_rows += 1
                notes.skipped.append(BadRecord(str(path), record.line, record.value.why))
            else:
                rows += [row for row in record.value.get("log_history") or [] if isinstance(row, dict)]
        say(
            notes,
            "the trainer averages over logging_steps and drops nan: one dead step can hide, max and min are averages",
        )
        # The closing summary (train_runtime, train_loss) is not a step.
        return series_of_rows([row for row in rows if "train_runtime" not in row], notes)


class JsonlMetrics(MetricsReader):
    """JSON lines of numbers: verl's file logger ({step, data}), ms-swift's logging.jsonl, and plain metrics.jsonl."""

    name = "metrics_jsonl"

    def claims(self, seen: Peek) -> Match | None:
        """Flat records of numbers with a step or a metric of known meaning."""
        if seen.kind != "json":
            return None
        if any(set(record) >= {"step", "data"} and isinstance(record["data"], dict) for record in seen.records):
            return Match(0.8, "records have step and a data object (verl's file logger)", "verl file logger")
        flat = [record for record in seen.records if _is_flat_numbers(record)]
        if not flat or len(flat) < len(seen.records):
            return None
        names = set().union(*flat)
        known = [name for name, to in canonical_names(names).items() if not to.startswith("other:")]
        has_step = any(name in STEP_COLUMNS for name in names)
        if known or has_step:
            return Match(0.4, f"flat records of numbers, {len(known)} of known meaning")
        return None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """One row per line."""
        rows: list[dict[str, Any]] = []
        for record in iter_json(path):
            if not isinstance(record.value, dict):
                notes.n_bad_rows += 1
                why = record.value.why if isinstance(record.value, Bad) else "not an object"
                notes.skipped.append(BadRecord(str(path), record.line, why))
                continue
            data = record.value.get("data")
            rows.append({"step": record.value.get("step"), **data} if isinstance(data, dict) else record.value)
        found = step_of(path)
        return series_of_rows(rows, notes, step=found[0] if found and len(rows) == 1 else None)


def _is_flat_numbers(record: dict[str, Any]) -> bool:
    values = list(record.values())
    numbers = [value for value in values if number(value) is not None]
    short = all(
        value is None or number(value) is not None or (isinstance(value, str) and len(value) < 200) for value in values
    )
    return short and bool(numbers) and len(numbers) * 2 >= len(values)


class ParquetMetrics(MetricsReader):
    """A Parquet table of numbers by step (native `metrics.parquet` on its own, W&B exports)."""

    name = "metrics_parquet"

    def claims(self, seen: Peek) -> Match | None:
        """A step column and at least one metric of known meaning, no text columns."""
        if seen.kind != "parquet" or not any(name in STEP_COLUMNS for name in seen.columns):
            return None
        if _ROLLOUT_TEXT & seen.columns:
            return None
        known = [name for name, to in canonical_names(sorted(seen.columns)).items() if not to.startswith("other:")]
        return Match(0.4, f"a step column and {len(known)} metrics of known meaning") if known else None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """One row per step."""
        return series_of_rows([r.value for r in parquet_records(path) if isinstance(r.value, dict)], notes)


def best_state_files(files: Iterable[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Of the trainer_state.json copies in a run's checkpoints, only the one with the longest history."""
    lengths: dict[Path, int] = {}
    for path in files:
        try:
            with open_binary(path) as handle:
                state = json.loads(decode(handle.read()))
            lengths[path] = len(state.get("log_history") or [])
        except (ValueError, OSError):
            lengths[path] = -1
    if not lengths:
        return [], {}
    best = max(lengths, key=lambda path: (lengths[path], str(path)))
    return [best], {path: "older copy of the same history" for path in lengths if path != best}
