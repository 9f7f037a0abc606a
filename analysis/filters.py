"""Which groups of a step to train on: every filter RAGEN-2 has, exactly, and the variants without its misbehaviour.

The default rules are free of the reward's scale and never return nothing while one group still carries signal;
`exact_reference=True` reproduces RAGEN-2's `rollout_filter.py` (mll-lab-nu/RAGEN), empty selections included.
Not for choosing a setting (analysis/tuning.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import yaml

from ragen_diag.errors import ConfigError, PathNotFound, did_you_mean

Strategy = Literal["none", "top_p", "top_k", "top_k_abs", "min_p"]
Mode = Literal["linear", "softmax"]
Metric = Literal["reward_std", "reward", "reward_sum", "entropy", "entropy_std", "length"]
Keep = Literal["largest", "smallest"]
Quantity = Literal["reward", "entropy", "length"]

REFERENCE_NAMES = {"reward_variance": "reward_std", "entropy_variance": "entropy_std"}
"""RAGEN's names; both are standard deviations there, whatever they are called."""

_ZERO = 1e-10  # RAGEN-2: a score this close to zero is a zero


@dataclass(frozen=True, slots=True)
class FilterSetting:
    """One way to filter groups. Field names are the keys of `filter.yaml`."""

    strategy: Strategy = "top_p"
    """none: keep all. top_p: smallest set holding `value` of the score mass. top_k: `value` of the groups. top_k_abs:
    `value` groups. min_p: groups that reach `value` of the best score."""
    value: float = 0.9
    """Share for top_p, top_k, min_p (1 or more keeps all under top_p); a count for top_k_abs.
    0.9 is RAGEN-2's main table."""
    mode: Mode = "linear"
    """What top_p calls mass. linear: the score itself. softmax: exp of the score (of its z-score in the default rules,
    so that rewards in cents and in euros select the same groups)."""
    metric: Metric = "reward_std"
    """Score of a group: std (ddof 1), mean or sum of the rewards; mean or std of the rollouts' entropy; mean length."""
    keep: Keep = "largest"
    """Which end of the ranking to keep."""
    include_zero: bool = True
    """False: groups whose score is zero are removed first (for reward_std: groups without any signal)."""
    eps: float = 0.01
    """Slack of linear top_p: a share of the total score; with exact_reference, an absolute amount of score."""
    exact_reference: bool = False
    """Reproduce RAGEN-2 to the group: absolute eps, softmax of raw scores, selections that may come out empty."""

    def __post_init__(self) -> None:
        problems = _problems(dataclasses.asdict(self))
        if problems:
            raise ConfigError("filter: " + "; ".join(problems))

    @property
    def quantity(self) -> Quantity:
        """What `select_groups` wants per rollout: 'reward', 'entropy' (mean nats/token) or 'length' (tokens)."""
        return "entropy" if self.metric.startswith("entropy") else "length" if self.metric == "length" else "reward"

    def describe(self) -> str:
        """The setting in a few words, for tables and logs."""
        if self.strategy == "none":
            return "no filter"
        mode = f" {self.mode}" if self.strategy == "top_p" else ""
        zeros = "" if self.include_zero else ", zeros dropped"
        exact = ", as RAGEN-2" if self.exact_reference else ""
        return f"{self.strategy}{mode} {self.value:g} of {self.metric}, {self.keep}{zeros}{exact}"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> FilterSetting:
        """Build from YAML content. Raises ConfigError that lists every problem."""
        names = [field.name for field in dataclasses.fields(cls)]
        problems = [f"unknown key '{key}'.{did_you_mean(str(key), names)}" for key in mapping if key not in names]
        known = {key: value for key, value in mapping.items() if key in names}
        if isinstance(known.get("metric"), str):
            known["metric"] = REFERENCE_NAMES.get(known["metric"], known["metric"])
        problems += _problems(known)
        if problems:
            raise ConfigError("filter: " + "; ".join(problems))
        return cls(**known)

    @classmethod
    def load(cls, path: Path) -> FilterSetting:
        """Read a `filter.yaml`. Raises PathNotFound, or ConfigError naming the file."""
        if not path.is_file():
            raise PathNotFound(f"{path}: no such filter file. `ragen-diag tune RUN` writes one.")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid YAML: {error}") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: expected keys and values such as 'strategy: top_p'.")
        try:
            return cls.from_mapping(content)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def to_yaml(self, header: Sequence[str] = ()) -> str:
        """YAML text that `from_mapping` takes; header lines (where the setting came from) become comments."""
        comments = "".join(f"# {line}\n" for entry in header for line in entry.splitlines())
        return comments + yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)


