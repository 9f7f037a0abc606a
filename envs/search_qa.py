"""SearchQA: answer a question by searching passages. Not for: how passages are found (`retrieval.py`)."""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from envs import fact_corpus
from envs.retrieval import BM25Retriever, Hit, HttpRetriever, Retriever
from envs.task_files import check_split, read_rows, split_of
from envs.text_env import Outcome, TextEnv

MAX_QUERY_CHARS = 500
MAX_PASSAGE_CHARS = 800
MAX_RESULTS_CHARS = 4000
_ACTION = re.compile(r"\s*(search|finish)\s*\[(.*)\]\s*", re.IGNORECASE | re.DOTALL)


class SearchQAEnv(TextEnv):
    """Search a corpus, hop from passage to passage, and finish with a short answer.

    ## Description
    By default two-hop questions over a small corpus of packaged facts, found by BM25. With files, any question set in
    HotpotQA's fields and any corpus; with a URL, a retrieval server.

    ## Action Space
    Text: `search[query]` or `finish[answer]`. Anything else is invalid and earns nothing.

    ## Observation Space
    Text: the question and, after a search, the passages found (at most 800 characters each, 4000 in all).

    ## Starting State
    The seed draws a question of the split; a checksum of the question decides its split, so splits are disjoint.

    ## Rewards
    1 for an answer equal to the right one after SQuAD's normalization (case, punctuation, articles, spaces). With
    `f1_threshold`, an unequal answer earns its token F1 if that reaches the threshold. Else 0. Unit: points.

    ## Episode End
    Termination: `finish` (`success` if the answer is equal). No truncation; the reference allows 10 actions. A failing
    server raises `ServiceError`: that ends a rollout as an error, it is neither observation nor reward.

    ## Arguments
    - `split`: `train` or `validation`.
    - `top_k`: passages per search (3).
    - `f1_threshold`: least token F1 that is paid, None for exact answers only (None; RAGEN 0.3).
    - `path`: JSON, JSON lines or Parquet with `question` and `answer` (or `ground_truth`); HotpotQA's `context` becomes
      the corpus unless `corpus` is given.
    - `corpus`: JSON lines with `contents` or `text`, one passage a line.
    - `url`: retrieval server, instead of a corpus.

    ## Version History
    - v0: server failures are errors and malformed actions earn nothing; RAGEN trains on the error text and pays for both.
    """

    name = "search_qa"
    summary = "answer two-hop questions by searching passages"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}}
    extra = "envs"
    data = "packaged facts, or HotpotQA files, or a retrieval server"

    def __init__(
        self,
        split: str = "train",
        top_k: int = 3,
        f1_threshold: float | None = None,
        path: str | None = None,
        corpus: str | None = None,
        url: str | None = None,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        if not 1 <= top_k <= 50:
            raise ValueError(f"top_k is {top_k}; it is 1 to 50")
        super().__init__(render_mode=render_mode)
        self.split, self.top_k, self.f1_threshold = split, top_k, f1_threshold
        rows = fact_corpus.questions() if path is None else _read_questions(path)
        self._rows = [row for row in rows if split_of(row[0]) == split]
        if not self._rows:
            raise ValueError(f"{path}: no question belongs to split {split!r}")
        self._retriever: Retriever = HttpRetriever(url) if url else shared_bm25(corpus, path)

    def _rules(self) -> str:
        return (
            "Answer the question with the help of a search engine. search[query] shows passages, finish[answer] ends with"
            " your answer, which should be as short as possible."
        )

    def _begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.question, self.answer, self._hops = self._rows[int(rng.integers(len(self._rows)))]
        self._shown, self._n_searches = "", 0

    def _apply(self, action: str) -> Outcome:
        match = _ACTION.fullmatch(action) if len(action) <= MAX_QUERY_CHARS else None
        argument = match[2].strip() if match else ""
        if match is None or not argument:
            self._shown = f"\nThat is no action: search[query] or finish[answer], at most {MAX_QUERY_CHARS} characters."
            return Outcome(valid=False)
        if match[1].lower() == "search":
            self._shown = _tell(argument, self._retriever.search(argument, self.top_k))
            self._n_searches += 1
            return Outcome(effective=True)
        equal = normalize(argument) == normalize(self.answer)
        f1 = token_f1(argument, self.answer)
        partial = f1 if self.f1_threshold is not None and f1 >= self.f1_threshold else 0.0
        self._shown = f"\nYou answered: {argument}"
        return Outcome(
            reward=1.0 if equal else partial, terminated=True, effective=True, success=equal, extra={"f1": f1}
        )

    def _observe(self) -> str:
        return f"Question: {self.question}{self._shown}"

    def random_action(self, rng: np.random.Generator) -> str:
        """Search a random word of the question, or finish with a random word of what is shown; evenly."""
        words = re.findall(r"\w+", self._observe() if rng.random() < 0.5 else self.question)
        return f"{'search' if rng.random() < 0.5 else 'finish'}[{words[int(rng.integers(len(words)))]}]"

    def solve(self) -> list[str] | None:
        """A search per hop that is not yet done, then the answer."""
        return [*(f"search[{query}]" for query in self._hops[self._n_searches :]), f"finish[{self.answer}]"]


def normalize(text: str) -> str:
    """SQuAD's normalization: lower case, no punctuation, no articles, single spaces."""
    text = "".join(" " if c in string.punctuation else c for c in text.lower())
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


def token_f1(answer: str, gold: str) -> float:
    """Token F1 of normalized texts, 0..1 (SQuAD evaluation); yes, no and noanswer only match themselves."""
    ours, theirs = normalize(answer).split(), normalize(gold).split()
    if any(words in (["yes"], ["no"], ["noanswer"]) for words in (ours, theirs)):
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def _tell(query: str, hits: list[Hit]) -> str:
    text = f"\nResults for: {query}"
    for i, hit in enumerate(hits, start=1):
        text += f"\n[Document {i}] (ID: {hit.id}, Score: {hit.score:.3f})\n{hit.content[:MAX_PASSAGE_CHARS]}"
    return text[:MAX_RESULTS_CHARS] if hits else f"{text}\nNothing found."


@lru_cache(maxsize=4)  # one index per process, however many environments a batch has
def shared_bm25(corpus: str | None, path: str | None) -> BM25Retriever:
    """BM25 over the passages of `corpus`, else over the contexts of the questions in `path`, else over the packaged facts."""
    if corpus is not None:
        rows = read_rows(corpus)
        return BM25Retriever([str(row.get("contents", row.get("text", ""))) for row in rows])
    if path is None:
        return BM25Retriever(fact_corpus.passages())
    texts = dict.fromkeys(text for row in read_rows(path) for text in _context_of(row))
    if not texts:
        raise ValueError(f"{path}: no row has a HotpotQA context; give corpus=FILE or url=SERVER")
    return BM25Retriever(list(texts))


def _context_of(row: dict[str, Any]) -> list[str]:
    """HotpotQA's paragraphs as "title: sentences", from the original lists or the Hugging Face columns."""
    context = row.get("context") or []
    pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context
    return [f"{title}: {''.join(sentences)}" for title, sentences in pairs]


@lru_cache(maxsize=4)
def _read_questions(path: str) -> tuple[fact_corpus.Question, ...]:
    questions = []
    for row in read_rows(path):
        answer = row.get("answer", row.get("ground_truth"))
        if "question" not in row or answer is None:
            raise ValueError(f"{path}: a row has {', '.join(row)}; expected question and answer (or ground_truth)")
        questions.append((row["question"], str(answer[0] if isinstance(answer, list) else answer), ()))
    return tuple(questions)
