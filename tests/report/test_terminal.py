import io
import re

import pytest
from rich.console import Console

from analysis.compare import Comparison, Difference, Refusal
from analysis.filters import FilterSetting
from analysis.result import Report
from analysis.tuning import FilterRecommendation, Row
from ragen_diag.findings import Estimate, Finding, Status
from ragen_diag.terminal import print_comparison, print_filter_table, summarize

from . import factory, hostile


def printed(report, written=None):
    out = io.StringIO()
    summarize(report, written, file=out)
    return out.getvalue()


@pytest.fixture(scope="module")
def report():
    return factory.report(*factory.KINDS, n_steps=20)


def test_the_whole_text(report):
    report = Report(report.inputs[2:3], report.runs[2:3])
    assert printed(report).splitlines() == [
        "read  1 log · ragen_diag 1 · 20 steps · 1,280 rollouts · "
        "1 bad row skipped (first: runs/echo-trap/rollouts/step-000007.parquet:12)",
        "runs/echo-trap  COLLAPSED  Reward spread inside groups fell from step 92, 38 steps before the reward; "
        "the gradient norm spiked at step 150.",
        "  FAIL  ET01  steps 92–19: irreversible: the reward's spread turned before the reward, which fell at step 130",
        "  FAIL  GN01  step 15: 1 gradient spike, up to 61 (normally 0.85)",
        "checks  2 FAIL · 3 PASS · 1 INCONCLUSIVE · 1 SKIPPED",
        "1 run · 1 collapsed",
        "explain: ragen-diag explain ET01",
    ]


def test_files_and_totals_come_last(report, tmp_path):
    html = tmp_path / "report.html"
    html.write_bytes(b"x" * 1_800_000)
    lines = printed(report, {"report": html, "verdict": tmp_path / "verdict.json"}).splitlines()
    assert lines[-3].startswith("checks  1 ERROR · 4 FAIL · 1 WARN · ")
    assert lines[-2] == "4 runs · 1 healthy · 2 collapsed · 1 broken pipeline"
    assert lines[-1].startswith(f"report: {html} (1.8 MB)   verdict: {tmp_path / 'verdict.json'}   explain: ragen-diag")


def test_one_line_per_cause_with_its_count():
    run = factory.run("healthy", n_steps=5)
    run.findings = [Finding("NU01", Status.FAIL, f"metric {number} is nan") for number in range(64)]
    lines = printed(Report([], [run])).splitlines()
    assert [line for line in lines if "NU01" in line] == [
        "  FAIL  NU01 ×64  metric 0 is nan",
        "explain: ragen-diag explain NU01",
    ]


def test_five_bad_runs_fit_25_lines():
    runs = [factory.run("template_collapse", n_steps=5, seed=seed) for seed in range(5)]
    for run in runs:
        run.findings = [Finding(f"AB{number:02}", Status.FAIL, "a claim") for number in range(20)]
    lines = printed(Report([], runs)).splitlines()
    assert len(lines) <= 25
    assert sum("and 18 FAIL more: see the report" in line for line in lines) == 5


def test_a_pipe_gets_whole_lines_without_escape_codes_and_a_terminal_gets_colour(report):
    text = printed(report)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) > 120
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard")
    summarize(report, file=terminal)
    coloured = terminal.file.getvalue()
    assert "\x1b[" in coloured
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in coloured.splitlines()) <= 80


def test_text_from_logs_cannot_drive_the_terminal():
    text = printed(hostile.report())
    assert "\x1b" not in text and "\u202e" not in text
    assert "[31m" in text  # shown, not obeyed
    text.encode("utf-8")


def test_filter_table():
    setting = FilterSetting("top_p", 0.9)
    rows = tuple(
        Row(entry, kept, 0.99, 2.0, gain, (gain - 0.1, gain + 0.1), 0.6, 1.0, None, None)
        for entry, kept, gain in ((FilterSetting("none"), 1.0, 1.0), (setting, 0.7, 1.31))
    )
    out = io.StringIO()
    print_filter_table(
        FilterRecommendation(setting, rows, 0.97, ("better in 97 % of samples",), "r", 40, 640), file=out
    )
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0] == "recommended top_p linear 0.9 of reward_std, largest"
    assert lines[1] == "better in 97 % of samples"
    assert lines[3] == "* top_p linear 0.9 of reward_std, largest 70% 99% ×1.31 1.21 to 1.41 60% 100%"
    assert lines[4] == "no filter 100% 99% ×1.00 0.9 to 1.1 60% 100%"
    assert lines[5] == "* recommended · from 640 groups in 40 steps"


def test_comparison_marks_clear_differences_and_says_what_it_refused():
    def share(value, low, high):
        return Estimate(value, (low, high), "share", 128, 256, "")

    difference = Difference("b", "val_success_rate", share(0.2, 0.1, 0.3), share(0.5, 0.4, 0.6), share(0.3, 0.2, 0.4))
    refusals = [Refusal("b", name, "definitions differ") for name in ("x", "y")]
    out = io.StringIO()
    print_comparison(Comparison("a", [difference], refusals), file=out)
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines == [
        "against a",
        "run metric baseline run's difference 95 % prompts",
        "b val_success_rate (share) 0.2 0.5 * +0.3 +0.2 to +0.4 128",
        "* the 95 % interval of the difference does not contain 0",
        "not compared: b: x, y: definitions differ",
    ]
