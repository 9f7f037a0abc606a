"""The Python API: every command-line verb as a function of the same name. Imports the other packages when called.

import ragen_diag
run = ragen_diag.load("runs/demo")
report = run.analyze()
report.findings; report.to_frame()
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ragen_diag.errors import PathNotFound, RunFolderError, UsageError
from ragen_diag.rollout_log import write_atomically

if TYPE_CHECKING:
    from analysis.compare import Comparison
    from analysis.readers.base import LogSource, ReadOptions
    from analysis.result import Report
    from analysis.tuning import FilterRecommendation
    from ragen_diag.config import TrainConfig
    from ragen_diag.findings import Status
    from trainer.evaluate import EvalResult
    from trainer.loop import TrainResult


@dataclass
class Run:
    """Logs found under the given paths; nothing is read before `analyze()`."""

    sources: list[LogSource] = field(repr=False)

    @property
    def formats(self) -> list[str]:
        """Detected format of each log."""
        return [source.format for source in self.sources]

    def analyze(self, *, scorer: str | None = None, seed: int = 0, progress: bool = False) -> Report:
        """Read and diagnose. See `analyze`."""
        from analysis.analyze import analyze_sources

        return analyze_sources(self.sources, scorer=scorer, seed=seed, progress=progress)


def load(*paths: str | Path, options: ReadOptions | None = None) -> Run:
    """Find the logs under files or folders. Raises PathNotFound, NothingReadable or AmbiguousFormat."""
    from analysis.readers.base import ReadOptions
    from analysis.readers.discover import discover

    return Run(discover([Path(path) for path in paths], options or ReadOptions()))


def analyze(
    *paths: str | Path,
    options: ReadOptions | None = None,
    scorer: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Diagnose runs: native, foreign or metrics-only logs.

    scorer: 'checkpoint' (the run's last one), a model folder or name, or the URL of an OpenAI-compatible server; None = only
    what was logged. seed: of every bootstrap, permutation and sub-sample.
    """
    return load(*paths, options=options).analyze(scorer=scorer, seed=seed, progress=progress)


def write_outputs(report: Report, folder: Path) -> dict[str, Path]:
    """Write report.html, verdict.json and, when a filter was recommended, filter.yaml; returns their paths by kind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = {
            "report": write_html(report, folder / "report.html"),
            "verdict": write_json(report, folder / "verdict.json"),
        }
        for run in report.runs:
            if run.recommendation is not None:
                name = "filter.yaml" if len(report.runs) == 1 else f"filter-{_file_name(run.name)}.yaml"
                written.setdefault("filter", write_filter(run.recommendation, folder / name))
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror or error}. Choose another --out folder."
        ) from error
    return written


def _file_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)


def write_html(report: Report, path: Path) -> Path:
    """Write the report as one offline HTML file."""
    from analysis.report.html import write_html as write

    sources = {run.name: run.source for run in report.runs if run.source is not None}
    tables = {name: source.tables() for name, source in sources.items() if source.kind == "rollouts"}
    return write(report, path, tables=tables)


def write_json(report: Report, path: Path) -> Path:
    """Write the JSON contract."""
    text = json.dumps(report.to_json(), indent=1, allow_nan=False)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def write_filter(recommendation: FilterRecommendation, path: Path) -> Path:
    """Write a filter file that `train` takes as it is."""
    from analysis.tuning import to_yaml

    write_atomically(path, lambda temporary: temporary.write_text(to_yaml(recommendation), encoding="utf-8"))
    return path


def evaluate(
    model: str | Path,
    *,
    env: str | None = None,
    n_seeds: int = 256,
    first_seed: int = 123,
    n_rollouts: int = 1,
    temperature: float | None = None,
    run_dir: str | Path | None = None,
    config: str | Path | None = None,
    overrides: list[str] | None = None,
    served_model: str | None = None,
) -> EvalResult:
    """Success of a run, checkpoint, model, chat server (a URL) or 'random' on held-out seeds.

    config: preset or YAML file that says how rollouts are played; None = the run's own, or the demo's. overrides: such as
    rollout.max_response_tokens=800. served_model: name of the model at the URL. Raises ModelError for what cannot be loaded.
    """
    require_training()
    from ragen_diag.config import load_config
    from trainer.evaluate import evaluate as run_evaluation

    return run_evaluation(
        str(model), env=env, n_seeds=n_seeds, first_seed=first_seed, n_rollouts=n_rollouts, temperature=temperature,
        run_dir=None if run_dir is None else Path(run_dir), config=None if config is None else load_config(config),
        overrides=overrides or [], served_model=served_model,
    )  # fmt: skip


def tune(*paths: str | Path, options: ReadOptions | None = None, seed: int = 0) -> FilterRecommendation:
    """Recommend a rollout filter from a run's own reward groups. Raises UsageError when the log has no usable groups."""
    from analysis.ingest import ingest
    from analysis.tuning import recommend

    sources = [source for source in load(*paths, options=options).sources if source.kind == "rollouts"]
    if len(sources) != 1:
        raise UsageError(f"tune needs exactly one rollout log, found {len(sources)}; give the path of one run")
    return recommend(ingest(sources[0])[0], seed=seed)


