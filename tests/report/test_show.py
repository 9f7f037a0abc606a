import io

import pytest

from ragen_diag.errors import BadLog, RunFolderError, UsageError
from ragen_diag.rollout_log import rows_to_table, step_path, write_step
from ragen_diag.rollout_view import show


def row(step=0, group="g0", index=0, turn=0, **more):
    return {
        "run_id": "demo", "step": step, "split": "train", "group_id": group, "prompt_id": "p", "rollout_index": index,
        "trajectory_id": f"{step}-{group}-{index}", "turn": turn, "n_turns": 2, "state_text": "P _ G",
        "response_text": "<think>go right</think><answer>Right</answer>", "thinking_text": "go right",
        "thinking_closed": True, "actions": ["Right"], "return_": 0.9, "success": True, "turn_reward": 1.0,
        "response_tokens": 7, **more,
    }  # fmt: skip


@pytest.fixture
def run_dir(tmp_path):
    write_step(tmp_path, 3, "train", [row(3)])
    rows = [row(10, group, index, turn) for group in ("g0", "g1") for index in (1, 0) for turn in (1, 0)]
    write_step(tmp_path, 10, "train", rows)
    write_step(tmp_path, 12, "val", [row(12, split="val", state_text="validation")])
    return tmp_path


def shown(source, **choice):
    out = io.StringIO()
    show(source, file=out, **choice)
    return out.getvalue()


def test_the_whole_text(run_dir):
    assert shown(run_dir, step=3).splitlines() == [
        "demo 3-g0-0",
        "step 3 · train · group 0 of 1 (g0) · rollout 0 of 1",
        "return 0.9 · success · 1 of 2 turns in the log",
        "",
        "── turn 1 · reward 1 · 7 tokens ──",
        "environment",
        "  │ P _ G",
        "thinking",
        "  │ go right",
        "model",
        "  │ <answer>Right</answer>",
        "actions",
        "  │ Right",
    ]


def test_the_last_step_the_first_group_and_rollout_are_the_default(run_dir):
    assert shown(run_dir).splitlines()[:2] == ["demo 10-g0-0", "step 10 · train · group 0 of 2 (g0) · rollout 0 of 2"]


def test_group_by_position_or_id_and_turns_in_order(run_dir):
    by_position, by_id = shown(run_dir, group=1, index=1), shown(run_dir, group="g1", index=1)
    assert by_position == by_id
    assert by_position.startswith("demo 10-g1-1")
    assert by_position.index("turn 1 ") < by_position.index("turn 2 ")
    assert "validation" in shown(run_dir, split="val")


def test_tables_and_sources_work_as_folders_do(run_dir):
    class Source:
        def tables(self):
            yield rows_to_table([row(10, "g0", 0, 0)])
            yield rows_to_table([row(11, "g0", 0, 0, state_text="the last"), row(11, "g0", 0, 1)])

    assert "the last" in shown(Source())
    assert "demo 10-g0-0" in shown(Source(), step=10)
    assert "step 10" in shown(iter([rows_to_table([row(10)])]))
    assert "no step" in shown(iter([rows_to_table([row(None)])]))


def test_flags_are_words_and_hostile_text_is_shown(tmp_path):
    write_step(
        tmp_path, 0, "train",
        [row(response_truncated=True, format_valid=False, action_valid=False, error="HTTP 503", kept_by_filter=False,
             thinking_closed=False, reward_components=[("format", -0.1)], response_text="\x1b[2J<script>" + "x" * 30_000)],
    )  # fmt: skip
    text = shown(tmp_path)
    for words in (
        "CUT at the token cap",
        "FORMAT not followed",
        "INVALID action",
        "ERROR HTTP 503",
        "dropped by the filter",
    ):
        assert words in text
    assert "thinking (never closed)" in text and "format -0.1" in text
    assert "\x1b" not in text and "␛[2J<script>" in text
    assert "characters cut)" in text


def test_wrong_choices_say_what_there_is(run_dir, tmp_path):
    with pytest.raises(
        UsageError, match=r"no train rollouts at step 7: the log has steps 3 to 10 \(2 in all; nearest: (10|3)\)"
    ):
        shown(run_dir, step=7)
    with pytest.raises(UsageError, match="--group 5: step 10 has 2 groups, 0 to 1"):
        shown(run_dir, group=5)
    with pytest.raises(UsageError, match=r"no group 'group1' at step 10\."):
        shown(run_dir, group="group1")
    with pytest.raises(UsageError, match="--index 9: this group has 2 rollouts, 0 to 1"):
        shown(run_dir, index=9)
    with pytest.raises(UsageError, match="at step 99"):
        shown(iter([rows_to_table([row(10)])]), step=99)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match="is not a run folder"):
        shown(tmp_path / "empty")


def test_a_torn_file_is_said_so(run_dir):
    path = step_path(run_dir, 3, "train")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadLog, match="not a complete Parquet file"):
        shown(run_dir, step=3)
