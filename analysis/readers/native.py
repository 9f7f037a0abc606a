"""ragen-diag's own run folders and step files (`ragen_diag.rollout_log`), also when others wrote them with fewer columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.readers.base import Match, Notes, ReadOptions
from analysis.readers.containers import open_seekable
from analysis.readers.metrics_tables import say
from analysis.readers.peek import Peek
from analysis.readers.record_reader import RecordReader
from ragen_diag.rollout_log import SCHEMA_VERSION, conform, prompt_id


class RagenDiag(RecordReader):
    """A step file of a native run."""

    name = "ragen_diag"
    needs = frozenset({"trajectory_id", "turn", "prompt_text", "response_text"})
    """What cannot be made up; run_id, split and prompt_id can."""

    def claims(self, seen: Peek) -> Match | None:
        """Columns of the rollout log that no foreign format has together."""
        if seen.kind == "parquet" and self.needs <= seen.columns:
            return Match(1.0, "columns of the ragen-diag rollout log", str(SCHEMA_VERSION))
        return None

    def read(self, path: Path, options: ReadOptions, notes: Notes) -> Iterator[pa.Table]:
        """Stream a step file one row group's batch at a time; a torn file is one bad row."""
        try:
            with open_seekable(path) as handle, pq.ParquetFile(pa.PythonFile(handle)) as file:
                for batch in file.iter_batches(batch_size=4096):
                    yield _complete(conform(batch), path, options, notes)
        except (pa.ArrowInvalid, OSError) as error:
            self.bad(
                self._open(path, options, notes), None, f"not a complete Parquet file: {str(error).splitlines()[0]}"
            )


def _complete(table: pa.Table, path: Path, options: ReadOptions, notes: Notes) -> pa.Table:
    """Fill the columns that a log must have where its writer left them out, and say so."""
    split = options.split or ("val" if ".val." in path.name else "train")
    for name, made, how in (
        ("run_id", pa.scalar(path.parent.name), "the folder's name"),
        ("split", pa.scalar(split), f"'{split}'"),
        ("prompt_id", None, "a hash of the first prompt"),
    ):
        column = table.column(name)
        if not column.null_count:
            continue
        filled = _prompt_ids(table) if made is None else pc.fill_null(column, made)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), filled)
        say(notes, f"{name} is not in the log; taken to be {how}")
    return table


def _prompt_ids(table: pa.Table) -> pa.Array:
    rows = table.select(["trajectory_id", "turn", "prompt_text", "prompt_id"]).to_pylist()
    first = {row["trajectory_id"]: row["prompt_text"] for row in rows if row["turn"] == 0}
    ids = [row["prompt_id"] or prompt_id(first.get(row["trajectory_id"], row["prompt_text"]) or "") for row in rows]
    return pa.array(ids, pa.string())