def show(
    path: str | Path,
    *,
    step: int | None = None,
    group: int | None = None,
    index: int | None = None,
    options: ReadOptions | None = None,
    file: TextIO | None = None,
) -> None:
    """Print one rollout, turn by turn."""
    from ragen_diag.rollout_view import show as print_rollout

    sources = [source for source in load(path, options=options).sources if source.kind == "rollouts"]
    if len(sources) != 1:
        raise UsageError(f"show needs exactly one rollout log, found {len(sources)}; give the path of one run")
    print_rollout(sources[0], step=step, group=group, index=index, file=file or sys.stdout)


def compare(*paths: str | Path, seed: int = 0) -> Comparison:
    """Compare runs with the first one: paired by prompt where prompts match."""
    from analysis.compare import compare_runs

    report = analyze(*paths, seed=seed)
    if len(report.runs) < 2:
        raise UsageError(f"compare needs two or more runs, found {len(report.runs)} under the given paths")
    return compare_runs(report.runs)


def convert(source: str | Path, destination: str | Path, *, options: ReadOptions | None = None) -> str:
    """Convert a foreign rollout log to a native run folder; returns one line per run that was written."""
    from analysis.readers.base import ReadOptions
    from analysis.readers.convert import convert as write

    destination = Path(destination)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise RunFolderError(f"{destination} exists and is not empty: nothing was written. Choose a new folder.")
    written = write(Path(source), destination, options or ReadOptions())
    return "\n".join(f"{run.path}: {run.n_rows:,} turns from {run.source.format} {run.source.path}" for run in written)


def watch(
    *paths: str | Path,
    interval_s: float = 10.0,
    html: Path | None = None,
    max_rounds: int | None = None,
    until: Status | None = None,
) -> bool:
    """Analyze growing logs again and again and print each new finding once; see `ragen_diag.watching.watch`."""
    from ragen_diag.watching import watch as watch_log

    return watch_log(*paths, interval_s=interval_s, html=html, max_rounds=max_rounds, until=until)


def explain(code: str) -> str:
    """The page of a finding code, Markdown. Raises UsageError for an unknown code."""
    from analysis.detectors import registry
    from ragen_diag import checks
    from ragen_diag.errors import did_you_mean

    code = code.upper()
    text = checks.page(code) if code in checks.codes() else registry.explain(code)
    if text is None:
        raise UsageError(f"no check '{code}'.{did_you_mean(code, checks.codes())} All: ragen-diag explain list")
    return text


def doctor() -> None:
    """Print what is installed: versions, extras and plug-ins."""
    from ragen_diag.installation import report

    report(sys.stdout)


def demo(
    scenario: str = "learn", out: str | Path = "runs/demo", *, steps: int | None = None, n_eval_seeds: int = 256
) -> Report:
    """Run a demo scenario, 'learn' or 'collapse', under a new folder and return the final report."""
    from ragen_diag.demonstration import run_demo

    require_training()
    return run_demo(scenario, Path(out), steps=steps, n_eval_seeds=n_eval_seeds)


def plan(
    *,
    prompts: int | None = None,
    rollouts: int | None = None,
    half_width: float | None = None,
    run: str | Path | None = None,
) -> str:
    """Sample-size plan as text: the interval to expect, or the sizes that a wanted one needs."""
    from ragen_diag.sample_size import plan_text

    return plan_text(prompts=prompts, rollouts=rollouts, half_width=half_width, run=None if run is None else Path(run))


def train(
    config: str | Path | TrainConfig,
    run_dir: str | Path,
    *,
    overrides: list[str] | None = None,
    filter_file: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> TrainResult:
    """Train with a preset name, a YAML path or a TrainConfig. Raises ConfigError, RunFolderError or ModelError.

    overrides, filter_file (as `tune` writes it): applied to a preset or file; a TrainConfig is taken as it is.
    """
    from ragen_diag.config import TrainConfig, load_config

    if filter_file is not None and not Path(filter_file).is_file():
        raise PathNotFound(f"{filter_file}: no such filter file. `ragen-diag tune RUN` writes one.")
    if not isinstance(config, TrainConfig):
        config = load_config(config, overrides or [], filter_file=filter_file)
    elif overrides or filter_file:
        raise UsageError(
            "overrides and filter_file go with a preset or file; give load_config(...) what you want changed"
        )
    require_training()
    from trainer.loop import train as run_training

    return run_training(config, Path(run_dir), resume=resume, progress=progress)


def require_training() -> None:
    """Raise MissingExtra unless the `train` extra is installed."""
    import importlib.util

    from ragen_diag.errors import MissingExtra

    for package in ("torch", "transformers", "peft", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra.of(package, "train", "training")
