"""Reworded templates are told from reasoning about the prompt by the words alone, and silence is not taken for proof."""

from dataclasses import replace

import pytest

from analysis.detectors.template_words import judge_words
from analysis.regimes import Regime, RegimePath, RegimePoint
from ragen_diag import api
from ragen_diag.findings import Estimate, Status, Verdict
from tests.planted.wordy import write_dump


def diagnose(kind, folder, seed=1):
    (run,) = api.analyze(write_dump(kind, seed, folder / "dump")).runs
    return run, next(finding for finding in run.findings if finding.code == "TC01")


@pytest.mark.parametrize("kind", ["about its prompt", "half of it templates"])
def test_reasoning_about_its_prompt_is_healthy(kind, tmp_path):
    run, finding = diagnose(kind, tmp_path)
    assert (run.verdict, finding.status) == (Verdict.HEALTHY, Status.PASS)


def test_a_long_template_with_a_slot_for_the_prompt_is_no_collapse(tmp_path):
    run, finding = diagnose("a long template with a slot", tmp_path)
    assert run.verdict in (Verdict.HEALTHY, Verdict.WATCH) and finding.status in (Status.PASS, Status.WARN)


def test_reworded_templates_are_found_with_the_step_they_began(tmp_path):
    run, finding = diagnose("templates from the middle on", tmp_path)
    assert (run.verdict, run.regime, finding.status) == (Verdict.COLLAPSED, "template_collapse", Status.FAIL)
    assert 12 <= finding.steps[0] <= 20 and finding.steps[1] == 30  # planted: from 12 on, complete at 18


def test_templates_from_the_first_step_are_found_too(tmp_path):
    run, finding = diagnose("templates from the start", tmp_path)
    assert (run.verdict, run.regime, finding.status) == (Verdict.COLLAPSED, "template_collapse", Status.FAIL)
    assert "phrases that most prompts share" in finding.claim


def test_reworded_templates_are_found_under_the_same_few_prompts_at_every_step(tmp_path):
    folder = write_dump("templates from the middle on", 1, tmp_path / "dump", same_prompts=True)
    (run,) = api.analyze(folder).runs
    finding = next(finding for finding in run.findings if finding.code == "TC01")
    assert (run.verdict, finding.status) == (Verdict.COLLAPSED, Status.FAIL)
    assert 12 <= finding.steps[0] <= 20


def test_with_four_prompts_lost_dependence_is_not_passed_over(tmp_path):
    folder = write_dump("templates from the middle on", 1, tmp_path / "dump", prompts=4, rollouts=8, same_prompts=True)
    (run,) = api.analyze(folder).runs
    finding = next(finding for finding in run.findings if finding.code == "TC01")
    assert run.verdict in (Verdict.WATCH, Verdict.COLLAPSED) and finding.status != Status.PASS


def test_responses_without_reasoning_are_no_template(tmp_path):
    run, finding = diagnose("answers alone", tmp_path)
    assert (run.verdict, finding.status) == (Verdict.HEALTHY, Status.SKIPPED) and "no reasoning" in finding.claim
    run, finding = diagnose("a prescribed format", tmp_path / "format")
    assert run.verdict != Verdict.COLLAPSED and finding.status != Status.FAIL


def test_gibberish_of_many_scripts_is_named_as_such(tmp_path):
    run, _ = diagnose("gibberish from the middle on", tmp_path)
    found = next(finding for finding in run.findings if finding.code == "DT01")
    assert (run.verdict, found.status, found.steps) == (Verdict.COLLAPSED, Status.FAIL, (25, 30))
    assert "writing systems" in found.claim and len(found.examples) == 3


def estimates(**changes):
    """A classifier that recognises nothing among 64 prompts, whose words are all shared phrases."""
    bounds = {
        "text_retrieval_accuracy": (0.016, 0.0, 0.08), "text_retrieval_chance": (0.016, 0.016, 0.016),
        "text_normalised_mi": (0.0, 0.0, 0.01), "cross_prompt_template_share": (0.9, 0.85, 0.95),
        "within_prompt_jaccard": (0.15, 0.12, 0.18), "cross_prompt_jaccard": (0.15, 0.14, 0.16),
        "within_prompt_diversity": (0.85, 0.82, 0.88),
    } | changes  # fmt: skip
    return {name: Estimate(value, (low, high), "share", 64, 256, "") for name, (value, low, high) in bounds.items()}


def test_what_the_words_can_and_cannot_say():
    finding = judge_words(estimates(), None, {}, (20, 30))
    assert (finding.status, finding.steps, finding.evidence["regime"]) == (Status.FAIL, (20, 30), "template_collapse")
    same = estimates(within_prompt_diversity=(0.1, 0.05, 0.15))
    assert judge_words(same, None, {}, None).evidence["regime"] == "low_entropy_collapse"
    blind = judge_words(estimates(cross_prompt_template_share=(0.6, 0.5, 0.72)), None, {}, None)
    assert blind.status == Status.INCONCLUSIVE and "paraphrase can hide it" in blind.claim
    # Any sign of the prompt in the words, or too little to see one, and the words say nothing here.
    assert judge_words(estimates(text_retrieval_accuracy=(0.1, 0.02, 0.2)), None, {}, None) is None
    assert judge_words(estimates(text_normalised_mi=(0.2, 0.1, 0.3)), None, {}, None) is None
    assert judge_words(estimates(within_prompt_jaccard=(0.3, 0.2, 0.4)), None, {}, None) is None
    few = {name: replace(estimate, n_prompts=7) for name, estimate in estimates().items()}
    assert judge_words(few, None, {}, None) is None
    unknown = estimates() | {"text_normalised_mi": Estimate(None, None, "share", 64, 256, "")}
    assert judge_words(unknown, None, {}, None) is None


def path_of(first: float, last: float) -> RegimePath:
    """Eight steps of a text classifier, from one level to another, each known to ± 0.1."""
    levels = [first] * 4 + [last] * 4
    points = [
        RegimePoint(step, mi, (mi - 0.1, mi + 0.1), 1.0, None, Regime.UNKNOWN) for step, mi in enumerate(levels, 1)
    ]
    return RegimePath(tuple(points), Regime.UNKNOWN, "", "text_retrieval above chance", seen_at_start=first > 0.25)


def test_many_pooled_prompts_are_not_compared_with_the_few_of_one_step():
    few_shared = estimates(cross_prompt_template_share=(0.6, 0.5, 0.72))
    lost = judge_words(few_shared, path_of(0.9, 0.02), {}, (7, 8))
    assert (lost.status, lost.steps) == (Status.FAIL, (5, 8))
    # Each of the last steps still tells its prompts apart: that the pooled ones are confused proves nothing.
    assert judge_words(few_shared, path_of(0.4, 0.2), {}, (7, 8)).status == Status.INCONCLUSIVE
    assert judge_words(estimates(), path_of(0.4, 0.2), {}, (7, 8)).status == Status.INCONCLUSIVE
