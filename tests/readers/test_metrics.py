"""Metrics-only logs: every quoted public report loads, names are recognised, nothing is pooled that differs."""

import json
import math
import struct

import pytest

from analysis.readers.aliases import ALIASES, canonical_names
from analysis.readers.discover import discover
from ragen_diag.metric_names import METRICS

# file -> {run label: {canonical name: number of points}}, checked by eye against the CSV; only the telling series are listed
CASES = {
    "01_openr1_255_format_hack": {
        "": {"task_score_mean": 3, "format_score_mean": 3, "reward_mean": 3, "reward_std_in_group": 3, "kl_nats": 2}
    },
    "02_openr1_257_healthy_prefix": {"": {"reward_mean": 2, "loss": 3}},
    "03_soup_286_two_phase_hack": {"": {"reward_mean": 3, "task_score_mean": 3, "other:words": 3}},
    "04_trl_6407_entropy_explosion": {
        "up": {"entropy_nats": 1, "truncated_share": 2, "reward_mean": 1},
        "dapo": {"entropy_nats": 2},
        "up_short_run": {"truncated_share": 1},
    },
    "07_agentr1_30_nan": {"": {"grad_norm": 1, "entropy_nats": 1, "reward_mean": 1, "truncated_share": 1, "advantage_max": 1}},
    "08_verl_721_nan": {"": {"grad_norm": 1, "policy_loss": 1}},
    "09_ragen_52_exclamation": {"": {"reward_mean": 3}},
    "10_autocontext_1067_truncated": {"": {"truncated_share": 1, "zero_variance_share": 1, "reward_std": 1}},
    "12_verl_4998_tool_use_collapse": {"": {"turns_mean": 1, "val_success_rate": 2}},
    "14_rllm_226_length_explosion": {"": {"response_tokens_mean": 1, "response_token_cap": 2, "val_reward_mean": 1}},
    "17_marinfold_237_kl_window": {"": {"kl_nats": 5}},
    "18_soup_342_unpredictable_nan": {"": {"other:dead_run": 8}},
    "21_agentr1_32_sparkline_1to8": {"": {"entropy_nats": 40, "kl_nats": 40}},
    "23_mlsys_106_zero_advantages": {"": {"advantage_max": 2, "reward_max": 2}},
    "27_memgen_33_after_fix": {"": {"zero_variance_share": 2, "reward_std": 2}},
    "29_traindsr1_4_constant_half": {
        "": {"task_score_mean": 2, "val_success_rate": 1, "val_reward_mean": 1, "reward_std_in_group": 2}
    },
    "38_verl_7771_padding_dilution": {"": {"other:training_ppl": 2}},
    "39_trl_3452_loss_zero_flat": {"": {"loss": 8, "reward_mean": 8, "format_score_mean": 8}},
    "41_clip_ratio_zero_onpolicy": {"UI-R1#20": {"clip_fraction": 1}, "TinyLoRA#4": {"clip_fraction": 2, "entropy_nats": 1}},
    "42_trl_3857_group_vs_batch_std": {"": {"reward_std": 1, "zero_variance_share": 1}},
    "47_miles_3098_healthy": {"": {"sampler_trainer_logprob_gap": 5, "truncated_share": 5, "reward_mean": 5}},
    "50_verl_7412_high_clip": {"": {"entropy_nats": 1, "learning_rate": 1, "advantage_min": 1}},
    "51_nemorl_3550_healthy_plumbing": {"": {"reward_mean": 10, "grad_norm": 10}},
    "53_msswift_5890_gradnorm_zero_then_fixed": {"broken": {"grad_norm": 2, "zero_variance_share": 2}, "fixed": {"grad_norm": 2}},
    "56_verl_6348_two_estimators": {"": {"reward_mean": 4}},
    "57_coursia_13596_all_at_cap": {"": {"response_tokens_min": 40, "response_tokens_max": 40, "truncated_share": 39}},
    "58_relax_174_rloo_vs_grpo_tie": {"rloo": {"zero_variance_share": 1, "reward_mean": 1}, "grpo": {"reward_mean": 1}},
    "59_msswift_4465_kl_nan_loss_finite": {"": {"kl_nats": 1, "loss": 1}},
    "61_mlx_1233_wrong_reward_or_cap": {"": {"reward_std_in_group": 2, "reward_std_batch": 2, "response_token_cap": 2}},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_quoted_metrics_load_without_options(cases, name):
    sources = discover([cases / f"{name}.csv"])
    assert [source.kind for source in sources] == ["metrics"] * len(CASES[name])
    for source, (label, expected) in zip(sources, CASES[name].items(), strict=True):
        series = source.series()
        assert source.name.removeprefix(f"{name}.csv").lstrip(":") == label
        assert {metric: len(series.get(metric, [])) for metric in expected} == expected
        assert all(metric in METRICS or metric.startswith("other:") for metric in series)
        assert list(source.tables()) == []


def test_every_case_file_is_listed(cases):
    assert {path.stem for path in cases.glob("*.csv")} == set(CASES)


def test_nan_is_kept_and_empty_cells_are_absent(cases):
    series = discover([cases / "07_agentr1_30_nan.csv"])[0].series()
    (point,) = series["grad_norm"]
    assert point[0] == 83
    assert math.isnan(point[1])
    assert series["truncated_share"] == [(83, 1.0)]
    assert "reward_mean" not in discover([cases / "08_verl_721_nan.csv"])[0].series()


# --- names


def test_every_alias_leads_to_a_defined_metric():
    assert {alias.canonical for alias in ALIASES} <= set(METRICS)
    assert all(alias.framework for alias in ALIASES)


@pytest.mark.parametrize(
    ("foreign", "expected"),
    [
        (["critic/score/mean", "critic/rewards/mean"], ["reward_mean", "reward_after_kl_mean"]),
        (["actor/entropy_loss"], ["entropy_nats"]),
        (["actor/entropy"], ["entropy_nats"]),
        # huggingface/trl#3857: one name, three definitions
        (["reward_std", "completion_length"], ["reward_std_in_group", "response_tokens_mean"]),
        (["reward_std", "completions/mean_length"], ["reward_std", "response_tokens_mean"]),
        (["train/reward", "eval/reward"], ["reward_mean", "val_reward_mean"]),
        (["rewards/accuracy_reward", "rewards/format_reward"], ["task_score_mean", "format_score_mean"]),
        (
            ["rewards/accuracy_reward/mean", "rewards/accuracy_reward/std"],
            ["task_score_mean", "other:rewards/accuracy_reward/std"],
        ),
        (["format_blind_acc"], ["other:format_blind_acc"]),
        (["reward", "raw_reward"], ["reward_mean", "other:raw_reward"]),
        (["CoordSokoban/success"], ["success_rate"]),
        (["something/new"], ["other:something/new"]),
    ],
)
def test_names(foreign, expected):
    names = canonical_names(foreign)
    assert [names[name] for name in foreign] == expected


def test_no_two_foreign_names_share_a_canonical_one():
    names = canonical_names([alias.foreign for alias in ALIASES])
    assert len(set(names.values())) == len(names)


# --- formats


def load(path):
    (source,) = discover([path])
    return source.format, source.series(), source.notes


def test_trainer_state(tmp_path):
    history = [
        {"step": 5, "reward": 0.5, "kl": float("nan")},
        {"step": 10, "reward": 0.6, "frac_reward_zero_std": 0.25},
        {"step": 10, "train_runtime": 3.0, "train_loss": 0.1},
    ]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "global_step": 10}))
    format_, series, notes = load(path)
    assert format_ == "trainer_state"
    assert series["reward_mean"] == [(5, 0.5), (10, 0.6)]
    assert series["zero_variance_share"] == [(10, 0.25)]
    assert math.isnan(series["kl_nats"][0][1])
    assert "other:train_loss" not in series
    assert any("logging_steps" in line for line in notes.assumptions)


