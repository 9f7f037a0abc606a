"""A small part of benchmarks/detection.py, and planted runs that went through a native rollout log."""

from __future__ import annotations

import pytest

from analysis.detectors import run_detectors
from analysis.ingest import ingest
from analysis.readers.discover import discover
from analysis.verdict import judge
from benchmarks.detection import auroc, collect, tabulate
from ragen_diag.findings import Status, Verdict
from tests.planted.runs import EXPECTED, FAILING, HEALTHY, draw
from tests.planted.simulate import write_native


@pytest.mark.calibration
def test_failures_are_told_from_healthy_runs():
    table = tabulate(collect(runs=3, healthy_runs=2, jobs=1))
    for kind, found in table.auroc.items():
        assert found["checks"] >= 0.95, (kind, found)
    assert table.healthy_collapsed + table.healthy_broken == 0
    assert table.announced == 1.0


@pytest.mark.parametrize("kind", ["template_collapse", "echo_trap", "zero_advantages", "format_hack"])
def test_kind_is_named(kind):
    findings = run_detectors(draw(kind, 11).run, strict=True)
    status = {finding.code: finding.status for finding in findings}
    if kind == "template_collapse" and draw(kind, 11).run.cross_scores:
        pytest.skip("this draw is reworded: it needs the estimates of its cross scores")
    assert Status.FAIL in {status[code] for code in EXPECTED[kind]}


def test_crash_without_precursor_is_said_to_be_one():
    finding = next(f for f in run_detectors(draw("crash_without_precursor", 5).run) if f.code == "RD01")
    assert finding.status == Status.FAIL and "could not have foretold it" in finding.claim


def test_every_kind_names_its_codes():
    assert set(EXPECTED) == set(FAILING) and not set(FAILING) & set(HEALTHY)
    assert len(HEALTHY) >= 15 and len(FAILING) >= 20


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("noisy_small_groups", {Verdict.HEALTHY, Verdict.WATCH}),
        ("degenerate_text", {Verdict.COLLAPSED}),
        ("env_text", {Verdict.BROKEN_PIPELINE}),
    ],
)
def test_native_log_gives_the_same_answer(kind, verdict, tmp_path):
    planted = draw(kind, 2)
    keep = planted.run.rollouts["step"].between(planted.run.rollouts["step"].max() - 39, 10**9)
    planted.run.rollouts = planted.run.rollouts[keep]
    planted.run.series = {name: values.iloc[-40:] for name, values in planted.run.series.items()}
    write_native(planted.run, planted.texts, tmp_path / "run")
    (source,) = discover([tmp_path / "run"])
    run, summary = ingest(source)
    assert summary.n_rollouts == len(planted.run.rollouts)
    assert run.rollouts["return_"].sum() == pytest.approx(planted.run.rollouts["return_"].sum())
    assert judge(run_detectors(run, strict=True)).verdict in verdict


def test_auroc_by_hand():
    assert auroc([3, 3], [0, 0]) == 1.0
    assert auroc([3, 0], [0, 0]) == 0.75
