"""What the report's page holds, prepared for the templates: notes, check grid, finding sections, tables. No HTML, no plots."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup

from analysis.report.draw import Plot
from analysis.report.explain import explain_page
from analysis.report.figures import run_plots
from analysis.report.finding_plot import finding_plot, names_a_series
from analysis.report.viewer import RawTurns, ViewRollout, view_rollouts
from analysis.report.words import SEVERITY, VERDICTS, Words, count_text, is_normal, title_of
from analysis.result import JSON_SCHEMA_VERSION, InputSummary, Report, RunReport
from ragen_diag import __version__
from ragen_diag.findings import EXAMPLES_PER_FINDING, Estimate, Finding, Status

SECTION_STATUSES = (Status.ERROR, Status.FAIL, Status.WARN, Status.INCONCLUSIVE)
NOTES_PER_RUN = 30
SKIPPED_SHOWN = 40
KEY_METRICS = 8
CARD_METRICS = (
    "normalised_mi", "conditional_entropy_nats_per_token", "retrieval_accuracy", "retrieval_chance", "text_retrieval_accuracy",
    "text_retrieval_chance", "reward_mean", "reward_std_in_group", "zero_variance_share",
)  # fmt: skip
_PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "ruptures", "plotly")


@dataclass(frozen=True)
class Budget:
    """How much of a run goes into the page; chosen so that the file stays under its limit."""

    series_points: int
    rollouts: int
    """Over all runs."""
    text_chars: int
    plotted_runs: int


@dataclass
class FindingView:
    """One finding with what belongs to it on the page."""

    anchor: str
    finding: Finding
    title: str
    explained: bool
    """The appendix holds its explain page."""
    evidence: dict[str, Any]
    """Numbers to show, without the name of the series that is drawn."""
    plot: Plot | None
    shows: list[ViewRollout | str]
    """Rollouts of the viewer, or bare trajectory ids whose text is not in the page."""
    does_not_show: list[ViewRollout | str]


@dataclass
class RunView:
    """One run's part of the page."""

    anchor: str
    run: RunReport
    words: Words
    findings: list[FindingView]
    normal: list[str]
    """Why values that look broken are right, one line each."""
    skipped: list[Finding]
    passed: list[Finding]
    plots: list[Plot] | None
    """None = left out to keep the file small; the page says so."""
    rollouts: list[ViewRollout]
    n_rollouts: int
    filter_columns: list[str]
    notes: list[str]
    config_yaml: str

    def is_recommended(self, row: dict[str, Any]) -> bool:
        """Whether a row of the filter table is the recommended setting."""
        setting = (self.run.filter or {}).get("setting")
        if not isinstance(setting, dict):
            return False
        shared = set(setting) & set(row)
        return bool(shared) and all(row[key] == setting[key] for key in shared)

    @property
    def key_metrics(self) -> list[tuple[str, Estimate]]:
        """The numbers a verdict rests on, then the first others, for the verdict's card."""
        measured = {name: estimate for name, estimate in self.run.metrics.items() if estimate.value is not None}
        order = [name for name in CARD_METRICS if name in measured] + [
            name for name in measured if name not in CARD_METRICS
        ]
        return [(name, measured[name]) for name in order[:KEY_METRICS]]


@dataclass(frozen=True)
class Cell:
    """One run's outcome of one check in the grid."""

    status: Status
    count: int
    claim: str
    anchor: str


@dataclass(frozen=True)
class GridRow:
    """One check over all runs."""

    code: str
    title: str
    threshold: dict[str, Any]
    cells: list[Cell | None]


