"""OpenRLHF's `batch_inference` output (removed in the 2026 refactor): rows {input, output[, reward]}.

Its RL training writes no text but one W&B sample per step, which `wandb_table` reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, reward_of, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader

_OTHERS = {"instruction", "step", "score", "trace_id", "type", "messages"}


class OpenRlhf(RecordReader):
    """Rows of input, output, reward and little else."""

    name = "openrlhf"
    needs = frozenset({"input", "output", "reward"})

    def claims(self, seen: Peek) -> Match | None:
        """Text fields, and no key that marks an Alpaca data set, a verl dump or a trace."""
        row = seen.having(self.needs) if seen.kind == "json" else None
        if row and isinstance(row["input"], str) and isinstance(row["output"], str) and not _OTHERS & set(row):
            return Match(0.8, "records have input, output, reward and no step")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        yield Rollout(
            turns_from_text(record["input"], record["output"]),
            reward=reward_of(record["reward"]),
            reward_source="reward",
        )
