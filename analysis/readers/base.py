"""What a reader is and what it hands over. Contract only: no framework's field names, no detection logic.

A reader turns one framework's files into record batches of `ragen_diag.rollout_log.SCHEMA` (missing = null) or into metric
series named as in `ragen_diag.metric_names.METRICS`. Third parties register one under the entry-point group
`ragen_diag.readers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ragen_diag.rollout_log import BadRecord


@dataclass(frozen=True, slots=True)
class Match:
    """A reader's claim on a file."""

    confidence: float
    """0..1; the highest wins, a tie is an error that names both."""
    why: str
    """One clause shown to the user, such as "rows have input, output, score, step"."""
    version: str | None = None
    """Schema generation of the format, when it can be told."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Overrides from the command line; None = decide from the content."""

    format: str | None = None
    split: str | None = None
    step_from_path: str | None = None
    """Regular expression with one group that captures the step in the file's path."""
    reward_columns: tuple[str, ...] | None = None
    group_key: str | None = None
    thinking_tags: tuple[str, str] | None = None
    mapping: dict[str, str] | None = None
    """Normal-form column -> source field, from --map."""
    strict: bool = False
    """Stop at the first bad record with BadLog."""


@dataclass
class Notes:
    """What a reader noticed; filled while its batches are consumed, complete once they are exhausted."""

    assumptions: list[str] = field(default_factory=list)
    """One line each: what the format cannot tell and what was assumed instead."""
    skipped: list[BadRecord] = field(default_factory=list)
    """The first records and files that could not be read (bounded; the count is in n_bad_rows)."""
    n_bad_rows: int = 0


class SupportsRead(Protocol):
    """A plug-in reader: see any file in this folder for an example."""

    name: str

    def sniff(self, path: Path, head: bytes) -> Match | None:
        """Decide from the first bytes (already decompressed) and the file name; None = not mine."""
        ...

    def read(self, path: Path, options: ReadOptions, notes: Notes) -> Iterator[pa.Table]:
        """Stream tables of the rollout-log schema; one bad record never ends it."""
        ...


@dataclass
class LogSource:
    """One log found under a path the user gave: every file of one format that belongs to one run."""

    name: str
    """Run name for the report."""
    path: Path
    """What the user pointed at, or the subtree that holds this run."""
    kind: str
    """'rollouts' or 'metrics'."""
    format: str
    format_version: str | None
    why: str
    files: list[Path]
    notes: Notes = field(default_factory=Notes)
    config: dict[str, Any] | None = None
    """Resolved configuration when the log carries one (native runs)."""

    def tables(self) -> Iterator[pa.Table]:
        """Stream rollout tables in step order. Only for kind 'rollouts'."""
        raise NotImplementedError

    def series(self) -> dict[str, list[tuple[int, float | None]]]:
        """Metric series by canonical name; for rollouts, the metrics files found beside them (may be empty)."""
        raise NotImplementedError
