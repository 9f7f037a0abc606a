"""Alerts are said once per cause, and again only when it gets worse."""

import io

from ragen_diag.findings import Finding, Status
from ragen_diag.watching import Alerts, watch
from tests.planted.runs import draw
from tests.planted.simulate import write_native


def test_one_alert_per_cause_until_it_gets_worse():
    alerts = Alerts()
    warn, fail = Finding("ZS01", Status.WARN, "half tied"), Finding("ZS01", Status.FAIL, "all tied")
    assert alerts.new("run", [warn, Finding("KL01", Status.PASS, "fine")]) == [warn]
    assert alerts.new("run", [warn]) == []
    assert alerts.new("other run", [warn]) == [warn]
    assert alerts.new("run", [fail]) == [fail]
    assert alerts.new("run", [warn]) == []


def test_watch_waits_for_a_log_and_ends_at_the_first_serious_finding(tmp_path):
    said = io.StringIO()
    assert watch(tmp_path / "run", interval_s=0.01, max_rounds=2, until=Status.FAIL, file=said) is False
    assert said.getvalue().startswith("waiting: ") and said.getvalue().count("\n") == 1, (
        "an unchanged state is said once"
    )
    planted = draw("env_text", 2)
    recent = planted.run.rollouts["step"] <= 20
    planted.run.rollouts = planted.run.rollouts[recent]
    write_native(planted.run, planted.texts, tmp_path / "run")
    page = tmp_path / "report.html"
    said = io.StringIO()
    found = watch(tmp_path / "run", interval_s=0.01, html=page, max_rounds=3, until=Status.FAIL, file=said)
    assert found and "broken_pipeline" in said.getvalue()
    assert said.getvalue().count("ALERT FAIL EN01") == 1
    assert '<meta http-equiv="refresh" content="0.01">' in page.read_text()


def test_watch_survives_a_file_caught_in_the_middle_of_a_write(tmp_path):
    log = tmp_path / "completions_00001.parquet"
    log.write_bytes(b"PAR1 and then nothing yet")
    said = io.StringIO()
    assert watch(log, interval_s=0.01, max_rounds=1, file=said) is False
    assert said.getvalue().startswith("waiting: ")
