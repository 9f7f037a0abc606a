"""The trained networks:

policy, critic and reference on one causal LM. Not for objectives (`losses.py`) or sampling (`sampling.py`).

With LoRA the base weights exist once: `default` (the policy) and `critic` are two adapters, and the reference is the
base with adapters off. With full tuning, critic and reference are copies, made only when the algorithm uses them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

import ragen_diag
from ragen_diag.config import ModelConfig
from ragen_diag.errors import ModelError
from trainer import recomputation
from trainer.layout import Layout

TINY_MODEL = Path(ragen_diag.__file__).parent / "tiny_model"
POLICY, CRITIC = "default", "critic"


@dataclass(frozen=True, slots=True)
class TokenStats:
    """What the networks say about the N chosen tokens of a batch, in row-major order of the mask."""

    logp_N: Tensor
    """nats, under softmax(logits / temperature)"""
    entropy_N: Tensor
    """nats, same distribution"""
    value_N: Tensor | None
    """critic's value of the context before each token; None without a critic"""
    quality_N: Tensor | None = None
    """thinking-quality critic's logit for the context before each token; None without the gate"""


class SplitLM:
    """A causal LM as body and head, so that logits are made only where they are needed.

    Models whose logits are not head(body(x)) (soft-capping, scaling) keep them together: their states are the logits.
    """

    def __init__(self, causal_lm: Any) -> None:
        self.causal_lm = causal_lm
        self.body: Any
        self.head: Any
        self.body, self.head = _body_and_head(causal_lm) or (None, nn.Identity())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.causal_lm.parameters()).device

    def states(self, ids: Tensor, **inputs: Any) -> Tensor:
        """(rows, columns, hidden) states, or (rows, columns, vocabulary) logits; inputs as of `hidden_states`."""
        if self.body is not None:
            return hidden_states(self.body, ids, **inputs)
        return self.causal_lm(**_arguments(ids, **inputs)).logits

    def logits(self, states: Tensor) -> Tensor:
        """Float32 logits of states."""
        return self.head(states).float()