def test_verl_file_logger_and_console(tmp_path):
    path = tmp_path / "exp.jsonl"
    path.write_text(
        '{"step": 1, "data": {"actor/entropy": 0.5, "critic/score/mean": NaN}}\n{"step": 2, "data": {"actor/entropy": 0.4}}\n{"st'
    )
    format_, series, notes = load(path)
    assert (format_, series["entropy_nats"], notes.n_bad_rows) == ("metrics_jsonl", [(1, 0.5), (2, 0.4)], 1)
    path = tmp_path / "run.log"
    path.write_text(
        "noise\n\x1b[36m(TaskRunner pid=12)\x1b[0m step:1 - actor/entropy:0.34 - val-core/gsm8k/acc/mean@1:np.float64(0.5)"
        " - actor/grad_norm:nan - perf/x:1e-05\nmore noise\nstep:2 - actor/entropy:0.3\n"
    )
    format_, series, _ = load(path)
    assert (format_, series["entropy_nats"], series["val_reward_mean"]) == (
        "console",
        [(1, 0.34), (2, 0.3)],
        [(1, 0.5)],
    )
    assert math.isnan(series["grad_norm"][0][1])


def test_trainer_console(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        "  0%|   | 0/9\n"
        "{'loss': 0.0, 'grad_norm': nan, 'reward': 0.5, 'epoch': 0.1}\n"
        "{'loss': 0.1, 'reward': 0.6, 'epoch': 0.2}\n"
    )
    format_, series, _ = load(path)
    assert (format_, series["reward_mean"]) == ("console", [(0, 0.5), (1, 0.6)])


