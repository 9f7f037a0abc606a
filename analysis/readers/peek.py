"""One look at a file's first bytes: what container it is and which fields its first records have. Decides nothing itself.

Every reader's `sniff` starts from the same `Peek`, which is computed once per file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.readers.base import Match
from analysis.readers.containers import (
    PARQUET_MAGIC,
    ZIP_MAGIC,
    archive_of,
    decode,
    loads,
    open_seekable,
    parse_prefix,
    read_head,
)

HEAD_BYTES = 1 << 18
"""First look; enough for the first records of almost every log."""
_N_RECORDS = 3


@dataclass(frozen=True)
class Peek:
    """What can be seen without reading the file."""

    path: Path
    kind: str
    """'json' (lines, array or object), 'parquet', 'zip', 'text', 'binary' or 'empty'."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """First JSON objects (at most 3); values may be cut when the file is cut."""
    columns: frozenset[str] = frozenset()
    """Column names of a Parquet file."""
    members: tuple[str, ...] = ()
    """Member names of a zip file."""
    encrypted: bool = False
    text: str = ""
    """Start of a text file."""
    damage: str = ""
    """Why a file with a known magic number cannot be looked into."""

    @property
    def key_sets(self) -> list[set[str]]:
        """Key set of each first record (or the columns of a Parquet file)."""
        return [set(self.columns)] if self.kind == "parquet" else [set(record) for record in self.records]

    def having(self, keys: Iterable[str]) -> dict[str, Any] | None:
        """The first record that has all `keys`, or None."""
        wanted = set(keys)
        return next((record for record in self.records if wanted <= set(record)), None)


def peek(path: Path, head: bytes | None = None) -> Peek:
    """Look at a file. `head`: its first decompressed bytes, read when not given. Raises OSError and BadLog."""
    return _peek(path, read_head(path, HEAD_BYTES) if head is None else head)


@lru_cache(maxsize=8)
def _peek(path: Path, head: bytes) -> Peek:
    if not head.strip(b"\0 \t\r\n"):
        return Peek(path, "empty")
    if head[:4] == ZIP_MAGIC:
        return _peek_zip(path)
    if head[:4] == PARQUET_MAGIC:
        return _peek_parquet(path)
    if b"\0" in head[:4096] and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return Peek(path, "binary")
    records = _first_records(head)
    text = decode(head[: 1 << 16])
    if records:
        return Peek(path, "json", records=records, text=text)
    return Peek(path, "text" if text.count("�") <= len(text) // 100 else "binary", text=text)


def _peek_zip(path: Path) -> Peek:
    try:
        with open_seekable(path) as handle, zipfile.ZipFile(handle) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        return Peek(path, "zip", damage=f"damaged zip file ({error})")
    return Peek(
        path, "zip", members=tuple(info.filename for info in infos), encrypted=any(info.flag_bits & 1 for info in infos)
    )


def _peek_parquet(path: Path) -> Peek:
    try:
        with open_seekable(path) as handle:
            return Peek(path, "parquet", columns=frozenset(pq.read_schema(pa.PythonFile(handle)).names))
    except (pa.ArrowException, OSError) as error:
        return Peek(path, "parquet", damage=f"not a complete Parquet file ({str(error).splitlines()[0]})")


def _first_records(head: bytes) -> list[dict[str, Any]]:
    text = decode(head).lstrip()
    if text[:1] == "[" and text[1:].lstrip()[:1] == "{":
        array = _parse(text) or []
        return [item for item in array[:_N_RECORDS] if isinstance(item, dict)]
    first_line = text.split("\n", 1)[0].strip()
    if first_line == "{":  # one indented object
        value = _parse(text)
        return [value] if isinstance(value, dict) else []
    records: list[dict[str, Any]] = []
    for line in text.split("\n")[:50]:
        value = _parse(line) if line.lstrip()[:1] == "{" else None
        if isinstance(value, dict) and value:
            records.append(value)
        if len(records) == _N_RECORDS:
            break
    return records


def _parse(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return parse_prefix(text)


def match_keys(seen: Peek, keys: Iterable[str], *, confidence: float = 0.9, version: str | None = None) -> Match | None:
    """A Match when one of the first records (or the Parquet columns) has all `keys`."""
    wanted = list(keys)
    if any(set(wanted) <= have for have in seen.key_sets):
        where = "columns" if seen.kind == "parquet" else "records"
        return Match(confidence, f"{where} have {', '.join(wanted)}", version)
    return None


def is_member(path: Path) -> bool:
    """Whether a path names a zip member."""
    return archive_of(path) is not None
