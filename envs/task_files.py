"""Rows of task files, and the split a task belongs to. Shared by the environments that draw questions or puzzles."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

SPLITS = ("train", "validation")
VALIDATION_SHARE = 10  # one task in ten


def check_split(split: str) -> None:
    """Raises ValueError unless `split` is one of SPLITS."""
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; it is one of {', '.join(SPLITS)}")


def split_of(task: str) -> str:
    """The split of a task, from a checksum of its text: no seed, file order or mixture of sources can leak one over."""
    return "validation" if zlib.crc32(task.encode()) % VALIDATION_SHARE == 0 else "train"


def read_rows(path: str) -> list[dict[str, Any]]:
    """Rows of a Parquet, JSON (one list) or JSON lines file. Raises ValueError naming file and line."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no file {path}")
    if file.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet as pq

        try:
            return pq.read_table(file).to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path}: not a Parquet file: {error}") from error
    text = file.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        return json.loads(text)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: no JSON: {error}") from error
    return rows
