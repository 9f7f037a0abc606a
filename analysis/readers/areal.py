"""AReaL's rollout dumps `<fileroot>/logs/<user>/<experiment>/<trial>/{rollout,eval-rollout}/{version}/{task_id}.jsonl`, 1.0.4.

The cut between prompt and completion is right for one turn only: early answers of multi-turn rollouts land in `prompt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.normal_form import Rollout, integer, reward_of, turns_from_text
from analysis.readers.record_reader import File, RecordReader

_ASSISTANT_IN_PROMPT = re.compile(r"<\|im_start\|>assistant\n.*<\|im_start\|>assistant\n", re.DOTALL)


class Areal(RecordReader):
    """Rows of task_id, sample_idx, head_version, tail_version, prompt, completion, reward."""

    name = "areal"
    needs = frozenset({"task_id", "sample_idx", "head_version", "tail_version", "completion"})
    inside_run = re.compile(r"eval-rollout|rollout|\d+")

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
            columns={"model_version": str(record["tail_version"])},
        )
