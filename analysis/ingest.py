"""Stream a log once into RunData and InputSummary. Knows the rollout-log schema, no framework, no statistics.

Turn rows are folded into one row per trajectory, table by table; texts are kept only for a bounded sample
(text_sample.py). Memory therefore grows with the number of trajectories (about 300 bytes each), not with their texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.readers.base import LogSource
from analysis.result import InputSummary
from analysis.run_data import ROLLOUT_COLUMNS, RunData
from analysis.text_sample import TextSampler
from analysis.turn_features import turn_features

# How each per-turn feature folds into its trajectory; the sum of nothing measured stays nan.
_FIRST = (
    "run_id", "step", "split", "group_id", "prompt_id", "return_", "thinking_tokens", "thinking_chars", "kept",
    "filter_score", "first_thinking_logprob", "response_hash", "thinking_hash",
)  # fmt: skip
_SUM = (
    "n_rows", "response_tokens", "response_chars", "n_thinking_turns", "n_thinking_valid", "format_valid_sum",
    "format_valid_n", "action_valid_sum", "action_valid_n", "tool_calls", "advantage_sum", "advantage_n",
    "thinking_logprob", "thinking_tokens_all", "response_logprob", "entropy_sum", "entropy_n",
)  # fmt: skip
_MAX = (
    "success", "n_turns", "max_turn_tokens", "truncated", "advantage_absmax", "top_token_share", "has_env_text",
    "max_response_tokens", "error",
)  # fmt: skip

_BOOKKEEPING = ("run_id", "group_id", "n_rows")
"""Columns of the folded frame that RunData does not have."""


_Columns = dict[str, pd.Series]


class RolloutFold:
    """Rollout tables folded as they come, from a log that is read or a training that goes on (live.py)."""

    def __init__(self) -> None:
        self._sampler = TextSampler()
        self._parts: list[_Columns] = []
        self._components: list[pd.DataFrame] = []

    def add(self, table: pa.Table) -> None:
        """Take one table of turns."""
        if table.num_rows == 0:
            return
        # A log measures few of the columns; the others are nan and come back in `_assemble`. Columns are kept apart, for a
        # frame's block of columns is freed only with its last one.
        part = _fold(turn_features(table)).dropna(axis="columns", how="all")
        self._parts.append({str(name): column.copy() for name, column in part.items()})
        # In the part's order: for a whole run, putting them in order later would need a second copy.
        self._components.append(_reward_components(table).reindex(part["trajectory_id"]))
        self._sampler.add(table)

    def frames(self, *, release: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(rollouts, reward components) so far: one row per trajectory, with the bookkeeping columns `_BOOKKEEPING`.

        release: nothing will be added any more; give the parts up while they are put together.
        """
        parts, components = self._parts, self._components
        if release:
            self._parts, self._components = [], []
        else:
            parts, components = [dict(part) for part in parts], list(components)
        return _assemble(parts, components)

    def run(self, name: str, rollouts: pd.DataFrame, reward_components: pd.DataFrame, **fields: Any) -> RunData:
        """The run these `frames` describe."""
        return RunData(
            name=name,
            rollouts=rollouts.drop(columns=list(_BOOKKEEPING)),
            reward_components=reward_components,
            texts=self._sampler.rows(rollouts),
            text_sampling=self._sampler.explanation,
            **fields,
        )


def ingest(source: LogSource) -> tuple[RunData, InputSummary]:
    """Read one source completely. Raises what the reader raises (BadLog); bad records end up in the summary."""
    fold = RolloutFold()
    if source.kind == "rollouts":
        for table in source.tables():
            fold.add(table)
        pa.default_memory_pool().release_unused()
    rollouts, reward_components = fold.frames(release=True)
    run = fold.run(
        source.name,
        rollouts,
        reward_components,
        series={name: series_of(points) for name, points in source.series().items()},
        config=source.config,
        kind=source.kind,
        formats=(source.format,),
        assumptions=list(source.notes.assumptions),
    )
    return run, _summary(source, rollouts)


def _fold(turns: pd.DataFrame) -> pd.DataFrame:
    """One row per trajectory from rows in turn order."""
    grouped = turns.groupby("trajectory_id", sort=False, observed=True)
    # Not groupby.first(): a missing first value must stay missing instead of being taken from a later turn.
    first = turns.drop_duplicates("trajectory_id", keep="first").set_index("trajectory_id")[list(_FIRST)]
    folded = [first, grouped[list(_SUM)].sum(min_count=1), grouped[list(_MAX)].max()]
    return pd.concat(folded, axis=1).reset_index()