class Policy(nn.Module):
    """Everything that is trained, as one module for one optimizer and one Accelerate wrapper."""

    def __init__(
        self, config: ModelConfig, *, seed: int, with_critic: bool, with_reference: bool, with_gate: bool = False
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)  # initial adapters and value head
        self.config, self.with_critic = config, with_critic
        base = load_causal_lm(config)
        hidden_size = base.config.get_text_config().hidden_size
        if config.gradient_checkpointing:
            recomputation.enable(base)
        self.reference = self.critic = None
        if config.tuning == "lora":
            lora = LoraConfig(
                r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules="all-linear", lora_dropout=0.0
            )
            self.model: Any = get_peft_model(base, lora, adapter_name=POLICY)
            if with_critic:
                self.model.add_adapter(CRITIC, lora)
        else:
            self.model = base
            self.reference = copy.deepcopy(base).requires_grad_(False) if with_reference else None
            self.critic = copy.deepcopy(base.base_model) if with_critic else None
        if with_critic:
            self.value_head = nn.Linear(hidden_size, 1)
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        self.quality_head = nn.Linear(hidden_size, 1) if with_gate else None
        if self.quality_head is not None:
            nn.init.zeros_(self.quality_head.weight)
            nn.init.zeros_(self.quality_head.bias)
        self.eval()  # no dropout anywhere: what is trained is what was sampled from
        self.lm = SplitLM(self.causal_lm)
        self._reference_lm = SplitLM(self.reference) if self.reference is not None else None
        self._activate(POLICY)

    @property
    def causal_lm(self) -> Any:
        """The transformers model, adapters injected."""
        return self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model

    def forward(self, layout: Layout, temperature: float = 1.0) -> TokenStats:
        """Statistics of the tokens the policy chose, with gradients."""
        logp_N, entropy_N = self.act(layout, temperature)
        value_N, quality_N = self.judge(layout) if self.with_critic else (None, None)
        return TokenStats(logp_N, entropy_N, value_N, quality_N)

    def act(self, layout: Layout, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """The policy's log-probs and entropies (N,) alone."""
        with recomputation.recomputed(self.causal_lm):
            return _score(self.lm, layout, temperature)

    def judge(self, layout: Layout) -> tuple[Tensor, Tensor | None]:
        """The critic's values and thinking-quality logits (N,) alone."""
        states_N = self._critic_states(layout)
        quality_N = None if self.quality_head is None else self.quality_head(states_N)[:, 0].float()
        return self.value_head(states_N)[:, 0].float(), quality_N

    @torch.no_grad()
    def reference_logp(self, layout: Layout, temperature: float = 1.0) -> Tensor:
        """Log-probs (N,) of the chosen tokens under the untrained model."""
        with self.model.disable_adapter() if isinstance(self.model, PeftModel) else nullcontext():
            return _score(self.lm if self._reference_lm is None else self._reference_lm, layout, temperature)[0]

    def _critic_states(self, layout: Layout) -> Tensor:
        """(N, hidden) states before the chosen tokens."""
        body = self.causal_lm.base_model if self.critic is None else self.critic
        with nullcontext() if self.critic is not None else self._adapter(CRITIC), recomputation.recomputed(body):
            states_BTH = layout.states(partial(hidden_states, body))
        return states_BTH[:, :-1][layout.mask_BT[:, 1:].bool()].to(self.value_head.weight.dtype)

    @contextmanager
    def _adapter(self, name: str) -> Iterator[None]:
        self._activate(name)
        try:
            yield
        finally:
            self._activate(POLICY)

    def _activate(self, name: str) -> None:
        """Switch adapters without PEFT's side effect:

        it freezes the ones that are switched off, whose gradients are still due.
        """
        for module in self.model.modules():
            if isinstance(module, BaseTunerLayer):
                module._active_adapter = [name]
        for parameter_name, parameter in self.model.named_parameters():
            if "lora_" in parameter_name:
                parameter.requires_grad_(True)

    def parameter_groups(self, *, lr: float, critic_lr: float) -> list[dict[str, Any]]:
        """Trained parameters for the optimizer, critic apart."""
        of_critic = [(name, p) for name, p in self.named_parameters() if p.requires_grad and _is_critic(name)]
        of_policy = [(name, p) for name, p in self.named_parameters() if p.requires_grad and not _is_critic(name)]
        groups = [{"params": [p for _, p in of_policy], "lr": lr}]
        return [*groups, {"params": [p for _, p in of_critic], "lr": critic_lr}] if of_critic else groups

    def trained_state(self) -> dict[str, Tensor]:
        """The weights a checkpoint holds: everything that is trained, nothing that is frozen."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        return {name: tensor for name, tensor in self.state_dict().items() if name in trained}

    def load_trained_state(self, state: dict[str, Tensor]) -> None:
        """Put back what `trained_state` returned. Raises ModelError when it belongs to another model or tuning."""
        missing = set(self.trained_state()) ^ set(state)
        if missing:
            raise ModelError(
                f"the checkpoint's weights do not fit this model and tuning; first difference: {min(missing)}"
            )
        self.load_state_dict(state, strict=False)


def _is_critic(parameter_name: str) -> bool:
    return parameter_name.startswith(("critic.", "value_head.", "quality_head.")) or f".{CRITIC}." in parameter_name


def hidden_states(
    body: Any, ids: Tensor, *, attention_mask: Tensor | None, position_ids: Tensor, cache: Any = None
) -> Tensor:
    """(rows, columns, hidden) states of a model without its head.

    Without an attention mask, a new sequence begins wherever the positions do not go on, and sees only itself.
    """
    return body(
        **_arguments(ids, attention_mask=attention_mask, position_ids=position_ids, cache=cache)
    ).last_hidden_state


def _arguments(
    ids: Tensor, *, attention_mask: Tensor | None, position_ids: Tensor, cache: Any = None
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"input_ids": ids, "attention_mask": attention_mask, "position_ids": position_ids}
    return arguments | {"past_key_values": cache, "use_cache": cache is not None}


def _score(lm: SplitLM, layout: Layout, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (N,) at the chosen tokens."""
    chosen = layout.mask_BT[:, 1:].bool()
    logits_NV = lm.logits(layout.states(lm.states)[:, :-1][chosen]) / temperature
    logp_NV = torch.log_softmax(logits_NV, dim=-1)
    logp_N = logp_NV.gather(1, layout.ids_BT[:, 1:][chosen][:, None])[:, 0]
    return logp_N, -(logp_NV.exp() * logp_NV).sum(dim=-1)


def resolve_model(path: str) -> str:
    """The folder of the embedded model for `tiny`, the path itself otherwise."""
    return str(TINY_MODEL) if path == "tiny" else path


def load_causal_lm(config: ModelConfig) -> Any:
    """Load a causal LM. Raises ModelError with the reason when there is none under that path or name."""
    path = resolve_model(config.path)
    _refuse_what_is_no_model(path)
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.dtype))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"{config.path}: cannot be loaded as a causal language model: {_first_line(error)}") from error


def load_tokenizer(path: str) -> Any:
    """Load the tokenizer of a model. Raises ModelError, also when it brings no chat template."""
    resolved = resolve_model(path)
    _refuse_what_is_no_model(resolved)
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolved)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: its tokenizer cannot be loaded: {_first_line(error)}") from error
    if not tokenizer.chat_template:
        raise ModelError(f"{path}: its tokenizer has no chat template; multi-turn rollouts need one")
    return tokenizer


def end_token_ids(causal_lm: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a reply: the tokenizer's and the generation config's."""
    configured = getattr(causal_lm.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({int(token) for token in [*ids, tokenizer.eos_token_id] if token is not None})


def _refuse_what_is_no_model(path: str) -> None:
    if Path(path).exists() and not (Path(path) / "config.json").is_file():
        kind = "a folder without config.json" if Path(path).is_dir() else "a file"
        raise ModelError(f"{path} is {kind}, not a model. Give a transformers model folder, a hub name, or 'tiny'.")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _body_and_head(causal_lm: Any) -> tuple[Any, Any] | None:
    """Body and head when head(body(x)) reproduces the model's logits on a probe, else None."""
    body, head = causal_lm.base_model, causal_lm.get_output_embeddings()
    if body is causal_lm or head is None:
        return None
    probe = torch.arange(4, device=next(causal_lm.parameters()).device)[None]
    with torch.no_grad():
        expected = causal_lm(input_ids=probe, use_cache=False).logits
        states = body(input_ids=probe, use_cache=False)
        found = head(states.last_hidden_state) if hasattr(states, "last_hidden_state") else expected[..., :0]
    same = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-3)
    return (body, head) if same else None
