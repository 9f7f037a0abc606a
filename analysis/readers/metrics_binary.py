"""Metrics in binary event files: TensorBoard's TFRecord events and W&B's offline `.wandb` transaction log.

Both are protobuf inside a framing; only the handful of fields that carry scalars are decoded, so neither tensorboard nor wandb is
needed. Checksums are not verified: a torn tail simply ends the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from analysis.readers.base import Match, Notes
from analysis.readers.containers import open_binary
from analysis.readers.metrics_tables import MetricsLog, MetricsReader, say, series_of_rows
from analysis.readers.normal_form import number
from analysis.readers.peek import Peek
from ragen_diag.rollout_log import BadRecord

_WANDB_MAGIC, _WANDB_HEADER_BYTES, _WANDB_BLOCK = b":W&B", 7, 32768
_MAX_RECORD = 1 << 28
_TEXT_TAGS = ("/text_summary",)


def protobuf_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, raw value) of one protobuf message: int for varints, bytes for the rest. Raises ValueError when torn."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value: Any
            value, position = _varint(data, position)
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            value, position = data[position : position + width], position + width
        elif wire == 2:
            length, position = _varint(data, position)
            value, position = data[position : position + length], position + length
        else:
            raise ValueError(f"protobuf wire type {wire}")
        if position > len(data):
            raise ValueError("protobuf message is cut off")
        yield field, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("protobuf number is cut off")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (value - (1 << 64) if value >= 1 << 63 else value), position


class TensorBoard(MetricsReader):
    """`events.out.tfevents.*`."""

    name = "tensorboard"

    def claims(self, seen: Peek) -> Match | None:
        """The first record names its version: brain.Event:2."""
        if seen.kind not in ("binary", "text"):
            return None
        with open_binary(seen.path) as handle:
            head = handle.read(64)
        return Match(0.95, "TensorBoard events (brain.Event:2)") if b"brain.Event:" in head else None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """Scalars of every event; histograms, images and text are passed over."""
        log = MetricsLog()
        with open_binary(path) as handle:
            for index, event in enumerate(_tfrecords(handle), start=1):
                try:
                    step, scalars = _event(event)
                except (ValueError, struct.error) as error:
                    notes.n_bad_rows += 1
                    notes.skipped.append(BadRecord(str(path), index, f"not a TensorBoard event: {error}"))
                    continue
                for tag, value in scalars:
                    log.series.setdefault(tag, []).append((step, value))
        return [log] if log.series else []


def _tfrecords(handle: BinaryIO) -> Iterator[bytes]:
    while len(head := handle.read(12)) == 12:
        (length,) = struct.unpack("<Q", head[:8])
        data = handle.read(length + 4) if length < _MAX_RECORD else b""
        if len(data) < length + 4:
            return  # torn tail of a killed run
        yield data[:length]


def _event(data: bytes) -> tuple[int, list[tuple[str, float]]]:
    step, scalars = 0, []
    for field, value in protobuf_fields(data):
        if field == 2:
            step = value
        elif field == 5:
            for inner, summary_value in protobuf_fields(value):
                if inner == 1 and (scalar := _summary_value(summary_value)):
                    scalars.append(scalar)
    return step, scalars


def _summary_value(data: bytes) -> tuple[str, float] | None:
    tag, value = "", None
    for field, raw in protobuf_fields(data):
        if field == 1:
            tag = raw.decode("utf-8", errors="replace")
        elif field == 2:
            (value,) = struct.unpack("<f", raw)
        elif field == 8:
            value = _scalar_tensor(raw)
    return None if value is None or tag.endswith(_TEXT_TAGS) else (tag, value)


def _scalar_tensor(data: bytes) -> float | None:
    """A one-element float or double TensorProto, as TensorFlow 2 and JAX writers store scalars."""
    dtype, found = 0, None
    for field, raw in protobuf_fields(data):
        if field == 1:
            dtype = raw
        elif field == 4 and dtype in (1, 2) and len(raw) == (4 if dtype == 1 else 8):
            (found,) = struct.unpack("<f" if dtype == 1 else "<d", raw)
        elif field in (5, 6) and isinstance(raw, bytes) and len(raw) == (4 if field == 5 else 8):
            (found,) = struct.unpack("<f" if field == 5 else "<d", raw)
    return found


class WandbOffline(MetricsReader):
    """`wandb/offline-run-*/run-<id>.wandb`."""

    name = "wandb_offline"

    def claims(self, seen: Peek) -> Match | None:
        """The magic bytes :W&B."""
        if seen.kind not in ("binary", "text"):
            return None
        with open_binary(seen.path) as handle:
            return Match(0.95, "a W&B transaction log") if handle.read(4) == _WANDB_MAGIC else None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """History records; media and tables are passed over."""
        rows: list[dict[str, Any]] = []
        with open_binary(path) as handle:
            for index, data in enumerate(_wandb_records(handle), start=1):
                try:
                    rows += [row for field, value in protobuf_fields(data) if field == 2 and (row := _history(value))]
                except ValueError as error:
                    notes.n_bad_rows += 1
                    notes.skipped.append(BadRecord(str(path), index, f"not a W&B record: {error}"))
        # W&B counts its own log calls; trainers that log their step as a metric mean that one.
        if any(
            any(name in row for name in ("global_step", "train/global_step", "trainer/global_step")) for row in rows
        ):
            say(notes, "the logged global_step is the step, not W&B's own counter")
            for row in rows:
                row.pop("_step", None)
        return series_of_rows(rows, notes)


def _wandb_records(handle: BinaryIO) -> Iterator[bytes]:
    """Records of a LevelDB log: blocks of 32 KiB, pieces of type full, first, middle, last."""
    handle.read(_WANDB_HEADER_BYTES)
    position, pieces = _WANDB_HEADER_BYTES, b""
    while True:
        left = _WANDB_BLOCK - position % _WANDB_BLOCK
        if left < 7:
            handle.read(left)
            position += left
        head = handle.read(7)
        if len(head) < 7:
            return
        length, kind = struct.unpack("<HB", head[4:])
        data = handle.read(length)
        if len(data) < length or kind == 0:
            return
        position += 7 + length
        pieces = data if kind in (1, 2) else pieces + data
        if kind in (1, 4):
            yield pieces


def _history(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field, value in protobuf_fields(data):
        if field == 1:
            item: dict[int, Any] = {}
            nested: list[str] = []
            for inner, raw in protobuf_fields(value):
                if inner == 2:
                    nested.append(raw.decode("utf-8", errors="replace"))
                elif isinstance(raw, bytes):
                    item[inner] = raw.decode("utf-8", errors="replace")
            key = item.get(1) or ".".join(nested)
            parsed = number(json.loads(item[16])) if key and 16 in item else None
            if parsed is not None:
                row[key] = parsed
        elif field == 2:
            row.setdefault("_step", dict(protobuf_fields(value)).get(1, 0))
    return row
