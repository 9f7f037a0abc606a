"""The traps of single formats, each with the smallest log that has it."""

import json
import pickle
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.readers.discover import discover
from analysis.readers.restricted_pickle import PickleRefused, load_data_proto, load_torch_zip
from analysis.readers.trl import reward_columns_matching_advantage
from ragen_diag.errors import BadLog
from tests.readers.conftest import counts, rows_of


def read(tmp_path, *records, name="1.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    (source,) = discover([path])
    return rows_of(source), source


# --- verl


def verl(**fields):
    return {"input": "user\nq\nassistant\n", "output": "a", "gts": None, "score": 1.0, "step": 5, **fields}


def test_verl_v1_uid_names_the_row_not_the_prompt(tmp_path):
    rows, _ = read(tmp_path, *(verl(uid=f"p-1_{rollout}_0") for rollout in range(4)))
    assert {row["group_id"] for row in rows} == {"p-1"}
    assert [row["rollout_index"] for row in rows] == [0, 1, 2, 3]


def test_verl_v1_outputs_of_one_session_are_one_trajectory(tmp_path):
    rows, _ = read(
        tmp_path,
        verl(uid="p_0_0", output="first"),
        verl(uid="p_0_1", output="second"),
        verl(uid="p_1_0", output="other"),
    )
    assert [(row["turn"], row["n_turns"], row["response_text"]) for row in rows] == [
        (0, 2, "first"),
        (1, 2, "second"),
        (0, 1, "other"),
    ]


def test_verl_prose_with_a_role_word_is_not_cut(tmp_path):
    rows, _ = read(tmp_path, verl(input="no role lines", output="x\nuser\ny\nassistant\nz"))
    assert [row["response_text"] for row in rows] == ["x\nuser\ny\nassistant\nz"]


def test_verl_missing_score_stays_missing_and_zero_stays_zero(tmp_path):
    rows, _ = read(tmp_path, verl(score=None), verl(score=0.0), verl(score=float("nan")))
    assert rows[0]["return_"] is None
    assert rows[1]["return_"] == 0.0
    assert np.isnan(rows[2]["return_"])


def test_verl_extras_are_components_and_accuracy_is_success(tmp_path):
    rows, _ = read(tmp_path, verl(acc=1.0, overlong=-0.5, pred="7"))
    assert rows[0]["reward_components"] == [("score", 1.0), ("acc", 1.0), ("overlong", -0.5)]
    assert rows[0]["success"] is True


def test_verl_validation_of_old_ragen_has_no_prompts_and_no_groups(tmp_path):
    rows, source = read(tmp_path, verl(input=""), verl(input=""))
    assert {row["group_id"] for row in rows} == {None}
    assert any("groups unknown" in line for line in source.notes.assumptions)


# --- TRL


def trl_rows(extra):
    rewards = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    lengths = [0.1, 0.5, 0.2, 0.1, 0.0, 0.3, 0.3, 0.0]
    rows = []
    for group in (0, 1):
        part = slice(4 * group, 4 * group + 4)
        total = np.array(rewards[part]) + np.array(lengths[part])
        advantage = (total - total.mean()) / (total.std(ddof=1) + 1e-4)
        for index in range(4):
            at = 4 * group + index
            row = {"step": 1, "prompt": f"p{group}", "completion": "c", "accuracy": rewards[at], "length": lengths[at]}
            rows.append(row | {"tokens": extra[at], "advantage": advantage[index]})
    return rows


def test_trl_reward_columns_are_those_that_reproduce_the_advantage():
    rows = trl_rows([10.0, 300.0, 20.0, 77.0, 15.0, 12.0, 400.0, 9.0])
    assert reward_columns_matching_advantage(rows, ("accuracy", "length", "tokens")) == ("accuracy", "length")
    assert reward_columns_matching_advantage(rows, ("tokens",)) is None
    assert reward_columns_matching_advantage([row | {"advantage": 0.0} for row in rows], ("accuracy", "tokens")) is None


def test_trl_null_rewards_are_skipped_and_all_null_is_missing(tmp_path):
    rows = [
        {"step": 1, "prompt": "p", "completion": "a", "x": None, "y": None, "advantage": None},
        {"step": 1, "prompt": "p", "completion": "b", "x": 1.0, "y": None, "advantage": 0.5},
        {"step": 1, "prompt": "p", "completion": "c", "x": 0.0, "y": 0.25, "advantage": -0.5},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "completions_00001.parquet")
    (source,) = discover([tmp_path])
    assert [row["return_"] for row in rows_of(source)] == [None, 1.0, 0.25]
    assert rows_of(source)[1]["reward_components"] == [("x", 1.0), ("y", None)]
    assert any("reward weights unknown" in line for line in source.notes.assumptions)


# --- RAGEN


def test_ragen_reward_success_and_future_information(tmp_path):
    messages = [
        {"role": "user", "content": "map 1"},
        {"role": "assistant", "content": "<think>a</think><answer>Up</answer>"},
        {"role": "user", "content": "map 2 (reward: -0.1)"},
        {"role": "assistant", "content": "<think>b</think><answer>Down</answer>"},
        {"role": "user", "content": "map 3"},
    ]
    metadata = {"env_id": 0, "group_id": 4, "num_turns": 2, "total_reward": 0.0, "success": False}
    metadata |= {"Sokoban/success": 1.0, "Sokoban/episodic_return": 0.8}
    rows, _ = read(tmp_path, {"custom_id": "t", "messages": messages, "metadata": metadata})
    assert [(row["return_"], row["success"], row["env"], row["turn_reward"]) for row in rows] == [
        (0.8, True, "Sokoban", None),
        (0.8, True, "Sokoban", -0.1),
    ]
    assert rows[1]["state_text"] == "map 2"
    assert "reward" not in rows[1]["prompt_text"]


def test_ragen_pickle_is_read_without_its_classes(layouts, tmp_path):
    name = "val_rollouts_20260803_120000"
    folder = layouts / "ragen/healthy/results/eval"
    pickled = tmp_path / f"{name}.pkl"
    pickled.write_bytes((folder / pickled.name).read_bytes())
    rows = rows_of(discover([pickled])[0])
    same = rows_of(discover([folder / f"{name}.jsonl"])[0])
    assert [(r["turn"], r["response_text"], round(r["return_"], 9), r["success"]) for r in rows] == [
        (r["turn"], r["response_text"], round(r["return_"], 9), r["success"]) for r in same
    ]


# --- pickles


class _Evil:
    def __reduce__(self):
        return (eval, ("__import__('os').environ.__setitem__('PICKLE_RAN', '1')",))


def test_a_pickle_is_never_executed(tmp_path, monkeypatch):
    monkeypatch.delenv("PICKLE_RAN", raising=False)
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"a": _Evil()}))
    with pytest.raises(PickleRefused, match=r"builtins\.eval"):
        load_data_proto(path)
    torch = pytest.importorskip("torch")
    torch.save({"samples": [_Evil()]}, tmp_path / "x.pt")
    with pytest.raises(PickleRefused, match=r"names \w+\.eval"):
        load_torch_zip(tmp_path / "x.pt")
    import os

    assert "PICKLE_RAN" not in os.environ


