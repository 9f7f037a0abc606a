"""The rollout log: schema documents itself, writes are atomic, reading streams and survives torn files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragen_diag import rollout_log
from ragen_diag.cross_scores import CrossScores, cross_score_files
from ragen_diag.errors import RunFolderError


def row(trajectory: str, turn: int = 0, **columns) -> dict:
    base = {"run_id": "r", "step": 1, "split": "train", "prompt_id": "p"}
    return base | {"trajectory_id": trajectory, "turn": turn} | columns


def test_every_column_states_its_meaning_and_counts_state_their_unit():
    for field in rollout_log.SCHEMA:
        assert field.metadata[b"doc"], field.name
    assert rollout_log.SCHEMA.field("logprobs").metadata[b"unit"] == b"nats"
    assert rollout_log.SCHEMA.field("return_").metadata[b"unit"] == b"reward"


def test_round_trip_keeps_missing_apart_from_zero(tmp_path: Path):
    rows = [row("a", response_ids=[1, 2], logprobs=[-0.5, 0.0], return_=0.0), row("b", actions=["Up", "Left"])]
    rollout_log.write_step(tmp_path, 1, "train", rows)
    first, second = next(rollout_log.read_steps(tmp_path)).to_pylist()
    assert (first["return_"], second["return_"]) == (0.0, None)
    assert first["response_ids"] == [1, 2] and second["response_ids"] is None
    assert second["actions"] == ["Up", "Left"]


def test_an_unknown_column_is_refused():
    with pytest.raises(KeyError, match="not columns of the rollout log: \\['reward'\\]"):
        rollout_log.rows_to_table([row("a", reward=1.0)])


def test_steps_are_read_in_number_order_and_splits_apart(tmp_path: Path):
    for step in (10, 2, 1):
        rollout_log.write_step(tmp_path, step, "train", [row(f"t{step}", step=step)])
    rollout_log.write_step(tmp_path, 2, "val", [row("v2", step=2, split="val")])
    read = [record["trajectory_id"] for batch in rollout_log.read_steps(tmp_path) for record in batch.to_pylist()]
    assert read == ["t1", "t2", "v2", "t10"]
    assert [step for step, _, _ in rollout_log.step_files(tmp_path, "train")] == [1, 2, 10]


def test_a_torn_file_is_reported_and_the_rest_is_read(tmp_path: Path):
    for step in (1, 2):
        rollout_log.write_step(tmp_path, step, "train", [row(f"t{step}", step=step)])
    torn = rollout_log.step_path(tmp_path, 1, "train")
    torn.write_bytes(torn.read_bytes()[:-20])
    bad: list[rollout_log.BadRecord] = []
    assert [batch.num_rows for batch in rollout_log.read_steps(tmp_path, bad=bad)] == [1]
    assert bad[0].path == str(torn) and "not a complete Parquet file" in bad[0].why


def test_an_older_schema_is_read_with_missing_columns_null(tmp_path: Path):
    table = rollout_log.rows_to_table([row("a")]).drop_columns(["filter_score", "reward_source"])
    path = rollout_log.step_path(tmp_path, 1, "train")
    path.parent.mkdir()
    pq.write_table(table, path)
    assert next(rollout_log.read_steps(tmp_path)).to_pylist()[0]["filter_score"] is None


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path):
    (tmp_path / "rollouts").write_text("a file where the folder should be")
    with pytest.raises(RunFolderError, match="cannot write the rollout log"):
        rollout_log.write_step(tmp_path, 1, "train", [row("a")])


def test_metrics_keep_missing_values(tmp_path: Path):
    rollout_log.write_metrics(tmp_path, [{"step": 1, "loss": 0.5}, {"step": 2, "kl_nats": None, "loss": float("nan")}])
    first, second = rollout_log.read_metrics(tmp_path)
    assert first == {"step": 1, "kl_nats": None, "loss": 0.5}
    assert second["kl_nats"] is None and np.isnan(second["loss"])


WRITER = """
import sys; from pathlib import Path
from ragen_diag import rollout_log
step = 0
while True:
    step += 1
    rows = [{"run_id": "r", "step": step, "split": "train", "prompt_id": "p", "trajectory_id": f"{step}-{k}", "turn": 0,
             "response_text": "x" * 2000} for k in range(200)]
    rollout_log.write_step(Path(sys.argv[1]), step, "train", rows)
"""


def test_kill_9_leaves_only_whole_files_under_final_names(tmp_path: Path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    deadline = time.monotonic() + 60
    while len(rollout_log.step_files(tmp_path)) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    files = rollout_log.step_files(tmp_path)
    assert len(files) >= 5
    assert sum(batch.num_rows for batch in rollout_log.read_steps(tmp_path)) == 200 * len(files)


def test_prompt_ids_do_not_depend_on_the_process():
    assert rollout_log.prompt_id("a board") == "3f438c0eaa07962b"
    script = "from ragen_diag.rollout_log import prompt_id; print(prompt_id('a board'), prompt_id([1, 2, 3]))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_cross_scores_round_trip(tmp_path: Path):
    scores = CrossScores(
        step=3, split="train", scope="first_turn", scorer="policy", logprob_sum_RN=np.array([[-1.0, -2.0]]),
        tokens_R=np.array([4]), column_R=np.array([0]), weights_N=np.array([0.5, 0.5]), prompt_ids_N=("p", "q"),
        trajectory_ids_R=("a",), turn_R=np.array([0]),
    )  # fmt: skip
    scores.save(tmp_path)
    loaded = CrossScores.load(next(cross_score_files(tmp_path)))
    assert loaded.prompt_ids_N == ("p", "q") and loaded.step == 3 and loaded.scorer == "policy"
    assert np.array_equal(loaded.logprob_sum_RN, scores.logprob_sum_RN)
