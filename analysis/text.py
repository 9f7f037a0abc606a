"""What the words alone say about input dependence and diversity: no language model. Not for scores (information.py).

Bounds come from a classifier that guesses the prompt from the reasoning; the rest are proxies, and are named so. Works on a
bounded sample: at most MAX_TEXTS texts of at most MAX_CHARS characters, and every `method` says how many were used.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.prompt_classifier import held_out_log_probs
from analysis.retrieval import chance_level
from analysis.run_data import TextRow
from analysis.uncertainty import cluster_means, jackknife_interval, row_means, share_interval
from analysis.words import Words, tokenize
from ragen_diag.findings import Estimate

MAX_TEXTS = 512
MAX_CHARS = 4000
TEMPLATE_WORDS = 4
"""Length of the n-grams that make up a template."""
TEMPLATE_SHARE = 0.5
"""A template occurs in the reasoning of at least this share of the prompts ("most prompts", docs/metrics.md §3)."""
MIN_PROMPTS_FOR_TEMPLATES = 4
_PAIRS_PER_PROMPT = 6
_CROSS_PAIRS = 1500

UNITS: dict[str, str] = {
    "text_mi_lower_nats": "nats",
    "text_normalised_mi": "share of H(X)",
    "text_prompt_entropy_nats": "nats",
    "text_retrieval_accuracy": "share",
    "text_retrieval_chance": "share",
    "text_retrieval_above_chance": "share",
    "within_prompt_diversity": "share",
    "within_prompt_jaccard": "share",
    "cross_prompt_jaccard": "share",
    "distinct_1": "share",
    "distinct_2": "share",
    "distinct_3": "share",
    "duplicate_share": "share",
    "compression_ratio": "ratio",
    "cross_prompt_template_share": "share",
    "repeated_4gram_share": "share",
    "garbage_char_share": "share",
}


@dataclass(frozen=True, slots=True)
class Template:
    """A run of words that most prompts' reasoning shares."""

    text: str
    share_of_prompts: float
    n_words: int


def measure_text(texts: Sequence[TextRow], *, seed: int = 0) -> dict[str, Estimate]:
    """Every text-only estimate by name; a value is None when the sample cannot give it, and `method` says why.

    Reasonings are the thinking texts; a log with hardly any thinking falls back to whole responses, and says so.
    """
    sample = _Sample.of(texts, seed)
    if not sample.texts:
        return {name: Estimate(None, None, unit, 0, 0, "no reasoning text in the log") for name, unit in UNITS.items()}
    found = _classifier(sample, seed) | _diversity(sample, seed) | _templates_share(sample) | _degeneration(sample)
    return {name: found[name] for name in UNITS}


def templates(texts: Sequence[TextRow], *, seed: int = 0, most: int = 5) -> list[Template]:
    """The longest runs of words found in the reasoning of at least TEMPLATE_SHARE of the prompts, longest first.

    Empty with fewer than MIN_PROMPTS_FOR_TEMPLATES prompts. Runs inside a longer listed one are not repeated.
    """
    sample = _Sample.of(texts, seed)
    if sample.n_prompts < MIN_PROMPTS_FOR_TEMPLATES:
        return []
    words, least = sample.words, TEMPLATE_SHARE * sample.n_prompts
    candidates: dict[tuple[int, ...], None] = {}
    for row, common in enumerate(words.common_ngrams(sample.prompt_R, TEMPLATE_WORDS, least)):
        candidates.update(dict.fromkeys(words.runs(row, common, TEMPLATE_WORDS)))
    chosen: list[tuple[tuple[int, ...], float]] = []
    for run in sorted(candidates, key=len, reverse=True)[:400]:
        if any(_contains(longer, run) for longer, _ in chosen):
            continue
        prompts = {int(sample.prompt_R[row]) for row in range(len(sample.texts)) if _contains(words.ids[row], run)}
        if len(prompts) >= least:
            chosen.append((run, len(prompts) / sample.n_prompts))
        if len(chosen) == most:
            break
    return [Template(words.spell(run), share, len(run)) for run, share in chosen]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The texts that are measured."""

    texts: list[str]
    prompt_R: np.ndarray
    words: Words
    note: str

    @classmethod
    def of(cls, texts: Sequence[TextRow], seed: int) -> _Sample:
        """Choose whole prompts at random until MAX_TEXTS texts; cut texts at MAX_CHARS."""
        thinking = [(row.prompt, row.thinking_text) for row in texts if row.thinking_text.strip()]
        what = "thinking"
        if len(thinking) < 0.1 * len(texts):
            thinking, what = (
                [(row.prompt, row.response_text) for row in texts if row.response_text.strip()],
                "responses",
            )
        prompts = np.array([prompt for prompt, _ in thinking], dtype=np.int64)
        kept = np.arange(len(thinking))
        if len(thinking) > MAX_TEXTS:
            shuffled = np.random.default_rng(seed).permutation(np.unique(prompts))
            rank = {int(prompt): position for position, prompt in enumerate(shuffled)}
            by_prompt = np.argsort([rank[int(prompt)] for prompt in prompts], kind="stable")
            kept = np.sort(by_prompt[:MAX_TEXTS])
        chosen = [thinking[index][1][:MAX_CHARS] for index in kept]
        note = f"; {what}, {len(chosen)} of {len(thinking)} texts"
        return cls(chosen, prompts[kept], Words.of([tokenize(text) for text in chosen]), note)

    @property
    def n_prompts(self) -> int:
        return len(np.unique(self.prompt_R))

    def estimate(self, name: str, value: float | None, interval: tuple[float, float] | None, method: str) -> Estimate:
        """An Estimate with this sample's sizes."""
        if value is not None and not np.isfinite(value):
            value, interval = None, None
        if interval is not None and UNITS[name] == "share" and not name.endswith("above_chance"):
            interval = (max(interval[0], 0.0), min(interval[1], 1.0))
        return Estimate(value, interval, UNITS[name], self.n_prompts, len(self.texts), method + self.note)

    def mean(self, name: str, value_R: np.ndarray, method: str, cluster_R: np.ndarray | None = None) -> Estimate:
        """Mean over prompts of row values (or of values of the given clusters), nan rows left out, with a jackknife interval."""
        clusters = self.prompt_R if cluster_R is None else cluster_R
        usable = np.isfinite(value_R)
        if not usable.any():
            return self.estimate(name, None, None, f"not enough texts for: {method}")
        replicates = cluster_means(value_R[usable], clusters[usable])
        return self.estimate(
            name, float(replicates[0]), jackknife_interval(replicates), f"{method}; jackknife over prompts"
        )


