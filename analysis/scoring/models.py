"""Scorers that read text: a transformers model with its own tokenizer, or a server. One question: what does this name load?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ragen_diag.errors import MissingExtra, ModelError


class TextScorer(Protocol):
    """Tokenises and scores; `name` goes into CrossScores.scorer."""

    name: str
    longest: int | None
    """Most tokens of a prompt and a reasoning together; None = no limit known."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids; special: with the tokens a document starts with."""
        ...

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        reasonings: Sequence[Sequence[int]],
        *,
        pairs_RN: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Float64 (R, N) log-prob sums in nats, nan where pairs_RN is false."""
        ...


class ModelScorer:
    """A causal LM from a folder (also a PEFT adapter's) or the Hugging Face hub."""

    def __init__(
        self, path: str, *, name: str | None = None, device: str | None = None, token_budget: int = 8192
    ) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise MissingExtra.of("transformers", "train", "Scoring with a language model") from error
        from analysis.scoring.cross_scorer import CrossScorer

        self.name = name or path
        try:
            model = AutoModelForCausalLM.from_pretrained(path)
            self.tokenizer: Any = _load_tokenizer(path)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"{path}: cannot be loaded as a causal language model with its tokenizer ({reason})"
            ) from error
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._scorer = CrossScorer(model, device=device, token_budget=token_budget)
        self.longest = getattr(self._scorer.lm.config, "max_position_embeddings", None)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text."""
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def with_temperature(self, temperature: float) -> ModelScorer:
        """Score the tempered distribution from now on."""
        self._scorer.lm.temperature = temperature
        return self

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        reasonings: Sequence[Sequence[int]],
        *,
        pairs_RN: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """See CrossScorer.score."""
        return self._scorer.score(prompts, reasonings, pairs_RN=pairs_RN, progress=progress)


def _load_tokenizer(path: str) -> Any:
    """The tokenizer saved beside a model.

    AutoTokenizer picks a class by the model's type and may then ignore a tokenizer.json of another kind, encoding every text as
    nothing; the generic class reads such a file as it is. Raises ValueError when neither encodes text.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    for kind in (AutoTokenizer, PreTrainedTokenizerFast):
        tokenizer = kind.from_pretrained(path)
        if tokenizer("a b", add_special_tokens=False)["input_ids"]:
            return tokenizer
    raise ValueError("its tokenizer encodes text as no tokens")


def load_scorer(spec: str) -> TextScorer:
    """Load what the user named: the URL of an OpenAI-compatible server (`URL#model` picks one), a model folder, or a hub name.

    Raises ModelError when it cannot be loaded or reached, MissingExtra without transformers.
    """
    if spec.startswith(("http://", "https://")):
        from analysis.scoring.server import ServerScorer

        url, _, model = spec.partition("#")
        return ServerScorer(url, model=model or None)
    folder = Path(spec)
    return ModelScorer(str(folder / "model") if (folder / "model" / "config.json").exists() else spec)