def test_ms_swift_logging_jsonl(tmp_path):
    path = tmp_path / "logging.jsonl"
    path.write_text(
        '{"loss": 0.1, "reward": 0.5, "global_step/max_steps": "5/100", "elapsed_time": "1m"}\n'
        '{"loss": 0.2, "global_step/max_steps": "10/100"}\n'
    )
    assert load(path)[1]["loss"] == [(5, 0.1), (10, 0.2)]


def test_wandb_csv_export_of_two_runs(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text(
        '"Step","a - train/reward","a - train/reward__MIN","b - train/reward"\n"1","0.1","0.1","0.3"\n"2","0.2","0.2",""\n'
    )
    assert {source.name: source.series()["reward_mean"] for source in discover([path])} == {
        "export.csv:a": [(1, 0.1), (2, 0.2)],
        "export.csv:b": [(1, 0.3)],
    }


def test_tensorboard_events_as_torch_writes_them(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    for step in range(3):
        writer.add_scalar("critic/score/mean", step / 2, step)
        writer.add_text("train/generated", "text", step)
    writer.close()
    format_, series, _ = load(tmp_path)
    assert (format_, series) == ("tensorboard", {"reward_mean": [(0, 0.0), (1, 0.5), (2, 1.0)]})
    # a torn tail ends the file
    (events,) = tmp_path.iterdir()
    events.write_bytes(events.read_bytes()[:-5])
    assert load(tmp_path)[1]["reward_mean"] == [(0, 0.0), (1, 0.5), (2, 1.0)]


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _message(*fields: tuple[int, bytes | int]) -> bytes:
    """Encode a protobuf message of varints and byte strings."""
    return b"".join(
        _varint(field << 3) + _varint(value)
        if isinstance(value, int)
        else _varint(field << 3 | 2) + _varint(len(value)) + value
        for field, value in fields
    )


def test_wandb_transaction_log(tmp_path):
    log = b":W&B\xe1\xbe\x00"
    for step, reward in ((1, b"0.5"), (2, b"NaN"), (3, b"0.75")):
        plain = _message((1, b"train/reward"), (16, reward))
        nested = _message((2, b"gradients"), (2, b"norm"), (16, b"2"))
        record = _message((2, _message((1, plain), (1, nested), (2, _message((1, step))))))
        log += struct.pack("<IHB", 0, len(record), 1) + record
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(log + b"\0\0\0\0\x40")
    format_, series, _ = load(path)
    assert format_ == "wandb_offline"
    assert [step for step, _ in series["reward_mean"]] == [1, 2, 3]
    assert series["reward_mean"][2] == (3, 0.75)
    assert series["other:gradients.norm"] == [(1, 2.0), (2, 2.0), (3, 2.0)]
