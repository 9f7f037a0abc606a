"""Which filter a run's own reward groups call for: every candidate evaluated on the logged groups, and a bootstrap.

The rules of each candidate live in filters.py. Counterfactual means: had this filter been on, which groups would have been
trained on. How the policy would have changed by it nobody can read from a log.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.filters import FilterSetting, select_by_score
from analysis.run_data import RunData
from analysis.snr import group_table
from ragen_diag import __version__

FLOOR = 0.25
"""Least share of groups a recommended filter keeps: RAGEN-1's own setting; below it RAGEN-2 warns of narrowed exploration."""
NOISE_PRIOR = 0.5
"""Gradient norm of a group without signal, over that of an average group with signal. RAGEN-2 measured 0.2 to 0.6 (PPO, step
101: zero-variance bucket against the upper ones); `recommend(noise=...)` takes a measured value."""
NEAR_BEST = 0.02
"""Candidates within this share of the best SNR are equally good; the one that keeps most groups is chosen among them."""
MIN_STEPS = 3
MAX_STEPS = 400
N_BOOT = 500

OFF = FilterSetting(strategy="none")


def candidates() -> list[FilterSetting]:
    """The grid: off, zero groups dropped, top-p linear and softmax, top-k, min-p (all without the groups that score zero)."""
    grid: list[tuple[Any, Any, tuple[float, ...]]] = [
        ("top_p", "linear", (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)),
        ("top_p", "softmax", (0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)),
        ("top_k", "linear", (0.75, 0.5, 0.25)),
        ("min_p", "linear", (0.05, 0.1, 0.2, 0.5)),
    ]
    return [OFF] + [
        FilterSetting(strategy=strategy, mode=mode, value=value, include_zero=False)
        for strategy, mode, values in grid
        for value in values
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate on the logged groups; shares are means over steps."""

    setting: FilterSetting
    kept_group_share: float
    kept_variance_share: float
    expected_snr: float
    """Σ std over the kept groups / sqrt(Σ noise²); units cancel, so only ratios between candidates mean anything."""
    snr_gain: float
    """expected_snr over that of no filter."""
    snr_gain_ci95: tuple[float, float] | None
    best_share: float
    """Share of bootstrap samples of steps in which this candidate had the best SNR above the floor."""
    prompt_coverage: float
    """Share of the run's prompts kept at least once."""
    retrieval_kept: float | None
    """Share of reasonings of kept groups whose own prompt scores best; None without cross scores."""
    retrieval_dropped: float | None

    def to_dict(self) -> dict[str, Any]:
        """Flat, for tables and JSON."""
        numbers = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "setting"}
        chosen = {name: getattr(self.setting, name) for name in ("strategy", "value", "mode")}
        return {"filter": self.setting.describe(), **chosen, **numbers}


@dataclass(frozen=True, slots=True)
class FilterRecommendation:
    """A setting with everything it was chosen from."""

    setting: FilterSetting
    table: tuple[Row, ...]
    confidence: float | None
    """Share of bootstrap samples of steps in which the setting beats no filter (in which no filter is best, when that is
    recommended); None without enough steps."""
    reasons: tuple[str, ...]
    run: str = ""
    n_steps: int = 0
    n_groups: int = 0
    noise: float = NOISE_PRIOR

    def to_dict(self) -> dict[str, Any]:
        """For the JSON result and the report."""
        return {
            "setting": dataclasses.asdict(self.setting),
            "table": [row.to_dict() for row in self.table],
            "confidence": self.confidence,
            "reasons": list(self.reasons),
            "n_steps": self.n_steps,
            "n_groups": self.n_groups,
            "noise": self.noise,
        }


