"""What can go wrong when an environment is made. `envs` imports nothing of `ragen_diag`; its command line translates these."""

from __future__ import annotations

import importlib
from types import ModuleType


class EnvError(ValueError):
    """An environment that cannot be made. The message says what was asked, what is wrong and what to do."""


class UnknownEnv(EnvError):
    """No environment, variant or class of that name."""


class BadOption(EnvError):
    """The environment has no such option, or the option's value is out of range."""


class MissingExtra(EnvError):
    """The environment needs a package of an extra that is not installed."""


class ServiceError(RuntimeError):
    """A service that an environment depends on failed; the rollout ends as an error, without observation or reward."""


def require(module: str, *, needed_by: str, extra: str) -> ModuleType:
    """Import an optional package. Raises MissingExtra with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"environment {needed_by!r} needs the package {module!r}, which does not import ({error})."
            f" Try: pip install 'ragen-diag[{extra}]'"
        ) from error
