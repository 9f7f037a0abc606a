"""SkyRL's evaluation dumps `dumped_evals/global_step_{N}_evals/<data source>.jsonl`, checked with skyrl-train 0.1 to 0.4.

Training batches are pickled without group ids and are not read. `score` is a number or a per-token list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.normal_form import Rollout, reward_of, truncated_by, turns_from_text
from analysis.readers.record_reader import File, RecordReader


class SkyRl(RecordReader):
    """Rows of input_prompt, output_response, score, stop_reason, env_class."""

    name = "skyrl"
    needs = frozenset({"input_prompt", "output_response", "env_class", "stop_reason"})
    fixed_split = "val"
    step_in_path = True
    inside_run = re.compile(r"eval_only|global_step_\d+_evals")

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        prompt = record["input_prompt"]
        turns = turns_from_text(prompt if isinstance(prompt, str) else json.dumps(prompt), record["output_response"])
        turns[-1].columns["response_truncated"] = truncated_by(record["stop_reason"])
        yield Rollout(
            turns,
            reward=reward_of(record.get("score")),
            reward_source="score",
            columns={"env": record["env_class"] or None},
        )
