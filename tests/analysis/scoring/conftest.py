"""The oracle's tiny Qwen2 and its matrix, as RAGEN-2's detector scored it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ORACLE = Path(__file__).parent.parent / "oracle"


@pytest.fixture(scope="session")
def oracle() -> dict[str, Any]:
    return json.loads((ORACLE / "cross_scoring.json").read_text())


@pytest.fixture(scope="session")
def oracle_model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(ORACLE / "model").eval()


def one_pair_at_a_time(model: Any, prompts, reasonings, temperature: float = 1.0) -> np.ndarray:
    """The ten-line loop that CrossScorer must equal."""
    scores = np.zeros((len(reasonings), len(prompts)))
    with torch.no_grad():
        for r, reasoning in enumerate(reasonings):
            for j, prompt in enumerate(prompts):
                logits = model(input_ids=torch.tensor([[*prompt, *reasoning]])).logits[0].float() / temperature
                log_probs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
                scores[r, j] = log_probs.gather(1, torch.tensor(reasoning)[:, None]).double().sum()
    return scores
