"""From log sources to a Report: reads, measures, checks, judges. Orders the steps; every number comes from another file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from analysis import entropy, information, text, tuning
from analysis.detectors.registry import run_detectors
from analysis.ingest import ingest
from analysis.measures import Measures
from analysis.readers.base import LogSource
from analysis.regimes import Regime
from analysis.result import InputSummary, Report, RunReport
from analysis.run_data import RunData, TextRow
from analysis.verdict import judge
from ragen_diag.cross_scores import CrossScores, cross_score_files
from ragen_diag.errors import UsageError
from ragen_diag.findings import Estimate, Finding, SeriesPoint, Status

MAX_TEXT_STEPS = 16
"""Steps at which text estimators run: the first and last ones and an even spread between; each costs about a second."""
NO_STEP = -1
"""Key of estimates of a log without steps."""
_PER_STEP = dict[int, dict[str, Estimate]]


def analyze_sources(
    sources: Sequence[LogSource], *, scorer: str | None = None, seed: int = 0, progress: bool = False
) -> Report:
    """Analyze every source as one run. Raises BadLog (unreadable records) and UsageError (a scorer that cannot be used)."""
    inputs: list[InputSummary] = []
    runs: list[RunReport] = []
    for number, source in enumerate(sources, start=1):
        with _status(f"[{number}/{len(sources)}] {source.name}", progress) as say:
            say("reading")
            run, summary = ingest(source)
            run.cross_scores = _cross_scores(source, run, summary, scorer, seed, say)
            inputs.append(summary)
            runs.append(analyze_run(run, seed=seed, say=say))
            runs[-1].source = source
    return Report(inputs, runs)


def analyze_run(run: RunData, *, seed: int = 0, say=lambda stage: None) -> RunReport:
    """Measure, check and judge one run that is already in memory."""
    say("measuring information")
    per_step = _information(run, seed)
    say("measuring texts")
    text_per_step, text_whole = _texts(run, seed)
    for step, estimates in text_per_step.items():
        per_step[step].update(estimates)
    say("checking")
    whole = text_whole | _last(per_step)
    scorer = run.cross_scores[-1].scorer if run.cross_scores else None
    measures = Measures.of(run, per_step=per_step, whole_run=whole, scorer=scorer)
    findings = run_detectors(run, measures)
    verdict = judge(findings)
    say("tuning the filter")
    recommendation = tuning.recommend(run, seed=seed) if len(measures.groups) else None
    return RunReport(
        name=run.name,
        verdict=verdict.verdict,
        reason=verdict.reason,
        regime=_regime(measures, findings),
        phase=measures.echo_trap.phase.value if measures.echo_trap else "unknown",
        findings=findings,
        metrics=dict(measures.whole_run),
        series=_series(measures),
        filter=recommendation.to_dict() if recommendation else None,
        data=run,
        recommendation=recommendation,
    )


def _cross_scores(
    source: LogSource, run: RunData, summary: InputSummary, scorer: str | None, seed: int, say
) -> list[CrossScores]:
    """Matrices that were measured online, or by the scorer the user asked for."""
    if scorer is not None:
        if source.kind != "rollouts":
            raise UsageError(f"--scorer needs rollouts; {source.path} holds metrics only")
        from analysis.scoring.offline import score_log

        return score_log(source, scorer, seed=seed, say=say)
    if source.format != "ragen_diag":
        return []
    found = []
    for path in cross_score_files(source.path):
        try:
            found.append(CrossScores.load(path))
        except (OSError, ValueError, KeyError) as error:
            summary.assumptions.append(f"{path.name}: not a readable cross-score file, left out ({error})")
    return sorted((cross for cross in found if cross.scope == "first_turn"), key=lambda cross: cross.step)


def _information(run: RunData, seed: int) -> _PER_STEP:
    """Per-step estimates from cross scores, completed by H(Z|X) from logged log-probs where there is no matrix."""
    per_step: _PER_STEP = defaultdict(dict)
    for step, estimate in entropy.from_rollouts(run.train).items():
        per_step[step]["conditional_entropy_nats_per_token"] = estimate
    for cross in run.cross_scores:
        if cross.split == "train" or not len(run.split("train")):
            per_step[cross.step].update(information.measure(cross, seed=seed))
    return per_step


def _texts(run: RunData, seed: int) -> tuple[_PER_STEP, dict[str, Estimate]]:
    """Text estimates of a spread of steps, and of the last fifth of them together (more prompts, narrower intervals)."""
    split = "train" if any(row.split == "train" for row in run.texts) else "val"
    by_step: dict[int, list[TextRow]] = defaultdict(list)
    for row in run.texts:
        if row.split == split:
            by_step[NO_STEP if row.step is None else row.step].append(row)
    if not by_step:
        return {}, {}
    steps = sorted(by_step)
    spread = np.unique(np.linspace(0, len(steps) - 1, MAX_TEXT_STEPS).round().astype(int))
    per_step = {steps[index]: text.measure_text(by_step[steps[index]], seed=seed) for index in spread}
    last = [row for step in steps[-max(1, len(steps) // 5) :] for row in by_step[step]]
    return per_step, text.measure_text(last, seed=seed)


def _last(per_step: _PER_STEP) -> dict[str, Estimate]:
    """The most recent estimate of each name, text estimates excepted (they are pooled)."""
    latest: dict[str, Estimate] = {}
    for step in sorted(per_step):
        latest.update(
            {name: e for name, e in per_step[step].items() if e.value is not None and not name.startswith("text_")}
        )
    return latest


def _regime(measures: Measures, findings: list[Finding]) -> str:
    """Regime of the last steps; where the plane cannot say, the one that a check found without it."""
    final = measures.regime.final if measures.regime else Regime.UNKNOWN
    if final != Regime.UNKNOWN:
        return final.value
    named = (str(f.evidence["regime"]) for f in findings if f.status == Status.FAIL and "regime" in f.evidence)
    return next(named, Regime.UNKNOWN.value)


def _series(measures: Measures) -> dict[str, list[SeriesPoint]]:
    """Series with intervals where a step's estimate has one; non-finite values stay in the series as None."""
    series = {
        name: [
            SeriesPoint(step, value if np.isfinite(value) else None)
            for step, value in zip(values.index.astype(int).tolist(), values.astype(float).tolist(), strict=True)
        ]
        for name, values in measures.series.items()
    }
    names = {name for estimates in measures.per_step.values() for name in estimates}
    for name in sorted(names):
        points = []
        for step, estimates in sorted(measures.per_step.items()):
            estimate = estimates.get(name)
            if estimate is not None and estimate.value is not None and step >= 0:
                low, high = estimate.ci95 or (None, None)
                points.append(SeriesPoint(step, estimate.value, low, high))
        if points:
            series[name] = points
    return series


@contextmanager
def _status(title: str, progress: bool) -> Iterator:
    """A spinner on stderr that says what is being done; silent unless asked."""
    if not progress:
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda stage: status.update(f"{title}: {stage}")
