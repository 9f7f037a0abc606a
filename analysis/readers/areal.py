"""AReaL's rollout dumps `<fileroot>/logs/<user>/<experiment>/<trial>/{rollout,eval-rollout}/{version}/{task_id}.jsonl`, 1.0.4,
and the text files `{version}/{query id}.txt` of 0.3 to 0.5 (header line, coloured prompt and sequence; read from its source).

The cut between prompt and completion is right for one turn only: early answers of multi-turn rollouts land in `prompt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, decode, open_binary
from analysis.readers.normal_form import Rollout, integer, reward_of, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader

_ASSISTANT_IN_PROMPT = re.compile(r"<\|im_start\|>assistant\n.*<\|im_start\|>assistant\n", re.DOTALL)


# One block: header, prompt and sequence, the latter two in colours that are no part of the text.
_HEADER = re.compile(
    r"idx: (?P<index>\d+) / \d+, seqlen: (?P<seqlen>\d+), reward is (?P<reward>.+)\.\r?$", re.MULTILINE
)
_BODY = re.compile(r"\s*prompt is ?\n(?P<prompt>.*?)\nsequence is: ?\n(?P<completion>.*)", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Areal(RecordReader):
    """Rows of task_id, sample_idx, head_version, tail_version, prompt, completion, reward."""

    name = "areal"
    needs = frozenset({"task_id", "sample_idx", "head_version", "tail_version", "completion"})
    inside_run = re.compile(r"eval-rollout|rollout|\d+")

    def claims(self, seen: Peek) -> Match | None:
        """By the keys of a row, or by the header line of the older text files."""
        if seen.kind == "text" and _HEADER.match(seen.text):
            return Match(0.9, "text blocks 'idx: …, seqlen: …, reward is …', prompt, sequence", "text files (0.3-0.5)")
        return super().claims(seen)

    def records(self, file: File) -> Iterator[Record]:
        """Rows, or the blocks of a text file under the names of the rows."""
        with open_binary(file.path) as handle:
            is_text = _HEADER.match(decode(handle.read(200))) is not None
        return _blocks(file.path) if is_text else super().records(file)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row; the step is the version of the policy that finished it."""
        prompt = str(record.get("prompt") or "")
        if _ASSISTANT_IN_PROMPT.search(prompt):
            self.say(file.notes, "AReaL cuts multi-turn rollouts wrongly: earlier answers are inside the prompt")
        turns = turns_from_text(prompt, record["completion"])
        length, prompt_length = integer(record.get("seqlen")), integer(record.get("prompt_len"))
        if len(turns) == 1 and length is not None and prompt_length is not None:
            turns[0].columns |= {"prompt_tokens": prompt_length, "response_tokens": length - prompt_length}
        yield Rollout(
            turns,
            reward=reward_of(record.get("reward")),
            reward_source="reward",
            step=integer(record["tail_version"]),
            step_source="tail_version",
            group=str(record["task_id"]),
            group_source="task_id",
            columns={"model_version": None if record["tail_version"] is None else str(record["tail_version"])},
        )


def _blocks(path: Path) -> Iterator[Record]:
    """Blocks of one query's file; the folder is the policy version, the file name the query."""
    with open_binary(path) as handle:
        text = _COLOUR.sub("", decode(handle.read()))
    headers = list(_HEADER.finditer(text))
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        body = _BODY.match(text[header.end() : following.start() if following else len(text)])
        line = text.count("\n", 0, header.start()) + 1
        if body is None:
            yield Record(line, Bad("a block without prompt and sequence"))
            continue
        version = path.parent.name if path.parent.name.isdigit() else None
        yield Record(
            line,
            {
                "task_id": path.name.split(".")[0],
                "prompt": body["prompt"],
                "completion": body["completion"].removesuffix("\n"),
                "reward": header["reward"],
                "tail_version": version,
            },
        )
