"""Results in the terminal: the summary of an analysis, the filter table, the comparison of runs.

The summary is shaped like pytest's: what was read, one block per run, totals and the next command last.

At most 25 lines for five runs and five lines for each further one; one line per cause with its count; words carry the meaning,
colour only repeats it. Text from logs is made visible (no escape codes pass). Rendering only: no statistics, no files.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragen_diag.findings import Finding, Status, Verdict
from ragen_diag.visible_text import one_line

if TYPE_CHECKING:
    from analysis.compare import Comparison
    from analysis.result import InputSummary, Report, RunReport
    from analysis.tuning import FilterRecommendation

_LINES_OF_FIVE_RUNS = 25
_LINES_AROUND = 4
_SHOWN = (Status.ERROR, Status.FAIL, Status.WARN)
_COUNTED = (Status.PASS, Status.INCONCLUSIVE, Status.SKIPPED)
_VERDICT_STYLE = {
    Verdict.HEALTHY: "bold green",
    Verdict.WATCH: "bold yellow",
    Verdict.COLLAPSED: "bold red",
    Verdict.BROKEN_PIPELINE: "bold red",
    Verdict.INCONCLUSIVE: "bold",
}
_STATUS_STYLE = {Status.ERROR: "magenta", Status.FAIL: "red", Status.WARN: "yellow"}
_PIPE_COLUMNS = 160
_INDENT = "  "


def summarize(
    report: Report, written: Mapping[str, Path] | None = None, *, file: TextIO | Console | None = None
) -> None:
    """Print the summary of a report to a text file or a rich console (default: standard output).

    written: files made from the report, by kind ('report', 'verdict', 'filter'), named in the last lines.
    On a terminal long lines end in an ellipsis at its width; into a pipe or file they are whole and carry no escape codes.
    """
    console = _console(file)
    lines_per_run = max((_LINES_OF_FIVE_RUNS - _LINES_AROUND) // max(len(report.runs), 1), 4)
    lines = [_read_line(report.inputs)]
    for run in report.runs:
        lines += _run_lines(run, lines_per_run)
    lines += _closing_lines(report, written or {})
    for line in lines:
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _read_line(inputs: Sequence[InputSummary]) -> Text:
    formats = sorted({f"{entry.format} {entry.format_version or ''}".strip() for entry in inputs})
    parts = [
        _count(len(inputs), "log"),
        ", ".join(formats) or "nothing",
        _count(sum(entry.n_steps for entry in inputs), "step"),
        _count(sum(entry.n_rollouts for entry in inputs), "rollout"),
    ]
    n_bad = sum(entry.n_bad_rows for entry in inputs)
    if n_bad:
        first = next((entry.skipped[0] for entry in inputs if entry.skipped), None)
        where = f" (first: {first.path}{f':{first.line}' if first.line else ''})" if first else ""
        parts.append(f"{_count(n_bad, 'bad row')} skipped{where}")
    return Text(f"read  {one_line(' · '.join(parts))}")


def _run_lines(run: RunReport, max_lines: int) -> list[Text]:
    verdict = run.verdict.value.replace("_", " ").upper()
    head = Text.assemble(
        (one_line(run.name, 40), "bold"), "  ", (verdict, _VERDICT_STYLE[run.verdict]), f"  {one_line(run.reason)}"
    )
    causes = list(_causes(run.findings))
    shown = causes if len(causes) < max_lines else causes[: max_lines - 2]
    lines = [head, *(_cause_line(finding, count) for finding, count in shown)]
    if len(causes) > len(shown):
        rest = Counter(finding.status for finding, _ in causes[len(shown) :])
        lines.append(Text(f"{_INDENT}and {_statuses(rest, _SHOWN)} more: see the report"))
    return lines


def _causes(findings: Sequence[Finding]) -> Iterator[tuple[Finding, int]]:
    """One entry per code and status, most severe first, with how often it was found."""
    counts = Counter((finding.status, finding.code) for finding in findings)
    seen = set()
    for status in _SHOWN:
        for finding in findings:
            key = (finding.status, finding.code)
            if finding.status is status and key not in seen:
                seen.add(key)
                yield finding, counts[key]


def _cause_line(finding: Finding, count: int) -> Text:
    times = f" ×{count}" if count > 1 else ""
    steps = "" if finding.steps is None else f"steps {finding.steps[0]}–{finding.steps[1]}: "
    if finding.steps is not None and finding.steps[0] == finding.steps[1]:
        steps = f"step {finding.steps[0]}: "
    status = (f"{finding.status.value:<5}", _STATUS_STYLE[finding.status])
    return Text.assemble(_INDENT, status, f" {finding.code}{times}  {steps}{one_line(finding.claim)}")


def _closing_lines(report: Report, written: Mapping[str, Path]) -> list[Text]:
    statuses = Counter(finding.status for finding in report.findings)
    verdicts = Counter(run.verdict.value.replace("_", " ") for run in report.runs)
    lines = [
        Text(f"checks  {_statuses(statuses, (*_SHOWN, *_COUNTED))}"),
        Text(" · ".join([_count(len(report.runs), "run"), *(f"{count} {name}" for name, count in verdicts.items())])),
    ]
    hints = [f"{kind}: {path}{_size(path)}" for kind, path in written.items()]
    worst = next((finding for run in report.runs for finding, _ in _causes(run.findings)), None)
    if worst is not None:
        hints.append(f"explain: ragen-diag explain {worst.code}")
    if hints:
        lines.append(Text("   ".join(one_line(hint) for hint in hints)))
    return lines


def _size(path: Path) -> str:
    return f" ({path.stat().st_size / 1e6:.1f} MB)" if path.suffix == ".html" and path.exists() else ""


def _statuses(counts: Counter[Status], order: Sequence[Status]) -> str:
    return " · ".join(f"{counts[status]} {status.value}" for status in order if counts[status]) or "none ran"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_filter_table(recommendation: FilterRecommendation, *, file: TextIO | Console | None = None) -> None:
    """Print the recommended filter, why, and the settings it was chosen from, best signal-to-noise gain first."""
    console = _console(file)
    console.print(Text.assemble("recommended  ", (recommendation.setting.describe(), "bold")), soft_wrap=True)
    for reason in recommendation.reasons:
        console.print(Text(f"{_INDENT}{one_line(reason)}"), soft_wrap=True)
    if not recommendation.table:
        return
    table = _table("filter", "groups kept", "variance kept", "SNR gain", "95 %", "best in", "prompts covered")
    for row in sorted(recommendation.table, key=lambda row: -row.snr_gain):
        table.add_row(
            _star(row.setting == recommendation.setting) + row.setting.describe(),
            f"{row.kept_group_share:.0%}",
            f"{row.kept_variance_share:.0%}",
            f"×{row.snr_gain:.2f}",
            _interval(row.snr_gain_ci95),
            f"{row.best_share:.0%}",
            f"{row.prompt_coverage:.0%}",
        )
    console.print(table)
    console.print(
        Text(
            f"* recommended · from {_count(recommendation.n_groups, 'group')} in {_count(recommendation.n_steps, 'step')}"
        )
    )


def print_comparison(comparison: Comparison, *, file: TextIO | Console | None = None) -> None:
    """Print every run against the first, and the metrics that were refused with the reason."""
    console = _console(file)
    console.print(Text.assemble("against  ", (one_line(comparison.baseline), "bold")), soft_wrap=True)
    if comparison.differences:
        table = _table("run", "metric", "baseline", "run's", "difference", "95 %", "prompts")
        for entry in sorted(comparison.differences, key=lambda entry: not entry.clear):
            interval = entry.difference.ci95
            table.add_row(
                one_line(entry.run, 40),
                f"{entry.metric} ({entry.difference.unit})",
                _number(entry.baseline.value),
                _number(entry.other.value),
                _star(entry.clear) + _number(entry.difference.value, sign="+"),
                _interval(interval, sign="+"),
                str(entry.difference.n_prompts),
            )
        console.print(table)
        n = len(comparison.differences)
        by_chance = f"; of {n} comparisons about {round(n / 20)} would by chance alone" if n >= 20 else ""
        console.print(Text(f"* the 95 % interval of the difference does not contain 0{by_chance}"))
    # A reason that is the same for several metrics of a run is said once.
    reasons: dict[tuple[str, str], list[str]] = {}
    for refusal in comparison.refused:
        reasons.setdefault((refusal.run, refusal.why), []).append(refusal.metric)
    for (run, why), metrics in reasons.items():
        line = f"not compared: {one_line(run, 40)}: {', '.join(metrics)}: {one_line(why)}"
        console.print(Text(line), soft_wrap=True)


def _console(file: TextIO | Console | None) -> Console:
    """A console of the terminal's width, or a wide one for pipes and files, where nothing should wrap."""
    if isinstance(file, Console):
        return file
    file = file or sys.stdout
    return Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_COLUMNS)


def _table(*headers: str) -> Table:
    """A plain table: columns by space alone, so that it reads in a pipe and in a log."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for position, header in enumerate(headers):
        table.add_column(header, justify="left" if position == 0 else "right", overflow="fold")
    return table


def _star(marked: bool) -> str:
    return "* " if marked else "  "


def _number(value: float | None, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign}.3g}"


def _interval(interval: tuple[float, float] | None, sign: str = "") -> str:
    return "–" if interval is None else f"{_number(interval[0], sign)} to {_number(interval[1], sign)}"
