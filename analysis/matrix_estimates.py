"""The estimates of one cross-score matrix, family by family, with every interval's method. Public names: information.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial

import numpy as np

from analysis.comparable import Block
from analysis.mixture import Mixtures, block_mixtures, margins
from analysis.retrieval import KS, chance_level, retrieval_replicates
from analysis.uncertainty import (
    jackknife_interval,
    permutation_p,
    permuted_scores,
    share_interval,
    stratified_bootstrap,
)
from ragen_diag.findings import Estimate

SATURATED_AT = 0.9
"""Lower end over H(X) at which the lower end says only "at least this much" (docs/metrics.md §2)."""
MAX_GAP_NATS = 1.5
"""Bracket width beyond which the midpoint is withheld: its own bias then rivals its standard error (docs/calibration.md)."""
BIAS_PER_GAP = 0.15
"""Bias allowance of the midpoint: 0.15 g²/(1+g) for a bracket g nats wide; measured on planted worlds (docs/calibration.md)."""
ZSCORE_EPS = 1e-3


UNITS: dict[str, str] = {
    "mi_lower_nats": "nats",
    "mi_upper_nats": "nats",
    "mi_nats": "nats",
    "mi_batch_nats": "nats",
    "normalised_mi": "share of H(X)",
    "mi_per_token_proxy": "nats/token",
    "conditional_entropy_nats_per_token": "nats/token",
    "conditional_entropy_nats_per_sequence": "nats",
    "reasoning_entropy_nats_per_sequence": "nats",
    "prompt_entropy_nats": "nats",
    "mi_upper_bound": "nats",
    "margin_nats_per_token": "nats/token",
    "mi_zscore": "1",
    "mi_zscore_seq": "1",
    "p_no_dependence": "probability",
    **{
        f"retrieval_{what}{'' if k == 1 else f'@{k}'}": "share"
        for what in ("accuracy", "chance", "above_chance")
        for k in KS
    },
}


class MatrixEstimates:
    """Computes the estimates of one matrix; every population interval comes from the same deletions of prompts."""

    def __init__(self, blocks: list[Block], *, exact: bool, note: str, seed: int, n_boot: int, n_perm: int) -> None:
        self.blocks, self.clusters, self.exact, self.note = blocks, blocks[0].clusters, exact, note
        self.n_boot, self.n_perm, self.rng = n_boot, n_perm, np.random.default_rng(seed)
        self.n_prompts = sum(len(block.weights_N) for block in blocks)
        self.n_rows = sum(len(block.column_R) for block in blocks)
        self.replicates: dict[str, np.ndarray] = {}
        """Of every population estimate made so far: with all prompts (entry 0) and without each, (1 + Q,)."""

    @cached_property
    def sums(self) -> list[Mixtures]:
        """Per block, of log-prob sums."""
        return [block_mixtures(block, per_token=False) for block in self.blocks]

    @cached_property
    def per_token(self) -> list[Mixtures]:
        """Per block, of log-probs per token."""
        return [block_mixtures(block, per_token=True) for block in self.blocks]

    def estimates(self, names: Collection[str]) -> dict[str, Estimate]:
        """The named estimates, computing only the families they belong to. KeyError for an unknown name."""
        makers: dict[str, Callable[[], dict[str, Estimate]]] = {
            **dict.fromkeys(("mi_lower_nats", "mi_upper_nats", "mi_nats", "normalised_mi"), self._bracket),
            **dict.fromkeys(("prompt_entropy_nats", "mi_upper_bound"), self._ceilings),
            **{
                name: self._entropies for name in UNITS if name.startswith(("conditional_entropy", "reasoning_entropy"))
            },
            **dict.fromkeys(
                ("mi_per_token_proxy", "margin_nats_per_token", "mi_zscore", "mi_zscore_seq"), self._contrasts
            ),
            **{name: partial(self._retrieval, _k_of(name)) for name in UNITS if name.startswith("retrieval_")},
            "mi_batch_nats": self._batch,
            "p_no_dependence": self._permutation,
        }
        found: dict[str, Estimate] = {}
        for name in names:
            if name not in found:
                found.update(makers[name]())
        return {name: found[name] for name in UNITS if name in names}

    @cached_property
    def _entropy(self) -> float:
        return sum(block.share * _entropy(block.weights_N) for block in self.blocks)

    @cached_property
    def _lower_M(self) -> np.ndarray:
        return self._mean([m.matched_R[:, None] - m.mix_RM for m in self.sums], self.sums)

    @property
    def _critic(self) -> str:
        return "" if self.exact else ", foreign critic (InfoNCE)"

    def _ceilings(self) -> dict[str, Estimate]:
        """What the prompts alone allow."""
        log_columns = sum(block.share * float(np.log(len(block.weights_N))) for block in self.blocks)
        return {
            "prompt_entropy_nats": self._exactly(
                "prompt_entropy_nats", self._entropy, "-Σ w log w over the batch's distinct prompts"
            ),
            "mi_upper_bound": self._exactly("mi_upper_bound", log_columns, "log of the number of distinct prompts"),
        }

    def _bracket(self) -> dict[str, Estimate]:
        """The MI estimates over prompts: lower end, upper end, midpoint, normalised."""
        lower_M, entropy, critic = self._lower_M, self._entropy, self._critic
        upper_M = self._mean([m.matched_R[:, None] - m.others_RM for m in self.sums], self.sums)
        outer_M = self._mean([m.matched_R[:, None] - m.other_groups_RM for m in self.sums], self.sums)
        result = {
            "mi_lower_nats": self._population(
                "mi_lower_nats",
                lower_M,
                f"mean(matched - mixture), lower end for the prompt distribution{critic}",
                most=entropy,
            ),
            "normalised_mi": self._population(
                "normalised_mi", lower_M / entropy, f"MI lower end / H(X){critic}", most=1.0
            ),
        }
        if not self.exact:
            reason = "not shown: with a scorer other than the sampling policy only the lower end is a bound"
            for name in ("mi_upper_nats", "mi_nats"):
                result[name] = self._estimate(name, None, None, reason)
            return result
        result["mi_upper_nats"] = self._population(
            "mi_upper_nats",
            upper_M,
            "mean(matched - mixture of the other prompts), upper end for the prompt distribution",
        )
        gap = float(outer_M[0] - lower_M[0])
        if not np.isfinite(gap) or gap > MAX_GAP_NATS or lower_M[0] >= SATURATED_AT * entropy:
            reason = "insufficient prompts: the bracket is saturated or wider than 1.5 nats; read its ends"
            result["mi_nats"] = self._estimate("mi_nats", None, None, reason)
        else:
            text = "midpoint of the bracket, MI of the prompt distribution"
            result["mi_nats"] = self._population("mi_nats", (lower_M + outer_M) / 2, text, allowance=midpoint_bias(gap))
        return result

    def _entropies(self) -> dict[str, Estimate]:
        """H(Z|X) and H(Z); with a foreign scorer cross-entropies, which exceed them."""
        matched = [np.broadcast_to(m.matched_R[:, None], m.mix_RM.shape) for m in self.sums]
        per_token = [np.broadcast_to(m.matched_R[:, None], m.mix_RM.shape) for m in self.per_token]
        kind = "" if self.exact else " (cross-entropy of a foreign scorer: at least the entropy)"
        rows = {
            "conditional_entropy_nats_per_sequence": (matched, self.sums, "-mean log p(z|x)"),
            "conditional_entropy_nats_per_token": (per_token, self.per_token, "-mean of log p(z|x) / tokens"),
            "reasoning_entropy_nats_per_sequence": (
                [m.mix_RM for m in self.sums],
                self.sums,
                "-mean log mixture of the batch",
            ),
        }
        return {
            name: self._population(name, -self._mean(values, mixed), text + kind)
            for name, (values, mixed, text) in rows.items()
        }

    def _contrasts(self) -> dict[str, Estimate]:
        """Length-normalised proxy, margin and z-scores."""
        proxy = [m.matched_R[:, None] - m.mix_RM for m in self.per_token]
        result = {
            "mi_per_token_proxy": self._population(
                "mi_per_token_proxy",
                self._mean(proxy, self.per_token),
                "RAGEN-2 mi_estimate on L/T; not an MI per sequence",
            ),
            "margin_nats_per_token": self._population(
                "margin_nats_per_token",
                self._mean([margins(block) for block in self.blocks], self.per_token),
                "mean of (matched - mean under the other prompts) / tokens",
            ),
        }
        for name, mixed in (("mi_zscore", self.per_token), ("mi_zscore_seq", self.sums)):
            parts = [m.mean(m.matched_R[:, None] - m.mix_RM) / (m.std(m.mix_RM) + ZSCORE_EPS) for m in mixed]
            result[name] = self._population(
                name, self._combine(parts), "mean gain / (population std of the mixture + 1e-3), RAGEN-2"
            )
        return result

    def _retrieval(self, k: int) -> dict[str, Estimate]:
        """Accuracy@k, its chance level and the difference."""
        suffix = "" if k == 1 else f"@{k}"
        parts = [
            retrieval_replicates(b.score_RN, b.column_R, b.cluster_N, b.clusters, m.weight_RM, k)
            for b, m in zip(self.blocks, self.sums, strict=True)
        ]
        accuracy_M = self._combine(parts)
        chance = sum(block.share * chance_level(block.weights_N, k) for block in self.blocks)
        self.replicates[f"retrieval_accuracy{suffix}"] = accuracy_M
        trivial = all(k >= len(block.weights_N) for block in self.blocks)
        interval = (1.0, 1.0) if trivial else share_interval(accuracy_M, self.n_rows)
        above = None if interval is None else (interval[0] - chance, interval[1] - chance)
        text = (
            f"own prompt among the {k} best, over prompts (Clopper-Pearson on the effective sample size, Korn-Graubard)"
        )
        return {
            f"retrieval_accuracy{suffix}": self._estimate(
                f"retrieval_accuracy{suffix}", float(accuracy_M[0]), interval, text
            ),
            f"retrieval_chance{suffix}": self._exactly(f"retrieval_chance{suffix}", chance, f"min(1, {k} Σ w²)"),
            f"retrieval_above_chance{suffix}": self._estimate(
                f"retrieval_above_chance{suffix}", float(accuracy_M[0]) - chance, above, text + ", minus chance"
            ),
        }

    def _permutation(self) -> dict[str, Estimate]:
        """Rows are shuffled within their block, and the blocks' statistics added."""
        observed, shuffled_P = 0.0, np.zeros(self.n_perm)
        for block, mixed in zip(self.blocks, self.sums, strict=True):
            weight_R = mixed.weight_RM[:, 0]
            here, elsewhere_P = permuted_scores(
                block.score_RN, block.column_R, weight_R, n_perm=self.n_perm, rng=self.rng
            )
            observed, shuffled_P = observed + block.share * here, shuffled_P + block.share * elsewhere_P
        text = f"share of {self.n_perm} shuffled row → prompt assignments with at least this MI (observed included)"
        p = permutation_p(observed, shuffled_P)
        return {"p_no_dependence": self._exactly("p_no_dependence", p, text)}

    def _batch(self) -> dict[str, Estimate]:
        """MI of the batch's own prompts; the mixture is fixed, so only rollouts within prompts vary."""
        values = np.concatenate([m.matched_R - m.mix_RM[:, 0] for m in self.sums])
        weights = np.concatenate([b.share * m.weight_RM[:, 0] for b, m in zip(self.blocks, self.sums, strict=True)])
        offsets = np.cumsum([0, *(len(block.weights_N) for block in self.blocks)])
        strata = np.concatenate([b.column_R + start for b, start in zip(self.blocks, offsets, strict=False)])
        interval = stratified_bootstrap(values, weights, strata, n_boot=self.n_boot, rng=self.rng)
        text = f"MI of this batch's prompts{self._critic}, bootstrap of rollouts within prompts"
        text += "" if interval else " (no interval: too few prompts have two rollouts)"
        return {"mi_batch_nats": self._estimate("mi_batch_nats", float(self._lower_M[0]), interval, text)}

    def _mean(self, values: Sequence[np.ndarray], mixed: Sequence[Mixtures]) -> np.ndarray:
        return self._combine([m.mean(v) for v, m in zip(values, mixed, strict=True)])

    def _combine(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Mean over blocks in every prompt set, (1 + clusters,); a block that a deletion empties counts no more."""
        total, weight = np.zeros(1 + self.clusters), np.zeros(1 + self.clusters)
        for block, part_M in zip(self.blocks, parts, strict=True):
            counted = ~np.isnan(part_M)
            counted[0] = True
            total += np.where(counted, block.share * part_M, 0.0)
            weight += block.share * counted
        with np.errstate(invalid="ignore"):
            return total / weight

    def _population(
        self, name: str, replicates_M: np.ndarray, text: str, *, allowance: float = 0.0, most: float | None = None
    ) -> Estimate:
        """Estimate with the jackknife interval over prompts."""
        self.replicates[name] = replicates_M
        interval = jackknife_interval(replicates_M, allowance=allowance)
        if interval is not None and most is not None:
            interval = (interval[0], min(interval[1], most))
        why = "; jackknife over prompts" if interval else "; no interval: too few prompts"
        return self._estimate(name, float(replicates_M[0]), interval, text + why)

    def _exactly(self, name: str, value: float, text: str) -> Estimate:
        """A fact of this batch."""
        return self._estimate(name, float(value), (float(value), float(value)), text)

    def _estimate(self, name: str, value: float | None, interval: tuple[float, float] | None, text: str) -> Estimate:
        if value is not None and not np.isfinite(value):
            value, interval, text = None, None, f"undefined here: {text}"
        return Estimate(value, interval, UNITS[name], self.n_prompts, self.n_rows, text + self.note)


def midpoint_bias(gap_nats: float) -> float:
    """Bias to allow for in the midpoint of a bracket that wide, nats."""
    return BIAS_PER_GAP * gap_nats**2 / (1 + gap_nats)


def _entropy(weights_N: np.ndarray) -> float:
    return float(-(weights_N * np.log(weights_N)).sum())


def _k_of(name: str) -> int:
    """The k of retrieval_accuracy@k, 1 without one."""
    return int(name.partition("@")[2] or 1)