def recommend(
    run: RunData, *, floor: float = FLOOR, noise: float | None = None, seed: int = 0, n_boot: int = N_BOOT
) -> FilterRecommendation:
    """Evaluate all candidates on a run's groups and choose one.

    floor: least share of groups to keep. noise: measured gradient norm of zero-variance groups over that of groups with
    signal; None = NOISE_PRIOR. Recommends a filter only when its SNR beats no filter's in at least 95 % of bootstrap
    samples of the steps. A run without usable groups gets "none" with the reason, never an error.
    """
    level = NOISE_PRIOR if noise is None else noise
    groups = group_table(run) if len(run.rollouts) else pd.DataFrame({"n": [], "step": []})
    groups = groups[(groups["n"] >= 2) & np.isfinite(groups["std"] if len(groups) else [])]
    steps = _steps_with_choice(groups)
    if len(steps) < MIN_STEPS:
        why = f"{len(steps)} steps with two or more groups and some difference in reward; {MIN_STEPS} are needed"
        return FilterRecommendation(OFF, (), None, (why,), run.name, len(steps), len(groups), level)
    groups = groups[groups["step"].isin(steps)]
    retrieved = _retrieval_by_group(run)
    settings = candidates()
    evaluated = [_evaluate(setting, groups, level, retrieved) for setting in settings]
    snr_SC = np.array([found["snr"] for found in evaluated]).T  # (steps, candidates)
    kept_C = np.array([found["kept_group_share"] for found in evaluated])
    allowed = kept_C >= floor
    generator = np.random.default_rng(seed)
    picks = generator.integers(len(snr_SC), size=(n_boot, len(snr_SC)))
    boot_BC = snr_SC[picks].mean(axis=1)
    best_B = np.where(allowed, boot_BC, -np.inf).argmax(axis=1)
    gain_BC = boot_BC / boot_BC[:, :1]
    mean_C = snr_SC.mean(axis=0)
    table = tuple(
        Row(
            setting,
            found["kept_group_share"],
            found["kept_variance_share"],
            float(mean_C[c]),
            float(mean_C[c] / mean_C[0]),
            (float(np.quantile(gain_BC[:, c], 0.025)), float(np.quantile(gain_BC[:, c], 0.975))),
            float((best_B == c).mean()),
            found["prompt_coverage"],
            found["retrieval_kept"],
            found["retrieval_dropped"],
        )
        for c, (setting, found) in enumerate(zip(settings, evaluated, strict=True))
    )
    chosen, confidence, reasons = _choose(table, gain_BC, mean_C, allowed, floor)
    reasons += _notes(groups, noise, level)
    return FilterRecommendation(chosen, table, confidence, tuple(reasons), run.name, len(steps), len(groups), level)


def _steps_with_choice(groups: pd.DataFrame) -> np.ndarray:
    """Steps with two or more groups of which one has differing returns; evenly thinned to MAX_STEPS."""
    if not len(groups):
        return np.array([], dtype="int64")
    by_step = groups.groupby("step")["std"].agg(["size", "max"])
    steps = by_step.index[(by_step["size"] >= 2) & (by_step["max"] > 0)].to_numpy()
    return steps[np.unique(np.linspace(0, len(steps) - 1, MAX_STEPS).round().astype(int))] if len(steps) else steps


def _evaluate(setting: FilterSetting, groups: pd.DataFrame, level: float, retrieved: pd.Series) -> dict[str, Any]:
    signal_groups = groups["std"] > 0
    noise_floor = level * float(groups.loc[signal_groups, "std"].mean())
    kept_share, kept_variance, snr, kept_ids, dropped_ids = [], [], [], [], []
    prompts: set[int] = set()
    for _, part in groups.groupby("step"):
        std, variance, n = (part[name].to_numpy() for name in ("std", "variance", "n"))
        kept = select_by_score(std, setting)
        kept_share.append(len(kept) / len(std))
        kept_variance.append(variance[kept].sum() / variance.sum())
        # Noise of a group: what it has without any signal, and what K rollouts leave of its own spread.
        noise = np.sqrt((noise_floor**2 + variance[kept] / n[kept]).sum())
        snr.append(std[kept].sum() / noise if len(kept) else 0.0)
        prompts.update(part["prompt"].to_numpy()[kept].tolist())
        is_kept = np.zeros(len(std), dtype=bool)
        is_kept[kept] = True
        kept_ids.append(part["group"].to_numpy()[is_kept])
        dropped_ids.append(part["group"].to_numpy()[~is_kept])
    return {
        "kept_group_share": float(np.mean(kept_share)),
        "kept_variance_share": float(np.mean(kept_variance)),
        "snr": snr,
        "prompt_coverage": len(prompts) / groups["prompt"].nunique(),
        "retrieval_kept": _mean_of(retrieved, np.concatenate(kept_ids)),
        "retrieval_dropped": _mean_of(retrieved, np.concatenate(dropped_ids)),
    }


