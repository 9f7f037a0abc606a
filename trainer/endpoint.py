"""Playing rollouts through an OpenAI-compatible chat server, for evaluation. Messages instead of token ids; nothing here is trained.

A request that keeps failing ends its own rollout as an error and no other's. Reasoning may come inside the reply (`<think>`) or apart
from it (`reasoning_content`, as reasoning models are served); both count as thinking.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.errors import ServiceError
from ragen_diag.config import RolloutConfig
from ragen_diag.errors import ModelError
from trainer.agent_loop import AgentLoop, Episode
from trainer.parsing import parse_reply
from trainer.prompts import CLOSE_THINK, OPEN_ANSWER, OPEN_THINK
from trainer.sampling import Sample, SamplingSettings
from trainer.trajectory import Turn

Messages = list[dict[str, str]]
TRIES = 5
RETRIED = {408, 409, 429, 500, 502, 503, 504}


@dataclass(slots=True)
class ChatSample(Sample):
    """One reply as text; a chat server tells no token ids."""

    content: str = ""
    """The reply, as it goes back into the conversation."""
    reasoning: str | None = None
    """Reasoning that the server returned apart from the reply."""
    error: str | None = None


class ChatServer:
    """Draws replies from a served model.

    url: the API root, with or without /v1. model: None takes the only model that is served. api_key: None takes the
    environment variable OPENAI_API_KEY, if set. Raises ModelError when the server cannot be reached or has no such model.
    """

    def __init__(
        self,
        url: str,
        settings: SamplingSettings,
        *,
        model: str | None = None,
        threads: int = 16,
        timeout_s: float = 600.0,
        wait_s: float = 1.0,
        api_key: str | None = None,
    ) -> None:
        self.root = url.rstrip("/").removesuffix("/v1")
        self.settings, self.threads, self.timeout_s, self.wait_s = settings, threads, timeout_s, wait_s
        self.api_key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY")
        self.model = model if model is not None else self._only_model()

    def begin(self) -> None:
        """Nothing is kept between calls."""

    def sample(
        self, rows: Sequence[int], contexts: Sequence[Messages], streams: Sequence[np.random.Generator]
    ) -> list[Sample]:
        """One reply for each conversation; the seed of each request comes from the rollout's own stream."""
        seeds = [int(stream.integers(2**31)) for stream in streams]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(self._reply, contexts, seeds))

    def _reply(self, messages: Messages, seed: int) -> Sample:
        body = {"model": self.model, "messages": messages, "max_tokens": self.settings.max_tokens, "seed": seed}
        body |= {"temperature": self.settings.temperature, "top_p": self.settings.top_p}
        try:
            choice = self._call("/v1/chat/completions", body)["choices"][0]
        except ModelError as error:
            return ChatSample(error=str(error))
        message = choice["message"]
        return ChatSample(
            cut=choice.get("finish_reason") == "length",
            content=message.get("content") or "",
            reasoning=message.get("reasoning_content") or message.get("reasoning"),
        )

    def _only_model(self) -> str:
        served = [str(entry["id"]) for entry in self._call("/v1/models")["data"]]
        if len(served) != 1:
            raise ModelError(f"{self.root} serves {', '.join(served) or 'no model'}; name one with --served-model")
        return served[0]

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; overload, server errors and broken connections are tried again with growing waits."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(self.root + path, None if body is None else json.dumps(body).encode(), headers)
        for attempt in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    problem = f"HTTP {error.code}: {error.read().decode(errors='replace')[:200]}"
                if error.code not in RETRIED:
                    break
            except (OSError, ValueError) as error:
                problem = str(error)
            if attempt < TRIES - 1:
                time.sleep(self.wait_s * 2**attempt)
        raise ModelError(f"{self.root}{path}: {problem}")


class ChatAgentLoop(AgentLoop):
    """Plays episodes as conversations. The reply has to bring its own tags: nothing can be forced upon a chat server."""

    def __init__(self, config: RolloutConfig, server: ChatServer) -> None:
        self.config, self.sampler = config, server  # type: ignore[assignment]

    def _context(self, episode: Episode) -> Messages:  # type: ignore[override]
        turns, config = episode.trajectory.turns, self.config
        messages = [{"role": "system", "content": self._system_text(episode)}]
        if config.context == "single_turn":
            return [*messages, {"role": "user", "content": self._single_turn_text(episode)}]
        first = max(0, len(turns) - config.window + 1) if config.context == "window" else 0
        for index in range(first, len(turns)):
            sample = turns[index].sample
            assert isinstance(sample, ChatSample)
            messages.append({"role": "user", "content": self._user_text(episode, index, alone=index == first)})
            messages.append({"role": "assistant", "content": sample.content})
        last = self._user_text(episode, len(turns), alone=first == len(turns))
        return [*messages, {"role": "user", "content": last}]

    def _act(self, episode: Episode, context: Messages, sample: Sample) -> None:  # type: ignore[override]
        if isinstance(sample, ChatSample) and sample.error is not None:
            return episode.fail(ServiceError(sample.error))
        return super()._act(episode, context, sample)  # type: ignore[arg-type]

    def _turn(self, episode: Episode, context: Messages, sample: Sample) -> Turn:  # type: ignore[override]
        assert isinstance(sample, ChatSample)
        text = reply_text(sample, think=self.config.think)
        reply = parse_reply(
            text, think=self.config.think, separator=self.config.separator, max_actions=self.config.max_actions_per_turn
        )
        prompt = "\n".join(f"{message['role']}: {message['content']}" for message in context)
        return Turn(episode.state, [], sample, text, reply, scale=self.config.task_reward_scale, prompt_text=prompt)


def reply_text(sample: ChatSample, *, think: bool) -> str:
    """The reply as it would follow the forced opening tag of a local policy, which is how replies are parsed and logged."""
    content = sample.content.lstrip()
    if not think:
        return content.removeprefix(OPEN_ANSWER)
    if sample.reasoning is not None:
        return f"{sample.reasoning}{CLOSE_THINK}{content}"
    return content.removeprefix(OPEN_THINK)
