"""Distance from the reference policy: dose against gain, by the run's own baseline. There is no universal KL limit."""

from __future__ import annotations

from analysis.detectors.registry import detector
from analysis.detectors.windows import span
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite, shift, spikes
from ragen_diag.findings import Family, Finding, Status


@detector("KL01", "KL drift or spike", Family.POLICY, "kl_nats")
def kl_drift(run: RunData, measures: Measures, *, growth: float = 5.0, floor: float = 0.05) -> Finding:
    """KL01: the KL to the reference grew without a gain in score, or spiked while the score fell.

    growth: times the run's own start. floor: nats a token under which nothing is said; not a limit (one study saw nothing
    happen below 0.012, gains at 0.17 and damage from 0.7 on: MarinFold#240; another run may differ). A KL that grows with
    the score is the price of learning and passes.
    """
    limit = {"growth": growth, "floor_nats": floor, "source": "own baseline; floor from MarinFold#240, not a limit"}
    points = finite(measures.series["kl_nats"])
    moved = shift(points)
    if moved is None or moved.n < 3:
        return Finding("KL01", Status.INCONCLUSIVE, f"{len(points)} KL points: no trend", threshold=limit)
    result = measures.score
    found = [step for step in spikes(points) if float(points.loc[step]) >= floor]
    evidence = {"kl_start_nats": moved.start, "kl_end_nats": moved.end, "n_points": moved.n, "spike_steps": found[:50],
                **result.evidence()}  # fmt: skip
    grown = moved.end >= floor and moved.moved(+1, growth - 1)
    if not grown and not (found and result.fell):
        return Finding(
            "KL01", Status.PASS, f"KL {moved.start:.3g} to {moved.end:.3g} nats a token", evidence, limit, span(points)
        )
    how = f"grew from {moved.start:.3g} to {moved.end:.3g} nats a token" if grown else f"spiked at step {found[0]}"
    claim = f"the KL to the reference {how}; {result.words()}"
    status = Status.FAIL if result.fell and moved.n >= 8 else Status.PASS if result.rose else Status.WARN
    could = () if result.known else ("the price of a gain this log does not show",)
    check = (
        "score and KL side by side: where did gain stop?",
        "KL coefficient and learning rate",
        "the estimator (k1, k3)",
    )
    return Finding("KL01", status, claim, evidence, limit, span(points), could_also_be=could, check_next=check)
