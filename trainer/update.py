"""One step's gradient updates: mini-batches, micro-batches, losses, clipping. Not for what a loss or an advantage is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ragen_diag.config import AlgorithmConfig, OptimConfig
from trainer.batch import Batch
from trainer.credit import Credit
from trainer.data_parallel import DataParallel
from trainer.layout import Layout
from trainer.losses import aggregation_weights, kl_nats, policy_loss, value_loss
from trainer.packing import packed, packs, refuse_mixing
from trainer.policy import Policy, TokenStats
from trainer.sharding import Sharded
from trainer.shared_prompts import behind_prompts, can_share, in_order_of_prompts
from trainer.zero import Zero


@dataclass(frozen=True, slots=True)
class Scored:
    """A batch with everything its loss needs."""

    batch: Batch
    credit: Credit
    values_BT: Tensor | None
    """critic's values before the update; None without a critic"""
    ref_logp_BT: Tensor | None
    """nats, under the reference; None without a KL term"""
    sampler_gap_nats: float | None = None
    """mean |log-prob by sampler - by trainer| of fresh tokens, where another backend sampled; None = the update tells"""


class Updater:
    """Updates a policy. Raises ModelError when the model cannot be packed as asked."""

    def __init__(
        self,
        policy: Policy,
        algorithm: AlgorithmConfig,
        optim: OptimConfig,
        accelerator: Accelerator,
        *,
        temperature: float,
        sharding: str = "none",
    ) -> None:
        self.algorithm, self.config, self.accelerator, self.temperature = algorithm, optim, accelerator, temperature
        if optim.pack_tokens:
            refuse_mixing(policy.lm)
        self.engine = _engine(sharding)(policy, optim, accelerator)
        # Who shares no prompt makes one pass fewer, and processes in step make as many.
        self.shares_prompts = not optim.pack_tokens and not self.engine.in_step and can_share(policy.lm)
        self.policy = policy
        self._peak = [group["lr"] for group in self.engine.optimizer.param_groups]

    def set_progress(self, done: float) -> float:
        """Set the learning rates for a point of the run (0 to 1); returns the policy's."""
        warm, optim = self.config.warmup_share, self.config
        rest = (done - warm) / (1 - warm) if warm < 1 else 0.0
        if done < warm:
            factor = max(done, 1e-3) / warm
        else:
            factor = {"constant": 1.0, "linear": 1 - rest, "cosine": 0.5 * (1 + np.cos(np.pi * rest))}[optim.schedule]
        for group, peak in zip(self.engine.optimizer.param_groups, self._peak, strict=True):
            group["lr"] = peak * factor
        return float(self._peak[0] * factor)

    @torch.no_grad()
    def score(self, batch: Batch, what: str) -> Tensor:
        """No-gradient pass over a batch, (B, T): 'logp', 'value', 'quality' or 'reference' of the chosen tokens."""
        out_BT = torch.zeros_like(batch.mask_BT)
        for rows in self.micro_batches(batch, np.arange(len(batch))):
            with self.accelerator.autocast():  # as in the update, so that ratios and KL are between like numbers
                values_N = self._scored(self.layout(batch, rows), what)
            part = out_BT[rows]
            part[batch.mask_BT[rows].bool()] = values_N.float().cpu()
            out_BT[rows] = part
        return out_BT

    def _scored(self, layout: Layout, what: str) -> Tensor:
        if what == "reference":
            return self.policy.reference_logp(layout, self.temperature)
        if what == "logp":
            return self.policy.act(layout, self.temperature)[0]
        judged_N = self.policy.judge(layout)[("value", "quality").index(what)]
        assert judged_N is not None, "scored without the critic that is asked"
        return judged_N

    def run(self, scored: Scored, *, rng: np.random.Generator) -> dict[str, float]:
        """All epochs and mini-batches over one batch; returns means of the update's metrics."""
        with self.engine.training():
            return self._run(scored, rng)

    def _run(self, scored: Scored, rng: np.random.Generator) -> dict[str, float]:
        seen: dict[str, list[float]] = defaultdict(list)
        for _ in range(self.config.epochs):
            order = rng.permutation(len(scored.batch))
            for rows in in_parts(order, self.config.mini_batch):
                measured = self._mini_batch(scored, rows)
                first = not seen
                for name, value in measured.items():
                    if first or name != "sampler_trainer_logprob_gap":  # later, the policy itself has moved
                        seen[name].append(value)
                if 0 < self.config.kl_early_stop < measured["policy_shift_kl_nats"]:
                    return {name: float(np.mean(values)) for name, values in seen.items()}
        return {name: float(np.mean(values)) for name, values in seen.items()}

    def _mini_batch(self, scored: Scored, rows: np.ndarray) -> dict[str, float]:
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
        per_token = self.per_token(scored, rows)
        passes = self._passes(scored.batch, rows)
        for index, (part, counts) in enumerate(passes):
            last = index == len(passes) - 1
            with nullcontext() if last else self.engine.accumulating():
                stats = self.engine.module(self.layout(scored.batch, part), self.temperature)
                terms, measured = self.terms(stats, self.chosen(scored.batch, per_token, part))
                loss = sum(terms.values(), torch.zeros((), device=self.accelerator.device))
                measured["loss"] = loss
                # Data-parallel wrappers average gradients over processes; the weights already are shares of the whole mini-batch.
                self.engine.backward(loss * (self.accelerator.num_processes * counts), last=last)
            for name, value in measured.items():
                totals[name] = totals[name] + value.detach().cpu() * counts
        norm = self.engine.step()
        summed = self._sum_over_processes(totals)
        n_tokens, n_fresh = summed.pop("n_tokens"), summed.pop("n_fresh")
        divisors = {"clip_fraction": n_tokens, "entropy_nats": n_tokens, "kl_nats": n_tokens}
        divisors |= dict.fromkeys(("policy_shift_kl_nats", "sampler_trainer_logprob_gap"), n_fresh)
        means = {
            name: value / divisors[name] if divisors.get(name, 1) else 0.0
            for name, value in summed.items()
            if name in divisors
        }
        return summed | means | {"grad_norm": norm}

    def per_token(self, scored: Scored, rows: np.ndarray) -> dict[str, Tensor]:
        """What the loss of a mini-batch (or any set of rows aggregated alone) needs, each (B, T)."""
        batch, credit = scored.batch, scored.credit
        weights_BT = torch.zeros_like(batch.mask_BT)
        weights_BT[rows] = aggregation_weights(batch.mask_BT[rows], self.algorithm.loss_aggregation)
        found = {"weight": weights_BT, "old": batch.old_logp_BT, "advantage": credit.advantages_BT}
        found["fresh"] = batch.fresh_B[:, None].expand_as(batch.mask_BT)
        optional = {"value": scored.values_BT, "return": credit.returns_BT, "reference": scored.ref_logp_BT}
        if credit.quality is not None:
            read_BT = torch.zeros_like(batch.mask_BT)
            read_BT[rows] = credit.quality.read_BT[rows] / credit.quality.read_BT[rows].sum().clamp(min=1)
            optional |= {"quality_weight": read_BT, "quality_label": credit.quality.label_BT}
        return found | {name: values for name, values in optional.items() if values is not None}

    def chosen(self, batch: Batch, per_token: dict[str, Tensor], part: np.ndarray) -> dict[str, Tensor]:
        """The chosen tokens of a micro-batch, each (N,), on the device."""
        mask = batch.mask_BT[part].bool()
        return {name: values[part][mask].to(self.accelerator.device) for name, values in per_token.items()}

    def terms(self, stats: TokenStats, tokens: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Terms of one micro-batch's loss (its share of the mini-batch's), and sums for the metrics."""
        algorithm, weight = self.algorithm, tokens["weight"]
        logp, entropy = stats.logp_N.float(), stats.entropy_N.float()
        terms = policy_loss(
            logp, tokens["old"], tokens["advantage"],
            clip_low=algorithm.clip_low, clip_high=algorithm.clip_high, clip_dual=algorithm.clip_dual,
        )  # fmt: skip
        found = {"task": (weight * terms.loss).sum()}
        measured = {
            "policy_loss": found["task"], "n_tokens": torch.tensor(float(len(logp))), "n_fresh": tokens["fresh"].sum(),
            "policy_shift_kl_nats": ((tokens["old"] - logp) * tokens["fresh"]).sum(), "entropy_nats": entropy.sum(),
            "sampler_trainer_logprob_gap": ((tokens["old"] - logp).abs() * tokens["fresh"]).sum(),
            "clip_fraction": terms.clipped.sum(),
        }  # fmt: skip
        if algorithm.entropy_coef > 0:
            found["entropy"] = -(algorithm.entropy_coef * (weight * entropy).sum())
        if "reference" in tokens:
            kl = kl_nats(logp, tokens["reference"], algorithm.kl_estimator)
            measured["kl_nats"] = kl.sum()
            if algorithm.kl_in == "loss":
                found["kl"] = algorithm.kl_coef * (weight * kl).sum()
        if stats.value_N is not None:
            errors = value_loss(stats.value_N, tokens["value"], tokens["return"], clip=algorithm.value_clip)
            measured["value_loss"] = (weight * errors).sum()
            found["value"] = algorithm.value_coef * measured["value_loss"]
        if stats.quality_N is not None and "quality_label" in tokens:
            errors = binary_cross_entropy_with_logits(stats.quality_N, tokens["quality_label"], reduction="none")
            measured["thinking_quality_loss"] = (tokens["quality_weight"] * errors).sum()
            found["quality"] = algorithm.value_coef * measured["thinking_quality_loss"]
        return found, measured

    def micro_batches(self, batch: Batch, rows: np.ndarray) -> list[np.ndarray]:
        """What goes through the networks together: a pack, or samples of similar length or beginning, whichever is less to read."""
        lengths_B, size = batch.lengths_B.numpy(), self.config.micro_batch
        if self.config.pack_tokens:
            return packs(lengths_B, rows, self.config.pack_tokens)
        by_length = in_parts(rows[np.argsort(lengths_B[rows], kind="stable")], size)
        if not self.shares_prompts:
            return by_length
        by_prompt = in_parts(in_order_of_prompts(batch, rows), size)
        return min(by_length, by_prompt, key=lambda parts: sum(self._lay_out(batch, part).n_tokens for part in parts))

    def layout(self, batch: Batch, rows: np.ndarray) -> Layout:
        """A micro-batch, laid out on the device."""
        return self._lay_out(batch, rows).to(self.accelerator.device)

    def _lay_out(self, batch: Batch, rows: np.ndarray) -> Layout:
        if self.config.pack_tokens:
            return packed(batch, rows)
        return behind_prompts(batch, rows) if self.shares_prompts else batch.padded(rows)

    def _passes(self, batch: Batch, rows: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """This process's micro-batches, and whether each counts.

        Gradients are exchanged by all processes or by none, and layers gathered so: who has fewer adds passes that count 0.
        """
        n_processes = self.accelerator.num_processes
        shares = [self.micro_batches(batch, rows[process::n_processes]) for process in range(n_processes)]
        mine = shares[self.accelerator.process_index]
        wanted = max(map(len, shares)) if self.engine.in_step else 1
        return [(part, 1) for part in mine] + [(rows[:1], 0)] * (wanted - len(mine))

    def _sum_over_processes(self, totals: dict[str, Tensor]) -> dict[str, float]:
        names = sorted(totals)
        values = torch.stack([totals[name].double() for name in names]).to(self.accelerator.device)
        return dict(zip(names, self.accelerator.reduce(values, reduction="sum").tolist(), strict=True))


def in_parts(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """`rows` in stretches of at most `size`."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _engine(sharding: str) -> Callable[[Policy, OptimConfig, Accelerator], DataParallel]:
    """The way `runtime.sharding` names."""
    if sharding.startswith("zero"):
        return partial(Zero, stage=int(sharding[-1]))
    return {"none": DataParallel, "fsdp": Sharded}[sharding]
