"""Texts as word ids and n-gram codes, so that n-gram statistics are array operations. Counts and covers; judges nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Words of letters and digits; scripts written without spaces fall apart into single characters; marks stand alone.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+|[^\w\s]|_")
_BASE = np.uint64(0x9E3779B97F4A7C15)


def tokenize(text: str) -> list[str]:
    """Lower-cased words and marks."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True)
class Words:
    """Tokenised texts that share one vocabulary."""

    ids: list[tuple[int, ...]]
    vocabulary: list[str]

    @classmethod
    def of(cls, tokens: Sequence[Sequence[str]]) -> Words:
        """Number the words in order of first appearance."""
        index: dict[str, int] = {}
        ids = [tuple(index.setdefault(word, len(index)) for word in text) for text in tokens]
        return cls(ids, list(index))

    def ngrams(self, n: int) -> list[np.ndarray]:
        """uint64 code of the n-gram at each position of each text (length - n + 1 of them, none for shorter texts)."""
        result = []
        for text in self.ids:
            ids = np.array(text, dtype=np.uint64) + np.uint64(1)
            count = max(len(ids) - n + 1, 0)
            code = np.zeros(count, dtype=np.uint64)
            for offset in range(n):
                code = code * _BASE + ids[offset : offset + count]
            result.append(code)
        return result

    def common_ngrams(self, prompt_R: np.ndarray, n: int, least: float) -> list[np.ndarray]:
        """For each text, a bool per n-gram position: the n-gram occurs in the texts of at least `least` prompts."""
        codes = self.ngrams(n)
        flat = np.concatenate(codes) if codes else np.zeros(0, dtype=np.uint64)
        owner = np.repeat(prompt_R, [len(code) for code in codes])
        _, code_index = np.unique(flat, return_inverse=True)
        _, owner_index = np.unique(owner, return_inverse=True)
        if not len(flat):
            return [np.zeros(0, dtype=bool) for _ in codes]
        pairs = np.unique(code_index.astype(np.int64) * (int(owner_index.max()) + 1) + owner_index)
        prompts_of_code = np.bincount(pairs // (int(owner_index.max()) + 1))
        flags = prompts_of_code[code_index] >= least
        return np.split(flags, np.cumsum([len(code) for code in codes])[:-1])

    def covered(self, row: int, flags: np.ndarray, n: int) -> float:
        """Share of a text's words inside a flagged n-gram; nan for an empty text."""
        length = len(self.ids[row])
        if not length:
            return float("nan")
        inside = np.zeros(length, dtype=bool)
        for offset in range(n):
            inside[offset : offset + len(flags)] |= flags
        return float(inside.mean())

    def runs(self, row: int, flags: np.ndarray, n: int) -> list[tuple[int, ...]]:
        """Maximal stretches of words whose n-grams are all flagged."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
        return [self.ids[row][start : stop + n - 1] for start, stop in zip(edges[::2], edges[1::2], strict=True)]

    def spell(self, run: Sequence[int]) -> str:
        """Words as readable text."""
        return re.sub(r" (?=[,.;:!?)\]])", "", " ".join(self.vocabulary[word] for word in run))
