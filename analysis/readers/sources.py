"""The concrete `LogSource`s that `discover` hands out: rollouts of one run, a native run, a metrics-only log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from analysis.readers.base import LogSource, Match, Notes, ReadOptions
from analysis.readers.metrics_tables import Points, best_state_files, say
from analysis.readers.registry import metrics_readers
from ragen_diag.errors import BadLog
from ragen_diag.rollout_log import ROLLOUTS_DIR, RUN_FILE, BadRecord, read_metrics, read_steps, step_files

MAX_BAD_SHARE = 0.2
"""A log with a larger share of unreadable records is refused (BadLog)."""
_COALESCE_ROWS = 1000


@dataclass
class RolloutSource(LogSource):
    """Rollouts of one run in a foreign format (or a loose native step file)."""

    reader: Any = None
    options: ReadOptions = field(default_factory=ReadOptions)
    metrics_files: list[tuple[str, Path]] = field(default_factory=list)

    def tables(self) -> Iterator[pa.Table]:
        """Stream tables; small files are put together. Raises BadLog when too many records were bad, or any under --strict."""
        # A second pass starts over: positions inside groups, counts and notes belong to one pass.
        self.reader = type(self.reader)()
        self.notes.assumptions.clear()
        self.notes.skipped.clear()
        self.notes.n_bad_rows = 0
        held: list[pa.Table] = []
        n_rows = 0
        for path in self.files:
            for table in self.reader.read(path, self.options, self.notes):
                n_rows += table.num_rows
                held.append(table)
                if sum(part.num_rows for part in held) >= _COALESCE_ROWS:
                    yield pa.concat_tables(held)
                    held = []
        if held:
            yield pa.concat_tables(held)
        placed = getattr(self.reader, "placed", None)
        if placed is not None and placed.n_repeated:
            say(
                self.notes,
                f"{placed.n_repeated} rollouts repeat an earlier (step, prompt, response), as after a resume; counted twice",
            )
        _refuse_if_too_bad(self.notes, n_rows, self.path)

    def series(self) -> dict[str, Points]:
        """Metric series of the files found beside the rollouts."""
        return _merged(self.metrics_files, self.notes)


@dataclass
class NativeSource(LogSource):
    """A run folder of ragen-diag itself."""

    metrics_files: list[tuple[str, Path]] = field(default_factory=list)
    passed_over: list[BadRecord] = field(default_factory=list)
    """Parquet files among the rollouts that are no step files."""

    @classmethod
    def at(cls, path: Path, name: str) -> NativeSource:
        """Open a run folder; its configuration is read, its rollouts are not."""
        config = None
        if (path / RUN_FILE).is_file():
            try:
                config = yaml.safe_load((path / RUN_FILE).read_text(encoding="utf-8"))
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                raise BadLog(f"{path / RUN_FILE}: not a readable run configuration ({error})") from error
        files = [file for _, _, file in step_files(path)]
        kind = "rollouts" if files else "metrics"
        why = (
            f"{RUN_FILE} and step files of a ragen-diag run" if config is not None else "step files of a ragen-diag run"
        )
        source = cls(
            name, path, kind, "ragen_diag", None, why, files, config=config if isinstance(config, dict) else None
        )
        named_otherwise = sorted(set((path / ROLLOUTS_DIR).glob("*.parquet")) - set(files))
        source.passed_over = [
            BadRecord(str(file), None, "not named like a step file, step-000001.parquet or step-000001.val.parquet")
            for file in named_otherwise
        ]
        return source

    def tables(self) -> Iterator[pa.Table]:
        """Stream step files in step order; a torn file is one bad record."""
        bad: list[BadRecord] = []
        n_rows = 0
        for batch in read_steps(self.path, bad=bad):
            n_rows += batch.num_rows
            yield pa.Table.from_batches([batch])
        self.notes.skipped, self.notes.n_bad_rows = bad + self.passed_over, len(bad)
        _refuse_if_too_bad(self.notes, n_rows, self.path)

    def series(self) -> dict[str, Points]:
        """Columns of metrics.parquet."""
        try:
            rows = read_metrics(self.path)
        except (pa.ArrowInvalid, OSError) as error:
            self.notes.skipped.append(BadRecord(str(self.path / "metrics.parquet"), None, str(error).splitlines()[0]))
            return {}
        series: dict[str, Points] = {}
        for row in rows:
            for name, value in row.items():
                if name != "step":
                    series.setdefault(name, []).append((int(row["step"] or 0), None if value is None else float(value)))
        return series


@dataclass
class MetricsSource(LogSource):
    """A log of per-step numbers only."""

    label: str = ""
    _series: dict[str, Points] = field(default_factory=dict)

    @classmethod
    def all_of(
        cls, format_: str, files: list[Path], root: Path, name: str, match: Match
    ) -> tuple[list[LogSource], list[BadRecord]]:
        """One source per run inside the files (several when a label column such as `phase` or `arm` tells runs apart)."""
        passed: list[BadRecord] = []
        if format_ == "trainer_state" and len(files) > 1:
            files, copies = best_state_files(files)
            passed = [BadRecord(str(path), None, why) for path, why in copies.items()]
        notes = Notes()
        by_label: dict[str, dict[str, Points]] = {}
        for path in files:
            for log in metrics_readers()[format_]().read(path, notes):
                _merge(by_label.setdefault(log.label, {}), log.canonical())
        if not by_label:
            passed += [BadRecord(str(path), None, "no numbers in it") for path in files]
        sources: list[LogSource] = []
        for label, series in by_label.items():
            own = Notes(list(notes.assumptions), list(notes.skipped), notes.n_bad_rows)
            title = f"{name}:{label}" if label and len(by_label) > 1 else name
            sources.append(
                cls(title, root, "metrics", format_, match.version, match.why, files, own, label=label, _series=series)
            )
        return sources, passed

    def tables(self) -> Iterator[pa.Table]:
        """No rollouts in it."""
        return iter(())

    def series(self) -> dict[str, Points]:
        """Metric series by canonical name."""
        return self._series


def _merged(files: list[tuple[str, Path]], notes: Notes) -> dict[str, Points]:
    states = [path for format_, path in files if format_ == "trainer_state"]
    keep = set(best_state_files(states)[0]) if states else set()
    merged: dict[str, Points] = {}
    for format_, path in files:
        if format_ == "trainer_state" and path not in keep:
            continue
        own = Notes()
        for log in metrics_readers()[format_]().read(path, own):
            _merge(merged, log.canonical())
        notes.assumptions += [f"{path.name}: {line}" for line in own.assumptions]
        notes.skipped += own.skipped
    return merged


def _merge(into: dict[str, Points], more: dict[str, Points]) -> None:
    """Add points at steps the series does not have yet: a metrics file of a resumed run goes on where the first ended."""
    for name, points in more.items():
        have = {step for step, _ in into.get(name, [])}
        into[name] = sorted([*into.get(name, []), *(p for p in points if p[0] not in have)], key=lambda point: point[0])


def _refuse_if_too_bad(notes: Notes, n_rows: int, path: Path) -> None:
    total = n_rows + notes.n_bad_rows
    # One torn record is the normal end of a killed run, however short the log is.
    if notes.n_bad_rows > MAX_BAD_SHARE * total and (notes.n_bad_rows > 1 or n_rows == 0):
        shown = "; ".join(f"{record.path}:{record.line}: {record.why}" for record in notes.skipped[:3])
        raise BadLog(
            f"{path}: {notes.n_bad_rows} of {total} records cannot be read, more than {MAX_BAD_SHARE:.0%}. First: {shown}"
        )
