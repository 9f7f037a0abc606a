"""The list of checks, and running all of them on a run. Each check lives in its family's file; this one knows none of them.

Other packages add checks through the entry point `ragen_diag.checks`, whose value names a module that registers them.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points

import numpy as np

from analysis.detectors.exemplars import with_exemplars
from analysis.measures import Measures
from analysis.run_data import RunData
from ragen_diag.errors import UsageError
from ragen_diag.findings import Family, Finding, Status

ENTRY_POINT_GROUP = "ragen_diag.checks"
Check = Callable[[RunData, Measures], Finding | list[Finding]]

MODULES = (
    # In the order of the report: what is broken outside the policy comes first.
    "numerics", "advantages", "grouping", "weights", "rewards", "logprobs", "env_text", "length",
    "zero_signal", "template_collapse", "trap", "entropy", "kl", "hacking", "degenerate", "tools", "thinking",
    "progress", "sufficiency", "normal_zeros",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detector:
    """One registered check."""

    code: str
    title: str
    family: Family
    needs: str
    """What a log must hold for the check to say anything: alternatives separated by "|", joint inputs by "+".

    A name is a series of `Measures.series`, a rollout column (`rollouts.NAME`), or one of `reward_components`, `texts`,
    `per_step`. Empty: always runs.
    """
    check: Check


DETECTORS: dict[str, Detector] = {}
_SEVERITY = [Status.FAIL, Status.ERROR, Status.WARN, Status.INCONCLUSIVE, Status.PASS, Status.SKIPPED]


def detector(code: str, title: str, family: Family, needs: str = "") -> Callable[[Check], Check]:
    """Register a check. The function is called only when its `needs` are met; else the registry answers SKIPPED."""

    def register(check: Check) -> Check:
        if code in DETECTORS:
            raise ValueError(f"two checks are registered as {code}")
        DETECTORS[code] = Detector(code, title, family, needs, check)
        return check

    return register


def all_detectors() -> list[Detector]:
    """Every check in report order, plug-ins last. Raises UsageError when a plug-in cannot be loaded or takes a taken code."""
    for module in MODULES:
        importlib.import_module(f"analysis.detectors.{module}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(f"check plug-in '{entry.name}' ({entry.value}) cannot be loaded: {error}") from error
    return list(DETECTORS.values())


def explain(code: str) -> str | None:
    """The page of a plug-in's check: the docstring of its function. None for an unknown code."""
    all_detectors()
    entry = DETECTORS.get(code)
    if entry is None:
        return None
    return f"# {code} · {entry.title}\n\nFamily: {entry.family.value}.\n\n{inspect.getdoc(entry.check) or ''}"


def family(code: str) -> Family:
    """Family of a code."""
    if code not in DETECTORS:  # looking through the installed packages for plug-ins takes a tenth of a second
        all_detectors()
    return DETECTORS[code].family


def run_detectors(run: RunData, measures: Measures | None = None, *, strict: bool = False) -> list[Finding]:
    """Findings of every check on one run, most severe first, normal values last.

    measures: default `Measures.of(run)`, which holds no information estimates. A check that crashes becomes one ERROR
    finding with its traceback; with `strict` it raises.
    """
    measures = Measures.of(run) if measures is None else measures
    findings: list[Finding] = []
    for entry in all_detectors():
        findings += _run_one(entry, run, measures, strict)
    return sorted(findings, key=lambda f: (family(f.code) == Family.NORMAL, _SEVERITY.index(f.status)))


def _run_one(entry: Detector, run: RunData, measures: Measures, strict: bool) -> list[Finding]:
    if entry.needs and not any(_has_all(alternative, run, measures) for alternative in entry.needs.split("|")):
        alternatives = [" with ".join(map(str.strip, part.split("+"))) for part in entry.needs.split("|")]
        wanted = ", or ".join(part for part in alternatives if "other:" not in part).replace(
            "rollouts.", "per-rollout "
        )
        return [Finding(entry.code, Status.SKIPPED, f"not in this log. To check this, log {wanted}")]
    try:
        # A check that divides by a zero it did not expect must show up as an error, not as a warning on the console.
        with np.errstate(divide="raise", invalid="raise"):
            found = entry.check(run, measures)
    except Exception as error:  # any crash of one check must not cost the user the others
        if strict:
            raise
        why = f"this check crashed ({type(error).__name__}: {error}); please report it"
        return [Finding(entry.code, Status.ERROR, why, evidence={"traceback": traceback.format_exc()})]
    return [with_exemplars(finding, run) for finding in (found if isinstance(found, list) else [found])]


def _has_all(alternative: str, run: RunData, measures: Measures) -> bool:
    return all(_has(name.strip(), run, measures) for name in alternative.split("+"))


def _has(name: str, run: RunData, measures: Measures) -> bool:
    if name == "texts":
        return bool(run.texts)
    if name == "per_step":
        return bool(measures.per_step)
    if name == "reward_components":
        return len(run.reward_components.columns) > 0
    if name.startswith("rollouts."):
        column = name.removeprefix("rollouts.")
        return column in run.rollouts and bool(run.rollouts[column].notna().any())
    return name in measures.series and bool(measures.series[name].notna().any())


def worst(findings: Iterable[Finding]) -> Status:
    """The most severe status among findings; PASS when there is none."""
    return min((finding.status for finding in findings), key=_SEVERITY.index, default=Status.PASS)
