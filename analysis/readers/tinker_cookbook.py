"""tinker-cookbook's `iteration_NNNNNN/*_rollout_summaries.jsonl` (no text) and benchmark `trajectories.jsonl`, at 9dfcc3a."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, turns_from_messages
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader


class TinkerCookbook(RecordReader):
    """Summaries {schema_version, iteration, group_idx, traj_idx, steps}, or benchmark rows {benchmark, example_id, turns}."""

    name = "tinker_cookbook"
    needs = frozenset({"schema_version", "iteration", "group_idx", "traj_idx"})
    inside_run = re.compile(r"iteration_\d+")
    step_in_path = True

    def claims(self, seen: Peek) -> Match | None:
        """Summaries first."""
        if seen.kind != "json":
            return None
        summary = ["group_idx", "schema_version", "steps", "traj_idx"]
        return match_keys(seen, summary, version="rollout summaries") or match_keys(
            seen, ["benchmark", "example_id", "reward", "turns"], version="benchmark trajectories"
        )

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row, one turn per step."""
        if "turns" in record:
            yield Rollout(
                turns_from_messages(record["turns"]),
                reward=reward_of(record["reward"]),
                reward_source="reward",
                group=f"{record['benchmark']}:{record['example_id']}",
                group_source="example_id",
                split="val",
                columns={"error": record.get("error") or None, "env": record["benchmark"]},
            )
            return
        self.say(
            file.notes, "rollout summaries hold no text: checks that need text are off (the text is in *_logtree.json)"
        )
        iteration, group = integer(record.get("iteration", file.step)), str(record["group_idx"])
        turns = [
            Turn(
                None,
                columns={
                    "prompt_tokens": integer(step.get("ob_len")),
                    "response_tokens": integer(step.get("ac_len")),
                    "turn_reward": number(step.get("reward")),
                },
            )
            for step in record["steps"]
        ]
        correct = number((record["steps"][-1].get("metrics") or {}).get("correct")) if record["steps"] else None
        split = str(record.get("split") or "")
        yield Rollout(
            turns,
            reward=reward_of(record.get("total_reward")),
            reward_source="total_reward",
            step=iteration,
            step_source="iteration",
            group=group,
            group_source="group_idx",
            prompt_key=f"{split}/{iteration}/{group}",
            split="train" if split == "train" else "val" if split else None,
            columns={
                "env": ",".join(record.get("tags") or []) or None,
                "success": None if correct not in (0.0, 1.0) else bool(correct),
                "model_version": str(record["sampling_client_step"]) if "sampling_client_step" in record else None,
            },
        )
