"""A real two-step GRPO training of the embedded tiny model by TRL, watched by the callback and audited afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ragen_diag
from analysis.readers.discover import discover
from ragen_diag.callbacks import Monitor, MonitorCallback
from tests.readers.conftest import counts, rows_of

TINY = str(Path(ragen_diag.__file__).parent / "tiny_model")
COMMAND = str(Path(sys.executable).with_name("ragen-diag"))


def constant_reward(completions, **columns):
    return [0.5] * len(completions)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """(output folder, the callback after the training). Planted fault: a reward function that always says 0.5."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("trl") / "grpo"
    args = trl.GRPOConfig(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=8, num_generations=4, max_completion_length=24,
        logging_steps=1, log_completions=True, num_completions_to_print=0, report_to=["tensorboard"], use_cpu=True,
        save_steps=2, save_only_model=True, beta=0.04, bf16=False, gradient_checkpointing=False, disable_tqdm=True, seed=0,
    )  # fmt: skip
    questions = [[{"role": "user", "content": f"Player at ({row},{row + 1})"}] for row in range(8)]
    callback = MonitorCallback()
    trainer = trl.GRPOTrainer(
        model=TINY,
        args=args,
        reward_funcs=[constant_reward],
        train_dataset=datasets.Dataset.from_list([{"prompt": question} for question in questions]),
        processing_class=AutoTokenizer.from_pretrained(TINY),
        callbacks=[callback],
    )
    trainer.train()
    return folder, callback


def test_the_callback_raises_the_planted_alert_once(training):
    _, callback = training
    assert [(alert.step, alert.finding.code, alert.finding.status) for alert in callback.monitor.alerts] == [
        (2, "ZS03", "WARN")
    ]
    assert callback.monitor.verdict == "watch"


def test_the_alert_is_in_the_trainers_tensorboard_folder(training):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder, _ = training
    events = accumulator.EventAccumulator(str(folder / "runs" / "ragen_diag")).Reload()
    assert [(point.step, point.value) for point in events.Scalars("ragen_diag/ZS03")] == [(2, 1.0)]


def test_completions_are_read_back_as_trl_wrote_them(training):
    folder, _ = training
    (source,) = discover([folder])
    assert (source.format, source.kind) == ("trl", "rollouts")
    n_rollouts, n_steps, n_groups, _, mean_reward, n_missing, n_bad = counts(source)
    assert (n_rollouts, n_steps, n_groups, mean_reward, n_missing, n_bad) == (16, 2, 4, 0.5, 0, 0)
    written = [
        row
        for step in (1, 2)
        for row in pq.read_table(folder / f"completions/completions_0000{step}.parquet").to_pylist()
    ]
    assert [row["response_text"] for row in rows_of(source)] == [row["completion"][0]["content"] for row in written]
    assert all(row["reward_components"] == [("constant_reward", 0.5)] for row in rows_of(source))
    assert {row["advantage"] for row in rows_of(source)} == {0.0}


def test_trainer_state_is_merged_in(training):
    folder, _ = training
    series = discover([folder])[0].series()
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    assert series["reward_mean"] == [(1, 0.5), (2, 0.5)]
    assert series["zero_variance_share"] == [(1, 1.0), (2, 1.0)]
    assert series["entropy_nats"] == [(entry["step"], entry["entropy"]) for entry in state[:2]]


def test_the_log_is_audited_end_to_end(training):
    folder, _ = training
    result = subprocess.run(
        [COMMAND, "analyze", str(folder), "--json", "-", "--fail-on", "warn"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert [(entry["format"], entry["n_rollouts"], entry["n_groups"]) for entry in report["inputs"]] == [("trl", 16, 4)]
    (run,) = report["runs"]
    assert run["verdict"] == "watch"
    assert {f["code"]: f["status"] for f in run["findings"]}["ZS03"] == "WARN"


def test_stopping_is_only_done_when_asked(tmp_path):
    trl = pytest.importorskip("trl")

    class Control:
        should_training_stop = False

    class State:
        is_world_process_zero, global_step = True, 1

    args = trl.GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    for stop_at, expected in ((None, False), ("FAIL", True)):
        control = Control()
        callback = MonitorCallback(Monitor(to=[], stop_at=stop_at))
        callback.on_train_begin(args, State, control)
        for step in range(1, 13):
            State.global_step = step
            callback.on_log(args, State, control, logs={"reward": 0.5, "grad_norm": float("nan"), "loss": float("nan")})
            callback.on_step_begin(args, State, control)
        assert control.should_training_stop is expected
