"""Bytes and records out of files as they are found: compressed, archived, torn, half broken. Knows no framework's fields.

Rows are cut at "\\n" only, because several frameworks write U+2028 and U+0085 unescaped. A record that cannot be parsed comes
back as `Bad`, never as an exception: the caller counts it with file and line and goes on.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from ragen_diag.errors import BadLog

ZIP_MAGIC, GZIP_MAGIC, ZSTD_MAGIC, PARQUET_MAGIC = b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
MEMBER_MARK = "!"
"""`runs.zip!/data/1.jsonl` names the member data/1.jsonl of runs.zip."""
_ZSTD_METHOD = 93
_ARRAY_CHUNK = 1 << 20
_PREFIX_CHARS = 1 << 22


@dataclass(frozen=True, slots=True)
class Bad:
    """A stretch of a file that is no record, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """One parsed value and the 1-based line (or position in a JSON array) it came from."""

    line: int
    value: Any
    """A parsed JSON value, or Bad."""


# --- files and members


def archive_of(path: Path) -> tuple[Path, str] | None:
    """Split `runs.zip!/data/1.jsonl` into archive and member name; None for an ordinary file."""
    for index, part in enumerate(path.parts):
        if part.endswith(MEMBER_MARK) and index + 1 < len(path.parts):
            archive = Path(*path.parts[:index], part[: -len(MEMBER_MARK)])
            if archive.is_file():
                return archive, "/".join(path.parts[index + 1 :])
    return None


def member_path(archive: Path, member: str) -> Path:
    """Path that names a member of an archive."""
    return archive.with_name(archive.name + MEMBER_MARK) / member


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Read one zip member, zstd (method 93) included. Raises BadLog when it is encrypted or damaged."""
    if info.flag_bits & 1:
        raise BadLog(f"{archive.filename}: '{info.filename}' is password-protected. Unpack it first.")
    try:
        if info.compress_type != _ZSTD_METHOD:
            return archive.read(info)
        handle = cast(BinaryIO, archive.fp)
        handle.seek(info.header_offset)
        header = handle.read(30)
        # The local header's own name and extra lengths: they may differ from the central directory's.
        name_len, extra_len = struct.unpack("<HH", header[26:30])
        handle.seek(name_len + extra_len, io.SEEK_CUR)
        return zstandard.ZstdDecompressor().decompressobj().decompress(handle.read(info.compress_size))
    except (zipfile.BadZipFile, NotImplementedError, zstandard.ZstdError, zlib.error, struct.error) as error:
        raise BadLog(f"{archive.filename}: cannot read member '{info.filename}' ({error})") from error


def open_binary(path: Path) -> BinaryIO:
    """Open a file or zip member for reading, with .gz and .zst (by magic bytes, not by name) decompressed.

    Raises BadLog for an encrypted or damaged zip member and OSError when the file cannot be opened.
    """
    inside = archive_of(path)
    if inside:
        with zipfile.ZipFile(inside[0]) as archive:
            raw: BinaryIO = io.BytesIO(read_member(archive, archive.getinfo(inside[1])))
    else:
        raw = path.open("rb")
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP_MAGIC):
        return cast(BinaryIO, _Owning(gzip.GzipFile(fileobj=raw), raw))
    if magic == ZSTD_MAGIC:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return cast(BinaryIO, _Owning(io.BufferedReader(cast(Any, reader), 1 << 17), raw))
    return raw


class _Owning(io.BufferedReader):
    """A decompressing stream that also closes the file beneath it."""

    def __init__(self, stream: Any, below: BinaryIO) -> None:
        super().__init__(stream, 1 << 17)
        self._below = below

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._below.close()


def open_seekable(path: Path) -> BinaryIO:
    """Open for random access (Parquet, zip): the file itself, or its decompressed bytes in memory."""
    if archive_of(path) is None:
        with path.open("rb") as handle:
            magic = handle.read(4)
        if not magic.startswith(GZIP_MAGIC) and magic != ZSTD_MAGIC:
            return path.open("rb")
    with open_binary(path) as handle:
        return io.BytesIO(handle.read())


def read_head(path: Path, size: int) -> bytes:
    """First `size` decompressed bytes; fewer when the file is short or its compressed stream is cut."""
    with open_binary(path) as handle:
        chunks: list[bytes] = []
        missing = size
        try:
            while missing > 0 and (chunk := handle.read(min(missing, 1 << 16))):
                chunks.append(chunk)
                missing -= len(chunk)
        except (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile):
            pass  # what could be unpacked so far is enough to look at; reading the file reports the damage
        return b"".join(chunks)


def read_first_line(path: Path, limit: int) -> bytes:
    """First decompressed line, cut at `limit` bytes."""
    with open_binary(path) as handle:
        try:
            return handle.readline(limit)
        except (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile):
            return read_head(path, limit)


# --- text and JSON


def decode(data: bytes) -> str:
    """UTF-8 text without a byte-order mark; bytes that are no UTF-8 become U+FFFD."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def clean(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can produce and UTF-8 cannot store, by "?"."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace").decode("utf-8")
    return text


