"""Template collapse from the words alone, for a log without cross scores.

A word classifier that recognises no prompt may be blind: paraphrase hides dependence from it. So its silence counts only
where it recognised prompts at the run's start, or together with shared templates: when nearly every word stands inside
phrases that most prompts share, there is little room left in which the prompt could hide. Exact copies and the path over
steps: template_collapse.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.regimes import ENTROPY_LOW, MI_LOW, Regime, RegimePath, RegimePoint, last_window, pooled
from ragen_diag.findings import Estimate, Finding, Status

TEMPLATE_FAIL = 0.7
"""Share of words inside 4-grams that stand in the reasoning of at least half the prompts. Ours, from planted runs."""
MIN_PROMPTS = 8
"""With fewer, a classifier at chance is no surprise."""
_NAMES = (
    "text_retrieval_accuracy", "text_retrieval_chance", "text_normalised_mi", "cross_prompt_template_share",
    "within_prompt_jaccard", "cross_prompt_jaccard",
)  # fmt: skip


def judge_words(
    estimates: Mapping[str, Estimate], path: RegimePath | None, limit: dict[str, object], window: tuple[int, int] | None
) -> Finding | None:
    """FAIL: no prompt recognised, which was not so at the start, or the words are shared phrases. INCONCLUSIVE: neither.

    None when the words may carry their prompt, or nothing can be said: fewer than MIN_PROMPTS prompts, estimates missing.
    estimates: `text.measure_text` of the run's last steps, `window`. path: of the text classifier over steps.
    """
    found = {name: estimates[name] for name in _NAMES if name in estimates and estimates[name].value is not None}
    intervals = {name: estimate.ci95 for name, estimate in found.items() if estimate.ci95 is not None}
    if len(intervals) < len(_NAMES) or found["text_retrieval_accuracy"].n_prompts < MIN_PROMPTS:
        return None
    chance = intervals["text_retrieval_chance"][0]
    retrieval_high = (intervals["text_retrieval_accuracy"][1] - chance) / (1 - chance)
    closer_within = intervals["within_prompt_jaccard"][0] > intervals["cross_prompt_jaccard"][1]
    if retrieval_high >= MI_LOW or intervals["text_normalised_mi"][1] >= MI_LOW or closer_within:
        return None
    evidence: dict[str, object] = {name: estimate.value for name, estimate in found.items()}
    evidence |= {"retrieval_share_at_most": retrieval_high, "n_prompts": found["text_retrieval_accuracy"].n_prompts}
    said = (
        f"the words of the reasoning do not tell {evidence['n_prompts']} prompts apart (recognised above chance: at most "
        f"{max(retrieval_high, 0):.0%})"
    )
    check = (
        "the templates in the report, side by side",
        "`--scorer checkpoint` or `--scorer MODEL`: cross scores decide",
    )
    shared = f"{found['cross_prompt_template_share'].value or 0.0:.0%} of them stand in phrases that most prompts share"
    seen = path is not None and path.seen_at_start and path.mi_name.startswith("text_") and window is not None
    # Steps pooled hold more prompts to confuse than the single step that was recognised: only like counts against like.
    still = seen and path is not None and _still_recognised(path)
    onset = lost_after(path) if seen and not still and path is not None else None
    if onset is None and (still or intervals["cross_prompt_template_share"][0] < TEMPLATE_FAIL):
        claim = f"cannot tell whether the reasoning depends on the prompt: {said}, but paraphrase can hide it"
        return Finding("TC01", Status.INCONCLUSIVE, claim, evidence, limit, window, check_next=check)
    evidence["regime"] = regime_of(estimates)
    since = "" if onset is None else f" since step {onset}, as they did before"
    could = ("prompts that are nearly the same", "reasoning that follows the prompt in ways no word shows")
    steps = (onset, window[1]) if onset is not None and window is not None else window
    return Finding(
        "TC01", Status.FAIL, f"{said}{since}; {shared}", evidence, limit, steps, could_also_be=could, check_next=check
    )


def words_depend(estimates: Mapping[str, Estimate]) -> bool:
    """The words alone show a dependence clear of RAGEN-2's collapse zone (a lower bound, so it cannot be too high)."""
    found = estimates.get("text_normalised_mi")
    return found is not None and found.value is not None and found.ci95 is not None and found.ci95[0] > MI_LOW


def lost_after(path: RegimePath) -> int:
    """First step after the last one that was clearly input-driven; the first step when none was."""
    onset = path.points[0].step
    for earlier, later in zip(path.points, path.points[1:], strict=False):
        if earlier.mi_interval is not None and earlier.mi_interval[0] > MI_LOW:
            onset = later.step
    return onset


def halved(path: RegimePath) -> bool:
    """The last points together lie below half of the first three together, interval against interval."""
    if len(path.points) < 4:
        return False
    start, end = _together(path.points[:3]), _together(_last(path))
    return start is not None and end is not None and end[1] < 0.5 * start[0]


def seen_no_more(path: RegimePath) -> bool:
    """Clearly input-driven at the start, and the best guess of the last steps is in the collapse zone."""
    return path.seen_at_start and float(np.mean([point.mi_share for point in _last(path)])) < MI_LOW


def _still_recognised(path: RegimePath) -> bool:
    """The last steps, each by itself, tell prompts apart: clearly above chance, and by their mean above the collapse zone."""
    interval = _together(_last(path))
    return not seen_no_more(path) and interval is not None and interval[0] > 0


def _last(path: RegimePath) -> Sequence[RegimePoint]:
    return path.points[-last_window(len(path.points)) :]


def _together(points: Sequence[RegimePoint]) -> tuple[float, float] | None:
    known = [Estimate(p.mi_share, p.mi_interval, "share", 0, 0, "") for p in points if p.mi_interval is not None]
    return pooled(known)[1]


def regime_of(estimates: Mapping[str, Estimate]) -> str:
    """Which collapse templates are: varied inside a prompt, or not. 'unknown' without an estimate of that."""
    diversity = estimates.get("within_prompt_diversity")
    if diversity is None or diversity.value is None:
        return Regime.UNKNOWN.value
    return (Regime.TEMPLATE_COLLAPSE if diversity.value >= ENTROPY_LOW else Regime.LOW_ENTROPY_COLLAPSE).value
