"""rLLM's episode files, one JSON file per episode (`episodes/train_step_{S}_epoch_{E}/…json`, and its evaluation command's), 0.3.

`chat_completions` of a step is cumulative, so the last step holds the whole conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, turns_from_messages
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader


class Rllm(RecordReader):
    """An episode {training_step, episode_id, task_hash, trajectories}, or an evaluation's {id, task, trajectories, eval_idx}."""

    name = "rllm"
    needs = frozenset({"training_step", "episode_id", "task_hash", "trajectories"})
    inside_run = re.compile(r"(?:train|val)_step_\d+_epoch_\d+|episodes")

    def claims(self, seen: Peek) -> Match | None:
        """Training episodes or evaluation episodes."""
        if seen.kind != "json":
            return None
        return match_keys(seen, sorted(self.needs), version="training") or match_keys(
            seen, ["eval_idx", "id", "task", "trajectories"], version="evaluation"
        )

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One rollout per trajectory (a workflow may have several agents)."""
        reason = str(record.get("termination_reason") or "").lower()
        correct = record.get("is_correct")
        episode = record.get("episode_id", record.get("id"))
        for index, trajectory in enumerate(record["trajectories"]):
            turns = _turns(trajectory["steps"])
            if turns and "length" in reason:
                turns[-1].columns["response_truncated"] = True
            task = record.get("task_hash") or str(episode).rsplit(":", 1)[0]
            name = trajectory.get("name") or ""
            yield Rollout(
                turns,
                reward=reward_of(trajectory.get("reward")),
                reward_source="trajectory reward",
                components={key: number(value) for key, value in (record.get("metrics") or {}).items()} or None,
                step=integer(record.get("training_step")),
                group=task if len(record["trajectories"]) == 1 else f"{task}/{name or index}",
                group_source="task_hash",
                trajectory=trajectory.get("uid") or f"{file.path}:{index}",
                split=None if "eval_idx" not in record else "val",
                columns={
                    "success": correct if isinstance(correct, bool) else None,
                    "terminated": True if reason == "env_done" else None,
                    "truncated": True if "max_turns" in reason or "timeout" in reason else None,
                    "env": (record.get("task") or {}).get("data_source")
                    if isinstance(record.get("task"), dict)
                    else None,
                },
            )


def _turns(steps: list[dict[str, Any]]) -> list[Turn]:
    conversation = next((step["chat_completions"] for step in reversed(steps) if step.get("chat_completions")), None)
    if conversation is None:
        return [Turn(str(step["model_response"]), None) for step in steps]
    turns = turns_from_messages(conversation)
    # Few-shot answers in the prompt come first; the steps belong to the last assistant messages.
    for turn, step in zip(reversed(turns), reversed(steps), strict=False):
        turn.columns["turn_reward"] = number(step.get("reward"))
        if not turn.reasoning and isinstance(step.get("thought"), str) and step["thought"].strip():
            turn.reasoning = step["thought"]
    return turns[-len(steps) :]
