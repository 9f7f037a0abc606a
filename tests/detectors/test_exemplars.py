"""Findings that rest on curves alone name rollouts to look at; findings that know their rollouts keep them."""

from dataclasses import replace

import pytest

from analysis.detectors.exemplars import with_exemplars
from analysis.run_data import TextRow
from ragen_diag.findings import Finding, Status
from tests.planted.runs import draw

FALLEN = Finding("RD01", Status.FAIL, "the reward fell", steps=(20, 30))


@pytest.fixture(scope="module")
def run():
    """A planted run whose texts are those of two groups of two at each of 30 steps, in no order of time."""
    texts = [
        TextRow(step, "train", group, group, f"{step}-{group}-{index}", "prompt", "thinking", "response", 1.0)
        for step in reversed(range(1, 31))
        for group in (0, 1)
        for index in (0, 1)
    ]
    return replace(draw("learning", 0).run, texts=texts)


def steps_of(run, names):
    by_id = {row.trajectory_id: row for row in run.texts}
    return [by_id[name].step for name in names]


def test_examples_come_from_the_end_of_the_steps_and_counter_examples_from_before_them(run):
    found = with_exemplars(FALLEN, run)
    assert len(set(found.examples)) == len(set(found.counter_examples)) == 3
    assert steps_of(run, found.examples) == [30, 30, 29]
    assert steps_of(run, found.counter_examples) == [1, 1, 2]


def test_nothing_lies_before_the_first_step(run):
    steps = [row.step for row in run.texts]
    found = with_exemplars(replace(FALLEN, steps=(min(steps), max(steps))), run)
    assert len(found.examples) == 3
    assert found.counter_examples == ()


def test_named_rollouts_and_passing_checks_stay_as_they_are(run):
    for finding in (
        replace(FALLEN, examples=("mine",)),
        replace(FALLEN, status=Status.PASS),
        replace(FALLEN, steps=None),
    ):
        assert with_exemplars(finding, run) is finding
