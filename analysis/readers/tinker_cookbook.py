"""tinker-cookbook's `iteration_NNNNNN/*_rollout_summaries.jsonl` (no text) and benchmark `trajectories.jsonl`, at 9dfcc3a.

Summaries hold every rollout but no text; `*_logtree.json` holds the texts of the few groups that were logged. Beside summaries it is
therefore passed over; on its own it is read (tinker_logtree.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, turns_from_messages
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.tinker_logtree import attempts


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
        if any("root" in record and {"title", "started_at"} <= set(record) for record in seen.records):
            return Match(0.8, "a logtree of titled sections", "logtree")
        summary = ["group_idx", "schema_version", "steps", "traj_idx"]
        return match_keys(seen, summary, version="rollout summaries") or match_keys(
            seen, ["benchmark", "example_id", "reward", "turns"], version="benchmark trajectories"
        )

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """Logtrees repeat some of the rollouts of the summaries beside them."""
        with_summaries = {path.parent for path in files if not _is_logtree(path)}
        passed = {
            path: "texts of some of the rollouts in the summaries beside it; point at this file to read them"
            for path in files
            if _is_logtree(path) and path.parent in with_summaries
        }
        return [path for path in files if path not in passed], passed

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row, one turn per step."""
        if "root" in record:
            self.say(file.notes, "a logtree holds the groups that were logged, not the whole batch")
            yield from _logged_groups(record, file)
        elif "turns" in record:
            yield _benchmark_row(record)
        else:
            self.say(
                file.notes,
                "rollout summaries hold no text: checks that need text are off (the text is in *_logtree.json)",
            )
            yield _summary(record, file)


def _logged_groups(record: dict[str, Any], file: File) -> Iterator[Rollout]:
    made = list(attempts(record))
    if not made:
        raise ValueError("no section 'Prompt' with 'Policy Response' and 'Reward' in the tree")
    for index, attempt in enumerate(made):
        yield Rollout(
            turns_from_messages(attempt["completion"], prompt=attempt["prompt"]),
            reward=reward_of(attempt["reward"]),
            reward_source="Reward table",
            group=f"{file.path.parent.name}/{attempt['group']}" if file.step is None else str(attempt["group"]),
            group_source="group section",
            trajectory=f"{file.path}:{index}",
        )


def _benchmark_row(record: dict[str, Any]) -> Rollout:
    return Rollout(
        turns_from_messages(record["turns"]),
        reward=reward_of(record["reward"]),
        reward_source="reward",
        group=f"{record['benchmark']}:{record['example_id']}",
        group_source="example_id",
        split="val",
        columns={"error": record.get("error") or None, "env": record["benchmark"]},
    )


def _summary(record: dict[str, Any], file: File) -> Rollout:
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
    return Rollout(
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


def _is_logtree(path: Path) -> bool:
    return path.name.endswith("_logtree.json")