def test_torch_files_are_read_as_torch_reads_them(tmp_path):
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    content = {
        "float": base,
        "view": base[1:, ::2].T,
        "half": base.half(),
        "bfloat": base.bfloat16(),
        "long": torch.arange(5),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "nested": [{"a": torch.ones(2), "b": None, "c": "text", "d": 1.5}],
    }
    torch.save(content, tmp_path / "x.pt")
    ours = load_torch_zip(tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=True)
    for name in ("float", "view", "half", "bfloat", "long", "bool", "empty", "scalar"):
        assert np.array_equal(ours[name], theirs[name].float().numpy()), name
        assert ours[name].shape == tuple(theirs[name].shape)
    assert ours["nested"][0]["d"] == 1.5


# --- the rest, one trap each


def test_nemo_token_columns_follow_the_loss_mask(tmp_path):
    record = {
        "content": [
            ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "one", "<|im_start|>user\nobs<|im_end|>", "two"]
        ],
        "rewards": [0.5],
        "input_lengths": [7],
        "token_ids": [[1, 2, 10, 11, 3, 20, 21, 0, 0]],
        "token_loss_mask": [[0, 0, 1, 1, 0, 1, 1, 0, 0]],
        "sample_loss_mask": [1.0],
        "advantages": [[0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0, 0]],
        "generation_logprobs": [[0, 0, -1, -2, 0, -3, -4, 0, 0]],
        "idx": 0,
    }
    rows, _ = read(tmp_path, record, name="train_data_step3.jsonl")
    assert [
        (r["step"], r["response_ids"], r["logprobs"], r["prompt_ids"], r["advantage"], r["state_text"]) for r in rows
    ] == [
        (3, [10, 11], [-1.0, -2.0], [1, 2], 0.5, "q"),
        (3, [20, 21], [-3.0, -4.0], [1, 2, 10, 11, 3], 0.5, "obs"),
    ]


def test_verifiers_reward_of_an_errored_rollout_is_missing(tmp_path):
    row = {"example_id": 1, "prompt": "q", "completion": "a", "reward": 0.0}
    rows, _ = read(tmp_path, row | {"error": {"type": "Timeout"}}, row | {"error": None}, name="results.jsonl")
    assert [row["return_"] for row in rows] == [None, 0.0]
    assert "Timeout" in rows[0]["error"]


