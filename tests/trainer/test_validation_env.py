"""Validation plays tasks that training never sees, where the environment has a held-out split."""

import dataclasses

import pytest

from ragen_diag.config import EnvConfig
from ragen_diag.errors import ConfigError
from ragen_diag.rollout_log import read_steps
from trainer.evaluate import evaluate
from trainer.loop import train
from trainer.rollout import validation_env


@pytest.mark.parametrize(
    ("name", "options", "held_out"),
    [
        ("countdown", {}, {"split": "validation"}),
        ("countdown", {"split": "train", "path": "x.parquet"}, {"split": "validation", "path": "x.parquet"}),
        ("lean:validation", {}, {"split": "validation"}),
        ("frozen_lake:no_slip", {"size": 5}, {"size": 5}),
        ("envs.bandit:BanditEnv", {}, {}),
    ],
)
def test_where_validation_is_played(small, name, options, held_out):
    config = dataclasses.replace(small(), env=EnvConfig(name, options))
    assert validation_env(config) == EnvConfig(name, held_out)


def test_an_environment_named_for_validation(small):
    config = small(
        "env.name=bandit", "env.options={}", "validation.env=bandit:test", "validation.env_options={reverse: true}"
    )
    assert validation_env(config) == EnvConfig("bandit:test", {"reverse": True})
    with pytest.raises(ConfigError, match="did you mean 'bandit'"):
        validation_env(small("env.name=bandid", "env.options={}"))


def test_a_run_trains_on_one_split_and_validates_on_the_other(small, tmp_path):
    config = small(
        "env.name=countdown",
        "env.options={}",
        "steps=1",
        "validation.every=1",
        "validation.at_start=false",
        "validation.seeds=4",
    )
    train(config, tmp_path / "run", progress=False)
    states = {split: _states(tmp_path / "run", split) for split in ("train", "val")}
    from envs.registry import make

    for split, name in (("train", "countdown"), ("val", "countdown:validation")):
        env = make(name)
        for seed, state in states[split]:
            assert env.reset(seed=seed)[0] == state
    result = evaluate(tmp_path / "run", n_seeds=2, run_dir=tmp_path / "eval")
    assert result.env == "countdown"
    assert _states(tmp_path / "eval", "val") <= states["val"]


def _states(run, split):
    rows = [row for batch in read_steps(run, split=split) for row in batch.to_pylist()]
    return {(row["seed"], row["state_text"]) for row in rows if row["turn"] == 0}
