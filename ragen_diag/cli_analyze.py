"""Commands that read logs: analyze, tune, compare, watch, show, convert, plan, explain. Thin: one API call each."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragen_diag.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from analysis.readers.base import ReadOptions
    from analysis.result import Report

Paths = Annotated[list[Path], typer.Argument(help="Run folders, log folders or files.", show_default=False)]
Format = Annotated[str | None, typer.Option("--format", help="Format name, when detection is not wanted.")]
Split = Annotated[str | None, typer.Option("--split", help="Read everything as this split: train or val.")]
StepFromPath = Annotated[
    str | None,
    typer.Option("--step-from-path", metavar="REGEX", help="Regex whose one group is the step in a file's path."),
]
RewardColumns = Annotated[
    str | None, typer.Option("--reward-columns", metavar="A,B", help="Columns whose sum is the reward.")
]
GroupKey = Annotated[str | None, typer.Option("--group-key", help="Field that names a rollout's group.")]
ThinkingTags = Annotated[
    str | None, typer.Option("--thinking-tags", metavar="OPEN,CLOSE", help="Such as '[THINK],[/THINK]'.")
]
Map = Annotated[
    str | None, typer.Option("--map", metavar="K=F,..", help="Read any table: reward=score,prompt=q,response=a,...")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first record that cannot be read.")]


class FailOn(StrEnum):
    """Lowest status that makes `analyze` exit with 1."""

    FAIL = "fail"
    WARN = "warn"
    INCONCLUSIVE = "inconclusive"
    NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    for command in (analyze, tune, compare, watch, show, convert, plan, explain):
        app.command()(command)


def analyze(
    paths: Paths,
    fail_on: Annotated[FailOn, typer.Option(help="Exit 1 at findings of this status or worse.")] = FailOn.FAIL,
    json_path: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write the result as JSON.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write report.html, verdict.json and filter.yaml there.")
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(
            "--scorer", metavar="MODEL", help="'checkpoint' (of the run), a model folder or name, or a server URL."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every bootstrap, permutation and sub-sample.")] = 0,
    log_format: Format = None,
    split: Split = None,
    step_from_path: StepFromPath = None,
    reward_columns: RewardColumns = None,
    group_key: GroupKey = None,
    thinking_tags: ThinkingTags = None,
    mapping: Map = None,
    strict: Strict = False,
) -> int:
    """Diagnose runs: native, foreign or metrics-only logs. Prints the verdict per run."""
    from ragen_diag import api, terminal

    options = _options(log_format, split, step_from_path, reward_columns, group_key, thinking_tags, mapping, strict)
    for target in (html, out, None if json_path in (None, "-") else Path(json_path)):
        _require_writable(target)
    report = api.analyze(*paths, options=options, scorer=scorer, seed=seed, progress=sys.stderr.isatty())
    written = api.write_outputs(report, out) if out else {}
    if html:
        written["report"] = api.write_html(report, html)
    if json_path == "-":
        json.dump(report.to_json(), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    elif json_path:
        written["verdict"] = api.write_json(report, Path(json_path))
    terminal.summarize(report, written, file=sys.stderr if json_path == "-" else sys.stdout)
    return _gate(report, fail_on)


def _gate(report: Report, fail_on: FailOn) -> ExitCode:
    from ragen_diag.findings import Status

    order = {
        FailOn.NEVER: set(),
        FailOn.FAIL: {Status.FAIL},
        FailOn.WARN: {Status.FAIL, Status.WARN},
        FailOn.INCONCLUSIVE: {Status.FAIL, Status.WARN, Status.INCONCLUSIVE},
    }
    return ExitCode.FINDINGS if any(f.status in order[fail_on] for f in report.findings) else ExitCode.OK


def _require_writable(target: Path | None) -> None:
    """Refuse an output that cannot be written before minutes of analysis are spent on it."""
    if target is None:
        return
    folder = next((parent for parent in (target, *target.parents) if parent.exists()), None)
    if folder is not None and folder != target and not folder.is_dir():
        raise UsageError(f"cannot write {target}: {folder} is not a folder")
    if target.suffix and target.is_dir():
        raise UsageError(f"cannot write {target}: it is a folder. Give a file name.")


def _options(
    log_format: str | None,
    split: str | None = None,
    step_from_path: str | None = None,
    reward_columns: str | None = None,
    group_key: str | None = None,
    thinking_tags: str | None = None,
    mapping: str | None = None,
    strict: bool = False,
) -> ReadOptions:
    from analysis.readers.base import ReadOptions

    if split not in (None, "train", "val"):
        raise UsageError(f"--split {split}: must be 'train' or 'val'")
    tags = thinking_tags.split(",") if thinking_tags else None
    if tags is not None and (len(tags) != 2 or not all(tags)):
        raise UsageError(
            f"--thinking-tags {thinking_tags}: give an opening and a closing tag, as in '[THINK],[/THINK]'"
        )
    return ReadOptions(
        format=log_format,
        split=split,
        step_from_path=step_from_path,
        reward_columns=tuple(reward_columns.split(",")) if reward_columns else None,
        group_key=group_key,
        thinking_tags=(tags[0], tags[1]) if tags else None,
        mapping=_pairs("--map", mapping) if mapping else None,
        strict=strict,
    )


def _pairs(option: str, text: str) -> dict[str, str]:
    pairs = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator or not key or not value:
            raise UsageError(f"{option}: '{part}' is not KEY=FIELD (as in reward=score,prompt=q)")
        pairs[key.strip()] = value.strip()
    return pairs


def tune(
    paths: Paths,
    out: Annotated[Path, typer.Option("--out", "-o", help="Filter file for `ragen-diag train --filter`.")] = Path(
        "filter.yaml"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap over steps.")] = 0,
    log_format: Format = None,
) -> None:
    """Recommend a rollout filter from a run's own reward groups and write it as a file that `train` takes."""
    from ragen_diag import api, terminal

    _require_writable(out)
    recommendation = api.tune(*paths, options=_options(log_format), seed=seed)
    terminal.print_filter_table(recommendation, file=sys.stdout)
    print(f"wrote {api.write_filter(recommendation, out)}")


