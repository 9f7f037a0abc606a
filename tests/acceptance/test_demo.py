"""Both demo scenarios through the installed command, at reduced size; the full size is `make demo`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

COMMAND = str(Path(sys.executable).with_name("ragen-diag"))
pytestmark = pytest.mark.slow


def demo(folder: Path, *arguments: str) -> str:
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [COMMAND, "demo", "--out", str(folder), *arguments], capture_output=True, text=True, timeout=850, env=env
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


def verdicts(folder: Path) -> dict[str, dict]:
    return {run["name"]: run for run in json.loads((folder / "verdict.json").read_text())["runs"]}


def test_learn_trains_twice_compares_and_writes_every_file(tmp_path: Path):
    folder = tmp_path / "demo"
    output = demo(folder, "--steps", "4", "--eval-seeds", "64")
    for name in ("random actions", "before training", "after training", "tuned filter"):
        assert re.search(rf"{name} +\d+\.\d%  \[\d+\.\d%, \d+\.\d%\]", output), name
    assert re.search(
        r"tuned filter − before +[+-]\d+\.\d points  \[[+-]\d+\.\d, [+-]\d+\.\d\], paired by board", output
    )
    for name in ("report.html", "verdict.json", "no-filter/analysis/filter.yaml"):
        assert (folder / name).is_file() and name.split("/")[-1] in output
    runs = verdicts(folder)
    assert set(runs) == {"no-filter", "tuned-filter"}
    assert all(run["verdict"] not in ("collapsed", "broken_pipeline") for run in runs.values()), runs
    tuned = yaml.safe_load((folder / "no-filter" / "analysis" / "filter.yaml").read_text())
    used = yaml.safe_load((folder / "tuned-filter" / "run.yaml").read_text())["filter"]
    assert "strategy" in tuned and {key: used[key] for key in tuned} == tuned, (
        "the second run trains with the tuned filter"
    )


def test_collapse_is_caught_and_named(tmp_path: Path):
    folder = tmp_path / "demo"
    output = demo(folder, "--scenario", "collapse", "--eval-seeds", "64")
    (run,) = verdicts(folder).values()
    assert run["verdict"] == "collapsed", run["reason"]
    failed = {finding["code"] for finding in run["findings"] if finding["status"] == "FAIL"}
    assert "TC01" in failed and run["regime"] == "template_collapse"
    assert "template collapse" in output.lower()


def test_a_second_demo_does_not_touch_the_first(tmp_path: Path):
    from ragen_diag.demonstration import free_folder

    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_folder(tmp_path / "demo") == tmp_path / "demo-3"
