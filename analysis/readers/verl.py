"""verl's `{step}.jsonl` dumps (`trainer.rollout_data_dir`, `trainer.validation_data_dir`), checked against 0.4 to 0.9.

Three generations: 0.4-0.5 has no `gts`; 0.6-0.9 adds `gts` (and `request_id`); the v1 trainer adds `uid`, which names the ROW
(`<prompt>_<rollout>_<output>`), not the prompt. verl-agent writes the 0.4 columns with one row per turn and no episode id.
Text is decoded without special tokens, so no truncation can be read from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Record, iter_json
from analysis.readers.normal_form import Rollout, integer, reward_of, turns_from_text
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, numeric_columns

_ROW_UID = re.compile(r"^(?P<session>(?P<prompt>.+)_\d+)_\d+$")
_TURN_ROW_PROMPT = re.compile(
    r"<action>\s*</action>|<action>\.\.\.</action>|within\s+<action>|inside <action>", re.IGNORECASE
)
_WITHOUT_STEP = ("gts", "input", "output", "score")
_EARLIER = "\0earlier rows of the session"


class Verl(RecordReader):
    """Rows of input, output, score, step."""

    name = "verl"
    needs = frozenset({"input", "output", "score", "step"})
    step_in_path = True
    assumes = ("verl skips special tokens: truncation cannot be read from the text",)

    def claims(self, seen: Peek) -> Match | None:
        """Tell the generation by `uid` and `gts`."""
        if seen.kind != "json":
            return None
        row = seen.having(self.needs)
        if row is None:
            return match_keys(seen, _WITHOUT_STEP, confidence=0.7, version="without step")
        if _ROW_UID.match(str(row.get("uid", ""))):
            return match_keys(seen, [*sorted(self.needs), "uid"], version="v1 trainer (0.9+)")
        if "gts" in row:
            return match_keys(seen, [*sorted(self.needs), "gts"], version="0.6-0.9")
        return match_keys(seen, sorted(self.needs), version="0.4-0.5 or verl-agent")

    def records(self, file: File) -> Iterator[Record]:
        """Rows; the outputs of one v1 session (a context that was split) come as one record."""
        held: Record | None = None
        for record in iter_json(file.path):
            if held is not None:
                if (session := _session(held.value)) and session == _session(record.value):
                    earlier = [*held.value.get(_EARLIER, []), held.value]
                    held = Record(record.line, {**record.value, _EARLIER: earlier})
                    continue
                yield held
            held = record
        if held is not None:
            yield held

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row (per session in the v1 trainer)."""
        rows = [*record.pop(_EARLIER, []), record]
        turns = [turn for row in rows for turn in turns_from_text(str(row["input"]), str(row["output"]))]
        extras = numeric_columns(record, ("input", "output", "gts", "step", "uid", "request_id"))
        rollout = Rollout(
            turns,
            reward=reward_of(record["score"]),
            reward_source="score",
            components=extras if len(extras) > 1 else None,
            step=integer(record.get("step")),
            columns={"success": _success(record)},
        )
        if len(turns) > len(rows):
            self.say(
                file.notes, "turns were split at bare role lines of the decoded text: verl stores no turn structure"
            )
        uid = _ROW_UID.match(str(record.get("uid", "")))
        if uid:
            rollout.group, rollout.group_source = uid["prompt"], "explicit id"
        elif _is_turn_row(record):
            rollout.group_source = "unknown"
            self.say(
                file.notes,
                "rows look like verl-agent's: one row per turn, episodes cannot be rebuilt; every row counts as a rollout "
                "and carries its episode's score, groups are unknown",
            )
        yield rollout


def _session(row: Any) -> str | None:
    match = _ROW_UID.match(str(row.get("uid", ""))) if isinstance(row, dict) else None
    return match["session"] if match else None


def _is_turn_row(row: dict[str, Any]) -> bool:
    return "gts" not in row and "<action>" in row["output"] and _TURN_ROW_PROMPT.search(row["input"]) is not None


def _success(row: dict[str, Any]) -> bool | None:
    accuracy = row.get("acc")
    return bool(accuracy) if accuracy in (0, 1) else None
