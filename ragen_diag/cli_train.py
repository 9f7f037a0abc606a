"""Commands that run models: demo, train, eval; and doctor, which says what is installed. Thin: one API call each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Scenario(StrEnum):
    """What `demo` shows."""

    LEARN = "learn"
    COLLAPSE = "collapse"


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    for command in (demo, train, evaluate, doctor):
        app.command("eval" if command is evaluate else None)(command)


def demo(
    scenario: Annotated[
        Scenario, typer.Option(help="learn: train, analyze, tune, train again. collapse: break it.")
    ] = Scenario.LEARN,
    out: Annotated[
        Path, typer.Option(help="Folder for the runs and the report; a number is added when it exists.")
    ] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Training steps per run; default: the preset's.")] = None,
    eval_seeds: Annotated[int, typer.Option(help="Held-out seeds that success is measured on.")] = 256,
) -> None:
    """Train the embedded model on FrozenLake, diagnose the run, tune the filter, train again, compare."""
    from ragen_diag import api

    api.demo(scenario.value, out, steps=steps, n_eval_seeds=eval_seeds)


def train(
    config: Annotated[str, typer.Argument(help="Preset name, YAML file, or the run.yaml of an earlier run.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as optim.lr=3e-5.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="New run folder; default: runs/<preset>.")] = None,
    filter_file: Annotated[Path | None, typer.Option("--filter", help="Filter file, as `tune` writes it.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --run-dir from its last checkpoint.")
    ] = False,
    report_to: Annotated[
        str | None,
        typer.Option(help="Trackers, separated by commas: tensorboard, wandb, trackio, mlflow, ...; or none."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
) -> None:
    """Train an agent and log every rollout."""
    from ragen_diag import api
    from trainer.run_folder import is_first_process

    target = run_dir or Path("runs") / Path(config).stem
    chosen = [] if report_to is None else [f"runtime.tracker={report_to}"]
    result = api.train(
        config, target, overrides=[*(overrides or []), *chosen], filter_file=filter_file, resume=resume, progress=not quiet
    )  # fmt: skip
    if not is_first_process():
        return
    print(result.summary())
    print(f"next: ragen-diag analyze {target} --out {target}/analysis")


def evaluate(
    model: Annotated[
        str, typer.Argument(help="Run folder, checkpoint, model folder or name, URL of a chat server, or 'random'.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as rollout.max_response_tokens=800.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Preset or YAML file that says how rollouts are played; default: the run's own.")
    ] = None,
    served_model: Annotated[str | None, typer.Option(help="Model at the URL; default: the only one it serves.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment; default: the run's own.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of held-out seeds.")] = 256,
    first_seed: Annotated[int, typer.Option(help="First held-out seed.")] = 123,
    rollouts: Annotated[int, typer.Option(help="Rollouts per seed; more than 1 gives pass@k.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; default: the run's validation setting.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="Write the rollouts there as a log.")] = None,
) -> None:
    """Measure success on held-out seeds, with a 95 % interval."""
    from ragen_diag import api

    result = api.evaluate(
        model, env=env, n_seeds=seeds, first_seed=first_seed, n_rollouts=rollouts, temperature=temperature, run_dir=run_dir,
        config=config, overrides=overrides, served_model=served_model,
    )  # fmt: skip
    print(result.summary())


def doctor() -> None:
    """Say what is installed: versions, extras, plug-in readers and environments, browser."""
    from ragen_diag import api

    api.doctor()
