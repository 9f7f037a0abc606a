"""Whole small runs: the log, resuming bit for bit, kill -9, and folders that must not be touched."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import yaml

from ragen_diag.config import load_config, to_dict
from ragen_diag.cross_scores import CrossScores, cross_score_files
from ragen_diag.errors import ConfigError, ModelError, RunFolderError
from ragen_diag.metric_names import METRICS
from ragen_diag.rollout_log import read_metrics, read_steps, step_files
from trainer.checkpoints import list_checkpoints
from trainer.evaluate import evaluate, random_baseline
from trainer.loop import train

WALL = {"step_wall_s", "rollout_wall_s"}


def without_wall(rows):
    return [{key: value for key, value in row.items() if key not in WALL} for row in rows]


def rollouts(run_dir):
    return [(step, split, pq.read_table(path)) for step, split, path in step_files(run_dir)]


def assert_same_run(one, other):
    assert without_wall(read_metrics(one)) == without_wall(read_metrics(other))
    first, second = rollouts(one), rollouts(other)
    assert [entry[:2] for entry in first] == [entry[:2] for entry in second]
    for (step, split, mine), (_, _, theirs) in zip(first, second, strict=True):
        assert mine.equals(theirs), f"step {step} {split}"


def test_a_run_and_its_log(small, tmp_path):
    config = small(
        "steps=2", "diagnostics.every=1", "validation.every=2", "validation.seeds=4", "runtime.tracker=tensorboard"
    )
    result = train(config, tmp_path / "run", progress=False)
    assert result.steps_done == 2
    assert result.stop_reason is None
    assert [step for step, _ in result.validations] == [0, 2]
    assert "validation at step 2" in result.summary()
    assert [(step, split) for step, split, _ in step_files(tmp_path / "run")] == [
        (0, "val"),
        (1, "train"),
        (2, "train"),
        (2, "val"),
    ]
    rows = [row for batch in read_steps(tmp_path / "run", split="train") for row in batch.to_pylist()]
    assert {row["seed"] for row in rows if row["step"] == 1} == {10000, 10001}
    assert {row["seed"] for row in rows if row["step"] == 2} == {10002, 10003}
    assert {row["model_version"] for row in rows} == {"update-0", "update-1"}
    assert all(row["advantage"] is not None and row["kept_by_filter"] for row in rows)
    assert all(len(row["response_ids"]) == len(row["logprobs"]) == len(row["entropies"]) for row in rows)
    metrics = read_metrics(tmp_path / "run")
    assert set().union(*metrics) - {"step"} <= set(METRICS)
    assert metrics[0]["step"] == 0 and metrics[0]["val_success_rate"] is not None
    assert metrics[1]["sampler_trainer_logprob_gap"] < 1e-4
    matrices = [CrossScores.load(path) for path in cross_score_files(tmp_path / "run")]
    assert [matrix.step for matrix in matrices] == [1, 2]
    assert list((tmp_path / "run" / "tracker").rglob("events.out.tfevents.*"))


def test_cross_scores_agree_with_the_logged_logprobs(small, tmp_path):
    train(small("steps=1", "diagnostics.every=1"), tmp_path / "run", progress=False)
    matrix = CrossScores.load(next(cross_score_files(tmp_path / "run")))
    rows = {
        row["trajectory_id"]: row
        for batch in read_steps(tmp_path / "run")
        for row in batch.to_pylist()
        if row["turn"] == 0
    }
    for r, name in enumerate(matrix.trajectory_ids_R):
        logged = rows[name]["logprobs"][rows[name]["thinking_start"] : rows[name]["thinking_end"]]
        assert matrix.logprob_sum_RN[r, matrix.column_R[r]] == pytest.approx(sum(logged), abs=1e-3)


ALGORITHMS = {
    "grpo": [],
    "ppo": ["algorithm.advantage=gae", "model.tuning=lora", "algorithm.kl_coef=0.01"],
    "filter": ["filter.strategy=top_k", "filter.value=0.5", "optim.epochs=2"],
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(small, tmp_path, name):
    settings = [
        *ALGORITHMS[name],
        "runtime.checkpoint_every=1",
        "diagnostics.every=2",
        "validation.every=2",
        "validation.seeds=2",
    ]
    train(small("steps=4", *settings), tmp_path / "whole", progress=False)
    train(small("steps=2", *settings), tmp_path / "parts", progress=False)
    train(small("steps=4", *settings), tmp_path / "parts", resume=True, progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


RUNNER = """
import sys, yaml
from pathlib import Path
from ragen_diag.config import load_config
from trainer.loop import train
train(load_config(sys.argv[1]), Path(sys.argv[2]), resume=sys.argv[3] == "resume", progress=False)
"""


def test_kill_minus_nine_leaves_a_readable_run_that_resumes_to_the_same_end(small, tmp_path):
    config = small("steps=6", "runtime.checkpoint_every=1", "runtime.keep_checkpoints=2")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_dict(config)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    run = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(path), str(run), "start"], env=environment)
    deadline = time.monotonic() + 120
    while len(list_checkpoints(run)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list_checkpoints(run), "no checkpoint within two minutes"
    for _, _, file in step_files(run):
        pq.read_table(file)  # whatever carries a final name is whole
    train(config, run, resume=True, progress=False)
    train(config, tmp_path / "whole", progress=False)
    assert_same_run(tmp_path / "whole", run)


def test_the_saved_configuration_runs_again(small, tmp_path):
    config = small("steps=1")
    train(config, tmp_path / "run", progress=False)
    assert load_config(tmp_path / "run") == config
    record = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())
    assert set(record["versions"]) >= {"torch", "transformers", "ragen-diag", "python"}


def test_folders_that_must_not_be_touched(small, tmp_path):
    config = small("steps=1")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(RunFolderError, match="is not empty: nothing was written"):
        train(config, tmp_path / "full", progress=False)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    with pytest.raises(RunFolderError, match="is a file"):
        train(config, tmp_path / "full" / "thesis.txt", progress=False)
    with pytest.raises(RunFolderError, match="holds no run to resume"):
        train(config, tmp_path / "nothing", resume=True, progress=False)
    train(config, tmp_path / "run", progress=False)
    before = (tmp_path / "run" / "metrics.parquet").read_bytes()
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(config, tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "metrics.parquet").read_bytes() == before


def test_a_run_is_not_resumed_as_another_experiment(small, tmp_path):
    train(small("steps=1"), tmp_path / "run", progress=False)
    with pytest.raises(ConfigError, match=r"optim.lr: 0.0003 in the run, 0.1 now"):
        train(small("steps=2", "optim.lr=0.1"), tmp_path / "run", resume=True, progress=False)


def test_what_is_not_a_model(small, tmp_path):
    (tmp_path / "folder").mkdir()
    for path, message in (
        (tmp_path / "folder", "a folder without config.json"),
        (tmp_path / "no" / "model", "cannot be loaded"),
    ):
        with pytest.raises(ModelError, match=message):
            train(small(f"model.path={path}"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "run.yaml").exists()


def test_zero_task_advantage_leaves_only_the_regulariser(small, tmp_path):
    config = small("steps=1", "algorithm.zero_task_advantage=true", "algorithm.entropy_coef=0.5")
    row = train(config, tmp_path / "run", progress=False).metrics[0]
    assert row["policy_loss"] == 0
    assert row["loss"] < 0
    assert row["grad_norm"] > 0


def test_empty_filter_stops_the_run_and_says_why(small, tmp_path):
    hopeless = ["env.name=sokoban", "env.options={}", "rollout.format_penalty=0", "rollout.max_response_tokens=1"]
    dropped = ["filter.strategy=top_p", "filter.include_zero=false", "filter.empty_stop_steps=2"]
    config = small("steps=9", *hopeless, *dropped)
    result = train(config, tmp_path / "run", progress=False)
    assert result.steps_done == 2
    assert result.stop_reason == "the filter kept no group for 2 steps in a row"
    assert [step for step, _ in list_checkpoints(tmp_path / "run")] == [2]
    assert result.metrics[-1]["kept_group_share"] == 0


def test_refill_collects_until_enough_groups_are_kept(small, tmp_path):
    config = small(
        "steps=1",
        "rollout.group_size=4",
        "filter.strategy=top_p",
        "filter.value=1",
        "filter.include_zero=false",
        "filter.refill=3",
    )
    result = train(config, tmp_path / "run", progress=False)
    rows = [row for batch in read_steps(tmp_path / "run") for row in batch.to_pylist()]
    kept = {row["group_id"] for row in rows if row["kept_by_filter"]}
    assert len(kept) <= 2
    assert len({row["seed"] for row in rows}) == len({row["group_id"] for row in rows}) > 2
    assert all(row["advantage"] is None for row in rows if not row["kept_by_filter"])
    assert result.steps_done == 1


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_evaluating_a_run_its_checkpoint_and_the_exported_model_agree(small, tmp_path, tuning):
    config = small("steps=1", f"model.tuning={tuning}", "optim.lr=0.01")
    train(config, tmp_path / "run", progress=False)
    checkpoint = list_checkpoints(tmp_path / "run")[0][1]
    options = {"n_seeds": 8, "temperature": 0.5}
    of_run = evaluate(tmp_path / "run", **options)
    of_checkpoint = evaluate(checkpoint, run_dir=tmp_path / "eval", **options)
    assert (of_run.returns_SK == of_checkpoint.returns_SK).all()
    assert "success" in of_run.summary()
    assert len(list(read_steps(tmp_path / "eval", split="val"))) == 1
    if tuning == "full":
        exported = evaluate(
            checkpoint / "model",
            config=dataclasses.replace(config, model=dataclasses.replace(config.model, path=str(checkpoint / "model"))),
            **options,
        )
        assert (exported.returns_SK == of_run.returns_SK).all()


def test_random_baseline_matches_the_reference():
    """ragen_facts 10.2: 25.6 % on 512 validation seeds with 10 random actions."""
    result = random_baseline("frozen_lake:no_slip", n_seeds=512, n_rollouts=4)
    assert result.success_rate == pytest.approx(0.256, abs=0.03)
    low, high = result.success_ci95
    assert low < result.success_rate < high < low + 0.1
    assert result.pass_at_k > result.success_rate
