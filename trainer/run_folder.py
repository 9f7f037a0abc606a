"""A run's folder: claiming it, its run.yaml, and leaving what is already there alone. Not for what is inside the log."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import ragen_diag
from ragen_diag.config import TrainConfig, from_dict, to_dict
from ragen_diag.errors import ConfigError, RunFolderError
from ragen_diag.rollout_log import RUN_FILE, write_atomically

LOCK_FILE = ".lock"
FREE_TO_CHANGE = ("steps", "runtime", "validation", "diagnostics.every")
"""What a resumed run may be told differently: it changes how far or how closely the run is followed, not what is learnt."""


def is_first_process() -> bool:
    """Of a launch of several; also where nothing was launched, and before an accelerator is there to ask."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def claim(run_dir: Path, *, resume: bool) -> Iterator[None]:
    """Hold a run folder for the time of training. Raises RunFolderError when it is in use, unwritable or already a run.

    The operating system drops the claim when the process dies, however it dies.
    """
    if not is_first_process():  # it claims the folder for all
        yield
        return
    _check_contents(run_dir, resume=resume)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        handle = (run_dir / LOCK_FILE).open("a")
    except OSError as error:
        raise RunFolderError(
            f"{run_dir}: cannot be written ({error.strerror or error}). Choose another folder."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunFolderError(
                f"{run_dir} is in use by another training process. Wait for it, or choose another folder."
            ) from error
        yield


def _check_contents(run_dir: Path, *, resume: bool) -> None:
    if run_dir.exists() and not run_dir.is_dir():
        raise RunFolderError(f"{run_dir} is a file; a run needs a folder")
    if resume and not (run_dir / RUN_FILE).is_file():
        raise RunFolderError(f"{run_dir} holds no run to resume (no {RUN_FILE}). Leave out --resume to start one.")
    if not resume and run_dir.is_dir() and any(entry.name != LOCK_FILE for entry in run_dir.iterdir()):
        what = "already holds a run" if (run_dir / RUN_FILE).is_file() else "is not empty"
        raise RunFolderError(
            f"{run_dir} {what}: nothing was written. Choose a new folder, or continue a run with --resume."
        )


def save_config(config: TrainConfig, run_dir: Path) -> None:
    """Write run.yaml: the resolved configuration, runnable again, and what is needed to say where the numbers come from."""
    record = {
        **to_dict(config),
        "versions": versions(),
        "git": _git_state(),
        "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
    }
    text = yaml.safe_dump(record, sort_keys=False, allow_unicode=True)
    write_atomically(run_dir / RUN_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def load_recorded_config(run_dir: Path) -> TrainConfig:
    """The configuration a run was started with. Raises RunFolderError when the folder is not a run."""
    path = run_dir / RUN_FILE
    if not path.is_file():
        raise RunFolderError(f"{run_dir} is not a run: it has no {RUN_FILE}")
    return from_dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def check_same(config: TrainConfig, recorded: TrainConfig) -> None:
    """Raise ConfigError when a run would be resumed as a different experiment."""
    now, then = _flat(to_dict(config)), _flat(to_dict(recorded))
    differing = [key for key in now if now[key] != then.get(key) and not key.startswith(FREE_TO_CHANGE)]
    if differing:
        listing = "\n".join(f"  - {key}: {then.get(key)!r} in the run, {now[key]!r} now" for key in differing)
        raise ConfigError(f"the run was started with other settings:\n{listing}\nResume with the run's own run.yaml.")


def versions() -> dict[str, str]:
    """Versions of everything that can change a number."""
    names = ("torch", "transformers", "peft", "accelerate", "tokenizers", "numpy", "gymnasium")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"ragen-diag": ragen_diag.__version__, "python": platform.python_version(), **found}


def _git_state() -> dict[str, Any]:
    """Commit of the working folder and whether it has uncommitted changes; nulls outside a repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "uncommitted_changes": None}


def _git(*arguments: str) -> str:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10, env=environment)
    return done.stdout.strip()


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict) and f"{prefix}{key}" != "env.options":
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
