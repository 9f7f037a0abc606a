"""Rollout logs in our schema that somebody else wrote: fewer columns, other file names. Nothing is passed over in silence."""

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.readers.discover import discover
from ragen_diag.rollout_log import prompt_id
from tests.readers.conftest import rows_of

ROWS = [
    {"trajectory_id": f"{step}-{index}", "turn": turn, "step": step, "prompt_text": f"board {step} turn {turn}",
     "response_text": "<think>up</think>", "thinking_text": "up", "return_": 1.0}
    for step in (1, 2) for index in range(2) for turn in (0, 1)
]  # fmt: skip


def write(path, step):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row for row in ROWS if row["step"] == step]), path)


def test_missing_identities_are_made_up_and_said(tmp_path):
    for step in (1, 2):
        write(tmp_path / "mine" / "rollouts" / f"part-{step}.val.parquet", step)
    (source,) = discover([tmp_path / "mine"])
    rows = rows_of(source)
    assert (source.format, len(rows)) == ("ragen_diag", 8)
    assert {row["split"] for row in rows} == {"val"} and {row["run_id"] for row in rows} == {"rollouts"}
    # Both turns of a trajectory belong to its first prompt.
    assert {row["prompt_id"] for row in rows if row["step"] == 1} == {prompt_id("board 1 turn 0")}
    assert source.notes.assumptions == [
        "run_id is not in the log; taken to be the folder's name",
        "split is not in the log; taken to be 'val'",
        "prompt_id is not in the log; taken to be a hash of the first prompt",
    ]


def test_a_file_of_a_run_that_is_not_named_like_a_step_is_shown(tmp_path):
    for step in (1, 2):
        write(tmp_path / "rollouts" / f"{'step-' if step == 1 else 'copy-of-step-'}{step:06d}.parquet", step)
    (tmp_path / "run.yaml").write_text("name: mine\n")
    (source,) = discover([tmp_path])
    assert [row["step"] for row in rows_of(source)] == [1, 1, 1, 1]
    assert [(record.path.rsplit("/", 1)[1], record.why) for record in source.notes.skipped] == [
        ("copy-of-step-000002.parquet", "not named like a step file, step-000001.parquet or step-000001.val.parquet")
    ]