def clean_value(value: Any) -> Any:
    """`clean` applied to every string of a parsed JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_value(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_value(item) for key, item in value.items()}
    return value


def loads(text: str) -> Any:
    """Parse JSON, bare NaN and Infinity included, lone surrogates replaced. Raises ValueError or RecursionError."""
    value = json.loads(text)
    return clean_value(value) if "\\ud" in text or "\\uD" in text else value


def iter_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(1-based line number, text) of non-blank lines, cut at "\\n" only, without trailing "\\r"."""
    with open_binary(path) as handle:
        for number, raw in enumerate(handle, start=1):
            if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as Windows shells write it
                rest = decode(raw + handle.read())
                yield from ((i, line) for i, line in enumerate(rest.split("\n"), 1) if line.strip())
                return
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
            if text and not text.isspace():
                yield number, text


def iter_json(path: Path) -> Iterator[Record]:
    """Records of a JSON-lines file, a JSON array, one JSON object, or objects glued together ("}{"). Streams.

    A line that is no JSON yields Bad. A broken compressed stream yields one Bad and ends.
    """
    number = 0
    try:
        if _starts_with_array(path):
            yield from _iter_array(path)
            return
        for number, text in iter_lines(path):
            yield from _parse_line(path, number, text)
            if number == 1 and text.strip() in ("{", "["):
                return  # _parse_line read the whole indented file
    except (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile) as error:
        yield Record(number + 1, Bad(f"compressed data is cut off or damaged ({error})"))


def _parse_line(path: Path, number: int, text: str) -> Iterator[Record]:
    try:
        yield Record(number, loads(text))
        return
    except (ValueError, RecursionError) as error:
        why = f"not JSON: {error}"
    if number == 1 and text.strip() == "{":
        with open_binary(path) as handle:
            yield from _iter_glued(1, decode(handle.read()))
    elif "}{" in text or "} {" in text:
        yield from _iter_glued(number, text)
    else:
        yield Record(number, Bad(why))


def _iter_glued(number: int, text: str) -> Iterator[Record]:
    """Values that follow one another without a line break."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield Record(number + text.count("\n", 0, position), Bad(f"not JSON: {error}"))
            return
        yield Record(number + text.count("\n", 0, position), clean_value(value))
        position = end


def _starts_with_array(path: Path) -> bool:
    """Whether the file is one JSON array of objects (and not JSON lines that are arrays)."""
    head = decode(read_head(path, 4096)).lstrip()
    return head.startswith("[") and head[1:].lstrip().startswith(("{", "]"))


def _iter_array(path: Path) -> Iterator[Record]:
    """Items of one top-level array, decoded one at a time so that a large file is never held whole."""
    decoder = json.JSONDecoder()
    with open_binary(path) as handle:
        stream = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="replace", newline="")
        buffer, number = stream.read(_ARRAY_CHUNK).lstrip()[1:], 0
        while True:
            buffer = buffer.lstrip(" \t\r\n,")
            if buffer.startswith("]"):
                return
            try:
                value, end = decoder.raw_decode(buffer) if buffer else (None, 0)
            except (ValueError, RecursionError) as error:
                end, why = 0, f"not JSON: {error}"
            else:
                why = "the array is not closed"
            # A number or literal at the buffer's very end may go on in the next chunk.
            if end == 0 or end == len(buffer):
                more = stream.read(max(_ARRAY_CHUNK, len(buffer)))
                if more:
                    buffer += more
                    continue
                if end == 0:
                    yield Record(number + 1, Bad(why))
                    return
            number += 1
            yield Record(number, clean_value(value))
            buffer = buffer[end:]


def parse_prefix(text: str) -> Any:
    """Parse a JSON value whose end is missing by closing what is open; None when that is not possible.

    For looking at the first bytes of a file with huge lines; never used for data.
    """
    text = text[:_PREFIX_CHARS]
    closers: list[str] = []
    in_string = escaped = False
    cuts: list[tuple[int, str]] = []  # positions where the text can be cut, with what then closes it
    for position, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
            continue
        if char == '"':
            in_string = True
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            cuts.append((position + 1, "".join(reversed(closers))))
        elif char in "}]":
            if not closers:
                return None
            closers.pop()
        elif char == ",":
            cuts.append((position, "".join(reversed(closers))))
        if len(cuts) > 8:
            del cuts[0]
    for cut, closing in reversed(cuts):
        try:
            return loads(text[:cut] + closing)
        except (ValueError, RecursionError):
            continue
    return None
