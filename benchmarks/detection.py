"""How well planted failures are told from healthy runs, by the checks and by three baselines.

    python -m benchmarks.detection --runs 40 --write docs/detection.md

AUROC of each kind against all healthy runs; the checks' score is the severity of the codes that name the kind (0 PASS or
SKIPPED, 1 INCONCLUSIVE, 2 WARN, 3 FAIL), the baselines' scores are continuous, which favours them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from analysis.detectors import run_detectors
from analysis.information import measure
from analysis.measures import Measures
from analysis.verdict import judge
from ragen_diag.findings import Status, Verdict
from tests.planted.runs import EXPECTED, FAILING, HEALTHY, draw

SEVERITY = {Status.SKIPPED: 0, Status.PASS: 0, Status.INCONCLUSIVE: 1, Status.WARN: 2, Status.FAIL: 3, Status.ERROR: 0}
BASELINES = ("entropy only", "stop rule", "reward drop")


@dataclass
class Outcome:
    """What one planted run ended in."""

    kind: str
    seed: int
    verdict: str
    severity: dict[str, int]
    baseline: dict[str, float]
    announced: int | None = None
    stopped: int | None = None
    """Step at which the reference's stop rule fires."""
    fall_step: int | None = None
    complaints: list[str] = field(default_factory=list)


def evaluate(task: tuple[str, int]) -> Outcome:
    """Draw, analyze and score one run."""
    kind, seed = task
    planted = draw(kind, seed)
    per_step = {cross.step: measure(cross, n_boot=100, n_perm=100) for cross in planted.run.cross_scores}
    measures = Measures.of(planted.run, per_step=per_step, scorer="policy" if per_step else None)
    findings = run_detectors(planted.run, measures, strict=True)
    severity = {finding.code: SEVERITY[finding.status] for finding in findings}
    stop, stopped = stop_rule(measures.series.get("reward_std_in_group"))
    baseline = {
        "entropy only": relative_drop(measures.series.get("entropy_nats")),
        "stop rule": stop,
        "reward drop": peak_drop(measures.series["reward_mean"]),
    }
    trap = measures.echo_trap
    complaints = [f"{f.code} {f.status}" for f in findings if f.status in (Status.WARN, Status.FAIL)]
    return Outcome(
        kind, seed, judge(findings).verdict.value, severity, baseline, trap.announced_step if trap else None, stopped,
        planted.fall_step, complaints,
    )  # fmt: skip


def relative_drop(series: pd.Series | None) -> float:
    """1 - (median of the last ten points) / (median of the first ten)."""
    if series is None or not len(series.dropna()):
        return 0.0
    values = series.dropna().to_numpy()
    return 1 - float(np.median(values[-10:])) / max(float(np.median(values[:10])), 1e-9)


def stop_rule(std: pd.Series | None) -> tuple[float, int | None]:
    """RAGEN-2's reward_variance_collapse: ten steps in a row under 10 % of the first ten's mean. (score, step it fires)."""
    if std is None:  # groups of one: there is no spread inside them
        return 0.0, None
    values = std.to_numpy()
    baseline = max(float(values[:10].mean()), 1e-12)
    highest = pd.Series(values / baseline).rolling(10).max().iloc[10:]
    fired = highest.index[highest < 0.1]
    return 1 - float(highest.min()), int(std.index[fired[0]]) if len(fired) else None


def peak_drop(reward: pd.Series) -> float:
    """(running peak - end) / |peak|, of five-step medians."""
    level = reward.rolling(5, min_periods=1).median()
    peak = float(level.iloc[2:].max())
    return (peak - float(level.iloc[-1])) / max(abs(peak), 1e-9)


def auroc(positive: list[float], negative: list[float]) -> float:
    """Probability that a failing run scores above a healthy one, ties counting half."""
    u = stats.mannwhitneyu(positive, negative).statistic
    return float(u / (len(positive) * len(negative)))


def collect(runs: int, healthy_runs: int, jobs: int, first_seed: int = 0) -> list[Outcome]:
    """Evaluate `runs` runs of each failing kind and `healthy_runs` of each healthy one, seeds from `first_seed` on."""
    tasks = [(kind, first_seed + i) for kind in HEALTHY for i in range(healthy_runs)]
    tasks += [(kind, first_seed + i) for kind in FAILING for i in range(runs)]
    if jobs <= 1:
        return [evaluate(task) for task in tasks]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(evaluate, tasks, chunksize=4))


@dataclass
class Table:
    """The numbers that tests and the document share."""

    auroc: dict[str, dict[str, float]]
    """Kind -> 'checks' or a baseline -> AUROC."""
    detected: dict[str, tuple[float, float]]
    """Kind -> share of runs with FAIL, with FAIL or WARN, of a code that names it."""
    healthy_collapsed: int
    healthy_broken: int
    healthy_watch: int
    n_healthy: int
    announced: float
    """Share of Echo Trap runs announced before the reward fell."""
    lead_steps: float
    stopped: float
    """The same for the reference's stop rule."""


