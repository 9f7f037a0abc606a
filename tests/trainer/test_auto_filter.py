"""`filter: auto`: when it decides, on what, what it writes, and that a resumed run decides the same."""

import json

import numpy as np
import pytest

from analysis.filters import FilterSetting
from analysis.tuning import recommend
from ragen_diag.config import load_config
from ragen_diag.rollout_log import read_metrics, write_step
from trainer import auto_filter
from trainer.checkpoints import list_checkpoints
from trainer.loop import train

OFF = FilterSetting(strategy="none")


def write_log(run_dir, steps, *, groups=8, size=8, share_with_signal=0.25, seed=0):
    """A log in which a share of each step's groups has reward variance, and the others none."""
    rng = np.random.default_rng(seed)
    for step in steps:
        rows = []
        for group in range(groups):
            rewards = rng.integers(0, 2, size).astype(float) if group < share_with_signal * groups else np.zeros(size)
            for member, reward in enumerate(rewards):
                identity = f"t-{step}-{group}-{member}"
                rows.append(
                    {"run_id": "r", "step": step, "split": "train", "group_id": str(group), "prompt_id": f"p{step}-{group}",
                     "trajectory_id": identity, "turn": 0, "return_": float(reward), "success": bool(reward)}
                )  # fmt: skip
        write_step(run_dir, step, "train", rows)


def decide(run_dir, step, **options):
    defaults = {"window": 30, "noise": 1.0, "seed": 0}
    return auto_filter.decide(run_dir, OFF, step=step, **{**defaults, **options})


def test_groups_without_signal_and_with_noise_are_filtered(tmp_path):
    write_log(tmp_path, range(1, 21))
    setting, row = decide(tmp_path, 20)
    assert setting.strategy != "none"
    assert row["filter_changed"] == 1
    assert row["filter_confidence"] >= 0.95
    assert row["filter_snr_gain"] > 1.3
    (entry,) = auto_filter.read_decisions(tmp_path)
    assert (entry["step"], entry["changed"], entry["noise"], entry["noise_measured"]) == (20, True, 1.0, True)
    assert FilterSetting.from_mapping(entry["setting"]) == setting
    assert entry["n_steps"] == 20 and entry["n_groups"] == 160


def test_without_noise_there_is_nothing_to_filter_out(tmp_path):
    """GRPO without regularisers: groups without reward variance have no gradient, so dropping them gains nothing."""
    write_log(tmp_path, range(1, 21))
    setting, row = decide(tmp_path, 20, noise=0.0)
    assert setting == OFF
    assert (row["filter_changed"], row["filter_value"]) == (0, 1.0)


def test_it_agrees_with_tune_on_the_same_groups(tmp_path):
    from analysis.ingest import ingest
    from ragen_diag import api

    write_log(tmp_path, range(1, 13))
    (tmp_path / "run.yaml").write_text("{}")
    (source,) = api.load(tmp_path).sources
    tuned = recommend(ingest(source)[0], noise=0.7, seed=3)
    setting, row = decide(tmp_path, 12, noise=0.7, seed=3)
    assert setting == tuned.setting
    assert row["filter_confidence"] == tuned.confidence


def test_only_the_window_counts(tmp_path):
    write_log(tmp_path, range(1, 11), share_with_signal=0.25)
    write_log(tmp_path, range(11, 21), share_with_signal=1.0)
    decide(tmp_path, 20, window=10)
    (entry,) = auto_filter.read_decisions(tmp_path)
    assert entry["n_steps"] == 10


def test_too_little_to_go_by_changes_nothing(tmp_path):
    write_log(tmp_path, [1, 2])
    in_force = FilterSetting(strategy="top_k", value=0.5)
    setting, row = auto_filter.decide(tmp_path, in_force, step=2, window=30, noise=None, seed=0)
    assert setting == in_force
    assert row == {"filter_changed": 0, "filter_value": 0.5, "filter_confidence": None, "filter_snr_gain": None}
    assert "3 are needed" in auto_filter.read_decisions(tmp_path)[0]["reasons"][0]


def test_the_shorthand_and_what_it_stands_for(tmp_path):
    path = tmp_path / "auto.yaml"
    path.write_text("filter: auto\n")
    assert load_config(path).filter.auto_every == load_config(None, ["filter=auto"]).filter.auto_every == 10
    assert load_config(path, ["filter.auto_every=4"]).filter.auto_every == 4


@pytest.mark.slow
def test_a_resumed_run_decides_as_the_uninterrupted_one(small, tmp_path):
    settings = [
        "filter=auto", "filter.auto_every=2", "rollout.groups=4", "rollout.group_size=4", "runtime.checkpoint_every=1",
        "optim.mini_batch=16", "diagnostics.gradient_every=2", "algorithm.entropy_coef=0.01", "rollout.max_turns=1",
    ]  # fmt: skip
    train(small("steps=6", *settings), tmp_path / "whole", progress=False)
    train(small("steps=3", *settings), tmp_path / "parts", progress=False)
    stale = {"step": 4, "filter": "of a step that was lost"}
    with (tmp_path / "parts" / auto_filter.DECISIONS_FILE).open("a") as file:
        file.write(json.dumps(stale) + "\n")
    train(small("steps=6", *settings), tmp_path / "parts", resume=True, progress=False)
    whole, parts = (auto_filter.read_decisions(tmp_path / name) for name in ("whole", "parts"))
    assert whole == parts
    assert [entry["step"] for entry in whole] == [2, 4, 6]
    names = ("filter_changed", "filter_value", "kept_group_share", "gradient_snr", "reward_mean")
    first, second = (
        [[row.get(n) for n in names] for row in read_metrics(tmp_path / run)] for run in ("whole", "parts")
    )
    assert first == second
    assert [step for step, _ in list_checkpoints(tmp_path / "parts")][-1] == 6
