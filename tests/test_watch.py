"""Alerts are said once per cause, and again only when it gets worse."""

from ragen_diag.findings import Finding, Status
from ragen_diag.watch import Alerts


def test_one_alert_per_cause_until_it_gets_worse():
    alerts = Alerts()
    warn, fail = Finding("ZS01", Status.WARN, "half tied"), Finding("ZS01", Status.FAIL, "all tied")
    assert alerts.new("run", [warn, Finding("KL01", Status.PASS, "fine")]) == [warn]
    assert alerts.new("run", [warn]) == []
    assert alerts.new("other run", [warn]) == [warn]
    assert alerts.new("run", [fail]) == [fail]
    assert alerts.new("run", [warn]) == []
