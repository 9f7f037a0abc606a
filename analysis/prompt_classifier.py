"""Guess the prompt from the reasoning's text, held out: log q(prompt | reasoning) for texts the model did not see."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

_FOLDS = 4
_SHARPNESS = np.concatenate([[0.0], np.geomspace(0.002, 2.0, 31)])
_ALPHAS = (0.02, 0.2)
_MAX_FEATURES = 20_000


def held_out_log_probs(
    texts: list[str], prompt_R: np.ndarray, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return (rows used, target class of each, log q over classes (rows, N), the scores behind it (rows, N)) or None.

    The scores are log-likelihoods without prior or flattening: they still rank the prompts where log q is flat, so that a
    classifier that learned nothing can be seen to guess. None with fewer than two usable prompts.

    Prompts with one text are left out: a held-out text needs a sibling to learn from. A text and its exact copies under the same
    prompt may be in different folds: repeating oneself is input dependence, not leakage. Naive Bayes is over-confident, so its
    scores are sharpened or flattened by one factor per fold, chosen on the other folds; factor 0 is the prior, so texts without
    information give a bound near 0 and not far below it.
    """
    prompts, class_R, counts = np.unique(prompt_R, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[class_R] >= 2)
    prompts, target_R = np.unique(prompt_R[rows], return_inverse=True)
    if len(prompts) < 2:
        return None
    features = _features([texts[row] for row in rows])
    if features is None:
        return None
    fold_R = _folds(target_R, np.random.default_rng(seed))
    candidates = [_scores(features, target_R, fold_R, alpha) for alpha in _ALPHAS]
    # The prompts' shares are known, not learned: a factor of 0 gives a bound of exactly 0.
    log_prior_N = np.log(np.bincount(target_R) / len(target_R))
    log_prob_RN, chosen_RN = np.empty((2, len(target_R), len(prompts)))
    at = np.arange(len(target_R))
    for fold in range(fold_R.max() + 1):
        inside, outside = fold_R == fold, fold_R != fold
        best = (-np.inf, candidates[0], 0.0)
        for score_RN in candidates:
            for sharpness in _SHARPNESS:
                fit = _log_softmax(sharpness * score_RN[outside] + log_prior_N)
                quality = float(fit[at[: len(fit)], target_R[outside]].mean())
                if quality > best[0]:
                    best = (quality, score_RN, float(sharpness))
        chosen_RN[inside] = best[1][inside]
        log_prob_RN[inside] = _log_softmax(best[2] * chosen_RN[inside] + log_prior_N)
    return rows, target_R, log_prob_RN, chosen_RN


def _features(texts: list[str]) -> sparse.csr_matrix | None:
    """Word 1-2-grams and character 3-grams, clipped counts; None when no text holds any."""
    blocks = []
    for options in (
        {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)[^\s\w]|\w+"},
        {"analyzer": "char_wb", "ngram_range": (3, 3)},
    ):
        try:
            counts = CountVectorizer(max_features=_MAX_FEATURES, dtype=np.float64, **options).fit_transform(texts)
        except ValueError:  # scikit-learn's "empty vocabulary": texts too short for this kind of n-gram
            continue
        counts.data = np.minimum(counts.data, 3.0)
        blocks.append(counts)
    return sparse.hstack(blocks).tocsr() if blocks else None


def _folds(target_R: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fold of each row: a prompt's rows go round the folds in random order, so every fold's prompts are in the others too."""
    folds = min(_FOLDS, int(np.bincount(target_R).max()))
    fold_R = np.empty(len(target_R), dtype=np.int64)
    for target in range(target_R.max() + 1):
        rows = rng.permutation(np.flatnonzero(target_R == target))
        fold_R[rows] = (np.arange(len(rows)) + rng.integers(folds)) % folds
    return fold_R


def _scores(features: sparse.csr_matrix, target_R: np.ndarray, fold_R: np.ndarray, alpha: float) -> np.ndarray:
    """Held-out log-likelihood of each text under each prompt's word distribution, (R, N)."""
    n_classes = int(target_R.max()) + 1
    score_RN = np.empty((len(target_R), n_classes))
    for fold in range(fold_R.max() + 1):
        seen = fold_R != fold
        model = MultinomialNB(alpha=alpha, fit_prior=False).fit(features[seen], target_R[seen])
        likelihood = features[~seen] @ model.feature_log_prob_.T
        score_RN[np.ix_(~seen, model.classes_)] = likelihood
    return score_RN


def _log_softmax(values_RN: np.ndarray) -> np.ndarray:
    shifted = values_RN - values_RN.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