def _problems(mapping: Mapping[str, Any]) -> list[str]:
    """Every wrong value in a mapping of known keys, as a person would want to read it."""
    problems = []
    for name, type_ in (("strategy", Strategy), ("mode", Mode), ("metric", Metric), ("keep", Keep)):
        if name in mapping and mapping[name] not in get_args(type_):
            hint = did_you_mean(str(mapping[name]), get_args(type_))
            problems.append(f"{name} is {mapping[name]!r}; it must be one of {', '.join(get_args(type_))}.{hint}")
    for name, default in (("value", 0.9), ("eps", 0.0)):
        value = mapping.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            problems.append(f"{name} is {value!r}; it must be a number of at least 0.")
    for name in ("include_zero", "exact_reference"):
        if not isinstance(mapping.get(name, True), bool):
            problems.append(f"{name} is {mapping[name]!r}; it must be true or false.")
    return problems


def group_scores(values_PG: np.ndarray, metric: Metric = "reward_std") -> np.ndarray:
    """Score of every group, float64 (P,); nan where a group has too few values (one rollout has no std).

    values_PG: (P groups, G rollouts), nan = absent or not scored: rewards, mean entropies in nats/token or lengths in
    tokens, whichever `FilterSetting.quantity` names.
    """
    values_PG = np.asarray(values_PG, dtype=np.float64)
    if values_PG.ndim != 2:
        raise ValueError(f"values_PG must be (groups, rollouts), got shape {values_PG.shape}")
    n_P = (~np.isnan(values_PG)).sum(axis=1)
    sum_P = np.nansum(values_PG, axis=1)
    mean_P = np.divide(sum_P, n_P, out=np.full(len(n_P), np.nan), where=n_P > 0)
    if metric == "reward_sum":
        return np.where(n_P > 0, sum_P, np.nan)
    if metric in ("reward", "entropy", "length"):
        return mean_P
    squares_P = np.nansum((values_PG - mean_P[:, None]) ** 2, axis=1)
    variance_P = np.divide(squares_P, n_P - 1, out=np.full(len(n_P), np.nan), where=n_P > 1)
    std_P = np.sqrt(variance_P)
    # Sixteen times 0.1 has a "std" of 1e-17: equal values must score exactly zero, however their mean was rounded.
    tied_P = (n_P > 1) & (
        np.nanmax(np.where(np.isnan(values_PG), -np.inf, values_PG), axis=1, initial=-np.inf)
        == np.nanmin(np.where(np.isnan(values_PG), np.inf, values_PG), axis=1, initial=np.inf)
    )
    return np.where(tied_P, 0.0, std_P)


def select_groups(values_PG: np.ndarray, setting: FilterSetting) -> np.ndarray:
    """Kept group indices, int64, ascending (samples keep their batch order, as in the reference).

    values_PG: as for `group_scores`. The default rules return an empty array only when `include_zero` is off and no
    group scores above zero: then there is nothing to learn from and the step should be resampled or skipped. Groups
    without a score (one rollout, all nan) cannot be ranked: they are dropped, unless no group has one; then all stay.
    """
    return select_by_score(group_scores(values_PG, setting.metric), setting)


def select_by_score(scores_P: np.ndarray, setting: FilterSetting) -> np.ndarray:
    """`select_groups` for scores that are known already, (P,)."""
    scores_P = np.asarray(scores_P, dtype=np.float64)
    if setting.strategy == "none":
        return np.arange(len(scores_P))
    if setting.exact_reference:
        return np.sort(_select_reference(scores_P.astype(np.float32), setting))
    eligible = np.flatnonzero(np.isfinite(scores_P))
    if not len(eligible):
        return np.arange(len(scores_P))
    scores = scores_P[eligible]
    if not setting.include_zero:
        # Relative to the largest score: 1e-10 alone would call every group of a 1e-11-scale reward empty.
        nonzero = np.abs(scores) > _ZERO * min(1.0, np.abs(scores).max())
        eligible, scores = eligible[nonzero], scores[nonzero]
        if not len(eligible):
            return eligible
    return np.sort(eligible[_select_scale_free(scores, setting)])


