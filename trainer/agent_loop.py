"""Playing rollouts:

prompt, sample, parse, act, turn by turn, for a whole batch at once. Not for groups and seeds (`rollout.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.errors import ServiceError
from envs.text_env import TextEnv
from ragen_diag.config import RolloutConfig
from ragen_diag.errors import ConfigError
from trainer.parsing import parse_reply, thinking_span
from trainer.prompts import ChatFormat, history_text, system_text, turn_text
from trainer.sampling import Sample, Sampler
from trainer.trajectory import Trajectory, Turn, decode


@dataclass(slots=True)
class Episode:
    """A rollout being played."""

    trajectory: Trajectory
    env: TextEnv
    rollout_seed: int
    stream: np.random.Generator
    """Its own random numbers."""
    state: str = ""
    actions_left: int = 0
    over: bool = False

    def fail(self, error: ServiceError) -> None:
        """End this rollout, and no other, as an error: without the observation or the reward that nobody measured."""
        self.trajectory.error, self.over = str(error), True


class AgentLoop:
    """Plays episodes with one sampler and one chat format."""

    def __init__(self, config: RolloutConfig, sampler: Sampler, chat: ChatFormat, end_ids: Sequence[int]) -> None:
        self.config, self.sampler, self.chat, self.end_ids = config, sampler, chat, frozenset(end_ids)

    def play(self, episodes: Sequence[Episode]) -> list[Trajectory]:
        """Play all episodes to their end; trajectories in the order given."""
        with ThreadPoolExecutor(self.config.env_threads) if self.config.env_threads > 1 else nullcontext() as pool:
            self._play(episodes, map if pool is None else pool.map)
        for episode in episodes:
            episode.trajectory.truncated = not (episode.trajectory.terminated or episode.trajectory.error)
        return [episode.trajectory for episode in episodes]

    def _play(self, episodes: Sequence[Episode], for_each: Callable[..., Iterable[None]]) -> None:
        """for_each: `map`, or one that works on several episodes at once; each has an environment of its own."""
        list(for_each(self._reset, episodes))
        self.sampler.begin()
        for _ in range(self.config.max_turns):
            contexts = {row: self._context(episode) for row, episode in enumerate(episodes) if not episode.over}
            room = self.config.max_context_tokens - self.config.max_response_tokens
            for row in [row for row, context in contexts.items() if len(context) > room]:
                self._out_of_room(episodes[row], len(contexts.pop(row)), room)
            if not contexts:
                break
            rows = list(contexts)
            samples = self.sampler.sample(rows, [contexts[row] for row in rows], [episodes[row].stream for row in rows])
            list(for_each(self._act, [episodes[row] for row in rows], [contexts[row] for row in rows], samples))

    def _reset(self, episode: Episode) -> None:
        seed, noise = episode.trajectory.seed, {"rollout_seed": episode.rollout_seed}
        try:
            episode.state, _ = episode.env.reset(seed=seed, options=noise)
        except ServiceError as error:
            episode.fail(error)
        episode.actions_left = self.config.max_actions or episode.env.max_actions

    def _context(self, episode: Episode) -> list[int]:
        """Token ids of the next prompt. In `full` and `window` mode past replies enter as the ids that were sampled."""
        turns, config = episode.trajectory.turns, self.config
        if turns and config.context == "full":
            last = turns[-1]
            user = self._user_text(episode, len(turns))
            return last.prompt_ids + last.sample.ids + self.chat.next_ids(user, last_id=last.sample.ids[-1])
        system = self._system_text(episode)
        if config.context == "single_turn":
            return self.chat.first_ids(system, self._single_turn_text(episode))
        first = max(0, len(turns) - config.window + 1)
        ids = self.chat.first_ids(system, self._user_text(episode, first, alone=True))
        for index in range(first, len(turns)):
            sampled = turns[index].sample.ids
            ids = ids + sampled + self.chat.next_ids(self._user_text(episode, index + 1), last_id=sampled[-1])
        return ids

    def _single_turn_text(self, episode: Episode) -> str:
        """The state alone, with the last turns before it as text."""
        turns = episode.trajectory.turns
        shown = turns[-self.config.window :]
        past = [(turn.state_text, turn.response_text, turn.reward) for turn in shown]
        return history_text(past, first_turn=len(turns) - len(shown)) + self._user_text(episode, len(turns), alone=True)

    def _system_text(self, episode: Episode) -> str:
        return system_text(
            episode.env,
            max_actions=self.config.max_actions or episode.env.max_actions,
            max_actions_per_turn=self.config.max_actions_per_turn,
            separator=self.config.separator,
            think=self.config.think,
        )

    def _user_text(self, episode: Episode, turn: int, *, alone: bool = False) -> str:
        """Message of turn `turn`, past or present. alone: nothing before it is shown, so no reward is reported."""
        turns = episode.trajectory.turns
        before = turns[turn - 1] if turn > 0 else None
        used = sum(past.n_actions for past in turns[:turn])
        return turn_text(
            turn,
            turns[turn].state_text if turn < len(turns) else episode.state,
            actions_left=(self.config.max_actions or episode.env.max_actions) - used,
            previous_reward=None if before is None or alone else before.reward,
            invalid=before is not None and before.n_actions == 0,
        )

    def _act(self, episode: Episode, context: list[int], sample: Sample) -> None:
        """Carry out a reply's actions and note what came of it."""
        turn = self._turn(episode, context, sample)
        episode.trajectory.turns.append(turn)
        known = [action for action in turn.reply.actions if _is_known(action, episode.env)]
        turn.action_valid = bool(known) and len(known) == len(turn.reply.actions)
        turn.penalty = 0.0 if turn.action_valid and not sample.cut else self.config.format_penalty
        for action in known[: episode.actions_left]:
            try:
                episode.state, reward, terminated, _, info = episode.env.step(action)
            except ServiceError as error:
                return episode.fail(error)
            turn.reward += float(reward)
            turn.n_actions += 1
            turn.action_valid = turn.action_valid and bool(info["action_is_valid"])
            if terminated:
                episode.trajectory.terminated = episode.over = True
                episode.trajectory.success = bool(info["success"])
                return
        episode.actions_left -= turn.n_actions
        episode.over = episode.actions_left <= 0

    def _turn(self, episode: Episode, context: list[int], sample: Sample) -> Turn:
        """A reply taken apart, before anything has come of it."""
        body = sample.ids[:-1] if sample.ids[-1] in self.end_ids else sample.ids
        text = decode(self.chat.tokenizer, body)
        reply = parse_reply(
            text, think=self.config.think, separator=self.config.separator, max_actions=self.config.max_actions_per_turn
        )
        turn = Turn(episode.state, context, sample, text, reply, scale=self.config.task_reward_scale)
        turn.thinking_cost = self._thinking_cost(sample)
        return turn

    def _thinking_cost(self, sample: Sample) -> float:
        """What the distance of the thinking from its wanted length costs; unclosed thinking counts whole."""
        if not self.config.thinking_target:
            return 0.0
        first, last = thinking_span(sample.ids, self.chat.tokenizer) or (0, len(sample.ids))
        return self.config.thinking_cost * abs(last - first - self.config.thinking_target)

    def _out_of_room(self, episode: Episode, n_tokens: int, room: int) -> None:
        if not episode.trajectory.turns:
            raise ConfigError(
                f"the first prompt of {episode.env.name} has {n_tokens} tokens, but rollout.max_context_tokens leaves "
                f"{room}. Raise it, or lower rollout.max_response_tokens."
            )
        episode.over = True


def _is_known(action: str, env: Any) -> bool:
    """Whether the environment has an action of that name; free-text environments take everything."""
    return env.action_names is None or action.lower() in {name.lower() for name in env.action_names}
