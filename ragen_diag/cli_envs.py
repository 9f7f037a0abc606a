"""`ragen-diag envs`: list, show, play, measure and audit the environments. Thin: everything it prints comes from `envs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragen_diag.errors import ExitCode, UsageError
from ragen_diag.visible_text import visible

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from envs.text_env import TextEnv

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="NAME, NAME:VARIANT or package.module:Class.", show_default=False)]
Seed = Annotated[int, typer.Option(help="Seed of the prompt.", min=0)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Option of the environment.")]


@app.command("list")
def list_() -> None:
    """All environments with variants, what they need, and where their tasks come from."""
    from rich.console import Console
    from rich.table import Table

    from envs.registry import specs

    table = Table("name", "variants", "actions", "needs", "data", "what", box=None, pad_edge=False)
    for spec in specs():
        needs = spec.problem or (f"[{spec.extra}]" if spec.extra else "")
        variants, budget = ", ".join(spec.variants), str(spec.max_actions)
        table.add_row(*(visible(cell) for cell in (spec.name, variants, budget, needs, spec.data, spec.summary)))
    Console(markup=False, width=None if sys.stdout.isatty() else 160).print(table)


@app.command()
def show(name: Name, seed: Seed = 0, options: Set = None) -> None:
    """The instruction, the first observation and the actions of one seed, as a policy meets them."""
    with _usage_errors():
        env = _make(name, options)
        observation, _ = env.reset(seed=seed)
    typer.echo(f"# {name}, seed {seed}\n\n## Instruction\n{visible(env.instruction)}\n")
    typer.echo(f"## Observation\n{visible(observation)}\n\n## Actions (at most {env.max_actions})\n{_actions(env)}")


@app.command()
def play(name: Name, seed: Seed = 0, options: Set = None) -> None:
    """Play in the terminal: one action a line, end with Ctrl-D. Works with piped actions, too."""
    with _usage_errors():
        env = _make(name, options)
        observation, _ = env.reset(seed=seed)
        typer.echo(f"{visible(env.instruction)}\n\nActions: {_actions(env)}\n\n{visible(observation)}")
        typer.echo(_play_from_stdin(env))


def _play_from_stdin(env: TextEnv) -> str:
    """Play on from a reset environment; how it ended."""
    total, used, terminated, success = 0.0, 0, False, False
    while used < env.max_actions and not terminated:
        action = _read_action(env.max_actions - used)
        if action is None:
            return f"\nLeft after {used} actions, return {total:g}."
        observation, reward, terminated, _, info = env.step(action)
        note = "" if info["action_is_valid"] else " (no valid action)"
        used += info["action_is_valid"]
        total, success = total + reward, info["success"]
        typer.echo(f"\n{visible(observation)}\nreward {reward:g}{note}")
    end = "Solved" if success else "Over" if terminated else "No actions left"
    return f"\n{end} after {used} actions, return {total:g}."


@app.command("random")
def random_(
    name: Name,
    episodes: Annotated[int, typer.Option(help="Number of episodes, one seed each.", min=1)] = 512,
    first_seed: Annotated[int, typer.Option(help="First seed; 123 is RAGEN's validation set.", min=0)] = 123,
    options: Set = None,
) -> None:
    """Success of uniformly random actions, with a 95 % interval: what a trained number must beat."""
    from envs.baseline import play_randomly

    with _usage_errors():
        measured = play_randomly(_make(name, options), episodes, first_seed=first_seed)
    low, high = measured.success_ci95
    typer.echo(
        f"{name}: {measured.success_rate:.1%} success of random actions, 95 % interval {low:.1%} to {high:.1%} "
        f"({measured.n_successes} of {episodes}, seeds {first_seed} to {first_seed + episodes - 1}); "
        f"mean return {measured.mean_return:.3g}, mean actions {measured.mean_actions:.3g}"
    )


@app.command("audit")
def audit_(
    name: Name,
    seeds: Annotated[int, typer.Option(help="Number of seeds to try.", min=1)] = 8,
    first_seed: Annotated[int, typer.Option(help="First seed.", min=0)] = 123,
    options: Set = None,
) -> int:
    """Does the grader pay for what is no solution? Exit 1 if it does, or if the known solution fails."""
    from envs.audit import audit

    with _usage_errors():
        attempts = audit(_make(name, options), seeds, first_seed=first_seed)
    for attempt in attempts:
        verdict = "PASS" if attempt.passed else f"FAIL (seed {attempt.example_seed})"
        outcome = f"{attempt.n_successes} of {attempt.n_seeds} succeed, best return {attempt.max_return:g}"
        typer.echo(f"{verdict:<5} {attempt.kind}: {outcome}")
    return ExitCode.OK if all(attempt.passed for attempt in attempts) else ExitCode.FINDINGS


@app.command("serve-search")
def serve_search(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8001,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    corpus: Annotated[str | None, typer.Option(metavar="FILE", help="JSON lines with `contents` or `text`.")] = None,
) -> None:
    """Serve BM25 retrieval over HTTP (/retrieve, /health), for `search_qa --set url=...` and for others. Ctrl-C ends it."""
    from envs.retrieval import make_server
    from envs.search_qa import shared_bm25

    with _usage_errors():
        retriever = shared_bm25(corpus, None)
    with _listening(lambda: make_server(retriever, host, port), f"{host}:{port}") as server:
        typer.echo(f"http://{host}:{server.server_address[1]} serves {len(retriever.passages)} passages", err=True)
        server.serve_forever()


@contextmanager
def _listening(start: Callable[[], ThreadingHTTPServer], address: str) -> Iterator[ThreadingHTTPServer]:
    try:
        server = start()
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error}. Try another --port") from error
    with server:
        yield server


@contextmanager
def _usage_errors() -> Iterator[None]:
    """`envs` imports nothing of ours, so its errors become ours here."""
    from envs.errors import ServiceError

    try:
        yield
    except (ValueError, ServiceError) as error:
        raise UsageError(str(error)) from error


def _make(name: str, options: list[str] | None) -> TextEnv:
    import yaml

    from envs.registry import make

    settings: dict[str, Any] = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"--set {option}: expected KEY=VALUE")
        settings[key] = yaml.safe_load(value)
    return make(name, **settings)


def _actions(env: TextEnv) -> str:
    return ", ".join(env.action_names) if env.action_names else "free text"


def _read_action(actions_left: int) -> str | None:
    """The next line of stdin without its newline, or None at its end. The prompt is for people only."""
    if sys.stdin.isatty():
        print(f"\naction ({actions_left} left)> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
