"""Evaluation through a chat server: a real HTTP server on this machine that speaks chat completions."""

from contextlib import contextmanager

import pytest

from envs import registry
from ragen_diag.errors import ModelError
from ragen_diag.rollout_log import read_steps
from tests.json_server import JsonHandler, address, serving
from trainer import endpoint
from trainer.evaluate import evaluate

ENV = "frozen_lake:no_slip"


@contextmanager
def chat_server(answer, *, models=("toy",)):
    """Serve `answer(body) -> (status, message, finish_reason)`; yields the URL and the list of request bodies."""
    seen = []

    class Handler(JsonHandler):
        def do_GET(self):
            self.reply(200, {"data": [{"id": name} for name in models]})

        def do_POST(self):
            body = self.body()
            seen.append((self.path, self.headers.get("Authorization"), body))
            status, message, reason = answer(body)
            self.reply(status, {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": reason}]})

    with serving(Handler) as server:
        yield f"{address(server)}/v1", seen


def always(text, reason="stop", **extra):
    return lambda body: (200, {"content": text, **extra}, reason)


def by_hand(seeds, action, n_actions):
    """Success of repeating one action, played directly."""
    game, solved = registry.make(ENV), []
    for seed in seeds:
        game.reset(seed=seed, options={"rollout_seed": 0})
        for _ in range(n_actions):
            *_, terminated, _, info = game.step(action)
            if terminated:
                break
        solved.append(bool(info["success"]))
    return solved


def test_it_plays_what_the_server_says_and_logs_it(tmp_path):
    with chat_server(always("<think>go right</think><answer>Right || Right</answer>")) as (url, seen):
        result = evaluate(url, env=ENV, n_seeds=12, run_dir=tmp_path / "log", overrides=["rollout.max_turns=3"])
    assert result.successes_SK[:, 0].tolist() == by_hand(range(123, 135), "Right", 6)
    assert result.model.startswith("toy at http://127.0.0.1")
    path, _, body = seen[0]
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("toy", 400, 1.0)
    longest = max((body for _, _, body in seen), key=lambda body: len(body["messages"]))["messages"]
    assert [m["role"] for m in longest] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert longest[2]["content"] == "<think>go right</think><answer>Right || Right</answer>"
    assert longest[3]["content"].startswith("Reward: 0\nTurn 2, ")
    rows = [row for batch in read_steps(tmp_path / "log", split="val") for row in batch.to_pylist()]
    assert {row["thinking_text"] for row in rows} == {"go right"}
    assert {row["response_text"] for row in rows} == {"go right</think><answer>Right || Right</answer>"}
    assert all(row["prompt_ids"] is row["logprobs"] is row["response_tokens"] is None for row in rows)
    assert all("system: You are a helpful assistant." in row["prompt_text"] for row in rows)
    assert len({row["prompt_id"] for row in rows}) == len({row["seed"] for row in rows})


def test_reasoning_apart_from_the_reply_counts_as_thinking(tmp_path):
    with chat_server(always("<answer>Up</answer>", reasoning_content="why not")) as (url, _):
        evaluate(url, env=ENV, n_seeds=2, run_dir=tmp_path / "log")
    rows = [row for batch in read_steps(tmp_path / "log", split="val") for row in batch.to_pylist()]
    assert {row["thinking_text"] for row in rows} == {"why not"}
    assert all(row["format_valid"] and row["thinking_closed"] for row in rows)


def test_cut_replies_and_missing_tags_are_marked(tmp_path):
    with chat_server(always("I would say Up", reason="length")) as (url, _):
        result = evaluate(url, env=ENV, n_seeds=1, run_dir=tmp_path / "log", overrides=["rollout.max_turns=2"])
    rows = [row for batch in read_steps(tmp_path / "log", split="val") for row in batch.to_pylist()]
    assert all(row["response_truncated"] and not row["format_valid"] for row in rows)
    assert result.returns_SK.tolist() == [[pytest.approx(-0.2)]]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(endpoint.time, "sleep", lambda _: None)


def test_overload_is_waited_out(impatient):
    n_asked = 0

    def busy_first(body):
        nonlocal n_asked
        n_asked += 1
        return (429 if n_asked < 3 else 200, {"content": "<think></think><answer>Up</answer>"}, "stop")

    with chat_server(busy_first) as (url, seen):
        result = evaluate(url, env=ENV, n_seeds=1, overrides=["rollout.max_turns=1"])
    assert (result.n_failed, len(seen)) == (0, 3)


def test_a_request_that_keeps_failing_ends_one_rollout_only(impatient):
    unlucky = []

    def moody(body):
        if not unlucky:
            unlucky.append(body["messages"][1]["content"])
        broken = body["messages"][1]["content"] == unlucky[0]
        return (500 if broken else 200, {"content": "<think></think><answer>Up</answer>"}, "stop")

    with chat_server(moody) as (url, _):
        result = evaluate(url, env=ENV, n_seeds=4)
    assert (result.n_failed, len(result.seeds)) == (1, 3)


def test_several_rollouts_a_seed_give_pass_at_k(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    actions = ["Left", "Right", "Up", "Down"]

    def by_seed(body):
        return 200, {"content": f"<think></think><answer>{actions[body['seed'] % 4]}</answer>"}, "stop"

    with chat_server(by_seed) as (url, seen):
        result = evaluate(url, env=ENV, n_seeds=4, n_rollouts=3)
    assert result.successes_SK.shape == (4, 3)
    assert len({body["seed"] for _, _, body in seen}) > 6
    assert {key for _, key, _ in seen} == {"Bearer secret"}
    assert "pass@2" in result.summary() and "pass@3" in result.summary()


def test_which_model_is_meant():
    with chat_server(always(""), models=("a", "b")) as (url, _):
        with pytest.raises(ModelError, match=r"serves a, b; name one with --served-model"):
            evaluate(url, env=ENV, n_seeds=1)
        evaluate(url, env=ENV, n_seeds=1, served_model="b", overrides=["rollout.max_turns=1"])


def test_no_server_there(impatient):
    with pytest.raises(ModelError, match=r"http://127.0.0.1:9/v1/models: .*refused"):
        evaluate("http://127.0.0.1:9", env=ENV, n_seeds=1)
