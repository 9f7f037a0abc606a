"""The command line: registers the commands, turns errors into messages and exit codes. Thin: no logic of its own.

Exit codes (`errors.ExitCode`): 0 nothing at or above the gate · 1 findings at or above --fail-on · 2 wrong usage or config ·
3 our own error · 4 nothing readable found · 130 interrupted. Results go to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path

import typer
from typer.exceptions import TyperException

from ragen_diag import __version__, cli_analyze, cli_envs, cli_train
from ragen_diag.errors import ExitCode, RagenDiagError, UsageError

app = typer.Typer(
    name="ragen-diag",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Diagnostics for reasoning collapse in multi-turn RL of LLM agents, with a lean StarPO trainer.",
    epilog="Any command takes --debug, which shows the traceback of an error.",
)
cli_train.register(app)
cli_analyze.register(app)
app.add_typer(cli_envs.app, name="envs", help="List, show and play the environments.")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ragen-diag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


def check_not_shadowed() -> None:
    """Raise UsageError when `trainer`, `envs` or `analysis` resolve to somebody else's package."""
    ours = Path(__file__).resolve().parent.parent
    for name in ("analysis", "envs", "trainer"):
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if found != ours:
            raise UsageError(
                f"the package '{name}' of ragen-diag is shadowed by {spec.origin if spec else 'nothing (not installed)'}. "
                "Rename that module, or run ragen-diag from another folder."
            )


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `ragen-diag` command; always ends in SystemExit with a documented code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Before torch loads OpenMP: threads that spin for long while they wait double the time as soon as anything else wants a
    # core, and threads that sleep at once cost a third of it on a free machine. So: spin, but briefly.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    sys.exit(_run(arguments, debug))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        check_not_shadowed()
        code = app(arguments, prog_name="ragen-diag", standalone_mode=False)
        return int(code or ExitCode.OK)
    except TyperException as error:
        # Usage errors know how to show themselves, with the command's usage line; they write to stderr.
        show = getattr(error, "show", None)
        print(f"error: {error.format_message()}", file=sys.stderr) if show is None else show()
        return ExitCode.USAGE
    except RagenDiagError as error:
        if debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `ragen-diag ... | head`: the reader has what it wanted
        sys.stdout = None  # type: ignore[assignment]
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 -- the one place where our own faults become exit code 3
        if debug:
            traceback.print_exc()
        print(
            f"internal error: {type(error).__name__}: {error}\n"
            "This is a fault in ragen-diag, not in your data. Run again with --debug and report the traceback.",
            file=sys.stderr,
        )
        return ExitCode.INTERNAL


if __name__ == "__main__":
    main()