def tabulate(outcomes: list[Outcome]) -> Table:
    """Summarize outcomes."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    healthy = [outcome for kind in HEALTHY for outcome in by_kind[kind]]
    found: dict[str, dict[str, float]] = {}
    detected = {}
    for kind, codes in EXPECTED.items():
        failing = by_kind[kind]

        def severity(outcome: Outcome, codes: tuple[str, ...] = codes) -> float:
            return max(outcome.severity[code] for code in codes)

        found[kind] = {"checks": auroc([severity(o) for o in failing], [severity(o) for o in healthy])}
        for name in BASELINES:
            found[kind][name] = auroc([o.baseline[name] for o in failing], [o.baseline[name] for o in healthy])
        severities = np.array([severity(o) for o in failing])
        detected[kind] = float((severities == 3).mean()), float((severities >= 2).mean())
    verdicts = Counter(outcome.verdict for outcome in healthy)
    traps = by_kind["echo_trap"]
    leads = [o.fall_step - o.announced for o in traps if o.announced is not None and o.fall_step is not None]
    early = [o.stopped is not None and o.fall_step is not None and o.stopped < o.fall_step for o in traps]
    return Table(
        found, detected, verdicts[Verdict.COLLAPSED.value], verdicts[Verdict.BROKEN_PIPELINE.value],
        verdicts[Verdict.WATCH.value], len(healthy), float(np.sum(np.array(leads) > 0) / len(traps)),
        float(np.median(leads)) if leads else float("nan"), float(np.mean(early)),
    )  # fmt: skip


def healthy_rows(outcomes: list[Outcome]) -> list[str]:
    """A line of the document for each sort of healthy run: what it was called, what was said of it."""
    rows = []
    for kind in HEALTHY:
        ours = [outcome for outcome in outcomes if outcome.kind == kind]
        verdicts = Counter(outcome.verdict for outcome in ours)
        complaints = Counter(complaint for outcome in ours for complaint in outcome.complaints)
        said = ", ".join(f"{name} x{count}" for name, count in complaints.most_common(4)) or "nothing"
        called = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(verdicts.items()))
        rows.append(f"| {kind.replace('_', ' ')} | {called} | {said} |")
    return rows


def document(table: Table, outcomes: list[Outcome], runs: int, command: str, minutes: float) -> str:
    """docs/detection.md."""
    rows = [
        f"| {kind.replace('_', ' ')} | {', '.join(EXPECTED[kind])} | {table.detected[kind][0]:.0%} | "
        f"{table.detected[kind][1]:.0%} | **{found['checks']:.3f}** | "
        + " | ".join(f"{found[name]:.3f}" for name in BASELINES) + " |"
        for kind, found in table.auroc.items()
    ]  # fmt: skip
    worst = min(found["checks"] for found in table.auroc.values())
    return f"""# Detection on planted runs

Every run below is drawn from a plan whose events are known (`tests/planted/`): {runs} runs of each of {len(EXPECTED)} failures,
and {table.n_healthy} healthy ones of {len(HEALTHY)} awkward sorts. Made by

```
{command}
```

in {minutes:.0f} minutes on two CPU cores, on seeds that were not used while the
checks were written. A test repeats a small part of it (`tests/detectors/test_planted.py`).

## In short

- Lowest AUROC of any kind: **{worst:.3f}**.
- Healthy runs called collapsed: **{table.healthy_collapsed} of {table.n_healthy}**
  ({table.healthy_collapsed / table.n_healthy:.1%}); called
  a broken pipeline: {table.healthy_broken}; put under watch: {table.healthy_watch}.
- Echo Trap announced before the reward began to fall: **{table.announced:.0%}**, by {table.lead_steps:.0f} steps (median).
  The reference's stop rule (in-group std under 10 % of its first-ten mean for ten steps) fires before the fall in
  {table.stopped:.0%}.

## Per kind

FAIL and WARN+: share of the runs in which a code that names the kind reached it. AUROC is against all healthy runs. The
checks are scored by status alone (four levels), the baselines by a continuous number: entropy only (relative fall of the
entropy), the reference's stop rule (how far the in-group std fell for ten steps), reward drop (from the running peak).

| kind | codes | FAIL | WARN+ | checks | {" | ".join(BASELINES)} |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

## Healthy runs

| sort | verdicts | what was said (WARN or FAIL) |
|---|---|---|
{chr(10).join(healthy_rows(outcomes))}

## What this does not show

Planted runs share our idea of what failures look like; real ones are in `tests/cases/`. Template collapse is planted as
exact copies (text-only logs) or as reworded templates with cross scores. Reworded templates without cross scores are judged by
their words alone, on planted texts of their own in `tests/detectors/test_template_words.py`.
"""


def main() -> None:
    """Run and print, or write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="runs of each failing kind")
    parser.add_argument("--healthy-runs", type=int, default=8, help="runs of each healthy sort")
    parser.add_argument("--first-seed", type=int, default=1000, help="the checks were developed on seeds below 1000")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, default=None)
    options = parser.parse_args()
    start = time.monotonic()
    outcomes = collect(options.runs, options.healthy_runs, options.jobs, options.first_seed)
    table = tabulate(outcomes)
    written = f" --write {options.write}" if options.write else ""
    command = f"python -m benchmarks.detection --runs {options.runs} --healthy-runs {options.healthy_runs}{written}"
    text = document(table, outcomes, options.runs, command, (time.monotonic() - start) / 60)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
