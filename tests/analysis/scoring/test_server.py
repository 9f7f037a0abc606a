"""A real HTTP server that speaks the protocol on the oracle model: same matrix as CrossScorer, errors that say what to do."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from analysis.scoring.server import ServerScorer
from ragen_diag.errors import ModelError
from tests.json_server import JsonHandler, address, serving


class Handler(JsonHandler):
    def do_GET(self):
        self.reply(200, {"data": [{"id": "tiny", "max_model_len": 512}, {"id": "other"}]})

    def do_POST(self):
        body = self.body()
        server = self.server
        server.requests.append((self.path, body, self.headers.get("Authorization")))
        if server.failures:
            server.failures -= 1
            return self.reply(503, {"error": "busy"})
        if self.path == "/tokenize":
            return self.reply(
                200, {"tokens": [ord(char) % 384 for char in body["prompt"]], "count": len(body["prompt"])}
            )
        if body["model"] != "tiny":
            return self.reply(404, {"error": "no such model"})
        choices = [
            {"index": i, "text": "", "prompt_logprobs": self.prompt_logprobs(ids)}
            for i, ids in enumerate(body["prompt"])
        ]
        return self.reply(200, {"choices": choices[::-1]})

    def prompt_logprobs(self, ids):
        if self.server.silent:
            return None
        with torch.no_grad(), self.server.lock:
            log_probs = self.server.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        rest = [{str(t): {"logprob": float(row[t]), "rank": 1}} for t, row in zip(ids[1:], log_probs[:-1], strict=True)]
        return [None, *rest]


@pytest.fixture
def server(oracle_model):
    state = {"model": oracle_model, "requests": [], "failures": 0, "silent": False, "lock": threading.Lock()}
    with serving(Handler, **state) as httpd:
        yield httpd


def url(httpd) -> str:
    return f"{address(httpd)}/v1"


def test_same_matrix_as_the_model(server, oracle):
    calls = []
    scorer = ServerScorer(url(server), batch=7, api_key="k")
    scores = scorer.score(
        oracle["prompt_ids"], oracle["reasoning_ids"], progress=lambda done, total: calls.append((done, total))
    )
    np.testing.assert_allclose(scores, oracle["logprob_sum"], atol=2e-3)
    assert (scorer.name, scorer.longest) == ("tiny", 512)
    assert calls[-1] == (144, 144)
    asked = sum(len(body["prompt"]) for path, body, _ in server.requests if path == "/v1/completions")
    assert asked == 24 * 5  # two of the six prompts are equal: asked once
    assert {key for _, _, key in server.requests} == {"Bearer k"}


def test_wanted_pairs_tokenizer_and_retries(server, oracle):
    scorer = ServerScorer(url(server))
    server.failures = 2
    assert scorer.tokenize("ab", special=True) == [97, 98]
    wanted = np.zeros((24, 6), bool)
    wanted[3, 2] = True
    scores = scorer.score(oracle["prompt_ids"], oracle["reasoning_ids"], pairs_RN=wanted)
    assert scores[3, 2] == pytest.approx(oracle["logprob_sum"][3][2], abs=2e-3)
    assert np.isnan(scores).sum() == 24 * 6 - 1


def test_errors_say_what_to_do(server):
    with pytest.raises(ModelError, match="no model 'big'; it serves tiny, other"):
        ServerScorer(url(server), model="big")
    with pytest.raises(ModelError, match="404"):
        ServerScorer(url(server), model="other").score([[1, 2]], [[3]])
    server.silent = True
    with pytest.raises(ModelError, match="lacks prompt_logprobs"):
        ServerScorer(url(server)).score([[1, 2]], [[3]])
    with pytest.raises(ModelError, match="Is the server running"):
        ServerScorer("http://127.0.0.1:9")
