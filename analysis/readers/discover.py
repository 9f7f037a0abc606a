"""Which logs lie under the paths a user gave, in which format and why. Opens files only as far as it takes to decide.

Content decides, never a file name alone. Files of one format that belong to one run become one `LogSource`; mixed formats and
several runs under one path become several. Metrics files beside rollouts are attached to them.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.readers.base import LogSource, Match, ReadOptions
from analysis.readers.containers import ZIP_MAGIC, archive_of, member_path, read_first_line, read_head
from analysis.readers.layout import natural_key, run_root, step_pattern
from analysis.readers.peek import HEAD_BYTES, Peek, peek
from analysis.readers.refusals import describe, quiet_reason
from analysis.readers.registry import check_format, metrics_readers, rollout_readers
from analysis.readers.sources import MetricsSource, NativeSource, RolloutSource
from ragen_diag.errors import AmbiguousFormat, BadLog, NothingReadable, PathNotFound, did_you_mean
from ragen_diag.rollout_log import BadRecord, is_run

_SKIPPED_FOLDERS = {
    ".git",
    ".hg",
    ".venv",
    "venv",
    "__pycache__",
    "node_modules",
    ".cache",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


MAX_LINE_BYTES = 1 << 28
"""Longest first record that is looked into."""


@dataclass
class _Claim:
    """One file and the reader that claims it."""

    path: Path
    format: str
    match: Match


@dataclass
class _Survey:
    """What was found under one path."""

    top: Path
    claims: list[_Claim] = field(default_factory=list)
    native: list[Path] = field(default_factory=list)
    unclaimed: list[BadRecord] = field(default_factory=list)
    n_files: int = 0


def discover(
    paths: list[Path], options: ReadOptions | None = None, passed_over: list[BadRecord] | None = None
) -> list[LogSource]:
    """Find every log under `paths`.

    passed_over: collects files that were not read, each with the reason.
    Raises PathNotFound, NothingReadable (one of the paths holds no log), AmbiguousFormat, and UsageError for a bad option.
    """
    options = options or ReadOptions()
    if options.format is not None:
        check_format(options.format)
    if options.step_from_path is not None:
        step_pattern(options.step_from_path)
    sources: list[LogSource] = []
    for path in paths:
        survey = _survey(Path(path), options)
        found = _sources(survey, options)
        if not found:
            raise NothingReadable(_nothing(survey))
        sources += found
        if passed_over is not None:
            passed_over += survey.unclaimed
    return _with_distinct_names(sources)


# --- looking


def _survey(top: Path, options: ReadOptions) -> _Survey:
    if not top.exists():
        siblings = [entry.name for entry in top.parent.iterdir()] if top.parent.is_dir() else []
        raise PathNotFound(f"{top}: no such file or folder.{did_you_mean(top.name, siblings)}")
    survey = _Survey(top)
    if top.is_dir():
        files = _walk(top, survey, want_native=options.format in (None, "ragen_diag"))
    else:
        files = iter([top])
    for path in files:
        survey.n_files += 1
        if path != top and (reason := quiet_reason(path)):
            survey.unclaimed.append(BadRecord(str(path), None, reason))
            continue
        _look(path, survey, options)
    if any(claim.match.confidence > 0 for claim in survey.claims):
        # --format says how to read what could be anything, not that a metadata file beside the log is one.
        forced = [claim for claim in survey.claims if claim.match.confidence == 0]
        survey.claims = [claim for claim in survey.claims if claim.match.confidence > 0]
        survey.unclaimed += [BadRecord(str(claim.path), None, f"no {claim.format} records in it") for claim in forced]
    return survey


def _walk(top: Path, survey: _Survey, *, want_native: bool) -> Iterator[Path]:
    """Files under a folder in natural order; native runs are noted and not entered. Links are followed, loops are not."""
    visited: set[str] = set()
    for folder, names, files in os.walk(top, followlinks=True):
        here = Path(folder)
        real = os.path.realpath(folder)
        if real in visited or (want_native and is_run(here)):
            if real not in visited:
                survey.native.append(here)
            names.clear()
            continue
        visited.add(real)
        names[:] = sorted(
            (name for name in names if name not in _SKIPPED_FOLDERS), key=lambda name: natural_key(Path(name))
        )
        yield from sorted((here / name for name in files), key=natural_key)


def _members_of_archive(seen: Peek) -> list[str]:
    """Members of a zip file of logs in natural order; none when the zip file is itself a log (inspect_ai, torch) or unreadable."""
    names = set(seen.members)
    is_log = {"header.json", "_journal/start.json"} & names or any(name.endswith("/data.pkl") for name in names)
    if seen.damage or seen.encrypted or is_log:
        return []
    return sorted((name for name in names if not name.endswith("/")), key=lambda name: natural_key(Path(name)))


def _look(path: Path, survey: _Survey, options: ReadOptions) -> None:
    try:
        head = read_head(path, HEAD_BYTES)
        if head.startswith(ZIP_MAGIC) and (members := _members_of_archive(peek(path, head))):
            for member in members:
                _look(member_path(path, member), survey, options)
            return
        claim = _claim(path, head, options)
        if claim is None and len(head) == HEAD_BYTES and b"\n" not in head and head.lstrip()[:1] == b"{":
            # One record longer than the first look: its telling keys may come last (ROLL, Atropos).
            head = read_first_line(path, MAX_LINE_BYTES)
            claim = _claim(path, head, options)
        why = "" if claim else describe(peek(path, head))
    except (OSError, BadLog, zipfile.BadZipFile) as error:
        claim, why = None, f"cannot be opened: {error}"
    if claim:
        survey.claims.append(claim)
    else:
        survey.unclaimed.append(BadRecord(str(path), None, why))


def _claim(path: Path, head: bytes, options: ReadOptions) -> _Claim | None:
    wanted = "mapping" if options.mapping and options.format is None else options.format
    matches: list[_Claim] = []
    for name, cls in {**rollout_readers(), **metrics_readers()}.items():
        if wanted is not None and name != wanted:
            continue
        reader = cls()
        by_user = name == wanted == "mapping"
        match = reader.claims(peek(path, head)) if by_user or not hasattr(reader, "sniff") else reader.sniff(path, head)
        if match:
            matches.append(_Claim(path, name, match))
    if not matches:
        if wanted is not None and options.format and peek(path, head).kind in ("json", "parquet", "text"):
            return _Claim(path, wanted, Match(0.0, f"--format {wanted}"))
        return None
    best = max(claim.match.confidence for claim in matches)
    winners = [claim for claim in matches if claim.match.confidence == best]
    if len(winners) > 1:
        said = "; ".join(f"{claim.format} ({claim.match.why})" for claim in winners)
        raise AmbiguousFormat(f"{path}: several formats fit: {said}. Say which with --format {winners[0].format}")
    return winners[0]


# --- grouping


def _sources(survey: _Survey, options: ReadOptions) -> list[LogSource]:
    sources: list[LogSource] = [NativeSource.at(path, _run_name(path, survey.top)) for path in survey.native]
    rollouts = [claim for claim in survey.claims if claim.format in rollout_readers()]
    metrics = [claim for claim in survey.claims if claim.format in metrics_readers()]
    by_run: dict[tuple[Path, str], list[_Claim]] = {}
    for claim in rollouts:
        by_run.setdefault((_root(claim, survey.top), claim.format), []).append(claim)
    only_root = len({root for root, _ in by_run}) == 1
    for (root, format_), claims in by_run.items():
        source = _rollout_source(root, format_, claims, survey, options)
        if only_root:
            source.name = _run_name(survey.top, survey.top)
        if source.files:
            sources.append(source)
    _attach_metrics(metrics, [s for s in sources if isinstance(s, (RolloutSource, NativeSource))], survey, sources)
    return sources


def _root(claim: _Claim, top: Path) -> Path:
    if not top.is_dir():
        return top
    inside = archive_of(claim.path)
    inner = getattr(rollout_readers().get(claim.format), "inside_run", None)
    return run_root(claim.path, top, inner) if inside is None else run_root(inside[0], top)


def _run_name(root: Path, top: Path) -> str:
    if root == top:
        return (top.resolve().name if top.is_dir() else top.name) or "run"
    return str(root.relative_to(top))


def _rollout_source(
    root: Path, format_: str, claims: list[_Claim], survey: _Survey, options: ReadOptions
) -> RolloutSource:
    reader: Any = rollout_readers()[format_]()
    files = [claim.path for claim in claims]
    passed: dict[Path, str] = {}
    if hasattr(reader, "select"):
        files, passed = reader.select(files)
    survey.unclaimed += [BadRecord(str(path), None, why) for path, why in passed.items()]
    first = claims[0].match
    versions = dict.fromkeys(claim.match.version for claim in claims if claim.match.version)
    return RolloutSource(
        name=_run_name(root, survey.top),
        path=root,
        kind="rollouts",
        format=format_,
        format_version=", ".join(versions) or None,
        why=first.why,
        files=sorted(files, key=natural_key),
        reader=reader,
        options=options,
    )


def _attach_metrics(claims: list[_Claim], hosts: list[Any], survey: _Survey, sources: list[LogSource]) -> None:
    """Give each metrics file to the run whose folder holds it; the rest become sources of their own, one per run and format."""
    alone: dict[tuple[Path, str], list[_Claim]] = {}
    for claim in claims:
        holders = [
            host
            for host in hosts
            if survey.top.is_dir() and (host.path == claim.path.parent or host.path in claim.path.parents)
        ]
        if not holders and len(hosts) == 1 and survey.top.is_dir():
            holders = hosts
        if holders:
            max(holders, key=lambda host: len(host.path.parts)).metrics_files.append((claim.format, claim.path))
        else:
            key = claim.path if claim.format == "csv" else _root(claim, survey.top)
            alone.setdefault((key, claim.format), []).append(claim)
    for (root, format_), group in alone.items():
        made, passed = MetricsSource.all_of(
            format_, [claim.path for claim in group], root, _run_name(root, survey.top), group[0].match
        )
        survey.unclaimed += passed
        sources += made


def _with_distinct_names(sources: list[LogSource]) -> list[LogSource]:
    for attempt in (lambda s: f"{s.name} ({s.format})", lambda s: f"{s.path}"):
        counts: dict[str, int] = {}
        for source in sources:
            counts[source.name] = counts.get(source.name, 0) + 1
        for source in sources:
            if counts[source.name] > 1:
                source.name = attempt(source)
    return sources


# --- refusing


def _nothing(survey: _Survey) -> str:
    if survey.n_files == 0:
        return f"{survey.top}: the folder holds no files. Point at a run folder, a rollout dump or a metrics file."
    formats = ", ".join([*rollout_readers(), *metrics_readers()])
    reasons = _grouped(survey.unclaimed)
    return (
        f"{survey.top}: no rollout or metrics log among {survey.n_files} file(s).\n{reasons}\n"
        f"Looked for: {formats}.\n"
        "Choose one with --format, or name the fields yourself: --map reward=score,prompt=question,response=answer"
    )


def _grouped(records: Iterable[BadRecord], shown: int = 5) -> str:
    by_reason: dict[str, list[str]] = {}
    for record in records:
        by_reason.setdefault(record.why, []).append(record.path)
    lines = []
    for why, paths in list(by_reason.items())[:shown]:
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        lines.append(f"  {paths[0]}{more}: {why}")
    if len(by_reason) > shown:
        lines.append(f"  … and {len(by_reason) - shown} other kinds of file")
    return "\n".join(lines)
