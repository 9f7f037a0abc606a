"""A bounded sample of first-turn texts over a run: whole groups, evenly spread steps. Chooses; measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from analysis.run_data import TextRow
from analysis.token_words import with_ids_as_words

MAX_TOTAL_CHARS = 48_000_000
MAX_ROWS_PER_STEP = 512
MAX_TEXT_CHARS = 40_000
_TEXTS = ("prompt_text", "thinking_text", "response_text")
_COLUMNS = ["split", "step", "trajectory_id", "turn", "group_id", *_TEXTS, "return_"]
_Key = tuple[str, int | None]


@dataclass(slots=True)
class _Row:
    trajectory_id: str
    group: str | None
    prompt_text: str
    thinking_text: str
    response_text: str
    return_: float
    chars: int


class TextSampler:
    """Collects texts as tables stream by; when the budget is full, every second kept step of a split is dropped."""

    def __init__(self) -> None:
        self._steps: dict[_Key, list[_Row]] = {}
        self._order: dict[str, list[int | None]] = {}
        self._stride: dict[str, int] = {}
        self._chars = 0
        self._seen_rows = 0
        self._cut_rows = False

    def add(self, table: pa.Table) -> None:
        """Take the first-turn rows of one table."""
        for row in with_ids_as_words(table).select(_COLUMNS).to_pylist():
            if row["turn"] != 0:
                continue
            self._seen_rows += 1
            key = (row["split"], row["step"])
            if self._wanted(key):
                self._keep(key, row)
        while self._chars > MAX_TOTAL_CHARS and self._thin():
            pass

    def _wanted(self, key: _Key) -> bool:
        split, step = key
        order = self._order.setdefault(split, [])
        if step not in order[-64:] and key not in self._steps:
            self._retire_last(split)
            order.append(step)
            self._steps[key] = []
        return key in self._steps

    def _retire_last(self, split: str) -> None:
        """The newest step is always kept while it is the last; once a newer one comes, the stride decides."""
        order = self._order[split]
        if order and (len(order) - 1) % self._stride.get(split, 1) != 0:
            self._drop((split, order[-1]))

    def _drop(self, key: _Key) -> None:
        self._chars -= sum(row.chars for row in self._steps.pop(key, []))

    def _keep(self, key: _Key, row: dict) -> None:
        rows = self._steps[key]
        if len(rows) >= MAX_ROWS_PER_STEP and row["group_id"] != rows[-1].group:
            self._cut_rows = True
            return
        prompt, thinking, response = ((row[name] or "")[:MAX_TEXT_CHARS] for name in _TEXTS)
        return_ = float("nan") if row["return_"] is None else float(row["return_"])
        chars = len(prompt) + len(thinking) + len(response)
        rows.append(_Row(row["trajectory_id"], row["group_id"], prompt, thinking, response, return_, chars))
        self._chars += chars

    def _thin(self) -> bool:
        """Double the stride of the split with most kept steps; False when nothing is left to drop."""
        split = max(self._order, key=lambda name: sum(key[0] == name for key in self._steps))
        order = self._order[split]
        if sum(key[0] == split for key in self._steps) <= 2:
            return False
        self._stride[split] = stride = 2 * self._stride.get(split, 1)
        for index, step in enumerate(order[:-1]):
            if index % stride:
                self._drop((split, step))
        return True

    @property
    def explanation(self) -> str:
        """How the sample was chosen, in one line."""
        kept = sum(len(rows) for rows in self._steps.values())
        if kept == self._seen_rows:
            return f"texts of all {kept:,} rollouts"
        strides = ", ".join(f"every {n}th {split} step" for split, n in self._stride.items() if n > 1)
        limit = f"at most {MAX_ROWS_PER_STEP} rollouts a step" if self._cut_rows else ""
        how = "; ".join(part for part in (strides, limit) if part)
        return f"texts of {kept:,} of {self._seen_rows:,} rollouts ({how})"

    def rows(self, rollouts: pd.DataFrame) -> list[TextRow]:
        """The sample with the dense group and prompt codes of `rollouts`."""
        sampled = {row.trajectory_id for rows in self._steps.values() for row in rows}
        columns = rollouts[["trajectory_id", "group", "prompt"]]
        first = columns[columns["trajectory_id"].isin(sampled)].drop_duplicates("trajectory_id")
        codes = dict(zip(first["trajectory_id"], zip(first["group"], first["prompt"], strict=True), strict=True))
        found = []
        for (split, step), rows in self._steps.items():
            for row in rows:
                group, prompt = codes[row.trajectory_id]
                found.append(
                    TextRow(
                        step, split, int(group), int(prompt), row.trajectory_id, row.prompt_text, row.thinking_text,
                        row.response_text, row.return_,
                    )
                )  # fmt: skip
        return found
