"""`ragen-diag demo`: the whole loop on the embedded model. Orders the steps and prints them; the rest is the public API."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ragen_diag import api, terminal
from ragen_diag.config import TrainConfig, load_config

if TYPE_CHECKING:
    from analysis.result import Report
    from ragen_diag.findings import Estimate
    from trainer.validation import EvalResult


def run_demo(scenario: str, out: Path, *, steps: int | None = None, n_eval_seeds: int = 256) -> Report:
    """Run a scenario ('learn' or 'collapse') under a folder of its own and return the final report."""
    began = time.monotonic()
    folder = free_folder(out)
    report = (_learn if scenario == "learn" else _collapse)(folder, steps, n_eval_seeds)
    print(f"\ndone in {time.monotonic() - began:.0f} s on {_machine()}")
    return report


def free_folder(wanted: Path) -> Path:
    """`wanted`, or wanted-2, wanted-3, ... when it exists: a demo never touches an earlier one."""
    number, folder = 1, wanted
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _config(preset: str, steps: int | None, filter_file: Path | None = None) -> TrainConfig:
    return load_config(preset, [] if steps is None else [f"steps={steps}"], filter_file=filter_file)


def _learn(folder: Path, steps: int | None, n_seeds: int) -> Report:
    config = _config("demo", steps)
    _say(f"The embedded model plays {config.env.name}; success on {n_seeds} held-out boards, 95 % intervals.")
    random = api.evaluate("random", env=config.env.name, n_seeds=n_seeds)
    _result("random actions", random)
    before = api.evaluate(config.model.path, n_seeds=n_seeds)
    _result("before training", before)

    first = folder / "no-filter"
    _say(f"1. Train {config.steps} steps without a filter → {first}")
    api.train(config, first)
    after = api.evaluate(first, n_seeds=n_seeds)
    _result("after training", after)
    _difference("  gained", before, after)

    _say("2. Diagnose the run and tune the filter on its own reward groups")
    report = api.analyze(first)
    filter_file = api.write_outputs(report, first / "analysis").get("filter")
    terminal.summarize(report)
    if filter_file is None:
        print("no filter can be recommended from this run: too few reward groups")
        return _finish(report, folder, {})
    print(f"filter: {filter_file}")

    second = folder / "tuned-filter"
    _say(f"3. Train again from the same start with that filter → {second}")
    api.train(_config("demo", steps, filter_file), second)
    tuned = api.evaluate(second, n_seeds=n_seeds)

    _say("4. Compare on the same held-out boards")
    for name, result in (("random actions", random), ("before", before), ("no filter", after), ("tuned filter", tuned)):
        _result(name, result)
    _difference("  no filter − before", before, after)
    _difference("  tuned filter − before", before, tuned)
    _difference("  tuned − no filter", after, tuned)
    return _finish(api.analyze(first, second), folder, {"filter": filter_file})


def _collapse(folder: Path, steps: int | None, n_seeds: int) -> Report:
    config = _config("demo-collapse", steps)
    _say(
        "Provoking template collapse: the task's reward counts for nothing; a grader pays for brief thinking in the\n"
        f"right format ({config.rollout.thinking_target} tokens), and an entropy bonus keeps it varied. The board falls out "
        "of the thinking\nfirst: H(Z|X) stays or rises while the input dependence I(X;Z) is lost."
    )
    before = api.evaluate(config.model.path, n_seeds=n_seeds)
    run_dir = folder / "collapse"
    api.train(config, run_dir)
    _result("before", before)
    _result("after", api.evaluate(run_dir, n_seeds=n_seeds))
    _say("What the analyzer says")
    return _finish(api.analyze(run_dir), folder, {})


def _finish(report: Report, folder: Path, written: dict[str, Path]) -> Report:
    outputs = written | {kind: path for kind, path in api.write_outputs(report, folder).items() if kind != "filter"}
    print()
    for run in report.runs:
        print(f"{run.name}: {run.verdict.value} · regime {run.regime} · phase {run.phase} · {run.reason}")
    terminal.summarize(report, outputs)
    return report


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)


def _result(name: str, result: EvalResult) -> None:
    low, high = result.success_ci95
    print(f"  {name:<22} {result.success_rate:6.1%}  [{low:.1%}, {high:.1%}]", flush=True)


def _difference(name: str, before: EvalResult, after: EvalResult) -> None:
    from analysis.compare import paired_difference

    estimate: Estimate = paired_difference(before.successes_SK.mean(axis=1), after.successes_SK.mean(axis=1))
    assert estimate.value is not None and estimate.ci95 is not None
    low, high = (100 * bound for bound in estimate.ci95)
    print(f"{name:<24} {100 * estimate.value:+6.1f} points  [{low:+.1f}, {high:+.1f}], paired by board", flush=True)


def _machine() -> str:
    import os
    import platform

    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
