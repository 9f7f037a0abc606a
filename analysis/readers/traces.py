"""Spans and runs that belong to one rollout, put together. Used by the tracing formats, whose rows come in any order.

Holds one file's rows in memory: a rollout is complete only at the file's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from analysis.readers.containers import Bad, Record


def grouped_records(records: Iterable[Record], key_of: Callable[[dict[str, Any]], str]) -> Iterator[Record]:
    """Records {"key", "spans"} in order of first appearance; rows without the key come out as Bad at once."""
    groups: dict[str, list[dict[str, Any]]] = {}
    lines: dict[str, int] = {}
    for record in records:
        if isinstance(record.value, Bad) or not isinstance(record.value, dict):
            yield record
            continue
        try:
            key = key_of(record.value)
        except (KeyError, TypeError) as error:
            yield Record(record.line, Bad(f"no {error} in it: it belongs to no trace"))
            continue
        groups.setdefault(key, []).append(record.value)
        lines.setdefault(key, record.line)
    for key, spans in groups.items():
        yield Record(lines[key], {"key": key, "spans": spans})
