"""H(Z|X) per step from logged log-probs: no model pass, no cross scores. Not for full-distribution entropy (a logged series)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.uncertainty import cluster_means, jackknife_interval
from ragen_diag.findings import Estimate

NO_STEP = -1
"""Key of a log without steps."""
_UNIT = "nats/token"


def from_rollouts(rollouts: pd.DataFrame) -> dict[int, Estimate]:
    """H(Z|X) of each step with log-probs: -mean over rollouts of (log-prob of the first thinking / its tokens), nats/token.

    rollouts: columns of `run_data.ROLLOUT_COLUMNS`. Prompts weigh equally and are the sampling unit of the interval. Where first
    turns were not logged apart, all turns' thinking stands in, and `method` says so. Same definition as
    `information.measure`'s conditional_entropy_nats_per_token in first_turn scope. Steps without log-probs are absent.
    """
    if rollouts.empty:
        return {}
    first = _per_token(rollouts, "first_thinking_logprob", "thinking_tokens")
    whole = _per_token(rollouts, "thinking_logprob", "thinking_tokens_all")
    steps = rollouts["step"].astype("Int64").fillna(NO_STEP).astype("int64").to_numpy()
    prompts = rollouts["prompt"].to_numpy()
    result = {}
    for step in np.unique(steps).tolist():
        here = steps == step
        for values, scope in ((first, "first turn"), (whole, "all turns")):
            usable = here & np.isfinite(values)
            if usable.any():
                result[step] = _estimate(values[usable], prompts[usable], scope)
                break
    return result


def _per_token(rollouts: pd.DataFrame, logprob: str, tokens: str) -> np.ndarray:
    """-log-prob / tokens of each rollout; nan where either is missing or there are no tokens."""
    count = rollouts[tokens].to_numpy(dtype="float64")
    total = rollouts[logprob].to_numpy(dtype="float64")
    return np.where(count > 0, -total / np.where(count > 0, count, np.nan), np.nan)


def _estimate(values: np.ndarray, prompts: np.ndarray, scope: str) -> Estimate:
    replicates = cluster_means(values, prompts)
    interval = jackknife_interval(replicates)
    why = "jackknife over prompts" if interval else "no interval: too few prompts"
    method = f"-mean of logged log p(z|x) / tokens, {scope}; {why}"
    return Estimate(float(replicates[0]), interval, _UNIT, len(replicates) - 1, len(values), method)
