"""ragen-diag's own run folders and step files (`ragen_diag.rollout_log`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.readers.base import Match, Notes, ReadOptions
from analysis.readers.containers import open_seekable
from analysis.readers.peek import Peek
from analysis.readers.record_reader import RecordReader
from ragen_diag.rollout_log import SCHEMA, SCHEMA_VERSION, conform


class RagenDiag(RecordReader):
    """A step file of a native run."""

    name = "ragen_diag"
    needs = frozenset(field.name for field in SCHEMA if not field.nullable)

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
                    yield conform(batch)
        except (pa.ArrowInvalid, OSError) as error:
            self.bad(
                self._open(path, options, notes), None, f"not a complete Parquet file: {str(error).splitlines()[0]}"
            )