def _retrieval_by_group(run: RunData) -> pd.Series:
    """Share of a group's reasonings whose own prompt scores best, by group; empty without cross scores."""
    if not run.cross_scores or not len(run.rollouts):
        return pd.Series(dtype="float64")
    group_of = run.train.drop_duplicates("trajectory_id").set_index("trajectory_id")["group"]
    hits: list[pd.Series] = []
    for cross in run.cross_scores:
        own = cross.logprob_sum_RN[np.arange(len(cross.column_R)), cross.column_R]
        best = cross.logprob_sum_RN.max(axis=1)
        hits.append(pd.Series((own >= best).astype(float), index=list(cross.trajectory_ids_R)))
    by_trajectory = pd.concat(hits)
    groups = group_of.reindex(by_trajectory.index)
    return by_trajectory.groupby(groups.to_numpy()).mean()


def _mean_of(values: pd.Series, ids: np.ndarray) -> float | None:
    found = values.reindex(ids).dropna() if len(values) else values
    return float(found.mean()) if len(found) else None


def _choose(
    table: tuple[Row, ...], gain_BC: np.ndarray, mean_C: np.ndarray, allowed: np.ndarray, floor: float
) -> tuple[FilterSetting, float, list[str]]:
    best = int(np.where(allowed, mean_C, -np.inf).argmax())
    near = [c for c in range(len(table)) if allowed[c] and mean_C[c] >= (1 - NEAR_BEST) * mean_C[best]]
    chosen = max(near, key=lambda c: (table[c].kept_group_share, mean_C[c]))
    wins = float((gain_BC[:, chosen] > 1).mean())
    dropped = [table[c].setting.describe() for c in range(len(table)) if not allowed[c]]
    reasons = [f"{len(dropped)} candidates keep under {floor:.0%} of the groups and were left out"] if dropped else []
    row = table[chosen]
    if chosen == 0 or wins < 0.95:
        rival = max((c for c in range(1, len(table)) if allowed[c]), key=lambda c: mean_C[c], default=0)
        off_wins = float((gain_BC[:, rival] <= 1).mean())
        low, high = table[rival].snr_gain_ci95 or (float("nan"), float("nan"))
        reasons.insert(
            0, f"no filter beats none for sure: the best, {table[rival].setting.describe()}, changes the expected SNR by "
            f"{table[rival].snr_gain - 1:+.0%} (95 %: {low - 1:+.0%} to {high - 1:+.0%})"
        )  # fmt: skip
        return OFF, off_wins, reasons
    low, high = row.snr_gain_ci95 or (float("nan"), float("nan"))
    reasons.insert(
        0, f"expected SNR {row.snr_gain - 1:+.0%} against no filter (95 %: {low - 1:+.0%} to {high - 1:+.0%}), keeping "
        f"{row.kept_group_share:.0%} of the groups and {row.kept_variance_share:.0%} of the reward variance"
    )  # fmt: skip
    if len(near) > 1:
        reasons.append(
            f"{len(near)} candidates are within {NEAR_BEST:.0%} of the best; the one that keeps most groups is taken"
        )
    return row.setting, wins, reasons


def _notes(groups: pd.DataFrame, noise: float | None, level: float) -> list[str]:
    by_step = groups.groupby("step")["variance"]
    ratio = float((by_step.std(ddof=1) / by_step.mean()).mean())
    place = "between RAGEN-2's examples"
    if ratio >= 0.8:
        place = "near or above 1, where filtering helped in RAGEN-2"
    elif ratio < 0.5:
        place = "well below 1, where it did not help in RAGEN-2"
    source = "prior, from RAGEN-2's gradient buckets" if noise is None else "measured"
    return [
        f"Std(RV)/Mean(RV) over prompts is {ratio:.2f}: {place}",
        f"noise of a group without signal: {level:.2g} of an average group's signal ({source})",
    ]


def to_yaml(recommendation: FilterRecommendation) -> str:
    """The `filter.yaml` that `train` takes, with where it came from in comments."""
    sure = (
        ""
        if recommendation.confidence is None
        else f"; better in {recommendation.confidence:.0%} of bootstrap samples of the steps"
    )
    header = [
        f"Rollout filter recommended by ragen-diag {__version__} (`ragen-diag tune`)",
        f"from run {recommendation.run or '(unnamed)'}: {recommendation.n_groups} groups, "
        f"{recommendation.n_steps} steps{sure}.",
        *recommendation.reasons,
        "Keys: see analysis/filters.py, FilterSetting. Use: ragen-diag train --filter THIS_FILE",
    ]
    return recommendation.setting.to_yaml(header)
