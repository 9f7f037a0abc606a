"""OpenPipe ART's trajectories: Parquet (now), JSONL (0.4), YAML (up to 0.3) under `.art/<project>/models/<model>/trajectories/`.

A group is one line (JSONL), one list item (YAML) or one `group_index` (Parquet). The Parquet writer drops reasoning fields and
every writer drops log-probs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, decode, open_binary
from analysis.readers.normal_form import Rollout, number, reward_of, turns_from_messages
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, parquet_records

_LAYOUT = re.compile(r"trajectories|train|val|test|models")
_OWN_METRICS = {"duration"}


class ArtParquet(RecordReader):
    """Rows of group_index, reward, messages."""

    name = "art"
    needs = frozenset({"group_index", "reward", "messages"})
    step_in_path = True
    inside_run = _LAYOUT
    assumes = ("ART's Parquet writer drops reasoning fields: missing thinking may be an artefact of the log",)

    def claims(self, seen: Peek) -> Match | None:
        """Only Parquet."""
        return match_keys(seen, sorted(self.needs)) if seen.kind == "parquet" else None

    def records(self, file: File) -> Iterator[Record]:
        """Parquet rows."""
        return parquet_records(file.path)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        parsed = {**record, "metrics": _json(record.get("metrics")), "metadata": _json(record.get("metadata"))}
        yield _rollout(parsed, record["messages"], str(record["group_index"]), "group_index")


class ArtJsonl(RecordReader):
    """One group {trajectories: [{messages_and_choices, reward}]} per line."""

    name = "art_jsonl"
    needs = frozenset({"trajectories"})
    step_in_path = True
    inside_run = _LAYOUT

    def claims(self, seen: Peek) -> Match | None:
        """Trajectories with messages_and_choices."""
        for row in seen.records if seen.kind == "json" else ():
            trajectories = row.get("trajectories")
            first = trajectories[0] if isinstance(trajectories, list) and trajectories else None
            if isinstance(first, dict) and "messages_and_choices" in first:
                return Match(0.9, "records have trajectories with messages_and_choices")
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """The trajectories of one group."""
        for trajectory in record["trajectories"]:
            yield _rollout(trajectory, trajectory["messages_and_choices"], str(record[_POSITION]), "line")

    def records(self, file: File) -> Iterator[Record]:
        """Groups with their position in the file."""
        for record in super().records(file):
            if isinstance(record.value, dict):
                record.value[_POSITION] = record.line
            yield record


class ArtYaml(ArtJsonl):
    """One group per item of a YAML list."""

    name = "art_yaml"

    def claims(self, seen: Peek) -> Match | None:
        """YAML text with messages_and_choices."""
        if seen.kind == "text" and "messages_and_choices:" in seen.text and seen.text.lstrip().startswith("- "):
            return Match(0.9, "a YAML list of groups with messages_and_choices")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """List items; a file that is no YAML is one bad record."""
        with open_binary(file.path) as handle:
            text = decode(handle.read())
        try:
            groups = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            yield Record(1, Bad(f"not YAML: {str(error).splitlines()[0]}"))
            return
        for number_, group in enumerate(groups or [], start=1):
            yield Record(number_, {**group, _POSITION: number_} if isinstance(group, dict) else group)


_POSITION = "\0position"


def _json(value: Any) -> dict[str, Any]:
    parsed = json.loads(value) if isinstance(value, str) and value else value
    return parsed if isinstance(parsed, dict) else {}


def _rollout(trajectory: dict[str, Any], messages: Any, group: str, group_source: str) -> Rollout:
    metrics = {k: number(v) for k, v in (trajectory.get("metrics") or {}).items() if k not in _OWN_METRICS}
    correct = metrics.get("correct")
    return Rollout(
        turns_from_messages(messages),
        reward=reward_of(trajectory["reward"]),
        reward_source="reward",
        components=metrics or None,
        group=group,
        group_source=group_source,
        columns={"success": bool(correct) if correct in (0.0, 1.0) else None},
    )
