"""Reasoning that no longer depends on the prompt (RAGEN-2's template collapse), from cross scores, texts, or exact copies.

Cross scores (regimes.py) decide where the log has them. A log with texts alone is judged by the text classifier where it has
recognised prompts earlier in the same run, by exact copies across prompts, which need no model, and by shared phrases
(template_words.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.template_words import (
    TEMPLATE_FAIL,
    halved,
    judge_words,
    lost_after,
    regime_of,
    seen_no_more,
    words_depend,
)
from analysis.detectors.windows import ids, recent_rollouts
from analysis.measures import Measures
from analysis.regimes import MI_LOW, Regime, RegimePath, last_window
from analysis.run_data import RunData
from analysis.snr import wilson
from ragen_diag.findings import Family, Finding, Status

COPY_FAIL = 0.5
"""Share of rollouts whose thinking is found word for word under another prompt."""
COPY_FAIL_WHOLE_LOG = 0.25
"""The same for a log without steps, where the healthy start is averaged in."""
LONG_CHARS = 60
"""A reasoning of this length that stands word for word under several prompts is a template, not a phrase that fits them.
Chance (few prompts) and time (a log without steps, whose templates change) make it look dependent; only DEPENDENCE_LONG
and more is taken for real."""
DEPENDENCE_LONG = 0.75
DEPENDENCE_LOW = 0.5
"""Of the chance that two rollouts share their thinking, the part that goes away when they come from different prompts."""
N_PERMUTATIONS = 999


@dataclass(frozen=True, slots=True)
class Copies:
    """Exact copies of the first thinking across distinct prompts, within steps."""

    share: float
    """Of rollouts whose thinking also stands under another prompt of the same step."""
    interval: tuple[float, float] | None
    """Wilson, at the effective size of rollouts clustered in prompts."""
    dependence: float
    """Among the copied: 1 - (collisions across prompts) / (collisions within prompts); 0 = the prompt makes no difference,
    nan = no collisions."""
    p_no_dependence: float
    """Share of permutations of the prompts that collide within prompts at least as often."""
    n_rollouts: int
    n_prompts: int
    copied_chars: float
    """Median length of the copied thinking; nan without copies."""


def copies(rollouts: pd.DataFrame, seed: int = 0) -> Copies | None:
    """Count copies among rollouts with thinking; None without two prompts in some step.

    Rollouts of a prompt repeat each other, so shares are taken at n / (1 + (m - 1) ICC) rollouts, ICC estimated and kept at
    0.2 or more (m: rollouts a prompt): with four prompts nothing better is known about it.
    """
    data = rollouts[rollouts["thinking_hash"] != 0]
    frame = pd.DataFrame(
        {
            "step": data["step"].fillna(-1).to_numpy(dtype="int64"),
            "prompt": data["prompt"].to_numpy(),
            "text": data["thinking_hash"].to_numpy(),
            "chars": data["thinking_chars"].to_numpy(),
        }
    )
    several = frame.groupby("step")["prompt"].transform("nunique") >= 2
    frame = frame[several]
    if not len(frame):
        return None
    copied = frame.groupby(["step", "text"])["prompt"].transform("nunique").to_numpy() >= 2
    cluster = frame.groupby(["step", "prompt"]).ngroup().to_numpy()
    n_clusters = int(cluster.max()) + 1
    effective = len(frame) / _design_effect(copied.astype(float), cluster, n_clusters)
    share, interval = wilson(float(copied.mean()) * effective, effective)
    n_prompts = frame["prompt"].nunique()
    # Only among the copies: reasonings that are about their prompt repeat within it, too, and would hide a template.
    within, across = _collisions(frame[copied], cluster[copied])
    dependence = 1 - across / within if within > 0 else float("nan")
    p_value = _permutation_p(frame[copied], cluster[copied], within, seed)
    chars = float(frame.loc[copied, "chars"].median()) if copied.any() else float("nan")
    return Copies(float(share), interval, dependence, p_value, len(frame), n_prompts, chars)


def _design_effect(values: np.ndarray, cluster: np.ndarray, n_clusters: int) -> float:
    sizes = np.bincount(cluster, minlength=n_clusters)
    m = len(values) / n_clusters
    means = np.bincount(cluster, values, minlength=n_clusters) / sizes
    total = values.var()
    between = float(((means - values.mean()) ** 2 * sizes).sum() / len(values))
    icc = (between / total - 1 / m) / (1 - 1 / m) if total > 0 and m > 1 else 0.2
    return 1 + max(m - 1, 0.0) * min(max(icc, 0.2), 1.0)


def _collisions(frame: pd.DataFrame, cluster: np.ndarray) -> tuple[float, float]:
    """Probability that two rollouts of one step share their text: of the same prompt, of different prompts."""
    step = frame["step"].to_numpy()
    same_text = _pairs(frame.groupby(["step", "text"]).size().to_numpy())
    all_pairs = _pairs(np.unique(step, return_counts=True)[1])
    prompt_pairs = _pairs(np.bincount(cluster))
    both = _pairs(frame.groupby([cluster, frame["text"].to_numpy()]).size().to_numpy())
    within = both / prompt_pairs if prompt_pairs else float("nan")
    across = (same_text - both) / (all_pairs - prompt_pairs) if all_pairs > prompt_pairs else float("nan")
    return within, across


def _pairs(counts: np.ndarray) -> float:
    return float((counts * (counts - 1) // 2).sum())


def _permutation_p(frame: pd.DataFrame, cluster: np.ndarray, observed: float, seed: int) -> float:
    """Permute prompts within steps. At least 1 / (N_PERMUTATIONS + 1)."""
    if not np.isfinite(observed):
        return float("nan")
    if not frame.duplicated(["step", "text"]).any():
        return 1.0
    generator = np.random.default_rng(seed)
    text = frame.groupby(["step", "text"]).ngroup().to_numpy()
    order = np.argsort(frame["step"].to_numpy(), kind="stable")
    text, cluster = text[order], cluster[order]
    step = frame["step"].to_numpy()[order]
    prompt_pairs = _pairs(np.bincount(cluster))
    n_text = int(text.max()) + 1
    reached = 0
    for _ in range(N_PERMUTATIONS):
        shuffled = cluster[np.lexsort((generator.random(len(step)), step))]
        counts = np.unique(shuffled * n_text + text, return_counts=True)[1]
        reached += _pairs(counts) / prompt_pairs >= observed - 1e-12
    return (reached + 1) / (N_PERMUTATIONS + 1)


@detector("TC01", "template collapse", Family.POLICY, "per_step | rollouts.thinking_hash")
def template_collapse(run: RunData, measures: Measures) -> Finding:
    """TC01: the reasoning carries (almost) no information about its prompt any more. Entropy need not fall for that.

    Cross scores, pooled over the last fifth of the measured steps: FAIL when the interval of MI / H(X) lies below MI_LOW
    (RAGEN-2's zone), INCONCLUSIVE when it crosses, PASS above; WARN when it halved since the start, clear of noise.
    Copies: FAIL when at least half the rollouts' thinking stands word for word under another prompt (lower end of the
    interval) and copying is no commoner within a prompt than across prompts. Short shared phrases that go with their
    prompt ("go left") collide more within prompts, and pass.
    Words: see template_words.py; a text classifier that sees nothing keeps a log from passing.
    """
    limit = {"mi_share_low": MI_LOW, "copied_share": COPY_FAIL, "copied_share_without_steps": COPY_FAIL_WHOLE_LOG,
             "dependence_low": DEPENDENCE_LOW, "template_share": TEMPLATE_FAIL,
             "source": "MI: RAGEN-2's collapse zone, 0.3 nats of ln 8; copies, templates: ours"}  # fmt: skip
    window = recent_rollouts(run)
    last = _last_steps(window)
    found = copies(last) if len(last) else None
    path = measures.regime
    by_path = _judge_path(path, limit) if path is not None and path.points else None
    by_copies = _judge_copies(run, found, last, limit, regime_of(measures.whole_run)) if found is not None else None
    if by_copies is not None and by_copies.status == Status.FAIL and words_depend(measures.whole_run):
        claim = f"a template with a slot: {by_copies.claim}; yet the words tell the prompts apart"
        by_copies = replace(by_copies, status=Status.WARN, claim=claim)
    if by_path is not None and by_path.status != Status.INCONCLUSIVE:
        if by_copies is not None and by_copies.status == Status.FAIL and by_path.status == Status.PASS:
            claim = f"contradictory: {by_path.claim}; but {by_copies.claim}"
            return Finding(
                "TC01", Status.INCONCLUSIVE, claim, by_path.evidence | by_copies.evidence, limit, by_path.steps
            )
        return by_path
    if by_copies is not None and by_copies.status in (Status.FAIL, Status.WARN):
        return by_copies
    thinks = not len(last) or (last["thinking_hash"] != 0).mean() >= 0.1
    if not thinks and _are_answers(last):
        claim = "no reasoning to judge: hardly any thinking in this log, and responses as short as a bare answer"
        return Finding("TC01", Status.SKIPPED, f"{claim}. To check this, log the thinking text")
    steps = last["step"].dropna()
    by_words = judge_words(
        measures.whole_run, path, limit, (int(steps.min()), int(steps.max())) if len(steps) else None
    )
    if by_words is not None and by_words.status == Status.FAIL and not thinks:
        could = ("an output format that every response must follow (JSON, tool calls)", *by_words.could_also_be)
        by_words = replace(by_words, status=Status.WARN, could_also_be=could)
    if by_words is not None:
        return by_words
    if by_path is not None and path is not None and seen_no_more(path):
        if not halved(path):
            return by_path  # that nothing is copied word for word is no comfort then
        claim = f"input dependence was {path.points[0].mi_share:.0%} of what is attainable and is lost; {path.reason}"
        return replace(by_path, status=Status.WARN, claim=claim)
    if by_copies is not None and by_copies.status != Status.INCONCLUSIVE:
        return by_copies
    if by_path is not None or by_copies is not None:
        chosen = by_path or by_copies
        assert chosen is not None
        return chosen
    claim = "not in this log: thinking of two or more prompts in one step. To check this, log the thinking text and its prompt"
    return Finding("TC01", Status.SKIPPED, claim)


def _are_answers(last: pd.DataFrame) -> bool:
    """Responses are as short as an answer: few answers fit many prompts, and their tags are the same."""
    return bool((last["response_chars"] / last["n_turns"]).median() < LONG_CHARS)


def _last_steps(window: pd.DataFrame) -> pd.DataFrame:
    """The last fifth of the steps (at least one): copies in earlier steps belong to the way there. All without steps."""
    steps = np.sort(window["step"].dropna().unique())
    return window[window["step"] >= steps[-last_window(len(steps))]] if len(steps) else window


def _judge_path(path: RegimePath, limit: dict[str, object]) -> Finding:
    first, last = path.points[0], path.points[-1]
    evidence = {
        "mi_share_first": first.mi_share, "mi_share_last": last.mi_share, "mi_share_last_ci95": last.mi_interval,
        "relative_entropy_last": last.relative_entropy, "measure": path.mi_name, "n_steps": len(path.points),
    }  # fmt: skip
    steps = None if first.step < 0 else (first.step, last.step)
    could = ("reasoning too short to tell prompts apart", "prompts that are nearly the same")
    check = (
        "the commonest thinking texts side by side",
        "the KL and entropy coefficients",
        "reward variance of the prompts",
    )
    if path.final in (Regime.TEMPLATE_COLLAPSE, Regime.LOW_ENTROPY_COLLAPSE):
        onset = lost_after(path)
        varied = "while it stays varied" if path.final == Regime.TEMPLATE_COLLAPSE else "and its entropy is gone, too"
        was_high = any(p.mi_interval is not None and p.mi_interval[0] > MI_LOW for p in path.points)
        since = f"since step {onset}" if was_high else "in the whole log (it may never have been input-driven)"
        claim = f"the reasoning no longer depends on the prompt {varied}, {since}: {path.reason}"
        return Finding("TC01", Status.FAIL, claim, evidence, limit, None if steps is None else (onset, last.step),
                       could_also_be=could, check_next=check)  # fmt: skip
    if path.final in (Regime.INPUT_DRIVEN, Regime.COMPRESSED):
        if halved(path):
            claim = f"input dependence fell from {first.mi_share:.0%} to {last.mi_share:.0%} of what is attainable"
            return Finding("TC01", Status.WARN, claim, evidence, limit, steps, could_also_be=could, check_next=check)
        return Finding(
            "TC01", Status.PASS, f"the reasoning depends on the prompt: {path.reason}", evidence, limit, steps
        )
    claim = f"cannot tell whether the reasoning depends on the prompt: {path.reason}"
    return Finding("TC01", Status.INCONCLUSIVE, claim, evidence, limit, steps,
                   check_next=("score more prompts (`ragen-diag plan` says how many)", "`--scorer checkpoint`"))  # fmt: skip


def _judge_copies(run: RunData, found: Copies, last: pd.DataFrame, limit: dict[str, object], regime: str) -> Finding:
    evidence: dict[str, object] = {
        "copied_share": found.share, "copied_share_ci95": found.interval, "dependence": found.dependence,
        "p_no_dependence": found.p_no_dependence, "n_rollouts": found.n_rollouts, "n_prompts": found.n_prompts,
    }  # fmt: skip
    steps = last["step"].dropna()
    where = (int(steps.min()), int(steps.max())) if len(steps) else None
    low, high = found.interval if found.interval is not None else (0.0, 1.0)
    fail_at = COPY_FAIL if where is not None else COPY_FAIL_WHOLE_LOG
    counted = f"{found.share:.0%} of {found.n_rollouts} recent reasonings stand word for word under another prompt"
    # With few prompts the permutation test decides; with many, any trace of dependence is significant and its size counts.
    independent = found.dependence < DEPENDENCE_LOW and (
        found.p_no_dependence > 0.05 or found.dependence < DEPENDENCE_LOW / 2
    )
    if found.copied_chars >= LONG_CHARS:
        independent = found.dependence < DEPENDENCE_LONG
    shared = last.groupby(["step", "thinking_hash"], dropna=False)["prompt"].transform("nunique") >= 2
    shown, not_shown = last[shared & (last["thinking_hash"] != 0)], last[~shared]
    if low >= fail_at and independent:
        onset = _copy_onset(run)
        how = (
            "no oftener under the same prompt than under others"
            if found.dependence < DEPENDENCE_LOW
            else "sentence by sentence"
        )
        length = (
            f", median {found.copied_chars:.0f} characters" if found.copied_chars > 0 else ""
        )  # token ids have none
        claim = f"{counted}, {how} (dependence {found.dependence:.2f}{length})"
        evidence["regime"] = regime
        return Finding(
            "TC01", Status.FAIL, claim, evidence, limit, None if where is None else (onset or where[0], where[1]), ids(shown),
            ids(not_shown), ("prompts that differ in nothing the answer needs",), ("the copied texts", "rewards of the copies"),
        )  # fmt: skip
    if found.share >= 0.1 and low > 0.05 and independent and found.n_prompts >= 3:
        claim = f"{counted}; copying does not follow the prompt"
        return Finding("TC01", Status.WARN, claim, evidence, limit, where, ids(shown), ids(not_shown))
    if high < fail_at or (not independent and found.p_no_dependence <= 0.05):
        claim = f"{counted}: no word-for-word template (paraphrased ones need cross scores)"
        return Finding("TC01", Status.PASS, claim, evidence, limit, where)
    claim = f"{counted}: too few prompts to tell a template from chance"
    return Finding("TC01", Status.INCONCLUSIVE, claim, evidence, limit, where)


def _copy_onset(run: RunData) -> int | None:
    """First step from which on most thinking is copied in every step."""
    train = run.train[(run.train["thinking_hash"] != 0) & run.train["step"].notna()]
    copied = train.groupby(["step", "thinking_hash"])["prompt"].transform("nunique") >= 2
    share = copied.groupby(train["step"]).mean()
    above = share.to_numpy() >= COPY_FAIL
    if not len(above) or not above[-1]:
        return None
    return int(share.index[len(above) - int(np.argmin(above[::-1])) if not above.all() else 0])
