"""One run in memory, as detectors see it: compact per-rollout columns, per-step series, a bounded text sample, cross scores.

Built by `ingest.py` in one streaming pass; holds numbers for every rollout and texts only for a bounded, explained sample,
so memory does not grow with the size of the texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ragen_diag.cross_scores import CrossScores

ROLLOUT_COLUMNS: dict[str, str] = {
    # one row per trajectory; float columns use nan for "nobody measured this"
    "step": "Int64",  # <NA> = the log has no steps
    "split": "category",  # 'train' | 'val'
    "group": "int64",  # dense code of (split, step, group_id); -1 = unknown
    "prompt": "int64",  # dense code of prompt_id over the run
    "prompt_id": "string",  # hash of the first prompt: the same in every run
    "trajectory_id": "string",
    "return_": "float64",
    "success": "float64",  # 0 | 1 | nan
    "n_turns": "float64",
    "response_tokens": "float64",  # over all turns
    "response_chars": "float64",
    "max_turn_tokens": "float64",  # longest single response, tokens
    "thinking_tokens": "float64",  # first turn; nan when spans are not logged
    "thinking_chars": "float64",  # first turn; 0 = no thinking
    "n_thinking_turns": "float64",  # turns with non-empty thinking, cut-off ones included
    "n_thinking_valid": "float64",  # turns with non-empty, closed thinking
    "truncated": "float64",  # any response cut at the token cap: 0 | 1 | nan
    "format_valid": "float64",  # share of turns
    "action_valid": "float64",  # share of turns
    "tool_calls": "float64",
    "advantage": "float64",  # mean over turns
    "advantage_absmax": "float64",
    "kept": "float64",
    "filter_score": "float64",
    "first_thinking_logprob": "float64",  # sum over first-turn thinking tokens, nats
    "thinking_logprob": "float64",  # sum over all turns' thinking tokens, nats
    "thinking_tokens_all": "float64",
    "response_logprob": "float64",  # sum over all sampled tokens, nats
    "entropy": "float64",  # mean full-distribution entropy over sampled tokens, nats/token
    "response_hash": "int64",  # first-turn response text
    "thinking_hash": "int64",  # first-turn thinking text, 0 = none
    "top_token_share": "float64",  # share of the most frequent whitespace token (or character) in the responses
    "has_env_text": "float64",  # 1 when a model response contains an environment or chat-role marker
    "max_response_tokens": "float64",  # the configured cap
    "error": "float64",  # 1 = the rollout failed
}


@dataclass(frozen=True, slots=True)
class TextRow:
    """First-turn texts of one sampled rollout."""

    step: int | None
    split: str
    group: int
    prompt: int
    trajectory_id: str
    prompt_text: str
    thinking_text: str
    """"" = no thinking."""
    response_text: str
    return_: float


@dataclass
class RunData:
    """Everything the analysis of one run starts from."""

    name: str
    rollouts: pd.DataFrame
    """Columns of ROLLOUT_COLUMNS, one row per trajectory, both splits; empty for metrics-only logs."""
    series: dict[str, pd.Series]
    """Logged per-step metrics by canonical name (index: step, float values, nan kept). Not recomputed from rollouts."""
    reward_components: pd.DataFrame
    """One row per trajectory (same index as rollouts), one float column per named component; may have no columns."""
    texts: list[TextRow]
    """Bounded sample, whole groups; `text_sampling` says how it was chosen."""
    text_sampling: str = ""
    cross_scores: list[CrossScores] = field(default_factory=list)
    config: dict[str, Any] | None = None
    kind: str = "rollouts"
    """'rollouts' or 'metrics'."""
    formats: tuple[str, ...] = ()
    """Format names the data came from ('ragen_diag', 'verl', 'csv', ...)."""
    assumptions: list[str] = field(default_factory=list)

    def split(self, split: str) -> pd.DataFrame:
        """Rollouts of one split: the frame itself when it holds no other, for a long run a copy is a tenth of the memory."""
        wanted = self.rollouts["split"] == split
        return self.rollouts if wanted.all() else self.rollouts[wanted]

    @property
    def train(self) -> pd.DataFrame:
        """Training rollouts; validation rollouts when the log holds no other."""
        train = self.split("train")
        return train if len(train) else self.split("val")
