"""Which logs are found under a path, in which format, and the right answer for what is no log."""

import json
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.readers.base import ReadOptions
from analysis.readers.discover import discover
from ragen_diag.errors import AmbiguousFormat, BadLog, ExitCode, NothingReadable, PathNotFound, UsageError
from ragen_diag.rollout_log import write_metrics, write_step
from tests.readers.conftest import counts, rows_of


def verl_rows(n: int = 8, step: int = 1, **more) -> str:
    rows = [
        {
            "input": f"user\nq{i % 4}\nassistant\n",
            "output": f"<think>a\u2028{i}</think>x",
            "score": i % 2,
            "step": step,
            **more,
        }
        for i in range(n)
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def chat_rows(n: int = 4, **more) -> str:
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], **more}
    return f"{json.dumps(row)}\n" * n


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


# --- grouping


def test_steps_are_read_in_natural_order(tmp_path):
    for step in (1, 2, 10):
        write(tmp_path / f"{step}.jsonl", verl_rows(step=step))
    (source,) = discover([tmp_path])
    assert [path.name for path in source.files] == ["1.jsonl", "2.jsonl", "10.jsonl"]
    assert list(dict.fromkeys(row["step"] for row in rows_of(source))) == [1, 2, 10]


def test_several_runs_under_one_path_are_separate(tmp_path):
    for run in ("a", "b"):
        write(tmp_path / run / "rollout_data" / "1.jsonl", verl_rows())
        write(tmp_path / run / "validation_data" / "1.jsonl", verl_rows(4))
    sources = discover([tmp_path])
    assert [(source.name, len(source.files)) for source in sources] == [("a", 2), ("b", 2)]


def test_mixed_formats_in_one_tree_are_separate(tmp_path):
    write(tmp_path / "rollouts" / "1.jsonl", verl_rows())
    write(tmp_path / "eval" / "chat.jsonl", chat_rows(reward=1.0))
    assert sorted(source.format for source in discover([tmp_path])) == ["openai_chat", "verl"]
    assert len({source.name for source in discover([tmp_path])}) == 2


def test_a_folder_name_that_starts_with_test_is_no_validation_split(tmp_path):
    write(tmp_path / "test_my_idea" / "1.jsonl", verl_rows())
    assert {row["split"] for row in rows_of(discover([tmp_path])[0])} == {"train"}


def test_hidden_framework_folders_are_entered_and_version_control_is_not(tmp_path):
    group = {
        "trajectories": [
            {
                "reward": 1.0,
                "messages_and_choices": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            }
        ]
    }
    write(tmp_path / ".art/p/models/m/trajectories/train/0007.jsonl", json.dumps(group))
    write(tmp_path / ".git/x.jsonl", verl_rows())
    (source,) = discover([tmp_path])
    assert source.format == "art_jsonl"
    assert rows_of(source)[0]["step"] == 7


def test_a_zip_of_a_run_is_read_in_place(tmp_path):
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("run/rollout_data/1.jsonl", verl_rows())
        archive.writestr("run/rollout_data/2.jsonl", verl_rows(step=2))
        archive.writestr("run/readme.md", "hello")
    (source,) = discover([tmp_path / "run.zip"])
    assert counts(source)[:3] == (16, 2, 8)


def test_symbolic_link_loops_end(tmp_path):
    write(tmp_path / "run" / "1.jsonl", verl_rows())
    (tmp_path / "run" / "loop").symlink_to(tmp_path)
    assert counts(discover([tmp_path])[0])[0] == 8


def test_a_native_run_is_recognised_first_and_not_entered(tmp_path):
    row = {
        "run_id": "r",
        "step": 3,
        "split": "train",
        "prompt_id": "p",
        "trajectory_id": "t",
        "turn": 0,
        "return_": 1.0,
    }
    write_step(tmp_path / "run", 3, "train", [row])
    write_metrics(tmp_path / "run", [{"step": 3, "reward_mean": 1.0}, {"step": 4, "reward_mean": None}])
    write(tmp_path / "run" / "run.yaml", "model: tiny\n")
    (source,) = discover([tmp_path / "run"])
    assert (source.format, source.kind, source.config) == ("ragen_diag", "rollouts", {"model": "tiny"})
    assert source.series() == {"reward_mean": [(3, 1.0), (4, None)]}
    assert rows_of(source)[0]["trajectory_id"] == "t"
    # one loose step file is native too
    (source,) = discover([tmp_path / "run" / "rollouts" / "step-000003.parquet"])
    assert (source.format, len(rows_of(source))) == ("ragen_diag", 1)


