"""SkyRL's evaluation dumps `dumped_evals/global_step_{N}_evals/<data source>.jsonl` and pickled training batches
`dumped_data/global_step_{N}_training_input.pkl`, checked with skyrl-train 0.1 to 0.4 and SkyRL at a956457 (read).

`score` is a number or a per-token list. Training batches hold token ids only, and SkyRL drops the group ids before it dumps them:
rollouts of one step with the same prompt tokens are a group. Nothing in the pickle is executed (restricted_pickle.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record
from analysis.readers.normal_form import Rollout, Turn, reward_of, truncated_by, turns_from_text
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.restricted_pickle import PickleRefused, load_tensor_batch

_BATCH = "\0training batch"


class SkyRl(RecordReader):
    """Rows of input_prompt, output_response, score, stop_reason, env_class; or a pickled TrainingInputBatch."""

    name = "skyrl"
    needs = frozenset({"input_prompt", "output_response", "env_class", "stop_reason"})
    default_split = "val"
    step_in_path = True
    inside_run = re.compile(r"eval_only|global_step_\d+_evals|dumped_data")

    def claims(self, seen: Peek) -> Match | None:
        """By the keys of a row, or by the class name inside a pickle."""
        if seen.kind == "binary" and seen.path.suffix == ".pkl":
            with seen.path.open("rb") as handle:
                start = handle.read(300)
            if b"training_batch" in start and b"TrainingInputBatch" in start:
                return Match(0.9, "a pickled SkyRL training batch", "training batch")
            return None
        return super().claims(seen)

    def records(self, file: File) -> Iterator[Record]:
        """Rows of a file; rows of a batch carry their arrays."""
        if file.path.suffix != ".pkl":
            yield from super().records(file)
            return
        try:
            yield from _rows_of_batch(file.path)
        except (PickleRefused, KeyError, TypeError, IndexError) as error:
            yield Record(1, Bad(f"not a readable SkyRL training batch: {error}"))

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        if _BATCH in record:
            self.say(file.notes, "training batches hold token ids only: checks that need text are off")
            self.say(
                file.notes, "SkyRL drops the group ids: rollouts of one step with the same prompt tokens are a group"
            )
            yield _from_batch(record[_BATCH])
            return
        prompt = record["input_prompt"]
        turns = turns_from_text(prompt if isinstance(prompt, str) else json.dumps(prompt), record["output_response"])
        turns[-1].columns["response_truncated"] = truncated_by(record["stop_reason"])
        yield Rollout(
            turns,
            reward=reward_of(record.get("score")),
            reward_source="score",
            split=file.options.split or "val",
            columns={"env": record["env_class"] or None},
        )


def _rows_of_batch(path: Path) -> Iterator[Record]:
    batch = {name: values for name, values in load_tensor_batch(path).items() if values is not None}
    for row in range(len(batch["sequences"])):
        yield Record(row + 1, {_BATCH: {name: values[row] for name, values in batch.items()}})


def _from_batch(row: dict[str, np.ndarray]) -> Rollout:
    """Sequences are padded, on either side; the response is the end of what is not padding."""
    ids = row["sequences"][row["attention_mask"].astype(bool)]
    is_response = row["response_mask"].astype(bool)
    n_response = int(is_response.sum())
    prompt, response = ids[: len(ids) - n_response].tolist(), ids[len(ids) - n_response :]
    sampled = row["loss_mask"][is_response].astype(bool)  # tool and environment tokens are masked out
    logprobs = row["rollout_logprobs"][is_response][sampled].tolist() if "rollout_logprobs" in row else None
    advantages = row["advantages"][is_response][sampled] if "advantages" in row else []
    columns = {
        "prompt_ids": prompt,
        "prompt_tokens": len(prompt),
        "response_ids": response[sampled].tolist(),
        "response_tokens": int(sampled.sum()),
        "logprobs": logprobs,
        "advantage": float(np.mean(advantages)) if len(advantages) else None,
    }
    return Rollout(
        [Turn(None, columns=columns)],
        reward=float(row["rewards"].sum()) if "rewards" in row else None,
        reward_source="sum of the token rewards",
        split="train",
        prompt_key=prompt,
        group_source="identical prompt tokens",
    )