def _assemble(parts: list[_Columns], components: list[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put the parts together and empty both lists: for a long run each copy counts."""
    if not parts:
        empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in ROLLOUT_COLUMNS.items()})
        for name in _BOOKKEEPING:
            empty[name] = pd.Series(dtype="object")
        return empty, pd.DataFrame()
    rollouts = _concat_by_column(parts, ["trajectory_id", *_FIRST, *_SUM, *_MAX])
    if _repeats(_strings(rollouts["trajectory_id"])):  # a trajectory's turns straddled two record batches
        rollouts = _fold(rollouts)
    pa.default_memory_pool().release_unused()
    rollouts["format_valid"] = rollouts["format_valid_sum"] / rollouts["format_valid_n"]
    rollouts["action_valid"] = rollouts["action_valid_sum"] / rollouts["action_valid_n"]
    rollouts["advantage"] = rollouts["advantage_sum"] / rollouts["advantage_n"]
    rollouts["entropy"] = rollouts["entropy_sum"] / rollouts["entropy_n"]
    rollouts["n_turns"] = rollouts["n_turns"].fillna(rollouts["n_rows"])
    rollouts["step"] = rollouts["step"].astype("Int64")
    rollouts["prompt"] = pd.factorize(rollouts["prompt_id"])[0]
    groups = rollouts.groupby(["split", "step", "group_id"], sort=False, observed=True, dropna=False).ngroup()
    rollouts["group"] = np.where(rollouts["group_id"].isna(), -1, groups)
    kept = [*ROLLOUT_COLUMNS, *_BOOKKEEPING]
    rollouts = rollouts[kept]
    frame = rollouts.astype({name: dtype for name, dtype in ROLLOUT_COLUMNS.items() if dtype != "category"})
    frame["split"] = frame["split"].astype("category")
    named = [part for part in components if len(part.columns)]
    components.clear()
    reward_components = pd.concat(named) if named else pd.DataFrame(index=pd.Index([], name="trajectory_id"))
    named.clear()
    if not _strings(reward_components.index).equals(_strings(frame["trajectory_id"])):
        reward_components = reward_components[~reward_components.index.duplicated()].reindex(frame["trajectory_id"])
    return frame, reward_components.reset_index(drop=True).set_axis(frame.index)


def _strings(ids: pd.Series | pd.Index) -> pa.ChunkedArray:
    """Ids in Arrow, which counts and compares them without a hash table of Python strings."""
    strings = pa.array(ids, pa.large_string())
    return strings if isinstance(strings, pa.ChunkedArray) else pa.chunked_array([strings])


def _repeats(ids: pa.ChunkedArray) -> bool:
    """Whether an id stands there twice. Sorted, not hashed: a hash table of 400,000 ids takes 60 MB."""
    ordered = ids.take(pc.sort_indices(ids)).combine_chunks()
    return bool(pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py())


def _concat_by_column(parts: list[_Columns], names: list[str]) -> pd.DataFrame:
    """`pd.concat` that never holds two copies of a column's rows: one column is put together, and dropped from the parts, at a time."""
    columns = {}
    indexed = [(part, part["trajectory_id"].index) for part in parts]
    for name in names:
        # A part that lacks a column has a column of missing values instead.
        found = [part.pop(name) if name in part else pd.Series(np.nan, index=index) for part, index in indexed]
        columns[name] = pd.concat(found, ignore_index=True)
    parts.clear()
    return pd.DataFrame(columns, copy=False)


def _reward_components(table: pa.Table) -> pd.DataFrame:
    """Wide frame (trajectory_id index) of the named score parts, from each trajectory's first row."""
    column = table.column("reward_components").combine_chunks()
    ids = table.column("trajectory_id").to_pandas()  # not a list: a Python string each would be the largest part
    if column.null_count == len(column):
        return pd.DataFrame(index=pd.Index(ids.unique(), name="trajectory_id"))
    records = [dict(entry) if entry is not None else {} for entry in column.to_pylist()]
    frame = pd.DataFrame.from_records(records, index=pd.Index(ids, name="trajectory_id")).astype("float64")
    return frame[~frame.index.duplicated()]


def series_of(points: Iterable[tuple[int, float | None]]) -> pd.Series:
    """Points in step order. None = not measured at that step, and left out; nan = the trainer logged a nan, and kept."""
    pairs = sorted(((step, value) for step, value in points if value is not None), key=lambda point: point[0])
    index = pd.Index([step for step, _ in pairs], name="step", dtype="int64")
    return pd.Series([value for _, value in pairs], index=index, dtype="float64")


def _summary(source: LogSource, rollouts: pd.DataFrame) -> InputSummary:
    counts = _counts(rollouts)
    if source.kind == "metrics":
        counts["n_steps"] = len({step for points in source.series().values() for step, _ in points})
    return InputSummary(
        path=str(source.path),
        kind=source.kind,
        format=source.format,
        format_version=source.format_version,
        why=source.why,
        n_files=len(source.files),
        n_bad_rows=source.notes.n_bad_rows,
        splits={str(name): _counts(part) for name, part in rollouts.groupby("split", observed=True)},
        assumptions=list(source.notes.assumptions),
        skipped=list(source.notes.skipped),
        **counts,
    )


def _counts(rollouts: pd.DataFrame) -> dict[str, Any]:
    """The counts of the JSON contract for any subset of rollouts."""
    finite = np.isfinite(rollouts["return_"].to_numpy(dtype="float64"))
    return {
        "n_rollouts": len(rollouts),
        "n_turns": int(rollouts["n_turns"].fillna(1).sum()),
        "n_steps": int(rollouts["step"].nunique()),
        "n_groups": len(rollouts[["split", "step", "prompt_id"]].drop_duplicates()),
        "n_with_thinking": int((rollouts["n_thinking_turns"] > 0).sum()),
        "mean_reward": float(rollouts["return_"].to_numpy(dtype="float64")[finite].mean()) if finite.any() else None,
        "n_reward_missing": int((~finite).sum()),
    }
