"""One step's row of `metrics.parquet`, from its rollouts. Names and definitions: `ragen_diag.metric_names`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from trainer.batch import Batch
from trainer.credit import Credit
from trainer.parsing import thinking_span
from trainer.trajectory import Trajectory

Row = dict[str, float | int | None]


def rollout_metrics(trajectories: Sequence[Trajectory], tokenizer: object, *, think: bool) -> Row:
    """Everything that can be said before training on them; None where nothing was measured.

    Rollouts that a failed service ended appear in `rollout_error_share` alone.
    """
    n_rollouts = len(trajectories)
    trajectories = [trajectory for trajectory in trajectories if trajectory.error is None]
    errors: Row = {"rollout_error_share": 1 - len(trajectories) / n_rollouts}
    if not trajectories:
        return errors
    returns = np.array([trajectory.return_ for trajectory in trajectories])
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    len_tokens = [trajectory.n_tokens for trajectory in trajectories]
    by_group: dict[int, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        by_group[trajectory.group].append(trajectory.return_)
    comparable = [group for group in by_group.values() if len(group) > 1]
    row: Row = {
        "reward_mean": float(returns.mean()),
        "reward_max": float(returns.max()),
        "reward_min": float(returns.min()),
        "reward_std_batch": float(returns.std(ddof=1)) if len(returns) > 1 else None,
        "reward_std_in_group": _mean(float(np.std(group, ddof=1)) for group in comparable),
        "zero_variance_share": _mean(max(group) - min(group) <= 1e-6 for group in comparable),
        "success_rate": _mean(trajectory.success for trajectory in trajectories),
        "response_tokens_mean": _mean(len_tokens),
        "response_tokens_max": max(len_tokens),
        "response_tokens_min": min(len_tokens),
        "truncated_share": _mean(turn.sample.cut for turn in turns),
        "format_valid_share": _mean(turn.reply.format_valid for turn in turns),
        "turns_mean": _mean(len(trajectory.turns) for trajectory in trajectories),
        "entropy_nats": _mean(entropy for turn in turns for entropy in turn.sample.entropies),
    }
    return errors | row | (_thinking(turns, tokenizer) if think else {})


def _thinking(turns: Sequence, tokenizer: object) -> Row:
    spans = [(turn, thinking_span(turn.sample.ids, tokenizer)) for turn in turns]
    valid = [(turn, span) for turn, span in spans if span is not None and span[1] > span[0]]
    logprobs = [logprob for turn, span in valid for logprob in turn.sample.logprobs[slice(*span)]]
    return {
        "thinking_valid_rate": len(valid) / len(turns),
        "thinking_tokens_mean": _mean(span[1] - span[0] for _, span in valid),
        "conditional_entropy_nats": None if not logprobs else -float(np.mean(logprobs)),
    }


def advantage_metrics(batch: Batch, credit: Credit) -> Row:
    """Over trained tokens."""
    advantages = credit.advantages_BT[batch.mask_BT.bool()]
    return {
        "advantage_mean": float(advantages.mean()),
        "advantage_max": float(advantages.max()),
        "advantage_min": float(advantages.min()),
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return float(np.mean(values)) if values else None