def test_verifiers_v1_null_reward_is_unscored_and_judges_are_skipped(tmp_path):
    def trace(rewards, trainable=True, name="a"):
        nodes = [
            {"message": {"role": "user", "content": "q"}, "sampled": False},
            {"parent": 0, "message": {"role": "assistant", "content": "a"}, "sampled": True},
        ]
        return {"id": name, "nodes": nodes, "rewards": rewards, "agent": {"trainable": trainable}}

    def episode(*traces):
        return {"env": {"name": "e"}, "task": {"key": "k"}, "traces": list(traces)}

    rows, _ = read(
        tmp_path,
        episode(trace({"x": {"score": 1.0, "weight": 0.5}, "y": None}), trace({}, trainable=False, name="judge")),
        episode(trace({"x": None}, name="b")),
        name="traces.jsonl",
    )
    assert [(row["trajectory_id"], row["return_"]) for row in rows] == [("a", 0.5), ("b", None)]
    assert rows[0]["reward_components"] == [("x", 1.0), ("y", None)]


def test_skyrl_per_token_scores_are_summed(tmp_path):
    row = {
        "input_prompt": "q",
        "output_response": "a<|im_end|>",
        "score": [0.0, 0.0, 1.0],
        "stop_reason": "length",
        "env_class": "e",
    }
    rows, _ = read(tmp_path, row, name="x.jsonl")
    assert (rows[0]["return_"], rows[0]["response_truncated"], rows[0]["response_text"]) == (1.0, True, "a")


def test_lm_eval_metric_belongs_to_the_filtered_answer(tmp_path):
    row = {
        "doc_id": 0,
        "arguments": {"gen_args_0": {"arg_0": "q", "arg_1": {}}},
        "resps": [["a 1", "b 2"]],
        "filter": "none",
    }
    row |= {"filtered_resps": ["a 1"], "metrics": ["exact_match"], "exact_match": 1.0}
    rows, _ = read(tmp_path, row, row | {"filter": "flexible", "exact_match": 0.0}, name="samples_x.jsonl")
    assert [(row["response_text"], row["return_"]) for row in rows] == [("a 1", 1.0), ("b 2", None)]


def test_inspect_log_of_a_crashed_run_is_read(layouts, tmp_path):
    import zipfile

    source = next((layouts / "inspect_ai_deflate/healthy/logs").iterdir())
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(tmp_path / "x.eval", "w") as crashed:
        for name in archive.namelist():
            if name != "header.json":
                crashed.writestr(name, archive.read(name))
    (found,) = discover([tmp_path / "x.eval"])
    assert (found.format, len(rows_of(found))) == ("inspect_ai", 16)
    assert any("crashed" in line for line in found.notes.assumptions)


