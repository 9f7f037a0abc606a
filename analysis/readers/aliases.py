"""Foreign metric names -> the one vocabulary of `ragen_diag.metric_names`, with the framework and the version since when.

Two foreign metrics get one canonical name only when their definitions agree; whatever is not in this table is kept as
`other:<foreign name>`, so nothing is lost and nothing is pooled by accident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ragen_diag.metric_names import METRICS


class Alias(NamedTuple):
    """One foreign name."""

    framework: str
    since: str
    """Version or date from which the name has this meaning; "" = as far back as checked."""
    foreign: str
    canonical: str


def _table(framework: str, since: str, pairs: dict[str, str]) -> list[Alias]:
    return [Alias(framework, since, foreign, canonical) for foreign, canonical in pairs.items()]


ALIASES: list[Alias] = [
    *_table("TRL", "0.14", {
        "reward": "reward_mean", "kl": "kl_nats", "loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate",
        "completion_length": "response_tokens_mean",
    }),
    # Before 2025-03 (trl#3145, trl#3175) clip_ratio was averaged over sequences; both are shares of clipped tokens.
    *_table("TRL", "0.15", {"clip_ratio": "clip_fraction"}),
    *_table("TRL", "0.17", {
        "completions/mean_length": "response_tokens_mean", "completions/min_length": "response_tokens_min",
        "completions/max_length": "response_tokens_max", "completions/clipped_ratio": "truncated_share",
        "completions/mean_terminated_length": "terminated_tokens_mean", "clip_ratio/region_mean": "clip_fraction",
        "clip_ratio/low_mean": "clip_fraction_low", "clip_ratio/high_mean": "clip_fraction_high",
        "frac_reward_zero_std": "zero_variance_share", "entropy": "entropy_nats",
        "tools/call_frequency": "tool_calls_mean",
        "sampling/sampling_logp_difference/mean": "sampler_trainer_logprob_gap",
    }),
    *_table("verl", "0.2", {
        "critic/score/mean": "reward_mean", "critic/score/max": "reward_max", "critic/score/min": "reward_min",
        # critic/rewards includes the in-reward KL penalty; critic/score does not.
        "critic/rewards/mean": "reward_after_kl_mean",
        "critic/advantages/mean": "advantage_mean", "critic/advantages/max": "advantage_max",
        "critic/advantages/min": "advantage_min", "critic/vf_loss": "value_loss",
        "actor/entropy_loss": "entropy_nats", "actor/kl_loss": "kl_nats", "actor/kl_coef": "kl_coef",
        "actor/pg_loss": "policy_loss", "actor/pg_clipfrac": "clip_fraction", "actor/ppo_kl": "policy_shift_kl_nats",
        "actor/grad_norm": "grad_norm", "actor/lr": "learning_rate",
        "response_length/mean": "response_tokens_mean", "response_length/max": "response_tokens_max",
        "response_length/min": "response_tokens_min", "response_length/clip_ratio": "truncated_share",
        "timing_s/step": "step_wall_s", "timing_s/gen": "rollout_wall_s",
    }),
    *_table("verl", "0.4", {"actor/entropy": "entropy_nats", "num_turns/mean": "turns_mean", "actor/loss": "loss"}),
    *_table("RAGEN", "", {
        "rollout/in_group_reward_std": "reward_std_in_group", "train/in_group_reward_std": "reward_std_in_group",
        "in_group_reward_std": "reward_std_in_group",
    }),
    *_table("SkyRL", "", {
        "loss/avg_raw_rewards": "reward_mean", "loss/avg_final_rewards": "reward_after_kl_mean",
        "policy/policy_loss": "policy_loss", "policy/policy_entropy": "entropy_nats", "policy/policy_kl": "kl_nats",
        "policy/ppo_clip_ratio": "clip_fraction", "policy/raw_grad_norm": "grad_norm", "policy/policy_lr": "learning_rate",
        "generate/avg_num_tokens": "response_tokens_mean", "eval/all/avg_score": "val_reward_mean",
        "critic/critic_loss": "value_loss",
    }),
    *_table("SkyRL", "0.2", {"reward/avg_raw_reward": "reward_mean"}),
    *_table("NeMo-RL", "", {
        "mean_gen_tokens_per_sample": "response_tokens_mean", "kl_penalty": "kl_nats", "approx_entropy": "entropy_nats",
        "truncation_rate": "truncated_share", "lr": "learning_rate", "validation/accuracy": "val_success_rate",
        "total_step_time": "step_wall_s",
    }),
    *_table("slime", "", {
        "rollout/raw_reward": "reward_mean", "rollout/response_lengths": "response_tokens_mean",
        "rollout/response_len/mean": "response_tokens_mean", "response_len_mean": "response_tokens_mean",
        "rollout/truncated": "truncated_share", "rollout/truncated_ratio": "truncated_share", "truncated": "truncated_share",
        "train/pg_loss": "policy_loss", "train/pg_clipfrac": "clip_fraction", "train/ppo_kl": "policy_shift_kl_nats",
        "train/entropy_loss": "entropy_nats", "train/kl_loss": "kl_nats", "train/value_loss": "value_loss",
        "train/train_rollout_logprob_abs_diff": "sampler_trainer_logprob_gap",
    }),
    *_table("prime-rl", "0.3", {
        "reward/mean": "reward_mean", "reward/all/mean": "reward_mean", "entropy/mean": "entropy_nats", "loss/mean": "loss",
        "optim/grad_norm": "grad_norm", "optim/lr": "learning_rate", "is_truncated/mean": "truncated_share",
        "is_truncated/all/mean": "truncated_share", "seq_len/mean": "sequence_tokens_mean",
    }),
    *_table("open-instruct", "", {
        "objective/scores": "reward_mean", "objective/kl_avg": "kl_nats", "objective/entropy": "entropy_nats",
        "policy/clipfrac_avg": "clip_fraction", "policy/approxkl_avg": "policy_shift_kl_nats",
        "loss/policy_avg": "policy_loss", "loss/value_avg": "value_loss", "val/sequence_lengths": "response_tokens_mean",
        "val/sequence_lengths_min": "response_tokens_min", "val/sequence_lengths_max": "response_tokens_max",
        "optim/grad_norm": "grad_norm",
    }),
    *_table("OpenRLHF", "", {
        "response_length": "response_tokens_mean", "policy_loss": "policy_loss", "critic_loss": "value_loss",
        "actor_lr": "learning_rate", "act_lr": "learning_rate", "ppo_kl": "policy_shift_kl_nats",
        "ppo_clip_ratio": "clip_fraction", "truncated_ratio": "truncated_share",
    }),
    *_table("AReaL", "", {
        "grpo_actor/task_reward/avg": "reward_mean", "grpo_actor/entropy/avg": "entropy_nats",
        "grpo_actor/update/grad_norm": "grad_norm", "grpo_actor/kl_rewards/avg": "reward_kl_mean",
    }),
    *_table("mlx-lm", "", {
        "total_rewards_mean": "reward_mean", "total_rewards_std": "reward_std_batch",
        "grouped_rewards_std": "reward_std_in_group", "max_completion_length": "response_token_cap",
    }),
    *_table("reports", "", {  # names people use in tables they write by hand
        "entropy_nats": "entropy_nats", "mean_entropy": "entropy_nats", "reward_mean": "reward_mean",
        "mean_reward": "reward_mean",
        "score": "reward_mean", "score_after": "reward_mean", "proxy_rm": "reward_mean", "return_mean": "reward_mean",
        "raw_reward": "reward_mean", "terminal_kl": "kl_nats", "kl_loss": "kl_nats",
        "truncated_frac": "truncated_share", "clipped_ratio": "truncated_share", "mean_length": "response_tokens_mean",
        "mean_response_length": "response_tokens_mean", "max_response_length": "response_token_cap",
        "num_turns_end": "turns_mean", "num_turns": "turns_mean", "tool_calls": "tool_calls_mean",
        "rloo_no_signal_fraction": "zero_variance_share", "success_rate": "success_rate", "success": "success_rate",
        "val": "val_reward_mean", "val_accuracy": "val_success_rate", "val_success_rate": "val_success_rate",
        "validation_accuracy": "val_success_rate", "val_reward": "val_reward_mean", "pg_loss": "policy_loss",
        "value_loss": "value_loss", "clip_fraction": "clip_fraction", "pg_clipfrac": "clip_fraction",
        "advantage_mean": "advantage_mean", "format_valid": "format_valid_share",
    }),
]  # fmt: skip
_EXACT = {alias.foreign: alias.canonical for alias in reversed(ALIASES)}
_VALIDATION = {
    "reward_mean": "val_reward_mean",
    "success_rate": "val_success_rate",
    "task_score_mean": "val_success_rate",
}
_PATTERNS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"^val-core/.*/(?:acc|reward)/mean@\d+$|^val/test_score/.+$"), "val_reward_mean"),
    (re.compile(r"^val-env/[^/]+/success$|^val/.*success(?:_rate)?$"), "val_success_rate"),
    (re.compile(r"^(?:train|rollout)?/?[\w-]+/success$"), "success_rate"),
    (
        re.compile(r"^(?:rewards?/)?(?:\w+_)?(?:accuracy|acc|correct(?:ness)?|exact_match)(?:_reward\w*)?(?:/mean)?$", re.I),
        "task_score_mean",
    ),
    (re.compile(r"^rewards?/\w*format\w*(?:/mean)?$", re.IGNORECASE), "format_score_mean"),
]  # fmt: skip
_NOT_STRICT = re.compile(r"format|blind|proxy", re.IGNORECASE)


def canonical_names(foreign: Iterable[str]) -> dict[str, str]:
    """Canonical name of each foreign name of one log (`other:<name>` when there is none); no two share one.

    The first wins when two foreign names map to the same canonical name: the other is kept as `other:<name>`. Looking at all
    names of the log together tells versions apart (TRL's `reward_std`).
    """
    names = list(foreign)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        canonical = _canonical(name, set(names))
        if canonical is None or canonical in taken:
            chosen[name] = f"other:{name}"
        else:
            chosen[name] = canonical
            taken.add(canonical)
    return chosen


def _canonical(name: str, siblings: set[str]) -> str | None:
    if name in _EXACT:
        return _EXACT[name]
    bare = re.sub(r"^(?:train|training|rollout|metrics)/", "", name)
    if bare == "reward_std":
        return _reward_std(siblings)
    if bare != name and bare in _EXACT:
        return _EXACT[bare]
    if name in METRICS:  # the canonical names themselves, as in tables written by hand or by this package
        return name
    evaluation = re.match(r"^(?:eval|val|validation|test)[/_](.+)$", name)
    for pattern, canonical in _PATTERNS:
        if pattern.match(name) and not (canonical == "task_score_mean" and (evaluation or _NOT_STRICT.search(name))):
            return canonical
    if evaluation:
        inner = _canonical(evaluation[1], {sibling.split("/", 1)[-1] for sibling in siblings})
        return _VALIDATION.get(inner or "")
    return None


def _reward_std(siblings: set[str]) -> str:
    """TRL's `reward_std`: mean of group stds up to 0.21, group or batch in 0.22-0.26, whole batch from 0.27 (trl#3857)."""
    if any(name.split("/")[-1] == "completion_length" for name in siblings):
        return "reward_std_in_group"  # the name went away with 0.17
    return "reward_std"
