"""TRL's `completions/completions_{step}.parquet` (`log_completions=True`), checked against 0.28 to 1.16.

Reward columns are any float columns between `completion` and `advantage`; numeric extras of `log_extra` look the same. The
columns whose sum reproduces `advantage` (centred per prompt, up to scale) are the rewards. Weights are not stored. Up to 1.14
prompt and completion are strings, from 1.15 conversations when the dataset is conversational.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from analysis.readers.base import Match
from analysis.readers.containers import Record
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, turns_from_messages, turns_from_text
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, parquet_records

_NOT_REWARDS = frozenset({"step", "prompt", "completion", "advantage", "images"})
_MAX_CANDIDATES = 10
_REWARD_NAME = re.compile(r"reward|score|accuracy|correct|format", re.IGNORECASE)


class Trl(RecordReader):
    """Parquet with step, prompt, completion, one column per reward function, advantage."""

    name = "trl"
    step_in_path = True
    needs = frozenset({"step", "prompt", "completion"})
    assumes = (
        "TRL keeps only the last generation batch of each logging interval; evaluation at the same step overwrites the file",
    )

    def __init__(self) -> None:
        super().__init__()
        self._reward_columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def claims(self, seen: Peek) -> Match | None:
        """Only Parquet: the same keys in JSON belong to others."""
        if seen.kind != "parquet":
            return None
        return match_keys(seen, sorted(self.needs)) or match_keys(
            seen, ["advantage", "completion", "prompt"], confidence=0.7, version="without step"
        )

    def records(self, file: File) -> Iterator[Record]:
        """Rows of one step's file, with the chosen reward columns under a private key."""
        rows = list(parquet_records(file.path))
        values = [record.value for record in rows if isinstance(record.value, dict)]
        chosen = self._choose(values, file) if values else ()
        for record in rows:
            if isinstance(record.value, dict):
                record.value["\0rewards"] = chosen
            yield record

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        components = {name: reward_of(record.get(name)) for name in record["\0rewards"]}
        known = [value for value in components.values() if value is not None]
        yield Rollout(
            completion_turns(record["prompt"], record["completion"]),
            reward=sum(known) if known else None,
            reward_source=f"sum of {', '.join(components)}" if len(components) > 1 else next(iter(components), "none"),
            components=components or None,
            step=integer(record.get("step")),
            columns={"advantage": number(record.get("advantage"))},
        )

    def _choose(self, rows: list[dict[str, Any]], file: File) -> tuple[str, ...]:
        candidates = tuple(
            name for name in _between(list(rows[0])) if _may_be_reward(name, [row[name] for row in rows])
        )
        if file.options.reward_columns:
            return file.options.reward_columns
        if candidates in self._reward_columns:
            return self._reward_columns[candidates]
        found = reward_columns_matching_advantage(rows, candidates)
        if found is not None:
            self._reward_columns[candidates] = found
            if len(found) < len(candidates):
                extras = ", ".join(name for name in candidates if name not in found)
                self.say(
                    file.notes, f"numeric columns {extras} are not rewards: without them the advantage is reproduced"
                )
            return found
        if len(candidates) > 1:
            self.say(file.notes, f"reward weights unknown: plain sum of {', '.join(candidates)}")
        return candidates


def _between(columns: list[str]) -> list[str]:
    """Columns that TRL writes between completion and advantage, the two as it orders them; all others in any other order."""
    names = [name for name in columns if name not in _NOT_REWARDS]
    as_written = [name for name in columns if name in ("step", "prompt", "completion", "advantage")]
    if as_written == ["step", "prompt", "completion", "advantage"]:
        between = columns[columns.index("completion") : columns.index("advantage")]
        return [name for name in names if name in between]
    return names


def _may_be_reward(name: str, values: list[Any]) -> bool:
    """Numbers throughout; numbers in another shape (text, list, object) only under a name that says reward."""
    known = [value for value in values if value is not None]
    if not known or all(isinstance(value, (bool, int, float)) for value in known):
        return bool(known)
    return bool(_REWARD_NAME.search(name)) and all(reward_of(value) is not None for value in known)


def completion_turns(prompt: Any, completion: Any) -> list[Turn]:
    """Turns of a prompt and completion that are both strings, both conversations, or a mix."""
    if isinstance(completion, str):
        if isinstance(prompt, str):
            return turns_from_text(prompt, completion)
        return turns_from_messages(completion, prompt=prompt or [])
    return turns_from_messages(completion, prompt=prompt or [])


def reward_columns_matching_advantage(
    rows: list[dict[str, Any]], candidates: tuple[str, ...], *, atol: float = 1e-2
) -> tuple[str, ...] | None:
    """Columns whose sum, centred per prompt, is proportional to `advantage` in every group; None when no subset or no evidence.

    Compared up to one positive factor per group, because reward scaling settings differ. The largest matching subset wins, so a
    reward that is constant inside all groups stays in; an extra that is constant inside all groups does too, which is harmless
    for every in-group statistic.
    """
    if not candidates or len(candidates) > _MAX_CANDIDATES:
        return None
    advantages = np.array([np.nan if row.get("advantage") is None else row["advantage"] for row in rows], dtype=float)
    values = np.array([[reward_of(row[name]) for name in candidates] for row in rows], dtype=float)
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(repr(row["prompt"]), []).append(index)
    members = [np.array(group) for group in groups.values() if len(group) > 1]
    if not any(np.ptp(advantages[group]) > atol for group in members if np.isfinite(advantages[group]).all()):
        return None
    for size in range(len(candidates), 0, -1):
        for subset in combinations(range(len(candidates)), size):
            totals = np.nansum(values[:, subset], axis=1)
            if all(_proportional(totals[group], advantages[group], atol) for group in members):
                return tuple(candidates[index] for index in subset)
    return None


def _proportional(rewards: np.ndarray, advantages: np.ndarray, atol: float) -> bool:
    if not np.isfinite(advantages).all():
        return True
    centred, target = rewards - rewards.mean(), advantages - advantages.mean()
    size, target_size = float(np.abs(centred).max()), float(np.abs(target).max())
    if target_size <= 1e-6 or size <= 1e-9:
        return target_size <= 1e-6 and size <= 1e-6
    return bool(np.abs(centred / size - target / target_size).max() <= atol)
