"""EasyR1's `<save_checkpoint_path>/generations.log`, read at b44b311: text blocks `[prompt] … [output] … [score] …`.

Validation samples only, without steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, open_binary
from analysis.readers.normal_form import Rollout, reward_of, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader

_FIELDS = ("prompt", "output", "ground_truth", "score")
_START = re.compile(r"^\[(prompt|output|ground_truth|score)\] ?(.*)$", re.DOTALL)


class EasyR1(RecordReader):
    """Blocks of four marked fields."""

    name = "easyr1"
    fixed_split = "val"
    assumes = ("EasyR1 logs a handful of validation samples, not the training batch",)

    def claims(self, seen: Peek) -> Match | None:
        """Text that starts with [prompt] and holds [output] and [score]."""
        text = seen.text.lstrip()
        if seen.kind == "text" and text.startswith("[prompt] ") and "\n[output] " in text and "\n[score] " in text:
            return Match(0.9, "text blocks [prompt], [output], [ground_truth], [score]")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """Blocks; one without a score (cut off) is bad."""
        block: dict[str, list[str]] = {}
        current, start, number = "", 1, 0
        with open_binary(file.path) as handle:
            for number, raw in enumerate(handle, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
                marked = _START.match(line)
                if marked and (marked[1] == "prompt" or current):
                    if marked[1] == "prompt":
                        if block:
                            yield _finished(start, block)
                        block, start = {}, number
                    current = marked[1]
                    block[current] = [marked[2]]
                elif current:
                    block[current].append(line)
        if block:
            yield _finished(start, block)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per block."""
        yield Rollout(
            turns_from_text(record["prompt"], record["output"]),
            reward=reward_of(record["score"].strip()),
            reward_source="score",
        )


def _finished(line: int, block: dict[str, list[str]]) -> Record:
    missing = [name for name in _FIELDS if name not in block and name != "ground_truth"]
    if missing:
        return Record(line, Bad(f"block without {', '.join(missing)}"))
    return Record(line, {name: "\n".join(lines) for name, lines in block.items()})
