"""Rewards earned without the task: format, proxy and length hacks, window by window."""

from __future__ import annotations

import re

import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.rewards import FORMAT_NAME, component_series
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import fall_from_peak, finite, shift
from ragen_diag.findings import Family, Finding, Status

_BOOKKEEPING = re.compile(r"learning_rate|epoch|calls|step|num_tokens|loss|grad_norm")
TRUE_SCORES = ("task_score_mean", "val_success_rate", "success_rate")


@detector("FH01", "reward hack", Family.POLICY,
          "reward_components | task_score_mean | success_rate | val_success_rate")  # fmt: skip
def reward_hack(run: RunData, measures: Measures, *, loss: float = 0.2, gain: float = 0.05) -> Finding:
    """FH01: the true score falls while the reward, or its format part, rises.

    loss, gain: shares of the start by which the true score must fall and the other rise, clear of noise
    (turning_points.Shift). The true score is the task score, else a success rate, else the part of the reward that is not
    format. Phases are told apart: which part moved between which points, since two windows may have two causes.
    Source: open-r1#255 (accuracy 0.16 to 0.06, format 0.48 to 0.86), Soup#286 (two phases).
    """
    limit = {"true_score_loss": loss, "proxy_gain": gain, "source": "ours"}
    parts = component_series(run, measures)
    true_name, true = _true_score(measures, parts)
    proxies = {
        name: values for name, values in (*parts.items(), ("reward_mean", finite(measures.series.get("reward_mean"))))
        if name != true_name and name not in TRUE_SCORES and len(values) >= 2
    }  # fmt: skip
    moved = shift(true)
    if moved is None or not proxies:
        why = (
            "no true score beside the reward"
            if moved is None
            else f"only {true_name} is logged, nothing to hack it with"
        )
        return Finding("FH01", Status.INCONCLUSIVE, why, threshold=limit, check_next=("log the task score apart",))
    fallen = moved.moved(-1, loss)
    if not fallen and (since := _last_peak(true)) is not None:
        # The score rose before it fell: only what rises against the fall itself is a hack.
        true, fallen = true[true.index >= since], True
        proxies = {name: values[values.index >= since] for name, values in proxies.items()}
        moved = shift(true) or moved
    rising = [name for name, values in proxies.items() if (s := shift(values)) is not None and s.moved(+1, gain)]
    # A short log shows ups and downs in between; the ends alone count for a proxy once the true score fell without pause.
    if fallen and moved.n < 8:
        rising = [name for name, values in proxies.items() if (s := shift(values)) is not None and s.relative >= 0.2]
    evidence = {"true_score": true_name, "true_start": moved.start, "true_end": moved.end, "n_points": moved.n,
                "rising": {name: [float(proxies[name].iloc[0]), float(proxies[name].iloc[-1])] for name in rising}}  # fmt: skip
    if not (fallen and rising):
        claim = f"{true_name} {moved.start:.3g} to {moved.end:.3g}; no reward rises against it"
        return Finding("FH01", Status.PASS, claim, evidence, limit, span(true))
    named = "format reward" if any(FORMAT_NAME.search(name) for name in rising) else ", ".join(rising)
    claim = f"{true_name} fell from {moved.start:.3g} to {moved.end:.3g} while {named} rose ({moved.n} points)"
    phases = _phases(true, measures) if moved.n < 8 else []
    if len(phases) > 1:
        evidence["phases"] = phases
        claim += ". Windows differ: " + "; ".join(
            f"points {phase['from']}-{phase['to']}: up {phase['rose'] or 'nothing'}, down {phase['fell'] or 'nothing'}"
            for phase in phases
        )
    check = (
        "the best rewarded responses of the last steps",
        "an exact grader on a held-out sample",
        "weights of the parts",
    )
    return Finding("FH01", Status.FAIL, claim, evidence, limit, span(true), check_next=check)


def _true_score(measures: Measures, parts: dict[str, pd.Series]) -> tuple[str, pd.Series]:
    for name in TRUE_SCORES:
        points = finite(measures.series.get(name))
        if len(points) >= 2:
            return name, points
    task = [name for name in parts if not FORMAT_NAME.search(name) and name != "reward_mean"]
    has_format = any(FORMAT_NAME.search(name) for name in parts)
    if len(task) == 1 and has_format:
        return task[0], parts[task[0]]
    return "", pd.Series(dtype="float64")


def _last_peak(true: pd.Series) -> int | None:
    """Step of the peak the true score fell from for good."""
    fall = fall_from_peak(true)
    return None if fall is None or fall.recovered else fall.peak_step


def _phases(true: pd.Series, measures: Measures) -> list[dict[str, object]]:
    """Which series rose and fell by a tenth between consecutive points of a short log."""
    phases: list[dict[str, object]] = []
    for first, last in zip(true.index[:-1], true.index[1:], strict=True):
        rose: list[str] = []
        fell: list[str] = []
        for name, values in measures.series.items():
            if first in values.index and last in values.index and not _BOOKKEEPING.search(name):
                before, after = float(values.loc[first]), float(values.loc[last])
                moved = (after - before) / max(abs(before), 1e-9)
                (rose if moved > 0.1 else fell if moved < -0.1 else []).append(name.removeprefix("other:"))
        phases.append({"from": int(first), "to": int(last), "rose": ", ".join(rose), "fell": ", ".join(fell)})
    return phases