def test_trainer_state_copies_of_checkpoints_count_once(tmp_path):
    write(tmp_path / "rollout_data" / "1.jsonl", verl_rows())
    for last in (1, 2):
        history = [{"step": step, "reward": 0.5 * step, "loss": 0.0} for step in range(1, last + 1)]
        write(
            tmp_path / f"checkpoint-{last}" / "trainer_state.json",
            json.dumps({"log_history": history, "global_step": last}),
        )
    (source,) = discover([tmp_path])
    assert source.series()["reward_mean"] == [(1, 0.5), (2, 1.0)]


def test_passed_over_files_are_listed_with_reasons(tmp_path):
    write(tmp_path / "1.jsonl", verl_rows())
    write(tmp_path / "model.safetensors", b"\0" * 100)
    write(tmp_path / "plot.png", b"\x89PNG")
    write(tmp_path / "odd.json", '{"foo": {"bar": 1}}')
    passed = []
    discover([tmp_path], passed_over=passed)
    assert {record.path.rsplit("/", 1)[1]: record.why.split(";")[0] for record in passed} == {
        "model.safetensors": "model weights or checkpoint",
        "plot.png": "image",
        "odd.json": "keys foo",
    }


def test_repeats_after_a_resume_are_said(tmp_path):
    write(tmp_path / "completions.jsonl", "".join(verl_rows(4, step=step) for step in (1, 2, 3, 2, 3)))
    (source,) = discover([tmp_path])
    assert len(rows_of(source)) == 20
    assert any(line.startswith("8 rollouts repeat an earlier") for line in source.notes.assumptions)


# --- options


def test_overrides(tmp_path):
    path = write(tmp_path / "run12_x.jsonl", verl_rows(acc=0.25, meta={"g": "one"}))
    options = ReadOptions(step_from_path=r"run(\d+)", group_key="meta.g", reward_columns=("acc",), split="val")
    rows = rows_of(discover([path], options)[0])
    assert {(row["step"], row["group_id"], row["return_"], row["split"]) for row in rows} == {(12, "one", 0.25, "val")}
    assert (rows[0]["step_source"], rows[0]["group_source"]) == ("--step-from-path", "--group-key meta.g")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReadOptions(format="verll"), "Did you mean 'verl'"),
        (ReadOptions(step_from_path="("), "not a regular expression"),
        (ReadOptions(step_from_path="step"), "exactly one group"),
    ],
)
def test_wrong_options_stop_at_once(tmp_path, options, message):
    path = write(tmp_path / "1.jsonl", verl_rows())
    with pytest.raises(UsageError, match=message):
        discover([path], options)


def test_a_tie_names_both_formats(tmp_path):
    both = {"doc_id": 1, "arguments": {}, "resps": [["a"]], "filtered_resps": ["a"]}
    path = write(tmp_path / "x.jsonl", verl_rows(**both))
    with pytest.raises(AmbiguousFormat, match=r"verl \(.*lm_eval \(.*--format") as caught:
        discover([path])
    assert caught.value.exit_code == ExitCode.USAGE
    assert discover([path], ReadOptions(format="verl"))[0].format == "verl"


def test_mapping_reads_any_table(tmp_path):
    row = {"q": "what", "a": {"text": "<think>t</think>b"}, "r": "0.5", "it": 3, "g": 7}
    mapping = {"prompt": "q", "response": "a.text", "reward": "r", "step": "it", "group": "g"}
    expected = {"prompt_text": "what", "thinking_text": "t", "return_": 0.5, "step": 3, "group_id": "7"}
    write(tmp_path / "x.jsonl", json.dumps(row))
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "x.parquet")
    write(tmp_path / "x.csv", 'q,a,r,it,g\nwhat,"<think>t</think>b",0.5,3,7\n')
    for name in ("x.jsonl", "x.parquet", "x.csv"):
        used = mapping | ({"response": "a"} if name == "x.csv" else {})
        (source,) = discover([tmp_path / name], ReadOptions(mapping=used))
        assert source.format == "mapping"
        assert {key: rows_of(source)[0][key] for key in expected} == expected
    with pytest.raises(UsageError, match="Did you mean 'response'"):
        rows_of(discover([tmp_path / "x.jsonl"], ReadOptions(mapping={"respons": "a"}))[0])


