"""The page "metrics across frameworks" is made from the alias table and says since when."""

import importlib.util
from pathlib import Path

import pytest

from analysis.readers.aliases import ALIASES, canonical_names
from ragen_diag.metric_names import METRICS


@pytest.fixture(scope="module")
def page():
    pytest.importorskip("mkdocs")
    path = Path(__file__).parents[2] / "docs" / "hooks.py"
    spec = importlib.util.spec_from_file_location("docs_hooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.metrics_across_frameworks()


def test_every_alias_stands_under_its_metric(page):
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    assert all(f"`{alias.foreign}`" in sections[alias.canonical] for alias in ALIASES)
    assert "| TRL | `frac_reward_zero_std` (≥ 0.17) |" in sections["zero_variance_share"]
    assert "| verl | `actor/entropy_loss` (≥ 0.2), `actor/entropy` (≥ 0.4) |" in sections["entropy_nats"]


def test_our_own_names_are_taken_as_they_are():
    names = [name for name in METRICS if name != "reward_std"]
    assert canonical_names(names) == {name: name for name in names}
