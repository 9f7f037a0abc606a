"""inspect_ai's `.eval` (zip, members deflate or zstd) and `.json` logs, checked with 0.3.206 to 0.3.285.

A crashed run lacks header.json. Every epoch of a sample is one rollout of its group. A log has no step unless a task argument
names the checkpoint.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, decode, iter_json, loads, open_seekable, read_member
from analysis.readers.messages import as_messages
from analysis.readers.normal_form import Rollout, integer, number, reward_of, truncated_by, turns_from_messages
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader, lookup
from analysis.readers.verifiers import checkpoint_step
from ragen_diag.errors import BadLog

_SAMPLE = re.compile(r"^samples/(?:[^/]+\.json|[^/]+/sample\.json)$")


class InspectAi(RecordReader):
    """Samples of one evaluation log."""

    name = "inspect_ai"
    needs = frozenset({"version", "eval", "samples"})
    fixed_split = "val"

    def claims(self, seen: Peek) -> Match | None:
        """A zip with samples and a header or journal, or a JSON object with version, eval and samples or plan."""
        if seen.kind == "zip" and ("header.json" in seen.members or "_journal/start.json" in seen.members):
            return Match(0.95, "a zip with samples and an inspect_ai header", ".eval")
        row = seen.having({"version", "eval"})
        if row and isinstance(row["eval"], dict) and {"samples", "plan", "results"} & set(row):
            return Match(0.95, "an object with version, eval, samples", ".json")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """One record {"eval", "sample"} per sample."""
        with file.path.open("rb") as handle:
            is_zip = handle.read(2) == b"PK"
        if is_zip:
            yield from self._zip_records(file)
            return
        for record in iter_json(file.path):
            if isinstance(record.value, Bad):
                yield record
                continue
            for number_, sample in enumerate(record.value.get("samples") or [], start=1):
                yield Record(number_, {"eval": record.value["eval"], "sample": sample})

    def _zip_records(self, file: File) -> Iterator[Record]:
        try:
            with open_seekable(file.path) as handle, zipfile.ZipFile(handle) as archive:
                infos = {info.filename: info for info in archive.infolist()}
                header = next((name for name in ("header.json", "_journal/start.json") if name in infos), None)
                about = loads(decode(read_member(archive, infos[header]))) if header else {}
                if "header.json" not in infos:
                    self.say(
                        file.notes,
                        f"{file.path.name} has no header: the evaluation crashed, its finished samples are read",
                    )
                for number_, name in enumerate(filter(_SAMPLE.match, infos), start=1):
                    try:
                        sample = loads(decode(read_member(archive, infos[name])))
                        if name.endswith("/sample.json") and not sample.get("messages"):
                            sample["messages"] = _chunked_messages(archive, infos, name)
                        yield Record(number_, {"eval": about.get("eval") or {}, "sample": sample})
                    except (ValueError, BadLog) as error:
                        yield Record(number_, Bad(f"{name}: {error}"))
        except (zipfile.BadZipFile, ValueError, BadLog) as error:
            yield Record(1, Bad(f"not a readable .eval file: {error}"))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per sample and epoch."""
        about, sample = record["eval"], record["sample"]
        messages = sample.get("messages") or [*as_raw_input(sample["input"]), *(_output_messages(sample))]
        turns = turns_from_messages(messages)
        choices = lookup(sample, "output.choices") or []
        if turns and choices:
            turns[-1].columns["response_truncated"] = truncated_by(choices[0].get("stop_reason"))
        tokens = integer(lookup(sample, "output.usage.output_tokens"))
        if turns and len(turns) == 1 and tokens is not None:
            turns[0].columns["response_tokens"] = tokens
        scores = {name: reward_of(score) for name, score in (sample.get("scores") or {}).items()}
        main, reward = next(iter(scores.items()), ("scores", None))
        if len(scores) > 1:
            self.say(file.notes, f"several scorers ({', '.join(scores)}): the first is the reward, all are components")
        found = checkpoint_step(about.get("task_args"))
        config = {**(about.get("model_generate_config") or {}), **(lookup(record, "eval.config") or {})}
        error = sample.get("error")
        scope = "" if found or file.step is not None else f"{file.path.name}/"
        yield Rollout(
            turns,
            reward=None if error else reward,
            reward_source=f"scores.{main}",
            components=scores or None,
            step=found[0] if found else None,
            step_source=f"task_args.{found[1]}" if found else None,
            group=f"{scope}{sample['id']}",
            group_source="sample id",
            trajectory=sample.get("uuid"),
            columns={
                "env": about.get("task"),
                "success": None if reward not in (0.0, 1.0) else bool(reward),
                "error": None if not error else error.get("message") if isinstance(error, dict) else str(error),
                "model_version": about.get("model"),
                "temperature": number(config.get("temperature")),
                "max_response_tokens": integer(config.get("max_tokens")),
                "truncated": True if sample.get("limit") else None,
            },
        )


def as_raw_input(value: Any) -> list[Any]:
    """A sample's `input` as raw messages."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value)


def _output_messages(sample: dict[str, Any]) -> list[Any]:
    return [choice["message"] for choice in (lookup(sample, "output.choices") or [])[:1]]


def _chunked_messages(archive: zipfile.ZipFile, infos: dict[str, zipfile.ZipInfo], sample_name: str) -> list[Any]:
    folder = sample_name.removesuffix("sample.json") + "messages/"
    messages: list[Any] = []
    for name in sorted(name for name in infos if name.startswith(folder)):
        for line in io.StringIO(decode(read_member(archive, infos[name])), newline="\n"):
            value = json.loads(line) if line.strip() else []
            messages += value if isinstance(value, list) else [value]
    as_messages(messages)  # raises ValueError when they are no messages
    return messages
