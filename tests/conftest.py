"""Shared fixtures; one thread per process, because OpenMP's spinning starves parallel tests."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from tests.native_run import write_run


@pytest.fixture(scope="session")
def healthy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native run whose reasoning names its prompt."""
    return write_run(tmp_path_factory.mktemp("runs") / "healthy")


@pytest.fixture(scope="session")
def template_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with reasoning that names any prompt at random."""
    return write_run(tmp_path_factory.mktemp("runs") / "template", dependence=0.0)
