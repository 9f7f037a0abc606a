"""Putting a policy, its tokenizer and an agent loop together from a configuration; shared by training and evaluation."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import torch

from ragen_diag.config import RolloutConfig, RuntimeConfig, TrainConfig
from trainer.agent_loop import AgentLoop
from trainer.credit import CRITIC_RULES
from trainer.policy import Policy, end_token_ids, load_tokenizer
from trainer.prompts import ChatFormat
from trainer.sampling import Sampler, SamplingSettings, TransformersSampler
from trainer.vllm_sampler import VllmEngine, VllmSampler


@dataclass(slots=True)
class Agent:
    """A policy that can play."""

    policy: Policy
    tokenizer: Any
    pad_id: int
    end_ids: list[int]
    engine: VllmEngine | None = None
    """What generates instead of the policy itself; None with the transformers backend."""

    def loop(self, rollout: RolloutConfig, settings: SamplingSettings) -> AgentLoop:
        """An agent loop that samples from the policy as it is now with these settings."""
        sampler: Sampler
        if self.engine is not None:
            self.engine.load_adapter(self.policy)
            sampler = VllmSampler(self.engine, settings, end_ids=self.end_ids)
        else:
            sampler = TransformersSampler(self.policy.lm, settings, end_ids=self.end_ids, pad_id=self.pad_id)
        return AgentLoop(rollout, sampler, ChatFormat(self.tokenizer, think=rollout.think), self.end_ids)


def build_agent(config: TrainConfig, *, for_training: bool) -> Agent:
    """Load model and tokenizer, add adapters, critic and reference as the algorithm needs them. Raises ModelError."""
    tokenizer = load_tokenizer(config.model.path)
    policy = Policy(
        config.model,
        seed=config.seed,
        with_critic=for_training and config.algorithm.advantage in CRITIC_RULES,
        with_reference=for_training and config.algorithm.kl_coef > 0,
        with_gate=for_training and config.algorithm.thinking_gate,
    )
    end_ids = end_token_ids(policy.causal_lm, tokenizer)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end_ids[0]
    engine = VllmEngine(config) if config.rollout.backend == "vllm" else None
    return Agent(policy, tokenizer, pad_id, end_ids, engine)


def training_settings(rollout: RolloutConfig) -> SamplingSettings:
    """How training rollouts are sampled."""
    return SamplingSettings(rollout.max_response_tokens, rollout.temperature, rollout.top_p, rollout.top_k)


def validation_setup(config: TrainConfig, temperature: float | None = None) -> tuple[RolloutConfig, SamplingSettings]:
    """How held-out rollouts are played and sampled; without a temperature the configuration's."""
    validation, rollout = config.validation, config.rollout
    chosen = validation.temperature if temperature is None else temperature
    settings = SamplingSettings(rollout.max_response_tokens, chosen)
    return dataclasses.replace(rollout, max_turns=validation.max_turns or rollout.max_turns), settings


def set_threads(runtime: RuntimeConfig) -> None:
    """Use the configured number of CPU threads."""
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
        os.environ["OMP_NUM_THREADS"] = str(runtime.threads)  # Accelerate resets the threads from here
