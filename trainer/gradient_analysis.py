"""Where the gradient comes from: norms of its task, KL and entropy parts per reward-variance bucket, and its signal-to-noise.

Measured on everything a step sampled, before the filter drops the groups of interest, and without an optimizer step. The
unit is the gradient of one group, its loss aggregated over that group alone: a norm of a mean shrinks with the number of
groups averaged, so buckets of different sizes could not be compared. Source of the analysis: RAGEN-2 (arXiv:2604.06268),
`gradient_reporter.py`. Not for drawing it (`analysis.report.figures`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from analysis.filters import group_scores
from analysis.snr import gradient_snr_from_norms
from ragen_diag.config import DiagnosticsConfig
from trainer.metrics import Row
from trainer.trajectory import Trajectory
from trainer.update import Scored, Updater

FIXED_EDGES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
"""Lower ends of RAGEN's `fixed_rv` buckets, unit: reward (std)."""
COMPONENTS = ("task", "kl", "entropy")
TIED = 1e-6
"""Reward std up to which a group counts as one without reward variance."""


def measure(updater: Updater, scored: Scored, trajectories: Sequence[Trajectory], config: DiagnosticsConfig) -> Row:
    """Metrics `grad_norm/bucket_N/{task,kl,entropy,reward_std,n_groups}` (N from 1, lowest reward std first), the same under
    `grad_norm/all/`, `gradient_snr` and `gradient_noise_ratio`.

    gradient_snr: of the task gradient over groups (`analysis.snr`). gradient_noise_ratio: mean norm of the whole policy
    gradient of groups without reward variance over that of the others; None unless both kinds occur.
    """
    groups = sorted({trajectory.group for trajectory in trajectories})
    returns = {group: [t.return_ for t in trajectories if t.group == group] for group in groups}
    width = max(map(len, returns.values()))
    stds_P = group_scores(np.array([row + [np.nan] * (width - len(row)) for row in returns.values()]))
    norms, mean_task_norm = _group_norms(updater, scored, trajectories, groups)
    row: Row = {}
    buckets = {f"bucket_{number}": index for number, index in enumerate(_buckets(stds_P, config), start=1)}
    for name, index in {**buckets, "all": np.arange(len(groups))}.items():
        for component in norms.keys() & set(COMPONENTS):
            row[f"grad_norm/{name}/{component}"] = float(norms[component][index].mean())
        row[f"grad_norm/{name}/reward_std"] = float(stds_P[index].mean())
        row[f"grad_norm/{name}/n_groups"] = len(index)
    snr = gradient_snr_from_norms(mean_task_norm, norms["task"])
    row["gradient_snr"] = snr if np.isfinite(snr) else None
    flat, signal = norms["whole"][stds_P <= TIED], norms["whole"][stds_P > TIED]
    comparable = len(flat) and len(signal) and signal.mean() > 0
    row["gradient_noise_ratio"] = float(flat.mean() / signal.mean()) if comparable else None
    return row


def _buckets(stds_P: np.ndarray, config: DiagnosticsConfig) -> list[np.ndarray]:
    """Group positions per bucket; groups of one rollout have no std and are in none."""
    known = np.flatnonzero(np.isfinite(stds_P))
    order = known[np.argsort(stds_P[known], kind="stable")]
    if config.gradient_bucket_mode == "fixed_rv":
        bucket = np.searchsorted(FIXED_EDGES, stds_P[order], side="right") - 1
        return [order[bucket == number] for number in range(len(FIXED_EDGES)) if (bucket == number).any()]
    count = min(config.gradient_buckets, len(order))
    if not count:
        return []
    size = len(order) // count  # the remainder goes to the last bucket, as in RAGEN
    return [*(order[size * n : size * (n + 1)] for n in range(count - 1)), order[size * (count - 1) :]]


def _group_norms(
    updater: Updater, scored: Scored, trajectories: Sequence[Trajectory], groups: Sequence[int]
) -> tuple[dict[str, np.ndarray], float]:
    """Norms (P,) of every component's gradient and of their sum ('whole'), and the norm of the mean task gradient."""
    accelerator = updater.accelerator
    parameters = list(updater.policy.parameter_groups(lr=0.0, critic_lr=0.0)[0]["params"])
    owner_group = np.array([trajectory.group for trajectory in trajectories])[scored.batch.owner_B.numpy()]
    total_task = [torch.zeros_like(parameter) for parameter in parameters]
    mine: list[tuple[int, dict[str, float]]] = []
    for at in range(accelerator.process_index, len(groups), accelerator.num_processes):
        gradients = _gradients(updater, scored, np.flatnonzero(owner_group == groups[at]), parameters)
        whole = [torch.stack(parts).sum(dim=0) for parts in zip(*gradients.values(), strict=True)]
        mine.append((at, {name: _norm(parts) for name, parts in {**gradients, "whole": whole}.items()}))
        for total, part in zip(total_task, gradients["task"], strict=True):
            total += part
    found = dict(gather_object(mine)) if accelerator.num_processes > 1 else dict(mine)
    if accelerator.num_processes > 1:
        total_task = [accelerator.reduce(total, reduction="sum") for total in total_task]
    names = found[0].keys()
    by_name = {name: np.array([found[at][name] for at in range(len(groups))]) for name in names}
    return by_name, _norm(total_task) / len(groups)


def _gradients(
    updater: Updater, scored: Scored, rows: np.ndarray, parameters: Sequence[Tensor]
) -> dict[str, list[Tensor]]:
    """Gradient of each term of one group's loss with respect to the policy's parameters, as weighted in the loss."""
    per_token = updater.per_token(scored, rows)
    summed: dict[str, list[Tensor]] = {}
    for part in updater.micro_batches(scored.batch, rows):
        stats = updater.policy(updater.layout(scored.batch, part), updater.temperature)
        terms, _ = updater.terms(stats, updater.chosen(scored.batch, per_token, part))
        for name in [name for name in COMPONENTS if name in terms]:
            found = torch.autograd.grad(terms[name], parameters, retain_graph=True, allow_unused=True)
            into = summed.setdefault(name, [torch.zeros_like(parameter) for parameter in parameters])
            for total, gradient in zip(into, found, strict=True):
                if gradient is not None:
                    total += gradient
    return summed


def _norm(parts: Sequence[Tensor]) -> float:
    return float(torch.stack([part.float().norm() for part in parts]).norm())
