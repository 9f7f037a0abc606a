"""lighteval's details files `details_<task>_<date>.parquet`, checked with 0.13 (columns doc, metric, model_response).

The metric is one number per document: with several samples no single sample has a reward. Texts may be post-processed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Record
from analysis.readers.normal_form import Rollout, Turn, number
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, parquet_records


class LightEval(RecordReader):
    """Rows of doc, metric, model_response."""

    name = "lighteval"
    needs = frozenset({"doc", "metric", "model_response"})
    fixed_split = "val"
    inside_run = re.compile(r"\d{4}-\d\d-\d\dT[\d.:-]+")

    def claims(self, seen: Peek) -> Match | None:
        """Only Parquet."""
        return match_keys(seen, sorted(self.needs)) if seen.kind == "parquet" else None

    def records(self, file: File) -> Iterator[Record]:
        """Parquet rows."""
        return parquet_records(file.path)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per sample of a document."""
        doc, answer = record["doc"], record["model_response"]
        metrics = {name: number(value) for name, value in (record["metric"] or {}).items()}
        texts = answer["text"]
        reasonings = answer.get("reasonings") or []
        token_ids = answer.get("output_tokens") or []
        name, value = next(iter(metrics.items()), ("metric", None))
        if len(texts) > 1:
            self.say(
                file.notes,
                f"{name} is one number per document of {len(texts)} samples: no sample has a reward of its own",
            )
        for index, text in enumerate(texts):
            columns: dict[str, Any] = {"prompt_ids": answer.get("input_tokens") or None}
            if index < len(token_ids) and token_ids[index]:
                columns |= {"response_ids": token_ids[index], "response_tokens": len(token_ids[index])}
            reasoning = reasonings[index] if index < len(reasonings) else None
            prompt = answer.get("input") or doc["query"]
            turn = Turn(text, prompt if isinstance(prompt, str) else doc["query"], doc["query"], reasoning, columns)
            yield Rollout(
                [turn],
                reward=value if len(texts) == 1 else None,
                reward_source=name,
                components=metrics or None,
                group=f"{file.path.stem}:{doc.get('id')}" if file.step is None else str(doc.get("id")),
                group_source="doc.id",
                trajectory=f"{file.path}:{doc.get('id')}:{index}",
                columns={"env": doc.get("task_name")},
            )
