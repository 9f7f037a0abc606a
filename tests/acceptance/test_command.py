"""The installed command as a user meets it: start-up cost, exit codes, messages without tracebacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("ragen-diag"))


def run(*arguments: str, **kwargs) -> subprocess.CompletedProcess:
    env = os.environ | kwargs.pop("env", {})
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120, env=env, **kwargs)


def test_help_and_import_stay_light():
    probe = (
        "import sys, ragen_diag.cli\n"
        "try: ragen_diag.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pandas', 'sklearn', 'plotly', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "heavy: []"
    for command in (
        "demo",
        "train",
        "eval",
        "analyze",
        "tune",
        "compare",
        "watch",
        "show",
        "convert",
        "plan",
        "explain",
        "envs",
    ):
        assert command in result.stdout


def test_version():
    assert run("--version").stdout == "ragen-diag 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["analyze", "no/such/path"], 2, "no/such/path"),
        (["analyze", "."], 4, "holds no files"),
        (["analyze", ".", "--fail-on", "sometimes"], 2, "sometimes"),
        (["analyze", ".", "--split", "test"], 2, "'train' or 'val'"),
        (["analyze", ".", "--map", "reward"], 2, "KEY=FIELD"),
        (["train", "no-such-preset"], 2, "no-such-preset"),
        (["train", "demo", "optim.learnign_rate=1"], 2, "learnign_rate"),
        (["explain", "ZS1"], 2, "ZS01"),
        (["frobnicate"], 2, "frobnicate"),
        (["compare", "."], 2, "two or more"),
    ],
)
def test_wrong_usage_has_a_message_and_its_exit_code(arguments: list[str], code: int, message: str, tmp_path: Path):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == [], "nothing may be written"


def test_debug_shows_the_traceback(tmp_path: Path):
    assert "Traceback" in run("analyze", "no/such/path", "--debug", cwd=tmp_path).stderr


def test_a_shadowing_package_is_named(tmp_path: Path):
    (tmp_path / "envs.py").write_text("")
    result = subprocess.run(
        [sys.executable, "-m", "ragen_diag", "doctor"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert "'envs' of ragen-diag is shadowed by" in result.stderr and "envs.py" in result.stderr


def test_json_on_stdout_is_pure_json(healthy_run: Path):
    result = run("analyze", str(healthy_run), "--json", "-", "--fail-on", "never")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["schema_version"] == 1


WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "peft", "accelerate"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from ragen_diag.cli import main
main(sys.argv[1:])
"""


def test_analysis_works_without_torch(template_run: Path, tmp_path: Path):
    arguments = ["analyze", str(template_run), "--out", str(tmp_path / "out"), "--fail-on", "never"]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())["runs"][0]
    assert verdict["verdict"] == "collapsed"
    assert verdict["metrics"]["conditional_entropy_nats_per_token"]["value"] == pytest.approx(0.4, abs=0.02)
    assert (tmp_path / "out" / "report.html").stat().st_size < 5_000_000


def test_healthy_and_template_runs_get_their_verdicts_and_exit_codes(healthy_run: Path, template_run: Path):
    healthy, template = run("analyze", str(healthy_run)), run("analyze", str(template_run))
    assert (healthy.returncode, template.returncode) == (0, 1), healthy.stderr + template.stderr
    assert "HEALTHY" in healthy.stdout
    assert "COLLAPSED" in template.stdout and "TC01" in template.stdout
    assert "\x1b[" not in healthy.stdout + template.stdout, "no escape codes in a pipe"


def test_an_unwritable_output_is_refused_before_the_analysis(healthy_run: Path, tmp_path: Path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    result = run("analyze", str(healthy_run), "--html", str(blocker / "report.html"))
    assert result.returncode == 2 and "is not a folder" in result.stderr


def test_show_tune_compare_and_plan_on_a_native_run(healthy_run: Path, template_run: Path, tmp_path: Path):
    assert "the goal of board 3" in run("show", str(healthy_run), "--step", "3").stdout
    tuned = run("tune", str(healthy_run), "-o", str(tmp_path / "filter.yaml"))
    assert tuned.returncode == 0 and "strategy" in (tmp_path / "filter.yaml").read_text()
    compared = run("compare", str(healthy_run), str(template_run))
    assert "retrieval_accuracy" in compared.stdout
    assert "nats" in run("plan", "--half-width", "0.3", "--run", str(template_run)).stdout


def test_a_torn_step_file_is_counted_and_named(tmp_path: Path, healthy_run: Path):
    import shutil

    copy = tmp_path / "torn"
    shutil.copytree(healthy_run, copy)
    torn = copy / "rollouts" / "step-000007.parquet"
    torn.write_bytes(torn.read_bytes()[:1000])
    result = run("analyze", str(copy), "--json", "-", "--fail-on", "never")
    (entry,) = json.loads(result.stdout)["inputs"]
    assert entry["n_bad_rows"] == 1 and entry["n_steps"] == 23
    assert entry["skipped"][0]["path"].endswith("step-000007.parquet")