@dataclass
class Page:
    """Everything the templates read."""

    report: Report
    runs: list[RunView]
    grid: list[GridRow]
    notes: list[str]
    versions: dict[str, str]
    pages: dict[str, Markup]
    """Explain pages of the codes that have a section."""
    skipped_shown: int = SKIPPED_SHOWN

    @property
    def headline(self) -> str:
        """The title of the page: one run's verdict, or how many runs got which."""
        if len(self.runs) == 1:
            return self.runs[0].run.name
        counts = Counter(run.words.headline.lower() for run in self.runs)
        return f"{len(self.runs)} runs: " + (
            ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing to judge"
        )

    @property
    def n_findings(self) -> int:
        """Findings that have a section."""
        return sum(len(run.findings) for run in self.runs)

    @property
    def has_normal(self) -> bool:
        """Whether any run has zeros to explain."""
        return any(run.normal for run in self.runs)

    @property
    def shown(self) -> list[ViewRollout]:
        """All rollouts of the viewer."""
        return [rollout for run in self.runs for rollout in run.rollouts]

    @property
    def outcomes(self) -> list[str]:
        """Choices of the viewer's outcome filter."""
        return sorted({outcome for rollout in self.shown for outcome in rollout.outcomes})

    @property
    def whys(self) -> list[str]:
        """Choices of the viewer's reason filter."""
        return list(dict.fromkeys(reason for rollout in self.shown for reason in rollout.reasons))

    @property
    def shared_phrase_shown(self) -> bool:
        """Whether any thinking in the viewer has a highlighted phrase."""
        return any(part.shared for rollout in self.shown for turn in rollout.turns for part in turn.thinking)

    @property
    def n_rollouts(self) -> int:
        """Rollouts of all runs, shown or not."""
        return sum(run.n_rollouts for run in self.runs)


def build_page(report: Report, budget: Budget, turns: Mapping[str, RawTurns]) -> Page:
    """Prepare the whole page within a budget. turns: run name -> full turns read from the log (may be empty)."""
    per_run = rollouts_per_run(report, budget)
    runs = [_run_view(number, run, budget, per_run, turns.get(run.name, {})) for number, run in enumerate(report.runs)]
    codes = {view.finding.code for run in runs for view in run.findings}
    return Page(
        report=report,
        runs=runs,
        grid=_grid(runs),
        notes=_notes(report, runs, budget),
        versions=_versions(),
        pages={code: page for code in sorted(codes) if (page := explain_page(code))},
    )


def rollouts_per_run(report: Report, budget: Budget) -> int:
    """Rollouts of each run that the viewer shows."""
    return budget.rollouts // max(len(report.runs), 1)


def _run_view(number: int, run: RunReport, budget: Budget, max_rollouts: int, turns: RawTurns) -> RunView:
    anchor = f"run-{number}"
    rollouts = view_rollouts(run, f"{anchor}-rollout", max_rollouts, budget.text_chars, turns)
    judged = [finding for finding in run.findings if not is_normal(finding)]
    with_section = sorted(
        (finding for finding in judged if finding.status in SECTION_STATUSES),
        key=lambda finding: SEVERITY.index(finding.status),
    )
    plotted = number < budget.plotted_runs
    by_id = {view.trajectory_id: view for view in rollouts}
    findings = [
        FindingView(
            anchor=f"{anchor}-{finding.code}-{position}",
            finding=finding,
            title=title_of(finding.code),
            explained=explain_page(finding.code) is not None,
            evidence={key: value for key, value in finding.evidence.items() if not names_a_series(run, key, value)},
            plot=finding_plot(run, finding, budget.series_points) if plotted else None,
            shows=[by_id.get(entry, entry) for entry in finding.examples[:EXAMPLES_PER_FINDING]],
            does_not_show=[by_id.get(entry, entry) for entry in finding.counter_examples[:EXAMPLES_PER_FINDING]],
        )
        for position, finding in enumerate(with_section)
    ]
    return RunView(
        anchor=anchor,
        run=run,
        words=VERDICTS[run.verdict],
        findings=findings,
        normal=[
            str(line) for finding in run.findings if is_normal(finding) for line in finding.evidence.get("normal", ())
        ],
        skipped=[finding for finding in judged if finding.status is Status.SKIPPED],
        passed=[finding for finding in judged if finding.status is Status.PASS],
        plots=run_plots(run, budget.series_points) if plotted else None,
        rollouts=rollouts,
        n_rollouts=len(run.data.rollouts),
        filter_columns=_columns(run.filter),
        notes=_run_notes(run, rollouts),
        config_yaml=""
        if not run.data.config
        else yaml.safe_dump(_plain(run.data.config), sort_keys=False, allow_unicode=True),
    )


