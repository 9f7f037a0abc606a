"""One step's gradient updates: mini-batches, micro-batches, losses, clipping. Not for what a loss or an advantage is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from ragen_diag.config import AlgorithmConfig, OptimConfig
from trainer.batch import Batch
from trainer.credit import Credit
from trainer.losses import aggregation_weights, kl_nats, policy_loss, value_loss
from trainer.policy import Policy, TokenStats


class Updater:
    """Holds the wrapped policy and its optimizer."""

    def __init__(
        self,
        policy: Policy,
        algorithm: AlgorithmConfig,
        optim: OptimConfig,
        accelerator: Accelerator,
        *,
        temperature: float,
    ) -> None:
        self.algorithm, self.config, self.accelerator, self.temperature = algorithm, optim, accelerator, temperature
        groups = policy.parameter_groups(lr=optim.lr, critic_lr=optim.critic_lr)
        self._peak = [group["lr"] for group in groups]
        optimizer = torch.optim.AdamW(groups, weight_decay=optim.weight_decay)
        self.policy = policy
        self.wrapped, self.optimizer = accelerator.prepare(policy, optimizer)

    def set_progress(self, done: float) -> float:
        """Set the learning rates for a point of the run (0 to 1); returns the policy's."""
        warm, optim = self.config.warmup_share, self.config
        rest = (done - warm) / (1 - warm) if warm < 1 else 0.0
        if done < warm:
            factor = max(done, 1e-3) / warm
        else:
            factor = {"constant": 1.0, "linear": 1 - rest, "cosine": 0.5 * (1 + np.cos(np.pi * rest))}[optim.schedule]
        for group, peak in zip(self.optimizer.param_groups, self._peak, strict=True):
            group["lr"] = peak * factor
        return float(self._peak[0] * factor)

    @torch.no_grad()
    def score(self, batch: Batch, what: str) -> Tensor:
        """No-gradient pass over a batch, (B, T): 'logp', 'value' or 'reference' of the chosen tokens."""
        out_BT = torch.zeros_like(batch.mask_BT)
        for rows, width in self._micro_batches(batch, np.arange(len(batch))):
            inputs = self._inputs(batch, rows, width)
            if what == "reference":
                values_N = self.policy.reference_logp(*inputs, self.temperature)
            else:
                stats = self.policy(*inputs, self.temperature)
                values_N = stats.logp_N if what == "logp" else stats.value_N
            part = out_BT[rows]
            part[batch.mask_BT[rows].bool()] = values_N.float().cpu()
            out_BT[rows] = part
        return out_BT

    def run(
        self,
        batch: Batch,
        credit: Credit,
        *,
        values_BT: Tensor | None,
        ref_logp_BT: Tensor | None,
        rng: np.random.Generator,
    ) -> dict[str, float]:
        """All epochs and mini-batches over one batch; returns means of the update's metrics."""
        seen: dict[str, list[float]] = defaultdict(list)
        for _ in range(self.config.epochs):
            order = rng.permutation(len(batch))
            for start in range(0, len(order), self.config.mini_batch):
                measured = self._mini_batch(
                    batch, credit, order[start : start + self.config.mini_batch], values_BT, ref_logp_BT
                )
                first = not seen
                for name, value in measured.items():
                    if first or name != "sampler_trainer_logprob_gap":  # later, the policy itself has moved
                        seen[name].append(value)
                if 0 < self.config.kl_early_stop < measured["policy_shift_kl_nats"]:
                    return {name: float(np.mean(values)) for name, values in seen.items()}
        return {name: float(np.mean(values)) for name, values in seen.items()}

    def _mini_batch(
        self, batch: Batch, credit: Credit, rows: np.ndarray, values_BT: Tensor | None, ref_logp_BT: Tensor | None
    ) -> dict[str, float]:
        weights_BT = torch.zeros_like(batch.mask_BT)
        weights_BT[rows] = aggregation_weights(batch.mask_BT[rows], self.algorithm.loss_aggregation)
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
        mine = self._share(rows)
        micro_batches = list(self._micro_batches(batch, mine))
        for index, (part, width) in enumerate(micro_batches):
            mask = batch.mask_BT[part].bool()
            per_token = {"weight": weights_BT, "old": batch.old_logp_BT, "advantage": credit.advantages_BT}
            per_token |= {"value": values_BT, "return": credit.returns_BT, "reference": ref_logp_BT}  # type: ignore[dict-item]
            tokens = {
                name: values[part][mask].to(self.accelerator.device)
                for name, values in per_token.items()
                if values is not None
            }
            last = index == len(micro_batches) - 1
            with self.accelerator.no_sync(self.wrapped) if not last else nullcontext():
                stats = self.wrapped(*self._inputs(batch, part, width), self.temperature)
                loss, measured = self._loss(stats, tokens)
                # Data-parallel wrappers average gradients over processes; the weights already are shares of the whole mini-batch.
                self.accelerator.backward(loss * self.accelerator.num_processes)
            for name, value in measured.items():
                totals[name] = totals[name] + value.detach().cpu()
        norm = self.accelerator.clip_grad_norm_(self.wrapped.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        summed = self._sum_over_processes(totals)
        n_tokens = summed.pop("n_tokens")
        means = {"clip_fraction", "policy_shift_kl_nats", "entropy_nats", "kl_nats", "sampler_trainer_logprob_gap"}
        return {name: value / n_tokens if name in means else value for name, value in summed.items()} | {
            "grad_norm": float(norm)
        }

    def _loss(self, stats: TokenStats, tokens: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of one micro-batch (its share of the mini-batch's), and sums for the metrics."""
        algorithm, weight = self.algorithm, tokens["weight"]
        logp, entropy = stats.logp_N.float(), stats.entropy_N.float()
        terms = policy_loss(
            logp, tokens["old"], tokens["advantage"],
            clip_low=algorithm.clip_low, clip_high=algorithm.clip_high, clip_dual=algorithm.clip_dual,
        )  # fmt: skip
        policy = (weight * terms.loss).sum()
        loss = policy
        measured = {
            "policy_loss": policy, "n_tokens": torch.tensor(float(len(logp))), "clip_fraction": terms.clipped.sum(),
            "policy_shift_kl_nats": (tokens["old"] - logp).sum(), "entropy_nats": entropy.sum(),
            "sampler_trainer_logprob_gap": (tokens["old"] - logp).abs().sum(),
        }  # fmt: skip
        if algorithm.entropy_coef > 0:
            loss = loss - algorithm.entropy_coef * (weight * entropy).sum()
        if "reference" in tokens:
            kl = kl_nats(logp, tokens["reference"], algorithm.kl_estimator)
            measured["kl_nats"] = kl.sum()
            if algorithm.kl_in == "loss":
                loss = loss + algorithm.kl_coef * (weight * kl).sum()
        if stats.value_N is not None:
            errors = value_loss(stats.value_N, tokens["value"], tokens["return"], clip=algorithm.value_clip)
            measured["value_loss"] = (weight * errors).sum()
            loss = loss + algorithm.value_coef * measured["value_loss"]
        return loss, measured | {"loss": loss}

    def _micro_batches(self, batch: Batch, rows: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Rows in micro-batches of similar length, each with the width it needs."""
        lengths = batch.lengths_B.numpy()
        ordered = rows[np.argsort(lengths[rows], kind="stable")]
        for start in range(0, len(ordered), self.config.micro_batch):
            part = ordered[start : start + self.config.micro_batch]
            yield part, int(lengths[part].max())

    def _inputs(self, batch: Batch, rows: np.ndarray, width: int) -> tuple[Tensor, Tensor, Tensor]:
        def on_device(tensor: Tensor) -> Tensor:
            return tensor[rows, :width].to(self.accelerator.device)

        return on_device(batch.ids_BT), on_device(batch.attention_BT), on_device(batch.mask_BT)

    def _share(self, rows: np.ndarray) -> np.ndarray:
        return rows[self.accelerator.process_index :: self.accelerator.num_processes]

    def _sum_over_processes(self, totals: dict[str, Tensor]) -> dict[str, float]:
        names = sorted(totals)
        values = torch.stack([totals[name].double() for name in names]).to(self.accelerator.device)
        return dict(zip(names, self.accelerator.reduce(values, reduction="sum").tolist(), strict=True))