def _select_scale_free(scores: np.ndarray, setting: FilterSetting) -> np.ndarray:
    """Positions kept among finite scores, at least one; the same for a·scores with any a > 0."""
    if setting.keep == "smallest":
        scores = scores.max() + scores.min() - scores  # mirror: small becomes large, the total stays
    if scores.min() < 0:
        scores = scores - scores.min()  # a share of a negative total means nothing
    n = len(scores)
    order = np.argsort(-scores, kind="stable")
    if setting.strategy == "top_k":
        return order[: max(1, min(n, math.floor(setting.value * n + 1e-9)))]
    if setting.strategy == "top_k_abs":
        return order[: max(1, min(n, int(setting.value)))]
    if setting.strategy == "min_p":
        limit = min(setting.value, 1.0) * scores.max()
        return np.flatnonzero(scores >= limit * (1 - 1e-9))
    spread = scores.std()
    if setting.value >= 1 or spread <= 1e-12 * np.abs(scores).max():
        return order  # all equal: nothing to choose between
    if setting.mode == "softmax":
        mass = np.exp((scores - scores.max()) / spread)
        wanted = setting.value * mass.sum()
    else:
        mass = scores
        wanted = (setting.value - setting.eps) * mass.sum()
    reached = np.cumsum(mass[order])
    n_kept = int(np.searchsorted(reached, wanted * (1 - 1e-9), side="left")) + 1
    return order[: min(n_kept, n)]


def _select_reference(scores: np.ndarray, setting: FilterSetting) -> np.ndarray:
    """RAGEN-2's selection in its own float32 arithmetic (rollout_filter.py 80-195), quirks included."""
    total_groups = len(scores)
    candidates = np.arange(total_groups)
    if not setting.include_zero:
        candidates = np.flatnonzero(np.abs(scores) > _ZERO)
    if not len(candidates):
        return candidates
    scores = scores[candidates]
    largest = setting.keep == "largest"
    if setting.strategy == "top_p":
        chosen = _reference_top_p(scores, setting, largest)
    elif setting.strategy == "min_p":
        if largest:
            chosen = np.flatnonzero(scores >= np.float32(scores.max() * setting.value - _ZERO))
        else:
            chosen = np.flatnonzero(scores <= np.float32(scores.min() / (setting.value + _ZERO) + _ZERO))
    else:
        # RAGEN counts the share from all groups, the zero ones it has just removed included.
        k = int(setting.value * total_groups) if setting.strategy == "top_k" else int(setting.value)
        k = max(min(k, len(scores)), 1)
        chosen = np.argsort(-scores if largest else scores, kind="stable")[:k]
    return candidates[chosen]


def _reference_top_p(scores: np.ndarray, setting: FilterSetting, largest: bool) -> np.ndarray:
    if setting.value >= 1:
        return np.arange(len(scores))
    if setting.mode == "softmax":
        signed = scores if largest else -scores
        weights = np.exp(signed - signed.max(), dtype=np.float32)
        weights = weights / weights.sum(dtype=np.float32)
        order = np.argsort(-weights, kind="stable")
        reached = np.cumsum(weights[order], dtype=np.float32) >= np.float32(setting.value)
        k = int(np.argmax(reached)) + 1 if reached.any() else len(scores)
        return order[:k]
    order = np.argsort(-scores if largest else scores, kind="stable")
    total = np.cumsum(scores, dtype=np.float32)[-1]  # in sequence, as torch adds a short vector; np.sum adds in pairs
    threshold = float(setting.value * total) - setting.eps
    kept: list[int] = []
    cumulative = 0.0
    for position in order:
        if cumulative >= threshold or scores[position] <= 0:
            break
        kept.append(int(position))
        cumulative += float(scores[position])
    return np.array(kept if cumulative >= threshold else [], dtype=np.int64)
