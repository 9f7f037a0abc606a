"""Rollouts to look at for a finding that rests on curves alone. Not for checks that know their rollouts: those name them.

A curve says when; these rollouts let a reader see what changed: some from the end of the steps that the finding is about, some
from before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analysis.run_data import RunData, TextRow
from ragen_diag.findings import EXAMPLES_PER_FINDING, Finding, Status


def with_exemplars(finding: Finding, run: RunData) -> Finding:
    """The finding with examples from its steps and counter-examples from before them, where it names none itself."""
    if finding.status not in (Status.FAIL, Status.WARN) or finding.examples or finding.steps is None:
        return finding
    first, last = finding.steps
    texts = [row for row in run.texts if row.step is not None and row.split == "train"]
    texts.sort(key=lambda row: row.step or 0)
    inside = _one_a_group(row for row in reversed(texts) if first <= (row.step or 0) <= last)
    before = _one_a_group(row for row in texts if (row.step or 0) < first)
    return replace(finding, examples=inside, counter_examples=finding.counter_examples or before)


def _one_a_group(rows: Iterable[TextRow]) -> tuple[str, ...]:
    """Ids of the first few rollouts, each of another prompt of another step where there are enough."""
    by_group: dict[tuple[int | None, int], str] = {}
    for row in rows:
        by_group.setdefault((row.step, row.group), row.trajectory_id)
        if len(by_group) == EXAMPLES_PER_FINDING:
            break
    return tuple(by_group.values())
