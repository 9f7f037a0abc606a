"""The one vocabulary for per-step series, and what each name means. Foreign names: `analysis/readers/aliases.py`.

Gradient analysis adds families of its own, `grad_norm/bucket_N/{task,kl,entropy}` and so on: `trainer/gradient_analysis.py`.

A metric never changes meaning under its name. Two foreign metrics with different definitions get two names here.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """Unit and definition of a per-step series."""

    unit: str
    definition: str


METRICS: dict[str, Metric] = {
    "reward_mean": Metric("reward", "mean return over all rollouts of the step, penalties included"),
    "reward_max": Metric("reward", "largest return of the step"),
    "reward_min": Metric("reward", "smallest return of the step"),
    "reward_std_in_group": Metric("reward", "mean over groups of the in-group standard deviation (ddof 1)"),
    "reward_std_batch": Metric("reward", "standard deviation over the whole batch"),
    "reward_std": Metric(
        "reward", "standard deviation of the reward, over groups or the batch: the log does not say which (TRL 0.17+)"
    ),
    "reward_after_kl_mean": Metric(
        "reward", "mean return after the KL penalty inside the reward was subtracted (verl critic/rewards)"
    ),
    "reward_kl_mean": Metric("reward", "mean KL penalty inside the reward"),
    "task_score_mean": Metric(
        "score", "mean of the true task score (accuracy, strict check) when logged apart from the reward"
    ),
    "format_score_mean": Metric("score", "mean of the format reward component"),
    "success_rate": Metric("share", "share of training rollouts that succeed"),
    "val_success_rate": Metric("share", "share of validation rollouts that succeed"),
    "val_reward_mean": Metric("reward", "mean return over validation rollouts"),
    "zero_variance_share": Metric("share", "share of groups whose rollouts all earned the same return"),
    "entropy_nats": Metric("nats/token", "mean full-distribution policy entropy over trained tokens"),
    "conditional_entropy_nats": Metric("nats/token", "-mean log-prob of sampled thinking tokens, H(Z|X) per token"),
    "kl_nats": Metric("nats/token", "mean KL of the policy to the reference policy"),
    "policy_shift_kl_nats": Metric(
        "nats/token", "approximate KL between the policy before and after the update (old vs new)"
    ),
    "grad_norm": Metric("norm", "global gradient norm before clipping"),
    "loss": Metric("loss", "total training loss"),
    "policy_loss": Metric("loss", "policy-gradient part of the loss"),
    "value_loss": Metric("loss", "critic loss"),
    "clip_fraction": Metric("share", "share of trained tokens whose ratio was clipped"),
    "clip_fraction_low": Metric("share", "share of trained tokens clipped at the lower bound"),
    "clip_fraction_high": Metric("share", "share of trained tokens clipped at the upper bound"),
    "advantage_mean": Metric("advantage", "mean advantage over trained tokens or rollouts"),
    "advantage_max": Metric("advantage", "largest advantage"),
    "advantage_min": Metric("advantage", "smallest advantage"),
    "response_tokens_mean": Metric("tokens", "mean trained tokens per rollout"),
    "response_tokens_max": Metric("tokens", "longest rollout"),
    "response_tokens_min": Metric("tokens", "shortest rollout"),
    "terminated_tokens_mean": Metric("tokens", "mean length of the responses that ended by themselves"),
    "sequence_tokens_mean": Metric("tokens", "mean length of prompt and response together"),
    "response_token_cap": Metric("tokens", "configured cap of one response, when logged or quoted as a column"),
    "thinking_tokens_mean": Metric("tokens", "mean thinking tokens per turn"),
    "truncated_share": Metric("share", "share of responses cut at the token cap"),
    "format_valid_share": Metric("share", "share of turns that follow the output format"),
    "thinking_valid_rate": Metric("share", "share of turns with non-empty, closed thinking"),
    "turns_mean": Metric("turns", "mean turns per rollout"),
    "tool_calls_mean": Metric("calls", "mean tool calls per rollout"),
    "learning_rate": Metric("1", "optimizer learning rate"),
    "kl_coef": Metric("1", "coefficient of the KL term"),
    "rollout_error_share": Metric(
        "share", "share of rollouts that a failed service ended; they count for nothing else"
    ),
    "kept_group_share": Metric("share", "share of groups the rollout filter kept"),
    "filter_changed": Metric("0/1", "whether `filter: auto` chose another filter after this step"),
    "filter_value": Metric("1", "value of the filter in force after this decision; 1 = all groups"),
    "filter_confidence": Metric("share", "share of bootstrap samples in which the chosen filter is the better one"),
    "filter_snr_gain": Metric("ratio", "expected SNR with the chosen filter over that with none"),
    "replayed_group_share": Metric("share", "share of the trained groups that were sampled at earlier steps"),
    "gradient_snr": Metric("ratio", "squared norm of the mean task gradient over groups, over its noise (unbiased)"),
    "gradient_noise_ratio": Metric(
        "ratio", "mean gradient norm of groups without reward variance over that of the others"
    ),
    "thinking_quality_loss": Metric("nats", "cross-entropy of the thinking-quality critic"),
    "mi_lower_nats": Metric("nats", "lower end of the MI bracket, per sequence"),
    "mi_upper_nats": Metric("nats", "upper end (leave-one-out) of the MI bracket, per sequence"),
    "retrieval_accuracy": Metric("share", "share of reasonings whose own prompt scores best"),
    "retrieval_chance": Metric("share", "chance level of retrieval_accuracy"),
    "step_wall_s": Metric("s", "wall time of the step"),
    "rollout_wall_s": Metric("s", "wall time of rollout generation"),
    "sampler_trainer_logprob_gap": Metric("nats/token", "mean |log-prob by sampler - by trainer| of sampled tokens"),
}