def _classifier(sample: _Sample, seed: int) -> dict[str, Estimate]:
    """Barber-Agakov bound I(X;Z) >= H(X) - CE of a held-out classifier, and its accuracy."""
    names = [name for name in UNITS if name.startswith("text_")]
    guesses = held_out_log_probs(sample.texts, sample.prompt_R, seed=seed)
    if guesses is None:
        reason = "insufficient: needs two prompts with two rollouts each"
        return {name: sample.estimate(name, None, None, reason) for name in names}
    rows, target_R, log_prob_RN, score_RN = guesses
    share_N = np.bincount(target_R) / len(target_R)
    entropy = float(-(share_N * np.log(share_N)).sum())
    at = np.arange(len(target_R))
    gain_R = log_prob_RN[at, target_R] + entropy
    # Ranked without the prior: naming the commonest prompt is not recognising it. Ties (no information) are split.
    best_RN = np.isclose(score_RN, score_RN.max(axis=1, keepdims=True), rtol=1e-9)
    hit_R = best_RN[at, target_R] / best_RN.sum(axis=1)
    chance = chance_level(share_N, 1)
    gains, hits = row_means(gain_R, target_R), row_means(hit_R, target_R)
    text = f"held-out naive Bayes on word and character n-grams, {len(share_N)} prompts, {len(rows)} texts"
    interval, accuracy = jackknife_interval(gains), share_interval(hits, len(rows))
    scaled = None if interval is None else (interval[0] / entropy, interval[1] / entropy)
    above = None if accuracy is None else (accuracy[0] - chance, accuracy[1] - chance)
    bound = f"lower bound: H(X) - held-out cross-entropy (Barber-Agakov), {text}"
    return {
        "text_mi_lower_nats": sample.estimate("text_mi_lower_nats", float(gains[0]), interval, bound),
        "text_normalised_mi": sample.estimate("text_normalised_mi", float(gains[0]) / entropy, scaled, bound),
        "text_prompt_entropy_nats": sample.estimate(
            "text_prompt_entropy_nats", entropy, (entropy, entropy), "of the prompts used"
        ),
        "text_retrieval_accuracy": sample.estimate("text_retrieval_accuracy", float(hits[0]), accuracy, text),
        "text_retrieval_chance": sample.estimate(
            "text_retrieval_chance", chance, (chance, chance), "Σ w² of the prompts used"
        ),
        "text_retrieval_above_chance": sample.estimate(
            "text_retrieval_above_chance", float(hits[0]) - chance, above, text
        ),
    }


def _diversity(sample: _Sample, seed: int) -> dict[str, Estimate]:
    """Proxies for H(Z|X): what the rollouts of one prompt share, against what texts of different prompts share."""
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(sample.prompt_R == prompt) for prompt in np.unique(sample.prompt_R)]
    repeated = [rows for rows in groups if len(rows) >= 2]
    sets = [frozenset(codes.tolist()) for codes in sample.words.ngrams(2)]
    pairs = [_some_pairs(rows, rng) for rows in repeated]
    within = np.array([np.mean([_jaccard(sets[a], sets[b]) for a, b in chosen]) for chosen in pairs])
    owner = np.array([sample.prompt_R[rows[0]] for rows in repeated])
    duplicates = np.array([1 - len({sample.texts[row] for row in rows}) / len(rows) for rows in repeated])
    found = {
        "within_prompt_jaccard": sample.mean(
            "within_prompt_jaccard", within, "mean Jaccard of bigrams within prompts", owner
        ),
        "within_prompt_diversity": sample.mean(
            "within_prompt_diversity", 1 - within, "proxy for H(Z|X): 1 - Jaccard of bigrams within prompts", owner
        ),
        "duplicate_share": sample.mean(
            "duplicate_share", duplicates, "rollouts that repeat another of their prompt", owner
        ),
        "cross_prompt_jaccard": _cross_jaccard(sample, sets, rng),
        "compression_ratio": _compression(sample, groups),
    }
    for n in (1, 2, 3):
        codes = sample.words.ngrams(n)
        ratio = np.array([_distinct([codes[row] for row in rows]) for rows in repeated])
        method = f"distinct {n}-grams over all {n}-grams of a prompt's rollouts"
        found[f"distinct_{n}"] = sample.mean(f"distinct_{n}", ratio, method, owner)
    return found


