"""Word-for-word templates in logs of three steps, four prompts and four rollouts, as foreign samples hold them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.detectors import run_detectors
from analysis.detectors.template_collapse import copies
from analysis.measures import Measures
from analysis.run_data import RunData
from ragen_diag.findings import Estimate, Finding, Status
from tests.detectors.test_extremes import rollouts


def run_with(template_share: list[float], *, n_templates: int = 2, seed: int = 0, with_steps: bool = True) -> RunData:
    """Three steps, 4 x 4; the given share of each step's thinking comes from a few templates, the rest is unique."""
    rng = np.random.default_rng(seed)
    run = rollouts(len(template_share), 4, 4, thinking_chars=100.0)
    share = np.repeat(template_share, 16)
    templated = rng.permutation(16)[None, :].repeat(len(template_share), 0).ravel() < share * 16
    text = np.where(templated, 10**6 + rng.integers(n_templates, size=len(share)), np.arange(len(share)) + 1)
    run.rollouts["thinking_hash"] = text
    if not with_steps:
        run.rollouts["step"] = pd.array([pd.NA] * len(run.rollouts), dtype="Int64")
    return run


def template_finding(run: RunData, measures: Measures | None = None) -> Finding:
    return next(f for f in run_detectors(run, measures, strict=True) if f.code == "TC01")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_steps", [True, False])
def test_tiny_logs(seed, with_steps):
    assert template_finding(run_with([0, 0, 0], seed=seed, with_steps=with_steps)).status == Status.PASS
    collapsed = template_finding(run_with([0.25, 0.75, 1.0], seed=seed, with_steps=with_steps))
    assert collapsed.status == Status.FAIL
    assert collapsed.examples and (collapsed.steps == (2, 3) if with_steps else collapsed.steps is None)


def test_short_phrases_that_go_with_their_prompt_are_no_template():
    run = rollouts(10, 8, 8, thinking_chars=15.0)
    run.rollouts["thinking_hash"] = run.rollouts["prompt"] % 3 + 1
    found = template_finding(run)
    assert found.status == Status.PASS and found.evidence["copied_share"] == 1.0


def test_copies_by_hand():
    run = rollouts(1, 2, 3)
    run.rollouts["thinking_hash"] = [7, 7, 1, 7, 7, 2]
    found = copies(run.rollouts)
    assert found.share == pytest.approx(4 / 6) and (found.n_prompts, found.n_rollouts) == (2, 6)
    # Among the four copies: 2 of 2 pairs within, 4 of 4 across.
    assert found.dependence == pytest.approx(0.0)
    assert copies(rollouts(1, 1, 8).rollouts) is None


def test_exact_copies_against_sound_cross_scores_are_a_contradiction():
    run = run_with([1.0] * 10)
    high = Estimate(0.8, (0.7, 0.9), "share", 8, 64, "test")
    entropy = Estimate(0.8, (0.75, 0.85), "nats/token", 8, 64, "test")
    per_step = {step: {"normalised_mi": high, "conditional_entropy_nats_per_token": entropy} for step in range(1, 11)}
    found = template_finding(run, Measures.of(run, per_step=per_step, scorer="policy"))
    assert found.status == Status.INCONCLUSIVE and "contradictory" in found.claim


def test_cross_scores_decide_on_intervals():
    run = run_with([0.0] * 10)

    def status(value: float, half: float) -> Status:
        mi = Estimate(value, (value - half, value + half), "share", 8, 64, "test")
        entropy = Estimate(0.8, (0.75, 0.85), "nats/token", 8, 64, "test")
        per_step = {step: {"normalised_mi": mi, "conditional_entropy_nats_per_token": entropy} for step in range(1, 11)}
        return template_finding(run, Measures.of(run, per_step=per_step, scorer="policy")).status

    assert status(0.02, 0.02) == Status.FAIL
    assert status(0.6, 0.1) == Status.PASS
    # The interval crosses 0.15: exact copies decide, and there are none.
    assert status(0.15, 0.3) == Status.PASS
