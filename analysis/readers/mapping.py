"""Any JSON lines, CSV or Parquet whose fields the user names: `--map reward=score,prompt=question,response=answer`.

Normal-form names: prompt, response (or messages), thinking, reward, step, group, success, split, advantage, trajectory. Dots
reach into nested objects.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.common_fields import apply_common
from analysis.readers.containers import Record, decode, iter_json, open_binary
from analysis.readers.normal_form import Rollout, Turn, number, turns_from_messages
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader, lookup, parquet_records
from analysis.readers.trl import completion_turns
from ragen_diag.errors import UsageError, did_you_mean

COLUMNS = (
    "prompt",
    "response",
    "messages",
    "thinking",
    "reward",
    "step",
    "group",
    "success",
    "split",
    "advantage",
    "trajectory",
)

_USUAL = {
    "prompt": ("prompt", "question", "query", "problem", "input", "instruction"),
    "response": ("response", "completion", "output", "generation", "generated_text", "model_output", "prediction"),
    "messages": ("messages", "conversation", "conversations", "dialogue", "history"),
    "reward": ("reward", "score", "return", "total_reward", "rewards", "accuracy"),
    "step": ("step", "global_step", "iteration", "epoch"),
    "group": ("group_id", "prompt_id", "problem_id", "question_id", "task_id"),
}


class Mapping(RecordReader):
    """Only used when --map is given."""

    name = "mapping"

    def claims(self, seen: Peek) -> Match | None:
        """Never on its own: see `sniff`."""
        return Match(0.1, "--map names the fields") if seen.kind in ("json", "parquet") or _is_csv(seen) else None

    def sniff(self, path: Any, head: bytes) -> Match | None:
        """Claims nothing: `discover` asks `claims` when the user gave --map."""
        return None

    def records(self, file: File) -> Iterator[Record]:
        """Rows of whatever container it is."""
        check_mapping(file.options.mapping)
        with open_binary(file.path) as handle:
            head = handle.read(4096)
        if head[:4] == b"PAR1":
            yield from parquet_records(file.path)
        elif head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"{", b"["):
            yield from iter_json(file.path)
        else:
            with open_binary(file.path) as handle:
                text = decode(handle.read())
            table = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
            for number_, row in enumerate(table, start=2):
                yield Record(number_, row)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        mapping = file.options.mapping or {}
        missing = [f"{column}={source}" for column, source in mapping.items() if not _present(record, source)]
        if missing and len(missing) == len(mapping):
            raise KeyError(missing[0].split("=", 1)[1])
        messages = lookup(record, mapping["messages"]) if "messages" in mapping else None
        prompt = lookup(record, mapping["prompt"]) if "prompt" in mapping else None
        if messages is not None:
            turns = turns_from_messages(messages)
        elif "response" in mapping:
            response = lookup(record, mapping["response"])
            if response is None:
                raise KeyError(mapping["response"])
            turns = completion_turns("" if prompt is None else prompt, response)
        else:
            turns = [Turn(None, prompt if isinstance(prompt, str) else None)]
        if "thinking" in mapping and isinstance(thinking := lookup(record, mapping["thinking"]), str):
            turns[0].reasoning = thinking
        rollout = Rollout(turns)
        if "advantage" in mapping:
            rollout.columns["advantage"] = number(lookup(record, mapping["advantage"]))
        if "trajectory" in mapping and (identity := lookup(record, mapping["trajectory"])) is not None:
            rollout.trajectory = str(identity)
        yield apply_common(rollout, record, file)


def suggested_mapping(keys: Iterable[str]) -> str | None:
    """--map for a record with these keys, from the usual names of fields; None when there is no response or no reward."""
    have = set(keys)
    found = {column: next((name for name in names if name in have), None) for column, names in _USUAL.items()}
    if "messages" in found and found["response"]:
        del found["messages"]
    if not found["reward"] or not (found.get("response") or found.get("messages")):
        return None
    return ",".join(f"{column}={name}" for column, name in found.items() if name)


def check_mapping(mapping: dict[str, str] | None) -> None:
    """Raise UsageError when --map is absent or names an unknown normal-form column."""
    if not mapping:
        raise UsageError("--format mapping needs --map, such as --map reward=score,prompt=question,response=answer")
    for column in mapping:
        if column not in COLUMNS:
            raise UsageError(
                f"--map {column}=…: no such field.{did_you_mean(column, COLUMNS)} Known: {', '.join(COLUMNS)}"
            )


def _present(record: dict[str, Any], source: str) -> bool:
    return lookup(record, source) is not None


def csv_columns(seen: Peek) -> list[str]:
    """Header of a CSV or TSV file; empty when the file does not look like one."""
    if not _is_csv(seen):
        return []
    return [name.strip() for name in next(csv.reader(io.StringIO(seen.text), delimiter=_delimiter(seen.text)), [])]


def _delimiter(text: str) -> str:
    return "\t" if "\t" in text.split("\n", 1)[0] else ","


def _is_csv(seen: Peek) -> bool:
    first = seen.text.split("\n", 1)[0]
    return seen.kind == "text" and ("," in first or "\t" in first)
