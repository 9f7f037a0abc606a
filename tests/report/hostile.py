"""Texts that try to leave their place in the report: put into every field that a log fills."""

from __future__ import annotations

import dataclasses

from analysis.result import Report
from ragen_diag.findings import Finding, Status
from ragen_diag.rollout_log import BadRecord

from . import factory

ATTACKS = (
    "<script>window.pwned = 'script'</script>",
    "</textarea></pre></details><img src=x onerror=\"window.pwned = 'img'\">",
    '"><svg onload="window.pwned = 1">',
    "<a href=\"javascript:window.pwned = 'link'\">javascript:window.pwned=1</a>",
    "</script><script>window.pwned = 'breakout'</script><!--",
    "{{ 7 * 7 }} {% raw %} ${window.pwned = 1}",
    "abc\u202e\u2066gnp.exe\u2069 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\x1b[31mred\x1b[0m\x00\x07\x08 \u2028 \ud83d",
)
HOSTILE = "\n".join(ATTACKS)
LONG_LINE = "W" * 1_000_000


def report() -> Report:
    """A report of one run whose every text field is hostile."""
    finished = factory.report("template_collapse", n_steps=40)
    run = finished.runs[0]
    run.name = run.data.name = HOSTILE.replace("\n", " ")
    run.reason = HOSTILE
    run.data.assumptions = [HOSTILE, LONG_LINE]
    run.data.text_sampling = HOSTILE
    run.data.config = {HOSTILE: {"key": HOSTILE}, "list": [HOSTILE, LONG_LINE]}
    run.data.texts = [
        dataclasses.replace(row, prompt_text=HOSTILE, thinking_text=HOSTILE, response_text=f"{HOSTILE}{LONG_LINE}")
        for row in run.data.texts
    ]
    run.findings = [dataclasses.replace(finding, **_texts(finding)) for finding in run.findings]
    run.findings.append(Finding("TC01", Status.WARN, LONG_LINE, {HOSTILE: [HOSTILE] * 3, "trace": LONG_LINE}))
    run.metrics = {HOSTILE: dataclasses.replace(run.metrics["success_rate"], method=HOSTILE, unit="<b>")}
    run.series[HOSTILE] = run.series["reward_mean"]
    entry = finished.inputs[0]
    entry.path = entry.why = entry.format = HOSTILE
    entry.assumptions = [HOSTILE]
    entry.skipped = [BadRecord(HOSTILE, 1, LONG_LINE)]
    run.filter = {"setting": {HOSTILE: HOSTILE}, "table": [{HOSTILE: HOSTILE}], "confidence": 0.5, "reasons": [HOSTILE]}
    return finished


def _texts(finding: Finding) -> dict[str, object]:
    return {
        "claim": f"{finding.claim} {HOSTILE}",
        "evidence": {**finding.evidence, "text": HOSTILE, HOSTILE: HOSTILE},
        "threshold": {**finding.threshold, "source": HOSTILE},
        "could_also_be": (HOSTILE,),
        "check_next": (HOSTILE,),
        "examples": (*finding.examples[:2], HOSTILE),
    }
