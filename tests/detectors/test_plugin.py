"""The check printed in docs/adding-a-check.md works as it stands, and plug-ins are found through the entry point."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from analysis.detectors import registry, run_detectors
from ragen_diag.errors import UsageError
from ragen_diag.findings import Status
from tests.planted.runs import draw

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-check.md"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Install modules as plug-ins: call with {entry name: module}; checks and modules are forgotten afterwards."""
    before = dict(registry.DETECTORS)
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def install(**entries: str):
        found = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in entries.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)

    registry.all_detectors()
    before.update(registry.DETECTORS)
    yield install
    registry.DETECTORS.clear()
    registry.DETECTORS.update(before)
    for name in set(sys.modules) - modules:
        if name in ("documented_check", "clash"):
            del sys.modules[name]


def test_the_documented_check(installed, tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "documented_check.py").write_text(code, encoding="utf-8")
    installed(house_rules="documented_check")
    run = draw("learning", 1).run
    for n_long, status in (
        (0, Status.PASS),
        (len(run.rollouts), Status.FAIL),
        (len(run.rollouts) // 10, Status.INCONCLUSIVE),
    ):
        run.rollouts["response_chars"] = 10.0
        run.rollouts.loc[run.rollouts.index[:n_long], "response_chars"] = 300.0
        (finding,) = (f for f in run_detectors(run, strict=True) if f.code == "XA01")
        assert finding.status == status, n_long
    run.rollouts["response_chars"] = float("nan")
    (finding,) = (f for f in run_detectors(run, strict=True) if f.code == "XA01")
    assert finding.status == Status.SKIPPED
    assert registry.explain("XA01").startswith(
        "# XA01 · answers over the house limit\n\nFamily: signal.\n\nXA01: share of"
    )


def test_broken_plug_ins_are_named(installed, tmp_path):
    installed(nope="no_such_module")
    with pytest.raises(UsageError, match=r"check plug-in 'nope' \(no_such_module\) cannot be loaded"):
        registry.all_detectors()
    (tmp_path / "clash.py").write_text(
        "from analysis.detectors.registry import detector\nfrom ragen_diag.findings import Family\n"
        "@detector('TC01', 'mine', Family.POLICY)\ndef mine(run, measures): ...\n"
    )
    installed(clash="clash")
    with pytest.raises(UsageError, match="two checks are registered as TC01"):
        registry.all_detectors()
