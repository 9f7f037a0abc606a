"""Values that look broken and are right. Listed when present, so that nobody hunts for them; never a problem."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.detectors.registry import detector
from analysis.detectors.weights import mixed_steps
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.turning_points import finite
from ragen_diag.findings import Family, Finding, Status


@detector("NZ01", "normal zeros", Family.NORMAL)
def normal_zeros(run: RunData, measures: Measures) -> Finding:
    """NZ01: loss 0 on-policy, loss = beta x KL, clip fraction 0, mean advantage 0, negative policy loss, gradient 0 on
    steps whose groups are all tied. Source: trl#3452, #2703, #3120, verl#4747, NeMo-RL#3550, Relax#174."""
    series = {name: finite(values) for name, values in measures.series.items()}
    rules = (_zero_loss, _loss_is_kl, _zero_clip, _zero_advantage, _negative_loss, _zero_gradient, _undefined_std)
    normal = [reason for rule in rules if (reason := rule(series, measures)) is not None]
    if not normal:
        return Finding("NZ01", Status.PASS, "no value here needs explaining away")
    return Finding("NZ01", Status.PASS, "normal, not a problem: " + "; ".join(normal), {"normal": normal})


_Series = dict[str, pd.Series]


def _zero_loss(series: _Series, measures: Measures) -> str | None:
    loss, gradient = _loss(series), series.get("grad_norm", pd.Series(dtype="float64"))
    if len(loss) and (loss.abs() < 5e-3).all() and len(gradient) and (gradient > 0).any():
        return "a loss at or near 0 (on-policy advantages sum to zero in each group; the gradient does not)"
    return None


def _loss_is_kl(series: _Series, measures: Measures) -> str | None:
    loss, kl = _loss(series), series.get("kl_nats", pd.Series(dtype="float64"))
    both = loss.index.intersection(kl.index)
    pairs = pd.DataFrame({"loss": loss.reindex(both), "kl": kl.reindex(both)})
    pairs = pairs[(pairs["kl"] > 0) & (pairs["loss"] > 0)]
    if len(pairs) < 3:
        return None
    ratio = (pairs["loss"] / pairs["kl"]).to_numpy()
    # Logs print the loss with four digits; half a unit of the last is what the ratio may wander by.
    tolerance = np.maximum(0.05, 5e-5 / pairs["loss"].to_numpy())
    if (np.abs(ratio / np.median(ratio) - 1) <= tolerance).all():
        return f"a loss of {np.median(ratio):.2g} x KL (on-policy, only the KL term has a value of its own)"
    return None


def _zero_clip(series: _Series, measures: Measures) -> str | None:
    clip = series.get("clip_fraction", pd.Series(dtype="float64"))
    if len(clip) and (clip == 0).all():
        return "a clip fraction of 0 (one update a batch: the ratio is 1 when the loss is computed)"
    return None


def _zero_advantage(series: _Series, measures: Measures) -> str | None:
    mean = series.get("advantage_mean", pd.Series(dtype="float64"))
    high = series.get("advantage_max", pd.Series(dtype="float64"))
    if (
        len(mean)
        and len(high)
        and (high > 0).any()
        and (mean.abs() <= 0.05 * high.reindex(mean.index).fillna(0)).mean() > 0.8
    ):
        return "a mean advantage near 0 (centred by construction)"
    return None


def _negative_loss(series: _Series, measures: Measures) -> str | None:
    loss = series.get("policy_loss", pd.Series(dtype="float64"))
    if len(loss) and (loss < 0).any():
        return "a negative policy loss (it is no error measure; its sign says nothing)"
    return None


def _zero_gradient(series: _Series, measures: Measures) -> str | None:
    gradient = series.get("grad_norm", pd.Series(dtype="float64"))
    zero = gradient[gradient == 0]
    if not len(zero):
        return None
    mixed = mixed_steps(measures)
    reward = series.get("reward_mean", pd.Series(dtype="float64")).reindex(zero.index)
    best = series["reward_mean"].max() if "reward_mean" in series else np.nan
    tied = ~mixed.reindex(zero.index).fillna(True).astype(bool) if len(mixed) else reward == best
    if len(zero) and tied.all():
        return f"a gradient of 0 in {len(zero)} steps whose rollouts all earned the same"
    return None


def _undefined_std(series: _Series, measures: Measures) -> str | None:
    groups = measures.groups
    if len(groups) and (groups["n"] == 1).all():
        return "no in-group std (one rollout a prompt: undefined, not zero)"
    return None


def _loss(series: _Series) -> pd.Series:
    return next(
        (series[name] for name in ("loss", "policy_loss") if len(series.get(name, ()))), pd.Series(dtype="float64")
    )