def _cross_jaccard(sample: _Sample, sets: list[frozenset[int]], rng: np.random.Generator) -> Estimate:
    """Mean Jaccard of random pairs of texts of different prompts; each pair counts for the first text's prompt."""
    first, second = rng.integers(len(sets), size=(2, _CROSS_PAIRS))
    apart = sample.prompt_R[first] != sample.prompt_R[second]
    first, second = first[apart], second[apart]
    values = np.array([_jaccard(sets[a], sets[b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)])
    method = "mean Jaccard of bigrams between prompts (random pairs)"
    return sample.mean("cross_prompt_jaccard", values, method, sample.prompt_R[first])


def _compression(sample: _Sample, groups: list[np.ndarray]) -> Estimate:
    """Deflated over raw size of all texts together; the jackknife leaves out one prompt's texts at a time (up to 64 prompts)."""
    blobs = [[sample.texts[row].encode("utf-8", "replace") for row in rows] for rows in groups]
    ratios = [_deflated(blob for group in blobs for blob in group)]
    if len(groups) <= 64:
        ratios += [_deflated(b for j, group in enumerate(blobs) if j != i for b in group) for i in range(len(groups))]
    interval = jackknife_interval(np.array(ratios)) if len(ratios) > 1 else None
    return sample.estimate(
        "compression_ratio", ratios[0], interval, "zlib size over raw size of all texts together; proxy"
    )


def _deflated(blobs: Iterable[bytes]) -> float:
    data = b"\n".join(blobs)
    return len(zlib.compress(data, 1)) / len(data) if data else float("nan")


def _templates_share(sample: _Sample) -> dict[str, Estimate]:
    """Share of words inside n-grams that most prompts' reasoning holds."""
    name = "cross_prompt_template_share"
    if sample.n_prompts < MIN_PROMPTS_FOR_TEMPLATES:
        return {name: sample.estimate(name, None, None, f"insufficient: needs {MIN_PROMPTS_FOR_TEMPLATES} prompts")}
    common = sample.words.common_ngrams(sample.prompt_R, TEMPLATE_WORDS, TEMPLATE_SHARE * sample.n_prompts)
    covered = np.array([sample.words.covered(row, flags, TEMPLATE_WORDS) for row, flags in enumerate(common)])
    method = f"words inside {TEMPLATE_WORDS}-grams found in at least {TEMPLATE_SHARE:.0%} of the prompts' reasoning"
    return {name: sample.mean(name, covered, method)}


def _degeneration(sample: _Sample) -> dict[str, Estimate]:
    """Loops and broken characters inside single texts."""
    repeats = np.array([1 - len(np.unique(c)) / len(c) if len(c) else np.nan for c in sample.words.ngrams(4)])
    garbage = np.array([np.mean([_is_garbage(char) for char in text]) for text in sample.texts])
    return {
        "repeated_4gram_share": sample.mean(
            "repeated_4gram_share", repeats, "4-grams that repeat within their own text"
        ),
        "garbage_char_share": sample.mean(
            "garbage_char_share", garbage, "replacement, surrogate and control characters"
        ),
    }


def _is_garbage(char: str) -> bool:
    return char == "\ufffd" or "\ud800" <= char <= "\udfff" or (char < " " and char not in "\t\n\r")


def _some_pairs(rows: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Up to _PAIRS_PER_PROMPT pairs of different rows: a random cycle through them, then nothing twice."""
    order = rng.permutation(rows).tolist()
    cycle = list(zip(order, [*order[1:], order[0]], strict=True)) if len(order) > 2 else [(order[0], order[1])]
    return cycle[:_PAIRS_PER_PROMPT]


def _jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    """|a ∩ b| / |a ∪ b|; nan when both texts are too short for the n-gram."""
    union = len(a | b)
    return len(a & b) / union if union else float("nan")


def _distinct(codes: list[np.ndarray]) -> float:
    together = np.concatenate(codes)
    return len(np.unique(together)) / len(together) if len(together) else float("nan")


def _contains(longer: Sequence[int], run: Sequence[int]) -> bool:
    """Whether `run` occurs inside `longer`."""
    haystack, needle = tuple(longer), tuple(run)
    first = needle[0]
    return any(
        haystack[i] == first and haystack[i : i + len(needle)] == needle for i in range(len(haystack) - len(needle) + 1)
    )
