"""Scoring through an OpenAI-compatible server that returns the log-probs of prompt tokens (vLLM's `prompt_logprobs`).

Each pair is one completion request whose prompt is context + reasoning as token ids; no text is generated beyond one token. The
server's log-probs are untempered, so whatever it serves is a foreign critic here: lower end of the bracket only.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ragen_diag.errors import ModelError

_TRIES = 4


class ServerScorer:
    """Scores token ids with a served model.

    url: the API root, with or without /v1. model: None takes the first the server lists. batch: prompts per request.
    api_key: None takes the environment variable OPENAI_API_KEY, if set.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        batch: int = 16,
        threads: int = 8,
        timeout_s: float = 120.0,
        api_key: str | None = None,
    ) -> None:
        self.root = url.rstrip("/").removesuffix("/v1")
        self.batch, self.threads, self.timeout_s = batch, threads, timeout_s
        self.api_key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY")
        served = self._call("/v1/models")["data"]
        if not served:
            raise ModelError(f"{self.root}: the server lists no model")
        chosen = next((entry for entry in served if model in (None, entry["id"])), None)
        if chosen is None:
            raise ModelError(f"{self.root}: no model {model!r}; it serves {', '.join(entry['id'] for entry in served)}")
        self.name: str = chosen["id"]
        self.longest: int | None = chosen.get("max_model_len")

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids by the server's own tokenizer (POST /tokenize)."""
        body = {"model": self.name, "prompt": text, "add_special_tokens": special}
        return [int(token) for token in self._call("/tokenize", body)["tokens"]]

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        reasonings: Sequence[Sequence[int]],
        *,
        pairs_RN: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Float64 (R, N) log-prob sums in nats, nan where pairs_RN is false; equal pairs are asked for once.

        Raises ModelError when the server cannot be reached or returns no prompt log-probs.
        """
        shape = (len(reasonings), len(prompts))
        wanted_RN = np.ones(shape, bool) if pairs_RN is None else np.asarray(pairs_RN, bool)
        cells: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
        for row, column in np.argwhere(wanted_RN).tolist():
            cells.setdefault((tuple(prompts[column]), tuple(reasonings[row])), []).append((row, column))
        pairs = sorted(cells)  # neighbours share their prompt, which a server with prefix caching rewards
        batches = [pairs[start : start + self.batch] for start in range(0, len(pairs), self.batch)]
        scores, done, total = np.full(shape, np.nan), 0, int(wanted_RN.sum())
        with ThreadPoolExecutor(self.threads) as pool:
            for batch, sums in zip(batches, pool.map(self._sums, batches), strict=True):
                for pair, value in zip(batch, sums, strict=True):
                    for cell in cells[pair]:
                        scores[cell] = value
                    done += len(cells[pair])
                if progress is not None:
                    progress(done, total)
        return scores

    def _sums(self, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[float]:
        """Σ log p of each pair's reasoning."""
        body = {
            "model": self.name,
            "prompt": [[*prompt, *reasoning] for prompt, reasoning in pairs],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        choices = sorted(self._call("/v1/completions", body)["choices"], key=lambda choice: choice["index"])
        sums = []
        for (prompt, reasoning), choice in zip(pairs, choices, strict=True):
            logprobs = choice.get("prompt_logprobs")
            if not logprobs or len(logprobs) != len(prompt) + len(reasoning):
                raise ModelError(
                    f"{self.root}: the answer lacks prompt_logprobs of some tokens. Use a server that returns them (vLLM does)."
                )
            entries = logprobs[len(prompt) :]
            sums.append(
                sum(float(entry[str(token)]["logprob"]) for token, entry in zip(reasoning, entries, strict=True))
            )
        return sums

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; server errors and broken connections are tried again, other refusals are not."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(_TRIES):
            try:
                request = urllib.request.Request(self.root + path, data=data, headers=headers)
                with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    detail = error.read(400).decode("utf-8", "replace")
                if error.code < 500 and error.code != 429:
                    raise ModelError(f"{self.root}{path}: {error.code} {error.reason}: {detail}") from error
                failure = f"{error.code} {error.reason}"
            except (OSError, ValueError) as error:
                failure = str(error)
            time.sleep(0.2 * 2**attempt if attempt < _TRIES - 1 else 0)
        raise ModelError(
            f"{self.root}{path}: no usable answer after {_TRIES} tries ({failure}). Is the server running?"
        )
