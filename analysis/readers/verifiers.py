"""verifiers up to 0.1.x: `results.jsonl` of `vf-eval -s`, and prime-rl 0.6's `step_N/{train,eval}_rollouts.jsonl`.

Errored rollouts carry reward 0.0 there; they are read as missing. Evaluations have no step unless metadata.json names the
checkpoint in `env_args`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.readers.containers import read_head
from analysis.readers.normal_form import Rollout, integer, number, reward_of
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.trl import completion_turns

STEP_KEYS = ("ckpt_step", "checkpoint_step", "checkpoint", "ckpt", "global_step", "step")


class Verifiers(RecordReader):
    """Rows of example_id, prompt, completion, reward."""

    name = "verifiers"
    needs = frozenset({"example_id", "prompt", "completion", "reward"})
    default_split = "val"
    step_in_path = True
    inside_run = re.compile(r"[0-9a-f]{8}")

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row, one turn per assistant message of `completion`."""
        metadata = _metadata(file.path.parent)
        if file.step is None and (found := checkpoint_step(metadata.get("env_args"))):
            file.step, file.step_source = found[0], f"metadata.json env_args.{found[1]}"
        error = record.get("error")
        stored = record.get("metrics")
        metrics: dict[str, Any] = stored if isinstance(stored, dict) else {}
        env = record.get("env_name") or record.get("env_id") or record.get("task") or metadata.get("env_id")
        turns = completion_turns(record["prompt"], record["completion"])
        if error:
            self.say(file.notes, "rollouts with an error are stored with reward 0.0: their reward is read as missing")
        if turns and isinstance(record.get("is_truncated"), bool):
            turns[-1].columns["response_truncated"] = record["is_truncated"]
        if len(turns) == 1 and isinstance(record.get("token_usage"), dict):
            turns[0].columns["response_tokens"] = integer(record["token_usage"].get("output_tokens"))
        sampling = metadata.get("sampling_args") or {}
        scope = "" if file.step is not None else f"{file.path.parent.name}/"
        yield Rollout(
            turns,
            reward=None if error else reward_of(record["reward"]),
            reward_source="reward",
            components={k: number(v) for k, v in metrics.items() if k != "num_turns"} or None,
            group=f"{scope}{env or ''}:{record['example_id']}",
            group_source="example_id",
            columns={
                "env": env if isinstance(env, str) else None,
                "error": None
                if not error
                else error
                if isinstance(error, str)
                else json.dumps(error, ensure_ascii=False),
                "advantage": number(record.get("advantage")),
                "temperature": number(sampling.get("temperature")),
                "top_p": number(sampling.get("top_p")),
                "max_response_tokens": integer(sampling.get("max_tokens")),
                "model_version": metadata.get("model"),
                "truncated": record["stop_condition"] == "max_turns_reached" if record.get("stop_condition") else None,
            },
        )


def checkpoint_step(arguments: Any) -> tuple[int, str] | None:
    """(step, key) when an evaluation's arguments name the checkpoint it ran on."""
    if not isinstance(arguments, dict):
        return None
    for key in STEP_KEYS:
        value = arguments.get(key)
        step = integer(value)
        if step is None and isinstance(value, str) and (match := re.search(r"(\d+)/?$", value)):
            step = int(match[1])
        if step is not None:
            return step, key
    return None


@lru_cache(maxsize=256)
def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_head(path, 1 << 24))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