def show(
    path: Annotated[Path, typer.Argument(help="Run folder, log folder or file.")],
    step: Annotated[int | None, typer.Option(help="Training step; default: the last.")] = None,
    group: Annotated[int | None, typer.Option(help="Group within the step, from 0.")] = None,
    index: Annotated[int | None, typer.Option(help="Rollout within the group, from 0.")] = None,
    log_format: Format = None,
) -> None:
    """Show one rollout, turn by turn."""
    from ragen_diag import api

    api.show(path, step=step, group=group, index=index, options=_options(log_format), file=sys.stdout)


def compare(
    paths: Annotated[list[Path], typer.Argument(help="Two or more runs.")],
    seed: Annotated[int, typer.Option(help="Seed of the paired bootstrap.")] = 0,
) -> None:
    """Compare runs on their common prompts and metrics; refuses metrics whose definitions differ."""
    from ragen_diag import api, terminal

    if len(paths) < 2:
        raise UsageError("compare needs two or more runs")
    terminal.print_comparison(api.compare(*paths, seed=seed), file=sys.stdout)


def watch(
    paths: Paths,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 10.0,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Report that is rewritten and reloads itself.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Stop after so many looks; default: until interrupted.")] = None,
    until: Annotated[
        FailOn, typer.Option(help="End with exit code 1 at the first finding this serious.")
    ] = FailOn.NEVER,
) -> ExitCode:
    """Watch a running or foreign log: one line per change, each alert once. Never stops the run: `--until fail; kill PID` does."""
    from ragen_diag import api
    from ragen_diag.findings import Status

    if interval <= 0:
        raise UsageError(f"--interval {interval}: must be above 0 seconds")
    if until == FailOn.INCONCLUSIVE:
        raise UsageError("--until inconclusive: a young run always is; choose warn or fail")
    _require_writable(html)
    level = None if until == FailOn.NEVER else Status(until.value.upper())
    found = api.watch(*paths, interval_s=interval, html=html, max_rounds=rounds, until=level)
    return ExitCode.FINDINGS if found else ExitCode.OK


def convert(
    source: Annotated[Path, typer.Argument(help="Foreign log.")],
    destination: Annotated[Path, typer.Argument(help="New run folder; must not exist or be empty.")],
    log_format: Format = None,
    split: Split = None,
    step_from_path: StepFromPath = None,
    reward_columns: RewardColumns = None,
    group_key: GroupKey = None,
    thinking_tags: ThinkingTags = None,
    mapping: Map = None,
    strict: Strict = False,
) -> None:
    """Convert any readable rollout log to a native run folder."""
    from ragen_diag import api

    options = _options(log_format, split, step_from_path, reward_columns, group_key, thinking_tags, mapping, strict)
    print(api.convert(source, destination, options=options))


def plan(
    prompts: Annotated[int | None, typer.Option(help="N, distinct prompts.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="K, rollouts per prompt.")] = None,
    half_width: Annotated[float | None, typer.Option(help="Wanted half-width of the 95 % interval, nats.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Run whose observed spread is used; default: a stated prior.")
    ] = None,
) -> None:
    """Sample sizes: the interval to expect from N prompts x K rollouts, or the N and K needed for a wanted one."""
    from ragen_diag import api

    print(api.plan(prompts=prompts, rollouts=rollouts, half_width=half_width, run=run))


def explain(code: Annotated[str, typer.Argument(help="Finding code such as ZS01; 'list' prints all.")]) -> None:
    """Explain a finding: what it measures, why it matters, false alarms, what to do, thresholds."""
    from ragen_diag import api, checks

    if code.lower() == "list":
        print("\n".join(f"{name}  {checks.title(name)}" for name in checks.codes()))
        return
    print(api.explain(code))
