"""What numbers and series are called for a person, and how they are written with their unit. One table for text and plots."""

from __future__ import annotations

import math

from ragen_diag.findings import Estimate
from ragen_diag.metric_names import METRICS

LABELS: dict[str, str] = {
    "reward_mean": "mean reward",
    "reward_std_in_group": "reward std inside a group",
    "reward_std_batch": "reward std over the batch",
    "success_rate": "success",
    "val_success_rate": "validation success",
    "val_reward_mean": "validation reward",
    "task_score_mean": "true task score",
    "format_score_mean": "format score",
    "zero_variance_share": "groups without reward spread",
    "all_wrong_share": "all wrong",
    "all_right_share": "all right",
    "constant_share": "other ties",
    "entropy_nats": "policy entropy",
    "conditional_entropy_nats": "H(Z|X) of the thinking",
    "conditional_entropy_nats_per_token": "H(Z|X) of the thinking",
    "mi_lower_nats": "MI, lower end",
    "mi_upper_nats": "MI, upper end",
    "normalised_mi": "MI as a share of H(X)",
    "prompt_entropy_nats": "H(X), the most MI can be",
    "retrieval_accuracy": "reasoning finds its own prompt",
    "retrieval_chance": "chance",
    "retrieval_above_chance": "retrieval above chance",
    "text_retrieval_accuracy": "prompt told from the text",
    "text_retrieval_chance": "chance, from the text",
    "text_mi_lower_nats": "MI from the text alone, lower end",
    "kl_nats": "KL to the reference",
    "policy_shift_kl_nats": "KL, old to new policy",
    "grad_norm": "gradient norm before clipping",
    "response_tokens_mean": "mean length",
    "response_tokens_max": "longest",
    "response_tokens_min": "shortest",
    "thinking_tokens_mean": "thinking",
    "truncated_share": "cut at the token cap",
    "p_no_dependence": "p of no dependence",
    "conditional_entropy_nats_per_sequence": "H(Z|X) of a whole thinking",
    "reasoning_entropy_nats_per_sequence": "H(Z) of a whole thinking",
    "mi_nats": "MI, midpoint of the bracket",
    "mi_batch_nats": "MI of exactly these prompts",
    "mi_upper_bound": "log of the number of prompts",
    "mi_per_token_proxy": "MI proxy of RAGEN-2, per token",
    "mi_zscore": "MI z-score of RAGEN-2, per token",
    "mi_zscore_seq": "MI z-score of RAGEN-2, per sequence",
    "margin_nats_per_token": "own prompt over the others",
    "text_normalised_mi": "MI from the text, share of H(X)",
    "text_prompt_entropy_nats": "H(X) of the texts used",
    "text_retrieval_above_chance": "prompt told from the text, above chance",
    "within_prompt_diversity": "diversity inside a prompt",
    "within_prompt_jaccard": "word overlap inside a prompt",
    "cross_prompt_jaccard": "word overlap between prompts",
    "cross_prompt_template_share": "words inside shared templates",
    "distinct_1": "distinct words",
    "distinct_2": "distinct word pairs",
    "distinct_3": "distinct word triples",
    "duplicate_share": "rollouts that repeat another",
    "repeated_4gram_share": "phrases repeated inside a text",
    "garbage_char_share": "broken characters",
    "rv_spread_ratio": "Std(RV) / Mean(RV)",
}
_UNIT_SUFFIXES = ("_nats_per_token", "_nats", "_share", "_tokens")
_SHARES = ("share", "ratio of groups")


def label(name: str) -> str:
    """A metric's name in words, without its unit."""
    base, _, k = name.partition("@")
    if base in LABELS:
        return LABELS[base] + (f", among the {k} best" if k else "")
    for suffix in _UNIT_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix).replace("_", " ")
    return name.replace("_", " ")


def unit_of(name: str) -> str:
    """Unit of a series; "" when nobody says."""
    if name in METRICS:
        return METRICS[name].unit
    if name.endswith("_nats_per_token"):
        return "nats/token"
    if name.endswith("_nats"):
        return "nats"
    return "share" if name.endswith(("_share", "_rate", "_accuracy", "_chance", "_mi")) else ""


def is_share(unit: str) -> bool:
    """Whether a unit is better written as per cent."""
    return unit in _SHARES or unit.startswith("share of ")


def amount(value: float | None, unit: str) -> str:
    """A value with its unit: shares as per cent, three significant digits, 'unknown' for None."""
    if value is None:
        return "unknown"
    if is_share(unit):
        return f"{digits(100 * value)} %"
    return f"{digits(value)} {'' if unit == '1' else unit}".strip()


def interval(estimate: Estimate) -> str:
    """The 95 % interval with as many decimals as its width deserves, "" when there is none."""
    if estimate.ci95 is None:
        return ""
    scale = 100 if is_share(estimate.unit) else 1
    low, high = (scale * end for end in estimate.ci95)
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        ends = [digits(low), digits(high)]
    else:
        decimals = max(1 - math.floor(math.log10(high - low)), 0)
        ends = [f"{round(end, decimals) + 0.0:.{decimals}f}".replace("-", "−", 1) for end in (low, high)]
    return " to ".join(ends) + (" %" if is_share(estimate.unit) else "")


def digits(value: float) -> str:
    """Three significant digits, thousands apart by a thin space, a true minus sign."""
    if value != value:
        return "unknown"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    if (value == int(value) and abs(value) < 1e15) or abs(value) >= 1000:
        text = f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    else:
        text = f"{value:.3g}"
    return text.replace(",", "\u202f").replace("-", "−", 1)
