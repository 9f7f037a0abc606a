"""The cross-score matrix on disk: log p(reasoning r | prompt j), measured online by the trainer or offline by a scorer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragen_diag.rollout_log import CROSS_SCORES_DIR, write_atomically


@dataclass(frozen=True, slots=True)
class CrossScores:
    """One matrix. R reasonings (rows), N distinct prompts (columns).

    Every row has a column of its own prompt; identical prompts (same token ids) are ONE column with the summed weight.
    """

    step: int
    split: str
    scope: str
    """'first_turn', 'state' or 'trajectory' (metrics.md §1)."""
    scorer: str
    """'policy' (the policy that sampled Z), 'checkpoint:<path>', or the name of a foreign model."""
    logprob_sum_RN: np.ndarray
    """float64 (R, N), nats: sum over the reasoning's tokens of log p(token | prompt j, earlier tokens)."""
    tokens_R: np.ndarray
    """int64 (R,): tokens of each reasoning."""
    column_R: np.ndarray
    """int64 (R,): the column a row was sampled under."""
    weights_N: np.ndarray
    """float64 (N,), sums to 1: share of the groups that each distinct prompt stands for."""
    prompt_ids_N: tuple[str, ...]
    trajectory_ids_R: tuple[str, ...]
    turn_R: np.ndarray
    """int64 (R,): turn index of each reasoning (0 in first_turn scope)."""

    def save(self, run_dir: Path) -> Path:
        """Write atomically under `cross_scores/`; returns the path."""
        name = f"step-{self.step:06d}.{self.split}.{self.scope}.npz"
        path = run_dir / CROSS_SCORES_DIR / name

        def write(temporary: Path) -> None:
            with temporary.open("wb") as handle:
                np.savez_compressed(
                    handle,
                    step=self.step,
                    split=self.split,
                    scope=self.scope,
                    scorer=self.scorer,
                    logprob_sum_RN=self.logprob_sum_RN,
                    tokens_R=self.tokens_R,
                    column_R=self.column_R,
                    weights_N=self.weights_N,
                    prompt_ids_N=np.array(self.prompt_ids_N),
                    trajectory_ids_R=np.array(self.trajectory_ids_R),
                    turn_R=self.turn_R,
                )

        write_atomically(path, write)
        return path

    @classmethod
    def load(cls, path: Path) -> CrossScores:
        """Read one matrix. Raises ValueError or OSError for a file that is not one (pickles are never executed)."""
        with np.load(path, allow_pickle=False) as data:
            return cls(
                step=int(data["step"]),
                split=str(data["split"]),
                scope=str(data["scope"]),
                scorer=str(data["scorer"]),
                logprob_sum_RN=data["logprob_sum_RN"],
                tokens_R=data["tokens_R"],
                column_R=data["column_R"],
                weights_N=data["weights_N"],
                prompt_ids_N=tuple(map(str, data["prompt_ids_N"])),
                trajectory_ids_R=tuple(map(str, data["trajectory_ids_R"])),
                turn_R=data["turn_R"],
            )


def cross_score_files(run_dir: Path) -> Iterator[Path]:
    """Matrices of a run in name (step) order."""
    yield from sorted((run_dir / CROSS_SCORES_DIR).glob("step-*.npz"))
