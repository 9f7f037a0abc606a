"""Configuration: presets, overrides, and every way to get it wrong, reported together."""

import subprocess
import sys

import pytest
import yaml

from ragen_diag.config import TrainConfig, from_dict, load_config, presets, to_dict
from ragen_diag.errors import ConfigError


def problems(*overrides, source=None):
    with pytest.raises(ConfigError) as error:
        load_config(source, overrides)
    return str(error.value)


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads(name):
    config = load_config(name)
    assert config.name == name
    assert from_dict(to_dict(config)) == config


def test_defaults_are_valid():
    assert load_config() == TrainConfig()


def test_overrides_reach_nested_keys():
    config = load_config(None, ["steps=7", "optim.lr=1e-4", "rollout.think=false", "env.options={size: 5}", "name=3d"])
    assert (config.steps, config.optim.lr, config.rollout.think, config.env.options) == (7, 1e-4, False, {"size": 5})
    assert config.name == "3d"


def test_a_resolved_configuration_is_runnable_again(tmp_path):
    config = load_config("demo", ["steps=3"])
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**to_dict(config), "versions": {"torch": "1"}, "git": {"commit": None}}))
    assert load_config(path) == config
    assert load_config(tmp_path) == config  # a run folder


def test_all_problems_are_reported_together():
    text = problems("optim.lrr=3", "rolout.groups=3", "group_size=3", "steps=0", "rollout.top_p=1.5", "nonsense")
    assert text.startswith("6 problems")
    for part in (
        "'nonsense' is not of the form section.key=value",
        "unknown key 'optim.lrr'. Did you mean 'lr'?",
        "unknown key 'rolout'. Did you mean 'rollout'?",
        "unknown key 'group_size'. Did you mean 'rollout.group_size'?",
        "steps is 0; it must be at least 1",
        "rollout.top_p is 1.5; it must lie between 0 and 1",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps=ten", "steps is 'ten'; it must be a whole number"),
        ("steps=2.5", "steps is 2.5; it must be a whole number"),
        ("steps=true", "steps is True; it must be a whole number"),
        ("optim.lr=.nan", "optim.lr is nan; it must be a finite number"),
        ("optim.lr=0", "optim.lr is 0.0; it must be above 0"),
        ("optim.weight_decay=-1", "must not be negative"),
        ("rollout.think=yes please", "rollout.think is 'yes please'; it must be true or false"),
        ("algorithm.advantage=grp", "must be one of grpo"),
        ("env.options=3", "env.options is 3; it must be a mapping"),
        ("optim=3", "optim is a section with keys, not a value"),
        ("rollout.group_size=1", "compares rollouts of one prompt"),
        ("optim.micro_batch=999", "larger than optim.mini_batch"),
        ("rollout.max_context_tokens=10", "leaves no room for a prompt"),
        ("filter.refill=2", "filter.refill needs a filter.strategy"),
    ],
)
def test_one_problem(override, message):
    assert message in problems(override)


def test_overlapping_seeds_are_refused():
    text = problems("validation.every=5", "validation.first_seed=10050")
    assert "validation seeds 10050 to 10305 overlap the training seeds 10000 to 10799" in text


def test_unknown_source_suggests_a_preset():
    assert "Did you mean 'demo'?" in problems(source="dmo")


def test_broken_yaml(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1")
    assert "cannot be read as YAML" in problems(source=path)
    path.write_text("- a\n- b")
    assert "expected sections and keys, found list" in problems(source=path)


@pytest.mark.parametrize("text", ["strategy: top_p\nvalue: 0.5\n", "filter:\n  strategy: top_p\n  value: 0.5\n"])
def test_filter_file_replaces_the_filter_and_keeps_the_loop_budgets(tmp_path, text):
    path = tmp_path / "filter.yaml"
    path.write_text(text)
    for config in (
        load_config(None, ["filter.empty_stop_steps=9"], filter_file=path),
        load_config(None, ["filter.empty_stop_steps=9", f"filter.file={path}"]),
    ):
        assert (config.filter.strategy, config.filter.value, config.filter.file) == ("top_p", 0.5, "")
        assert config.filter.empty_stop_steps == 9


def test_wrong_filter_files(tmp_path):
    path = tmp_path / "filter.yaml"
    path.write_text("stratgy: top_p\n")
    assert "not a filter file: unknown keys stratgy" in problems(f"filter.file={path}")
    path.write_text("strategy: best\n")
    assert "filter.strategy is 'best'" in problems(f"filter.file={path}")
    assert "cannot be read" in problems(f"filter.file={tmp_path / 'none.yaml'}")


def test_configuration_loads_no_torch():
    code = "import sys, ragen_diag.config as c; c.load_config('demo'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
