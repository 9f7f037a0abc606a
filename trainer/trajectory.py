"""What one rollout is in memory, and its rows in the rollout log. Not for playing (`agent_loop.py`) or training (`batch.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ragen_diag.rollout_log import prompt_id
from trainer.parsing import Reply, thinking_span
from trainer.sampling import Sample, SamplingSettings


@dataclass(slots=True)
class Turn:
    """One reply and what the environment made of it."""

    state_text: str
    prompt_ids: list[int]
    """The whole context, opening tag included."""
    sample: Sample
    response_text: str
    """The sampled ids as text, without the end token's text."""
    reply: Reply
    reward: float = 0.0
    """Sum of the environment's rewards in this turn."""
    scale: float = 1.0
    """Factor of `reward` in the return (`rollout.task_reward_scale`)."""
    penalty: float = 0.0
    """Format penalty, 0 or negative."""
    thinking_cost: float = 0.0
    """What the distance of the thinking from `rollout.thinking_target` costs, 0 or positive."""
    action_valid: bool = False
    n_actions: int = 0
    """Actions carried out."""
    prompt_text: str | None = None
    """The whole context as text, where no token ids are known (chat servers)."""
    advantage: float | None = None
    """Mean over the turn's tokens, once it is known."""

    @property
    def score(self) -> float:
        """What the turn adds to the return."""
        return self.scale * self.reward + self.penalty - self.thinking_cost


@dataclass(slots=True)
class Trajectory:
    """One rollout."""

    group: int
    """Position of its group in the step."""
    member: int
    """Position in the group."""
    seed: int
    """Prompt seed."""
    turns: list[Turn] = field(default_factory=list)
    success: bool = False
    terminated: bool = False
    truncated: bool = False
    kept: bool = True
    """The group passed the filter."""
    filter_score: float | None = None
    replayed: bool = False
    """Sampled at an earlier step, and drawn again."""
    error: str | None = None
    """Which service failure ended it. Such a rollout has no return: it is logged, and neither trained on nor counted."""

    @property
    def return_(self) -> float:
        """Scaled environment rewards and penalties of all turns."""
        return sum(turn.score for turn in self.turns)

    @property
    def n_tokens(self) -> int:
        """Sampled tokens of all turns."""
        return sum(len(turn.sample.ids) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class LogContext:
    """What every row of one step and split shares."""

    run_id: str
    step: int
    split: str
    env: str
    model_version: str
    settings: SamplingSettings
    think: bool


def log_rows(trajectories: Iterable[Trajectory], context: LogContext, tokenizer: Any) -> list[dict[str, Any]]:
    """One rollout-log row per turn; texts are the decoded exact ids."""
    rows = []
    for trajectory in trajectories:
        rows += [_row(trajectory, index, turn, context, tokenizer) for index, turn in enumerate(trajectory.turns)]
        if not trajectory.turns:  # the service failed before there was a prompt
            identity = _identity(trajectory, context, prompt_id(f"seed {trajectory.seed}"))
            rows.append({**identity, "turn": 0, "n_turns": 0, "error": trajectory.error})
    return rows


def _identity(trajectory: Trajectory, context: LogContext, prompt: str) -> dict[str, Any]:
    return {
        "run_id": context.run_id,
        "step": context.step,
        "split": context.split,
        "env": context.env,
        "group_id": f"{trajectory.group}",
        "prompt_id": prompt,
        "seed": trajectory.seed,
        "rollout_index": trajectory.member,
        "trajectory_id": trajectory_id(context.step, context.split, trajectory),
        "step_source": "record",
        "group_source": "explicit id",
    }


def _row(trajectory: Trajectory, index: int, turn: Turn, context: LogContext, tokenizer: Any) -> dict[str, Any]:
    settings, training = context.settings, context.split == "train"
    failed, first = trajectory.error is not None, trajectory.turns[0]
    return {
        **_identity(trajectory, context, prompt_id(first.prompt_text or first.prompt_ids)),
        "turn": index,
        "n_turns": len(trajectory.turns),
        "state_text": turn.state_text,
        "thinking_text": turn.reply.thinking,
        "thinking_closed": turn.reply.thinking_closed if context.think else None,
        "answer_text": turn.reply.answer,
        "actions": list(turn.reply.actions),
        "turn_reward": None if failed and turn is trajectory.turns[-1] else turn.reward,
        "return_": None if failed else trajectory.return_,
        "reward_components": None if failed else _components(trajectory),
        "success": None if failed else trajectory.success,
        "terminated": trajectory.terminated,
        "truncated": trajectory.truncated,
        "response_truncated": turn.sample.cut,
        "action_valid": turn.action_valid,
        "format_valid": turn.reply.format_valid,
        "error": trajectory.error,
        "advantage": turn.advantage,
        "kept_by_filter": trajectory.kept if training else None,
        "filter_score": trajectory.filter_score,
        "model_version": context.model_version,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "max_response_tokens": settings.max_tokens,
        "reward_source": "environment rewards + format penalties",
        **_what_was_said(turn, tokenizer, think=context.think),
    }


def _what_was_said(turn: Turn, tokenizer: Any, *, think: bool) -> dict[str, Any]:
    """Prompt and response: the exact ids and the texts they stand for, or the texts alone where no ids are known."""
    if turn.prompt_text is not None:
        return {"prompt_text": turn.prompt_text, "response_text": turn.response_text}
    span = thinking_span(turn.sample.ids, tokenizer) if think else None
    return {
        "prompt_text": decode(tokenizer, turn.prompt_ids),
        "response_text": decode(tokenizer, turn.sample.ids),
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(turn.sample.ids),
        "prompt_ids": turn.prompt_ids,
        "response_ids": turn.sample.ids,
        "thinking_start": None if span is None else span[0],
        "thinking_end": None if span is None else span[1],
        "logprobs": turn.sample.logprobs,
        "entropies": turn.sample.entropies or None,
    }


def trajectory_id(step: int, split: str, trajectory: Trajectory) -> str:
    """Unique within the run."""
    return f"{split}-{step:06d}-g{trajectory.group:04d}-r{trajectory.member:03d}"


def _components(trajectory: Trajectory) -> dict[str, float]:
    """Named parts of the return; a reward that does not count is not one of them."""
    turns = trajectory.turns
    parts = {"format": sum(turn.penalty for turn in turns)}
    if any(turn.scale for turn in turns):
        parts = {"environment": sum(turn.scale * turn.reward for turn in turns)} | parts
    if any(turn.thinking_cost for turn in turns):
        parts["thinking_length"] = -sum(turn.thinking_cost for turn in turns)
    return parts


def decode(tokenizer: Any, ids: list[int]) -> str:
    """Text of exact ids, special tokens included."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
