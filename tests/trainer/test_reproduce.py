"""The reference's experiments: every configuration is valid, and a twin of every value of every axis trains."""

import importlib.util
import sys
from pathlib import Path

import pytest

from trainer.loop import train

SCRIPT = Path(__file__).parents[2] / "examples" / "reproduce" / "run.py"
spec = importlib.util.spec_from_file_location("reproduce_run", SCRIPT)
reproduce = importlib.util.module_from_spec(spec)
sys.modules["reproduce_run"] = reproduce
spec.loader.exec_module(reproduce)


@pytest.mark.parametrize("name", reproduce.experiments())
def test_every_run_is_a_valid_configuration_and_says_what_it_needs(name):
    content, runs = reproduce.load(name)
    assert {"question", "source", "needs", "expect", "axes"} <= set(content)
    assert f"{len(runs)} runs" in content["needs"]
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        assert run.config().model.path != "tiny"
        assert run.config(twin=True).model.path == "tiny"


def covering(name):
    """Runs in which every value of every axis appears: the first axis's values beside the others' in turn."""
    content, runs = reproduce.load(name)
    by_name = {run.name: run for run in runs}
    axes = [[str(value) for value in axis] for axis in content["axes"].values()]
    longest = max(map(len, axes))
    names = ["/".join(axis[i % len(axis)] for axis in axes) for i in range(longest)]
    return [by_name[n] for n in names if n in by_name]


@pytest.mark.slow
@pytest.mark.parametrize("name", reproduce.experiments())
def test_twins_train(name, tmp_path):
    for run in covering(name):
        result = train(run.config(twin=True), tmp_path / run.name, progress=False)
        assert result.steps_done == 1, run.name
        assert result.metrics[-1]["kept_group_share"] is not None
