"""Shared by the trainer's tests: a small run configuration and one CPU thread."""

import pytest
import torch

from ragen_diag.config import load_config

SMALL = [
    "steps=2",
    "rollout.groups=2",
    "rollout.group_size=2",
    "rollout.max_turns=2",
    "optim.mini_batch=2",
    "optim.schedule=constant",
    "optim.micro_batch=2",
    "diagnostics.every=0",
    "validation.every=0",
    "runtime.tracker=none",
    "runtime.threads=1",
]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def small():
    """small(*overrides): the demo preset cut down to seconds."""
    return lambda *overrides: load_config("demo", [*SMALL, *overrides])
