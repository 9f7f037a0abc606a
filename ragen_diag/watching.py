"""`ragen-diag watch`: analyze a growing log again and again, and say each new finding once. Never stops a run.

Asked to (`until`), it ends at the first finding that serious, so that a shell can stop the run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ragen_diag.errors import BadLog, NothingReadable, PathNotFound
from ragen_diag.findings import Finding, Status

_SERIOUS = {Status.WARN: 1, Status.FAIL: 2}


@dataclass
class Alerts:
    """Remembers what was said: one alert per run and code, again only when it becomes more serious."""

    said: dict[tuple[str, str], int] = field(default_factory=dict)

    def new(self, run: str, findings: list[Finding]) -> list[Finding]:
        """Findings at WARN or FAIL that were not yet reported at this level."""
        fresh = []
        for finding in findings:
            level = _SERIOUS.get(finding.status, 0)
            if level > self.said.get((run, finding.code), 0):
                self.said[(run, finding.code)] = level
                fresh.append(finding)
        return fresh


def watch(
    *paths: str | Path,
    interval_s: float = 10.0,
    html: Path | None = None,
    max_rounds: int | None = None,
    until: Status | None = None,
    file: TextIO | None = None,
) -> bool:
    """Analyze `paths` every `interval_s` seconds until interrupted or for `max_rounds`; a missing log is waited for.

    html: report that is rewritten each round and refreshes itself in the browser. until: WARN or FAIL; returns True at the
    first finding at least that serious (False when the rounds are over). file: default stdout.
    """
    from ragen_diag import api

    file = file or sys.stdout
    folders = [Path(path) for path in paths]
    alerts, rounds, seen = Alerts(), 0, None
    while max_rounds is None or rounds < max_rounds:
        if rounds:
            time.sleep(interval_s)
        rounds += 1
        stamp = _fingerprint(folders)
        if stamp == seen:
            continue
        seen = stamp
        try:
            report = api.analyze(*folders)
        except (PathNotFound, NothingReadable, BadLog) as error:  # not there yet, or caught in the middle of a write
            print(f"waiting: {error}", file=file, flush=True)
            continue
        for run in report.runs:
            last = max((point.step for points in run.series.values() for point in points), default=None)
            print(
                f"{time.strftime('%H:%M:%S')} {run.name} step {last} {run.verdict.value}: {run.reason}",
                file=file,
                flush=True,
            )
            for finding in alerts.new(run.name, run.findings):
                window = f" (steps {finding.steps[0]}–{finding.steps[1]})" if finding.steps else ""
                print(f"  ALERT {finding.status.value} {finding.code} {finding.claim}{window}", file=file, flush=True)
        if html:
            api.write_html(report, html)
            _refresh_every(html, interval_s)
        if until is not None and any(level >= _SERIOUS[until] for level in alerts.said.values()):
            return True
    return False


def _fingerprint(paths: list[Path]) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of every file under the paths: an unchanged log is not analyzed again."""
    files = [
        file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file()
    ]
    return tuple((str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])


def _refresh_every(html: Path, interval_s: float) -> None:
    text = html.read_text(encoding="utf-8")
    html.write_text(
        text.replace("<head>", f'<head><meta http-equiv="refresh" content="{interval_s:g}">', 1), encoding="utf-8"
    )
