"""lm-evaluation-harness's `samples_<task>_<date>.jsonl` (`--log_samples`), checked with 0.4.13. One row per document and filter.

A metric belongs to the filtered answer, not to every repeat: with several repeats it is given to the first one when the filtered
answer is the first one's, and the others have no reward. Log-likelihood tasks have no generations and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Record, iter_json
from analysis.readers.normal_form import Rollout, Turn, integer, number, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader, lookup


class LmEval(RecordReader):
    """Rows of doc_id, arguments, resps, filtered_resps."""

    name = "lm_eval"
    needs = frozenset({"doc_id", "arguments", "resps", "filtered_resps"})
    fixed_split = "val"

    def claims(self, seen: Peek) -> Match | None:
        """Only generation tasks: resps is a list of lists of texts."""
        row = seen.having(self.needs) if seen.kind == "json" else None
        if row and isinstance(lookup(row["resps"], "0"), list) and isinstance(lookup(row["resps"], "0.0"), str):
            return Match(0.9, "records have doc_id, arguments, resps, filtered_resps")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """The first row of each document; its rows under other filters hold the same generations."""
        filters: set[str] = set()
        first: str | None = None
        for record in iter_json(file.path):
            if isinstance(record.value, dict) and "filter" in record.value:
                filters.add(str(record.value["filter"]))
                first = first or str(record.value["filter"])
                if str(record.value["filter"]) != first:
                    continue
            yield record
        if len(filters) > 1:
            self.say(file.notes, f"one row per filter ({', '.join(sorted(filters))}): only '{first}' is counted")

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per repeat."""
        arguments = next(iter(record["arguments"].values())) if isinstance(record["arguments"], dict) else {}
        prompt, settings = str(arguments.get("arg_0", "")), arguments.get("arg_1") or {}
        repeats = record["resps"][0]
        metrics = {name: number(record.get(name)) for name in record.get("metrics") or []}
        name, value = next(iter(metrics.items()), ("metrics", None))
        filtered = lookup(record["filtered_resps"], "0")
        if len(repeats) > 1:
            self.say(
                file.notes,
                f"{name} belongs to the filtered answer: only the first of the repeats has a reward, the others have none",
            )
        for index, text in enumerate(repeats):
            scored = len(repeats) == 1 or (index == 0 and isinstance(filtered, str) and filtered.strip() in text)
            yield Rollout(
                turns_from_text(prompt, text) if prompt else [Turn(text)],
                reward=value if scored else None,
                reward_source=name,
                components=metrics if scored and len(metrics) > 1 else None,
                group=f"{file.path.stem}:{record['doc_id']}" if file.step is None else str(record["doc_id"]),
                group_source="doc_id",
                columns={
                    "temperature": number(settings.get("temperature")),
                    "max_response_tokens": integer(settings.get("max_gen_toks")),
                    "success": bool(value) if scored and value in (0.0, 1.0) else None,
                },
            )
