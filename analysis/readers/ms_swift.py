"""ms-swift's `completions.jsonl`, checked with 3.3 to 4.5: one line of columns per logging step, or (Ray) one row per rollout.

The Megatron path writes `gen_step`, the iteration minus one. Rewards are one column per reward function, without weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, integer, number, reward_of
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.trl import completion_turns

_NOT_REWARDS = {
    "step", "gen_step", "prompt", "completion", "advantages", "advantage", "entropy", "num_turns", "solution", "images",
    "messages", "reward", "truncated", "is_truncated", "response_length",
}  # fmt: skip


class MsSwift(RecordReader):
    """Columns prompt, completion and step or gen_step."""

    name = "ms_swift"
    needs = frozenset({"prompt", "completion", "step"})

    def claims(self, seen: Peek) -> Match | None:
        """Lists side by side, or scalars with gen_step."""
        if seen.kind != "json":
            return None
        for row in seen.records:
            if not {"prompt", "completion"} <= set(row):
                continue
            at = "step" if "step" in row else "gen_step" if "gen_step" in row else None
            columns = [row[name] for name in (at, "prompt", "completion") if name]
            if _is_columnar(columns) and (at or all(isinstance(text, str) for values in columns for text in values)):
                named = ", ".join(name for name in (at, "prompt", "completion") if name)
                return Match(0.9 if at else 0.7, f"lines of equally long columns {named}", "columnar")
            if at == "gen_step" and isinstance(row["completion"], str):
                return Match(0.9, "rows have gen_step, prompt, completion", "row-wise")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per position of the columns."""
        if not isinstance(record["completion"], list):
            yield self._rollout(record, file)
            return
        n_rows = len(record["completion"])
        columns = {
            name: values for name, values in record.items() if isinstance(values, list) and len(values) == n_rows
        }
        if "prompt" not in columns:
            raise ValueError("prompt and completion columns differ in length")
        for index in range(n_rows):
            yield self._rollout({name: values[index] for name, values in columns.items()}, file)

    def _rollout(self, row: dict[str, Any], file: File) -> Rollout:
        parts = {
            name: number(value)
            for name, value in row.items()
            if name not in _NOT_REWARDS and isinstance(value, (int, float, type(None)))
        }
        known = [value for value in parts.values() if value is not None]
        single = reward_of(row.get("reward"))
        if single is None and len(parts) > 1:
            self.say(file.notes, f"reward weights unknown: plain sum of {', '.join(parts)}")
        if "gen_step" in row:
            self.say(file.notes, "gen_step is the iteration minus one on ms-swift's Megatron path; kept as written")
        turns = completion_turns(row["prompt"], row["completion"])
        truncated = row.get("truncated", row.get("is_truncated"))
        if isinstance(truncated, bool):
            turns[-1].columns["response_truncated"] = truncated
        return Rollout(
            turns,
            reward=single if single is not None else sum(known) if known else None,
            reward_source="reward" if single is not None else f"sum of {', '.join(parts)}",
            components=parts or None,
            step=integer(row.get("step", row.get("gen_step"))),
            columns={"advantage": number(row.get("advantages", row.get("advantage")))},
        )


def _is_columnar(columns: list[Any]) -> bool:
    return all(isinstance(values, list) for values in columns) and len({len(values) for values in columns}) == 1