def _plain(value: Any) -> Any:
    """Reduce a configuration to what YAML can say; anything else becomes its text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _columns(filter_: dict[str, Any] | None) -> list[str]:
    """Columns of the filter table in first-seen order, without those whose values the filter's name spells out."""
    table = (filter_ or {}).get("table") or []
    columns = dict.fromkeys(key for row in table if isinstance(row, dict) for key in row)
    return [name for name in columns if "filter" not in columns or name not in ("strategy", "value", "mode")]


def _run_notes(run: RunReport, rollouts: list[ViewRollout]) -> list[str]:
    """What was assumed, sampled and selected in this run, one line each, first screen of the report."""
    notes = list(dict.fromkeys(run.data.assumptions))[:NOTES_PER_RUN]
    if run.data.text_sampling:
        notes.append(f"Texts analyzed: {run.data.text_sampling}")
    if rollouts:
        total = count_text(len(run.data.rollouts), "rollout")
        notes.append(
            f"Rollout viewer: showing {len(rollouts)} of {total}, chosen because a finding points at them, then whole groups "
            "from the start, the middle and the end of the run."
        )
    return notes


def _grid(runs: list[RunView]) -> list[GridRow]:
    """Checks in order of their worst outcome; normal zeros have their own section."""
    outcomes: dict[str, list[list[tuple[Finding, str]]]] = {}
    for position, view in enumerate(runs):
        anchors = {id(entry.finding): entry.anchor for entry in view.findings}
        for finding in view.run.findings:
            if not is_normal(finding):
                per_run = outcomes.setdefault(finding.code, [[] for _ in runs])
                per_run[position].append((finding, anchors.get(id(finding), "")))
    rows = []
    for code, per_run in outcomes.items():
        limits = next((finding.threshold for found in per_run for finding, _ in found if finding.threshold), {})
        rows.append(GridRow(code, title_of(code), limits, [_cell(found) for found in per_run]))
    return sorted(rows, key=lambda row: (min(SEVERITY.index(cell.status) for cell in row.cells if cell), row.code))


def _cell(found: list[tuple[Finding, str]]) -> Cell | None:
    if not found:
        return None
    worst, anchor = min(found, key=lambda entry: SEVERITY.index(entry[0].status))
    same = sum(finding.status is worst.status for finding, _ in found)
    return Cell(worst.status, same, worst.claim, anchor)


def _notes(report: Report, runs: list[RunView], budget: Budget) -> list[str]:
    """What was read and what the page leaves out, over all runs."""
    notes = [_input_note(entry) for entry in report.inputs]
    n_bad = sum(entry.n_bad_rows for entry in report.inputs)
    n_skipped = sum(len(entry.skipped) for entry in report.inputs)
    if n_bad or n_skipped:
        skipped = count_text(n_skipped, "record or file", "records or files")
        notes.append(f"{count_text(n_bad, 'bad row')} and {skipped} skipped: see the appendix.")
    longest = max((len(points) for run in report.runs for points in run.series.values()), default=0)
    longest = max(longest, max((len(logged) for run in report.runs for logged in run.data.series.values()), default=0))
    if longest > budget.series_points:
        notes.append(
            f"Plots are thinned to about {budget.series_points} points a curve (longest series: {longest:,} steps); "
            "the smallest and largest value of every bucket are kept, so spikes stay."
        )
    if len(runs) > budget.plotted_runs:
        notes.append(f"Plots only for the first {budget.plotted_runs} of {len(runs)} runs, to keep this file small.")
    return notes


def _input_note(entry: InputSummary) -> str:
    version = f" {entry.format_version}" if entry.format_version else ""
    amount = (
        f"{count_text(entry.n_rollouts, 'rollout')} in {count_text(entry.n_groups, 'group')}, "
        if entry.kind == "rollouts"
        else "metrics only, "
    )
    return f"{entry.path}: read as {entry.format}{version} ({entry.why}); {amount}{count_text(entry.n_steps, 'step')}."


def _versions() -> dict[str, str]:
    installed = {name: metadata.version(name) for name in _PACKAGES if _is_installed(name)}
    return {
        "ragen-diag": __version__,
        "report schema": str(JSON_SCHEMA_VERSION),
        "Python": platform.python_version(),
        **installed,
    }


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
