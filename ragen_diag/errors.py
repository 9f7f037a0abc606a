"""Everything that can go wrong, as the person at the keyboard sees it.

    RagenDiagError
    ├── UsageError            exit 2   wrong option or argument
    │   ├── PathNotFound               the path does not exist
    │   ├── ConfigError                unknown key, wrong value (all problems reported together)
    │   ├── RunFolderError             run folder in use, unwritable, or not a run
    │   ├── ModelError                 model path or name that cannot be loaded
    │   ├── MissingExtra               an optional dependency is needed; says which extra
    │   ├── AmbiguousFormat            two readers claim the same file
    │   └── BadLog                     too many unreadable records, or --strict met one
    ├── NothingReadable       exit 4   no file that any reader recognises
    └── InternalError         exit 3   our own fault

A bad *record* in a log is data, not an exception: readers count it with file and line and go on (`rollout_log.BadRecord`).
A bad *option* stops before anything is written. Messages say what was wrong, where, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `ragen-diag` command."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    INTERNAL = 3
    NOTHING_READABLE = 4
    INTERRUPTED = 130


class RagenDiagError(Exception):
    """Base of every error that ends a command with a message instead of a traceback."""

    exit_code: ExitCode = ExitCode.INTERNAL


class InternalError(RagenDiagError):
    """Our own fault: a state the code should have made impossible."""


class UsageError(RagenDiagError):
    """Wrong option, argument or combination of them."""

    exit_code = ExitCode.USAGE


class PathNotFound(UsageError):
    """A path given on the command line does not exist."""


class ConfigError(UsageError):
    """One or more wrong configuration entries; the message lists all of them."""


class RunFolderError(UsageError):
    """A run folder that is in use, cannot be written, or is not a run."""


class ModelError(UsageError):
    """A model path or name that cannot be loaded as a causal language model."""


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, package: str, extra: str, what: str) -> MissingExtra:
        """Say that `what` needs `package`, which the extra `extra` brings."""
        return cls(
            f"{what} needs the package '{package}', which is not installed. Try: pip install 'ragen-diag[{extra}]'"
        )


class AmbiguousFormat(UsageError):
    """Several readers claim one file with equal confidence."""


class BadLog(UsageError):
    """A log whose unreadable records exceed the accepted share, or any unreadable record under --strict."""


class NothingReadable(RagenDiagError):
    """No file under the given paths is a log that any reader recognises."""

    exit_code = ExitCode.NOTHING_READABLE


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest known name, or "" when none is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
