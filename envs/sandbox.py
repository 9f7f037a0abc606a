"""Running a model's Python where it can do no harm: no network, no files of this machine, bounded time, memory, processes.

`bwrap` (bubblewrap) makes the box, `prlimit` the limits, and under root `setpriv` a user for whom the process limit holds.
The weaker `rlimits` isolation (limits only: files and network stay open) is used only when a caller names it.
Not for: what the output means (`code_grading.py`).
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal

from envs.errors import ServiceError

Isolation = Literal["bubblewrap", "rlimits"]

MEMORY_BYTES = 512 * 2**20
FILE_BYTES = 2 * 2**20
OUTPUT_BYTES = 4 * 2**20
MAX_PROCESSES = 24
WALL_PER_CPU = 5
NOBODY = "65534"


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of a sandbox. `stdout` is cut at OUTPUT_BYTES."""

    stdout: bytes
    timed_out: bool
    exit_code: int


def run_python(program: str, stdin: bytes, *, timeout_s: float, isolation: Isolation = "bubblewrap") -> Run:
    """Run `program` with `stdin`; everything it started is killed at the end.

    `timeout_s` bounds the processor time of each process, and WALL_PER_CPU times as much the whole run: a busy machine
    must not turn right programs into wrong ones, and a program that sleeps must not hold a rollout for long.
    Raises ServiceError when this machine cannot isolate: untrusted code then does not run at all.
    """
    check_isolation(isolation)
    with tempfile.TemporaryDirectory() as folder:
        return _run(_command(program, timeout_s, isolation), stdin, timeout_s, folder)


@lru_cache(maxsize=2)
def check_isolation(isolation: Isolation) -> None:
    """Run one harmless program. Raises ServiceError saying what is missing."""
    tools = ["prlimit"] if isolation == "rlimits" else ["bwrap", "prlimit"]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise ServiceError(
            f"untrusted code needs {' and '.join(missing)} to run in isolation. Try: apt install bubblewrap util-linux"
            " (or, on your own risk, isolation=rlimits, which leaves files and network open)"
        )
    command = _command("print('ready')", 10.0, isolation)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, timeout=120, cwd=folder, check=False)
    if done.stdout != b"ready\n":
        raise ServiceError(f"the sandbox does not start on this machine: {done.stderr.decode(errors='replace')[:300]}")


def _command(program: str, timeout_s: float, isolation: Isolation) -> list[str]:
    limits = [
        f"--cpu={math.ceil(timeout_s)}",
        f"--as={MEMORY_BYTES}",
        f"--fsize={FILE_BYTES}",
        "--nofile=64",
        "--core=0",
    ]
    python, folders = _python()
    limited = ["prlimit", *limits, f"--nproc={MAX_PROCESSES}", python, "-I", "-B", "-S", "-c", program]
    if isolation == "rlimits":
        return limited
    as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"] if os.geteuid() == 0 else []
    box = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for folder in folders:
        box += ["--ro-bind", folder, folder]
    for name in ("lib", "lib64", "bin"):  # merged /usr: links; older systems: folders of their own
        path = Path("/", name)
        box += ["--symlink", f"usr/{name}", str(path)] if path.is_symlink() else ["--ro-bind-try", str(path), str(path)]
    box += ["--proc", "/proc", "--dev", "/dev", "--size", str(16 * 2**20), "--tmpfs", "/tmp", "--chdir", "/tmp"]
    return [*as_nobody, *box, *limited]


def _python() -> tuple[str, list[str]]:
    """An interpreter that another user can read, and the folders it lives in."""
    system = Path("/usr/bin/python3")
    if system.exists():
        return str(system), ["/usr"]
    return str(Path(sys.base_prefix, "bin", "python3")), ["/usr", sys.base_prefix]


def _run(command: list[str], stdin: bytes, timeout_s: float, folder: str) -> Run:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        _kill_group(process.pid)

    timer = threading.Timer(WALL_PER_CPU * timeout_s, kill)
    feeder = threading.Thread(target=_feed, args=(process.stdin, stdin))
    timer.start()
    feeder.start()
    try:
        output = process.stdout.read(OUTPUT_BYTES)
    finally:
        timer.cancel()
        _kill_group(process.pid)
        process.stdout.close()
        process.wait()
        feeder.join()
        timer.join()
    return Run(output, timed_out.is_set(), process.returncode)


def _kill_group(leader: int) -> None:
    """Kill bwrap, and with it the process namespace; without bwrap, the program and its children."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:  # ended by itself
        return


def _feed(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:  # the program ended, or closed its input, before it had read everything
        return