@pytest.mark.parametrize("left_padded", [True, False], ids=["all on the left", "responses on the right"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_skyrl_training_batches_are_read_without_skyrl(tmp_path, monkeypatch, left_padded, dtype):
    """Pickled as SkyRL does it: a dict subclass of torch tensors, with attributes of its own."""
    torch = pytest.importorskip("torch")
    module = types.ModuleType("skyrl_train.training_batch")
    batch_class = type("TrainingInputBatch", (dict,), {"__module__": module.__name__, "metadata": None})
    module.TrainingInputBatch = batch_class
    monkeypatch.setitem(sys.modules, "skyrl_train", types.ModuleType("skyrl_train"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    real = getattr(torch, dtype)
    # two rollouts of the prompt [7, 8]: responses [1, 2, 3] (2 from a tool) and [4]
    ids = [[7, 8, 1, 2, 3], [0, 0, 7, 8, 4] if left_padded else [7, 8, 4, 0, 0]]
    one = [0, 0, 1] if left_padded else [1, 0, 0]
    batch = batch_class(
        sequences=torch.tensor(ids),
        attention_mask=torch.tensor([[1] * 5, [0, 0, 1, 1, 1] if left_padded else [1, 1, 1, 0, 0]]),
        response_mask=torch.tensor([[1, 1, 1], one]),
        loss_mask=torch.tensor([[1, 0, 1], one], dtype=real),
        rewards=torch.tensor([[0, 0, 1.5], [value * 0.25 for value in one]], dtype=real),
        rollout_logprobs=torch.tensor([[-0.5, 0, -1.0], [value * -2.0 for value in one]], dtype=real),
        advantages=torch.tensor([[0.5, 0, 0.5], [value * -0.5 for value in one]], dtype=real),
        values=None,
    )
    batch.metadata, batch._batch_size, batch._device = {"response_length": 3}, 2, torch.device("cpu")
    path = tmp_path / "exports" / "dumped_data" / "global_step_7_training_input.pkl"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(batch))
    (source,) = discover([tmp_path])
    assert (source.format, source.format_version) == ("skyrl", "training batch")
    assert counts(source) == (2, 1, 1, 0, 0.875, 0, 0)
    first, second = rows_of(source)
    assert (first["step"], first["split"], first["prompt_ids"], first["response_ids"]) == (7, "train", [7, 8], [1, 3])
    assert (first["logprobs"], first["return_"], first["advantage"]) == ([-0.5, -1.0], 1.5, 0.5)
    assert (second["prompt_ids"], second["response_ids"], second["logprobs"], second["return_"]) == (
        [7, 8],
        [4],
        [-2.0],
        0.25,
    )
    assert any("token ids only" in line for line in source.notes.assumptions)
    path.write_bytes(pickle.dumps(batch)[:-40])
    with pytest.raises(BadLog, match="not a readable SkyRL training batch"):
        rows_of(discover([tmp_path])[0])


def test_areal_text_files_of_older_versions(tmp_path):
    """Blocks as AReaL 0.3's RLVR workflow appends them to `{version}/{query id}.txt`."""
    dim, reset = "\x1b[33m\x1b[2m", "\x1b[0m"
    for version in (0, 1):
        for query in ("12", "b7"):
            path = tmp_path / "generated" / str(version) / f"{query}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            blocks = [
                f"idx: {index} / 2, seqlen: 40, reward is {reward}.\n"
                f"prompt is \n{dim}question {query}\nidx{reset}\nsequence is: \n{dim}<think>hm {index}\n</think>{query}{reset}\n"
                for index, reward in ((1, 0.0), (2, 1.0))
            ]
            path.write_text(
                "".join(blocks) + ("idx: 3 / 2, seqlen: 9, reward is 1.0.\nprompt is \n" if query == "b7" else "")
            )
    (source,) = discover([tmp_path])
    assert (source.format, source.format_version) == ("areal", "text files (0.3-0.5)")
    assert counts(source) == (8, 2, 4, 8, 0.5, 0, 2)  # two blocks were cut off
    first = rows_of(source)[0]
    assert (first["prompt_text"], first["thinking_text"], first["answer_text"]) == ("question 12\nidx", "hm 1", "12")
    assert (first["step"], first["group_id"], first["source_line"]) == (0, "12", 1)


def test_tinker_logtrees_are_read_on_their_own(tmp_path, layouts):
    """Sections as tinker-cookbook's logtree nests them: a header, then a body."""

    def section(title, *body):
        return {
            "tag": "section", "attrs": {},
            "children": [{"tag": "h3", "attrs": {}, "children": [title]}, {"tag": "div", "attrs": {}, "children": list(body)}],
        }  # fmt: skip

    def conversation(*messages):
        data = {"type": "conversation", "messages": [{"role": role, "content": content} for role, content in messages]}
        return {"tag": "div", "attrs": {}, "children": [], "data": data}

    def row(name, value):
        return {
            "tag": "tr",
            "attrs": {},
            "children": [{"tag": "td", "attrs": {}, "children": [cell]} for cell in (name, value)],
        }

    def attempt(question, answer, reward):
        thought = [{"type": "thinking", "thinking": f"about {question}"}, {"type": "text", "text": answer}]
        table = {"tag": "table", "attrs": {}, "children": [row("correct", "True"), row("reward", reward)]}
        return [
            section("Prompt", conversation(("user", question))),
            section("Policy Response", conversation(("assistant", thought))),
            section("Reward", table),
        ]

    groups = [
        section("Group Rollout", *attempt(f"q{group} &lt;", "a", "1.000"), *attempt(f"q{group} &lt;", "b", "-0.100"))
        for group in range(2)
    ]
    tree = {
        "title": "Train",
        "started_at": "2026-01-01",
        "path": None,
        "root": {"tag": "body", "attrs": {}, "children": groups},
    }
    path = tmp_path / "iteration_000004" / "train_logtree.json"
    path.parent.mkdir()
    path.write_text(json.dumps(tree))
    (source,) = discover([tmp_path])
    assert (source.format, source.format_version) == ("tinker_cookbook", "logtree")
    assert counts(source) == (4, 1, 2, 4, 0.45, 0, 0)
    assert [(r["step"], r["group_id"], r["thinking_text"][:8], r["answer_text"], r["return_"]) for r in rows_of(source)][:2] == [
        (4, "0", "about q0", "a", 1.0), (4, "0", "about q0", "b", -0.1),
    ]  # fmt: skip
    # beside summaries it is passed over
    summaries = next((layouts / "tinker_cookbook" / "healthy").rglob("train_rollout_summaries.jsonl"))
    (path.parent / summaries.name).write_bytes(summaries.read_bytes())
    passed = []
    (source,) = discover([tmp_path], passed_over=passed)
    assert [file.name for file in source.files] == [summaries.name]
    assert "texts of some of the rollouts" in passed[0].why
