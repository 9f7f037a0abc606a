"""Success on held-out seeds with its interval:

the numbers behind validation and `eval`. Not for loading models (`evaluate.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from scipy.stats import binomtest, t

from ragen_diag.errors import UsageError
from trainer.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Outcome of S seeds with K rollouts each."""

    model: str
    env: str
    seeds: tuple[int, ...]
    successes_SK: np.ndarray
    """bool (S, K)"""
    returns_SK: np.ndarray
    """float (S, K), penalties included; unit: reward"""
    temperature: float | None = None
    """Sampling temperature; None for random play."""
    n_failed: int = 0
    """Seeds left out because a service failed in one of their rollouts."""

    @property
    def success_rate(self) -> float:
        """Share of rollouts with success."""
        return float(self.successes_SK.mean())

    @property
    def success_ci95(self) -> tuple[float, float]:
        """Over prompts: Wilson's interval for one rollout per seed, Student's t over the seeds' means for several."""
        n_seeds, n_rollouts = self.successes_SK.shape
        if n_rollouts == 1:
            interval = binomtest(int(self.successes_SK.sum()), n_seeds).proportion_ci(method="wilson")
            return float(interval.low), float(interval.high)
        if n_seeds == 1:
            return 0.0, 1.0
        means_S = self.successes_SK.mean(axis=1)
        half = float(t.ppf(0.975, n_seeds - 1) * means_S.std(ddof=1) / np.sqrt(n_seeds))
        return max(0.0, self.success_rate - half), min(1.0, self.success_rate + half)

    def pass_at(self, k: int) -> float:
        """Expected share of seeds solved by at least one of k rollouts, for k up to K: 1 - C(K - c, k) / C(K, k), c successes.

        Unbiased for every k, where "any of the first k" wastes the others. Source: arXiv:2107.03374, eq. 1.
        """
        n_rollouts = self.successes_SK.shape[1]
        if not 1 <= k <= n_rollouts:
            raise ValueError(f"pass@{k} needs 1 to {n_rollouts} rollouts a seed")
        failed_S = n_rollouts - self.successes_SK.sum(axis=1)
        return float(np.mean([1 - comb(int(failed), k) / comb(n_rollouts, k) for failed in failed_S]))

    @property
    def pass_at_k(self) -> float:
        """Share of seeds that any of the K rollouts solved."""
        return self.pass_at(self.successes_SK.shape[1])

    def summary(self) -> str:
        """One line for the terminal."""
        low, high = self.success_ci95
        n_seeds, n_rollouts = self.successes_SK.shape
        shown = sorted({*(2**i for i in range(1, n_rollouts.bit_length()) if 2**i < n_rollouts), n_rollouts})
        passes = ", ".join(f"pass@{k} {self.pass_at(k):.1%}" for k in shown)
        several = f" x {n_rollouts} rollouts, {passes}" if n_rollouts > 1 else ""
        drawn = "" if self.temperature is None else f", temperature {self.temperature:g}"
        success = f"success {self.success_rate:.1%} [{low:.1%}, {high:.1%}]"
        failed = f", {self.n_failed} more left out: a service failed" if self.n_failed else ""
        return f"{self.model} on {self.env}: {success} ({n_seeds} seeds{several}{drawn}{failed})"


def result_of(
    model: str, env: str, trajectories: Sequence[Trajectory], *, n_rollouts: int, temperature: float
) -> EvalResult:
    """The result of rollouts in group order. Raises UsageError when a service failed for every seed."""
    groups = [trajectories[i : i + n_rollouts] for i in range(0, len(trajectories), n_rollouts)]
    sound = [group for group in groups if all(trajectory.error is None for trajectory in group)]
    if not sound:
        raise UsageError(f"{env}: a service failed for every seed: {next(t.error for t in trajectories if t.error)}")
    return EvalResult(
        model,
        env,
        tuple(group[0].seed for group in sound),
        np.array([[trajectory.success for trajectory in group] for group in sound]),
        np.array([[trajectory.return_ for trajectory in group] for group in sound]),
        temperature,
        n_failed=len(groups) - len(sound),
    )
