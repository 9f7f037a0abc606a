"""Signal-to-noise of the reward: group statistics, per-step signal with intervals, gradient SNR (metrics.md §5).

Sampling unit of every interval is the group (prompt), never the rollout: rollouts of one prompt are not independent.
Not for choosing a filter (analysis/tuning.py), nor for judging (analysis/detectors/zero_signal.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import stats

from analysis.run_data import RunData
from ragen_diag.findings import Estimate

TIE_ATOL = 1e-6
"""Returns closer than this (relative to the largest return) are equal: float32 rewards differ by rounding."""
NO_STEP = -1
"""Step of rollouts whose log has no steps; only in the frames of this module, never shown."""


def group_table(run: RunData) -> pd.DataFrame:
    """One row per training group: step, group, prompt, n (scored rollouts), mean, std (ddof 1), variance, low, high,
    tied (all returns equal; nan with fewer than two), kind ('right' | 'wrong' | 'constant' for tied groups, else '').

    'right' and 'wrong' come from `success` where it is logged, else from the return being the run's largest or smallest.
    Groups without an id are formed by (step, prompt). Unscored rollouts (nan) are left out; failed ones are not special.
    """
    frame = run.train
    values = frame["return_"].to_numpy(dtype="float64")
    keys = frame["group"].to_numpy()
    # Negative codes keep formed groups apart from logged ones.
    keys = np.where(keys >= 0, keys, -2 - frame["prompt"].to_numpy())
    data = pd.DataFrame(
        {
            "step": frame["step"].fillna(NO_STEP).to_numpy(dtype="int64"),
            "group": keys,
            "prompt": frame["prompt"].to_numpy(),
            "value": values,
            "success": frame["success"].to_numpy(dtype="float64"),
        }
    )
    grouped = data.groupby(["step", "group"], sort=True)
    value = grouped["value"]
    table = pd.DataFrame(
        {
            "prompt": grouped["prompt"].first(),
            "n": value.count(),
            "mean": value.mean(),
            "variance": value.var(ddof=1),
            "low": value.min(),
            "high": value.max(),
            "success": grouped["success"].mean(),
        }
    ).reset_index()
    finite = values[np.isfinite(values)]
    scale = max(1.0, float(np.abs(finite).max())) if len(finite) else 1.0
    tied = (table["high"] - table["low"]) <= TIE_ATOL * scale
    table["tied"] = np.where(table["n"] >= 2, tied.astype(float), np.nan)
    table.loc[table["tied"] == 1, "variance"] = 0.0
    table["std"] = np.sqrt(table["variance"])
    table["kind"] = _tied_kind(table, finite, TIE_ATOL * scale)
    return table


def _tied_kind(table: pd.DataFrame, finite: np.ndarray, atol: float) -> np.ndarray:
    if not len(finite):
        return np.full(len(table), "", dtype=object)
    low, high = float(finite.min()), float(finite.max())
    right, wrong = table["success"] == 1, table["success"] == 0
    if high - low > atol:  # a run with one single return cannot tell right from wrong by it
        unknown = table["success"].isna()
        right |= unknown & (table["mean"] >= high - atol)
        wrong |= unknown & (table["mean"] <= low + atol)
    kind = np.select([right, wrong], ["right", "wrong"], default="constant")
    return np.where(table["tied"] == 1, kind, "")


def step_signal(groups: pd.DataFrame) -> pd.DataFrame:
    """Per-step point values (index: step) of `group_table`'s groups.

    reward_mean · reward_std_in_group (mean over groups of the in-group std; RAGEN's `in_group_reward_std`) ·
    zero_variance_share, all_right_share, all_wrong_share, constant_share (of groups with two or more scored rollouts) ·
    intraclass_correlation (between-prompt over total variance, one-way ANOVA estimator) · rv_spread_ratio
    (Std(RV)/Mean(RV) over prompts, RAGEN-2's predictor of whether filtering helps) · effective_groups ((Σ RV)²/Σ RV²) ·
    n_groups · n_rollouts. nan where a quantity is undefined.
    """
    groups = groups[groups["n"] > 0]
    usable = groups["n"] >= 2
    per_step = groups.groupby("step")
    out = pd.DataFrame(
        {
            "reward_mean": (groups["mean"] * groups["n"]).groupby(groups["step"]).sum() / per_step["n"].sum(),
            "n_groups": per_step.size(),
            "n_rollouts": per_step["n"].sum(),
        }
    )
    rich = groups[usable]
    by_step = rich.groupby("step")
    out["reward_std_in_group"] = by_step["std"].mean()
    out["zero_variance_share"] = by_step["tied"].mean()
    for kind in ("right", "wrong", "constant"):
        out[f"all_{kind}_share" if kind != "constant" else "constant_share"] = (
            (rich["kind"] == kind).groupby(rich["step"]).mean()
        )
    mean_rv = by_step["variance"].mean()
    out["rv_spread_ratio"] = by_step["variance"].std(ddof=1) / mean_rv.where(mean_rv > 0)
    squares = (rich["variance"] ** 2).groupby(rich["step"]).sum()
    out["effective_groups"] = by_step["variance"].sum() ** 2 / squares.where(squares > 0)
    out["intraclass_correlation"] = pd.Series(
        {step: intraclass_correlation(_sums(part)) for step, part in by_step}, dtype="float64"
    )
    out.index.name = "step"
    return out


def _sums(groups: pd.DataFrame) -> np.ndarray:
    """(5, P): per-group n, n², n·mean, n·mean², within sum of squares. All ICC needs, and additive over groups."""
    n, mean = groups["n"].to_numpy(dtype="float64"), groups["mean"].to_numpy()
    return np.array([n, n**2, n * mean, n * mean**2, (n - 1) * groups["variance"].to_numpy()])


def intraclass_correlation(sums_5P: np.ndarray) -> float:
    """ICC(1), (MSB - MSW) / (MSB + (n0 - 1) MSW), unbalanced one-way ANOVA; nan when undefined, may be below zero."""
    return float(_icc(sums_5P.sum(axis=1), sums_5P.shape[1]))


def _icc(totals: np.ndarray, n_groups: int) -> np.ndarray:
    """ICC from totals (5, ...) of `_sums`."""
    n, n_squared, weighted, weighted_squares, within = totals
    with np.errstate(divide="ignore", invalid="ignore"):
        between_ms = (weighted_squares - weighted**2 / n) / (n_groups - 1)
        within_ms = within / (n - n_groups)
        n0 = (n - n_squared / n) / (n_groups - 1)
        icc = (between_ms - within_ms) / (between_ms + (n0 - 1) * within_ms)
    return np.where(np.isfinite(icc), icc, np.nan)


def signal_estimates(groups: pd.DataFrame) -> dict[str, Estimate]:
    """The quantities of `step_signal` for any set of groups (one step, a window, a whole run), with 95 % intervals.

    Means: Student's t over groups. Shares: Wilson. Ratios (ICC, spread ratio, effective groups): jackknife over groups.
    """
    scored = groups[groups["n"] > 0]
    rich = groups[groups["n"] >= 2]
    n_rollouts = int(scored["n"].sum())
    variance = rich["variance"].to_numpy()

    def estimate(value: float, interval: tuple[float, float] | None, unit: str, method: str) -> Estimate:
        known = value if math.isfinite(value) else None
        return Estimate(known, interval if known is not None else None, unit, len(rich), n_rollouts, method)

    found = {
        "reward_mean": estimate(
            *mean_interval(scored["mean"].to_numpy()), "reward", "mean of group means, t over groups"
        ),
        "reward_std_in_group": estimate(
            *mean_interval(rich["std"].to_numpy(), floor=0.0), "reward", "mean std, t over groups, cut at zero"
        ),
    }
    shares = {"zero_variance_share": rich["tied"] == 1}
    shares |= {f"all_{kind}_share": rich["kind"] == kind for kind in ("right", "wrong")}
    shares["constant_share"] = rich["kind"] == "constant"
    for name, mask in shares.items():
        value, interval = wilson(int(mask.sum()), len(rich))
        found[name] = estimate(value, interval, "share", "share of groups, Wilson")
    totals = _sums(rich)
    jackknives: dict[str, tuple[Callable[[np.ndarray], np.ndarray], np.ndarray, str]] = {
        "intraclass_correlation": (lambda t: _icc(t, len(rich) - (t.ndim > 1)), totals, "ratio"),
        "rv_spread_ratio": (_spread_ratio, np.array([np.ones(len(rich)), variance, variance**2]), "ratio"),
        "effective_groups": (_effective, np.array([variance, variance**2]), "groups"),
    }
    for name, (statistic, parts, unit) in jackknives.items():
        found[name] = estimate(*jackknife(statistic, parts), unit, "jackknife over groups")
    return found


def _spread_ratio(totals: np.ndarray) -> np.ndarray:
    n, rv, rv_squared = totals
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = rv / n
        return np.sqrt(np.maximum(rv_squared / n - mean**2, 0) * n / (n - 1)) / mean


def _effective(totals: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals[0] ** 2 / totals[1]


def jackknife(
    statistic: Callable[[np.ndarray], np.ndarray], parts_SP: np.ndarray
) -> tuple[float, tuple[float, float] | None]:
    """Value and 95 % delete-one-group interval of a statistic of column sums.

    parts_SP: (S sums, P groups), additive over groups; `statistic` maps totals (S,) or (S, P) to a value or (P,) values.
    """
    n = parts_SP.shape[1]
    if n == 0:
        return float("nan"), None
    totals = parts_SP.sum(axis=1)
    value = float(statistic(totals))
    if n < 3 or not math.isfinite(value):
        return value, None
    left_out = np.asarray(statistic(totals[:, None] - parts_SP), dtype="float64")
    if not np.isfinite(left_out).all():
        return value, None
    error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    half = float(stats.t.ppf(0.975, n - 1)) * error
    return value, (value - half, value + half)


def mean_interval(values: np.ndarray, *, floor: float = -math.inf) -> tuple[float, tuple[float, float] | None]:
    """Mean with Student's 95 % interval; no interval with fewer than two values.

    floor: the least value the mean can have. Cutting the interval there takes no coverage from it.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), None
    mean = float(values.mean())
    if len(values) < 2:
        return mean, None
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, (max(floor, mean - half), mean + half)


def wilson(successes: float, n: float) -> tuple[float, tuple[float, float] | None]:
    """Share with Wilson's 95 % score interval; `n` may be an effective (fractional) size. nan without trials."""
    if n <= 0:
        return float("nan"), None
    z = 1.959963984540054
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return share, (max(0.0, centre - half), min(1.0, centre + half))


def gradient_snr(gram_PP: np.ndarray) -> Estimate:
    """‖mean gradient‖² over the trace of the mean's covariance, from per-group gradients; 1 = as much signal as noise.

    gram_PP: (P, P) inner products g_i · g_j of the per-group gradients: all that is needed, whatever the model's size.
    ‖mean‖² is corrected for its own noise, so the value may be below zero: then no signal can be seen.
    Interval: jackknife over groups. Source: metrics.md §5; the SNR of RAGEN-2 (arXiv paper, appendix H.3) in squared form.
    """
    gram = np.asarray(gram_PP, dtype="float64")
    n = len(gram)
    if gram.shape != (n, n):
        raise ValueError(f"gram_PP must be square, got shape {gram.shape}")
    method = "unbiased squared norm over trace of covariance / P, jackknife over groups"
    if n < 2:
        return Estimate(None, None, "ratio", n, n, "needs the gradients of two or more groups")
    value = _snr(gram.sum(), np.trace(gram), n)
    if not math.isfinite(value):
        return Estimate(None, None, "ratio", n, n, "all gradients are equal or zero")
    if n < 4:
        return Estimate(value, None, "ratio", n, n, method)
    sums = gram.sum() - 2 * gram.sum(axis=1) + np.diag(gram)
    left_out = np.array([_snr(s, np.trace(gram) - d, n - 1) for s, d in zip(sums, np.diag(gram), strict=True)])
    half = stats.t.ppf(0.975, n - 1) * math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    return Estimate(value, (value - float(half), value + float(half)), "ratio", n, n, method)


def _snr(total: float, trace: float, n: int) -> float:
    """total = ‖Σ g‖², trace = Σ ‖g‖²."""
    mean_norm_squared = total / n**2
    noise = (trace - n * mean_norm_squared) / (n - 1) / n
    return (mean_norm_squared - noise) / noise if noise > 0 else float("nan")


def gradient_snr_from_norms(mean_gradient_norm: float, group_gradient_norms_P: np.ndarray) -> float:
    """`gradient_snr`'s value from ‖mean g‖ and the ‖g_i‖ alone, for trainers that log only norms; nan when undefined."""
    squared = np.asarray(group_gradient_norms_P, dtype="float64") ** 2
    n = len(squared)
    return _snr((n * mean_gradient_norm) ** 2, float(squared.sum()), n) if n >= 2 else float("nan")
