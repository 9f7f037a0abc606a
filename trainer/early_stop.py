"""When a run gives up. The loop then validates, saves a checkpoint and says why."""

from __future__ import annotations

import numpy as np

from ragen_diag.config import TrainConfig
from trainer.checkpoints import LoopState
from trainer.metrics import Row

BASELINE_STEPS = 10
"""Steps whose mean in-group reward std is the baseline (RAGEN)."""


def note_step(state: LoopState, config: TrainConfig, row: Row) -> None:
    """Remember a step and set `state.stop_reason` when the filter starves or the reward variance has collapsed."""
    limit = config.filter.empty_stop_steps
    if limit and state.empty_steps >= limit:
        why = "every rollout failed" if row.get("rollout_error_share") == 1 else "the filter kept no group"
        state.stop_reason = f"{why} for {limit} steps in a row"
    std = row.get("reward_std_in_group")
    if state.empty_steps == 0 and std is not None:
        state.std_history.append(float(std))
    share, steps = config.early_stop.variance_collapse_share, config.early_stop.variance_collapse_steps
    history = state.std_history
    if share > 0 and len(history) >= BASELINE_STEPS + steps:
        baseline = float(np.mean(history[:BASELINE_STEPS]))
        if max(history[-steps:]) < share * baseline:
            state.stop_reason = f"in-group reward std below {share:.0%} of its start ({baseline:.3g}) for {steps} steps"


def note_validation(state: LoopState, config: TrainConfig, success_rate: float) -> None:
    """Count validations below the limit in a row, and set `state.stop_reason` when there are too many."""
    limit, count = config.early_stop.min_validation_success, config.early_stop.min_validation_count
    state.low_validations = state.low_validations + 1 if success_rate < limit else 0
    if limit > 0 and state.low_validations >= count:
        state.stop_reason = f"validation success below {limit:.1%} for {count} validations in a row"