# --- bad records


def test_a_corrupt_line_costs_one_row_and_strict_stops_there(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows().replace("\n", "\n{oops\n", 1))
    (source,) = discover([path])
    assert counts(source)[0] == 8
    assert source.notes.n_bad_rows == 1
    assert [(record.path, record.line) for record in source.notes.skipped] == [(str(path), 2)]
    with pytest.raises(BadLog, match=r"1\.jsonl:2: not JSON") as caught:
        rows_of(discover([path], ReadOptions(strict=True))[0])
    assert caught.value.exit_code == ExitCode.USAGE


def test_too_many_bad_records_are_refused(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows(8) + "{\n" * 3)
    with pytest.raises(BadLog, match="3 of 11 records cannot be read"):
        rows_of(discover([path])[0])


def test_the_torn_last_line_of_a_short_log_is_accepted(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows(3) + '{"input": "us')
    assert counts(discover([path])[0])[0] == 3


def test_records_of_the_wrong_shape_are_bad_rows(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows(8) + '[1]\n{"input": "a"}\n')
    (source,) = discover([path])
    assert len(rows_of(source)) == 8
    assert [record.why for record in source.notes.skipped] == [
        "a list where a verl record should be",
        "not a verl record: key 'output' is missing",
    ]


def test_a_second_pass_reads_the_same(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows(8) + "{")
    (source,) = discover([path])
    assert rows_of(source) == rows_of(source)
    assert source.notes.n_bad_rows == 1


# --- right answers for wrong things

ALPACA = json.dumps([{"instruction": "a", "input": "b", "output": "c"}])
BATCH = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", ALPACA, "Alpaca instruction data set"),
        ("x.jsonl", BATCH, "OpenAI Batch API requests"),
        ("x.jsonl", json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}), "preference data set"),
        ("x.bin2", os.urandom(2000), "binary file"),
        ("x.jsonl", "", "an empty file"),
        ("x.pt", b"PK\x03\x04" + os.urandom(300), "damaged zip"),
        ("x.parquet", b"PAR1" + os.urandom(300), "not a complete Parquet file"),
        (
            "x.jsonl",
            json.dumps({"prompt": "a", "completion": "b", "reward": 1.0}),
            r"verifiers \(lacks example_id\); .*--map",
        ),
        (
            "x.jsonl",
            json.dumps({"input": "a", "output": "b", "score": 1.0}),
            r"keys input, output, score; nearest formats: verl \(lacks step\)",
        ),
        ("x.txt", "just some words\n", "no known log format"),
    ],
)
def test_what_is_no_log_is_named(tmp_path, name, content, message):
    write(tmp_path / name, content)
    with pytest.raises(NothingReadable, match=f"(?s){message}") as caught:
        discover([tmp_path])
    assert caught.value.exit_code == ExitCode.NOTHING_READABLE


def test_images_checkpoints_and_empty_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "images").mkdir()
    pq.write_table(pa.table({"image": [b"x"], "label": [1]}), tmp_path / "images" / "a.parquet")
    write(tmp_path / "checkpoint" / "model.safetensors", b"\0")
    write(tmp_path / "checkpoint" / "config.json", "{}")
    for name, message in (
        ("empty", "holds no files"),
        ("images", "Parquet table of images"),
        ("checkpoint", "model weights"),
    ):
        with pytest.raises(NothingReadable, match=message):
            discover([tmp_path / name])
    with pytest.raises(PathNotFound, match="Did you mean 'images'"):
        discover([tmp_path / "imagse"])


def test_a_fine_tuning_data_set_loads_without_reward_checks(tmp_path):
    (source,) = discover([write(tmp_path / "x.jsonl", chat_rows())])
    assert counts(source)[4:6] == (None, 4)
    assert any("all reward checks are off" in line for line in source.notes.assumptions)


def test_one_record_longer_than_the_first_look(tmp_path):
    row = {"responses": ["x" * 400_000], "messages": ["[]"], "scores": [1.0], "global_step": [2]}
    (source,) = discover([write(tmp_path / "x.jsonl", json.dumps(row))])
    assert (source.format, rows_of(source)[0]["step"]) == ("roll", 2)
