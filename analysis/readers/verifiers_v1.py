"""verifiers 0.2 and later, and prime-rl 0.7 and later: `traces.jsonl`, one episode (or, in 0.2.x, one bare trace) per line.

A trace is a tree of messages with parent indices; the rollout is the path to its last leaf. The total reward is not stored: it
is the weighted sum of `rewards`, whose null entries are unscored. prime-rl's `effective` batch is a subset of `all` and is
passed over when both exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.messages import as_message, render
from analysis.readers.normal_form import Rollout, Turn, integer, truncated_by, weighted_rewards
from analysis.readers.peek import Peek, match_keys
from analysis.readers.record_reader import File, RecordReader, lookup
from analysis.readers.thinking import strip_end_of_turn

_STEP_IN_RUN_NAME = re.compile(r"(?:step|ckpt|checkpoint)[_-]?(\d+)", re.IGNORECASE)


class VerifiersV1(RecordReader):
    """Episodes {traces, task, env} or traces {nodes, task, rewards}."""

    name = "verifiers_v1"
    needs = frozenset({"traces", "task", "env"})
    default_split = "val"
    step_in_path = True
    inside_run = re.compile(r".+--.+--[0-9a-f]{6}|effective|all")

    def claims(self, seen: Peek) -> Match | None:
        """Episodes first, then bare traces."""
        if seen.kind != "json":
            return None
        return match_keys(seen, sorted(self.needs), version="episodes (0.4+)") or match_keys(
            seen, ["nodes", "rewards", "task"], version="bare traces (0.2.x)"
        )

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """Prefer prime-rl's `all` over its subset `effective`."""
        have = set(files)
        passed = {
            path: "subset of the neighbouring 'all' folder"
            for path in files
            if path.parent.name == "effective" and path.parent.parent / "all" / path.name in have
        }
        return [path for path in files if path not in passed], passed

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per trainable trace."""
        if file.path.parent.name == "effective":
            self.say(file.notes, "only surviving groups are in this file (prime-rl 'effective')")
        if file.step is None and (match := _STEP_IN_RUN_NAME.search(file.path.parent.name)):
            file.step, file.step_source = int(match[1]), "folder name"
        is_episode = "traces" in record
        for trace in record["traces"] if is_episode else [record]:
            if lookup(trace, "agent.trainable") is not False:
                yield self._rollout(trace, record if is_episode else {}, file)

    def _rollout(self, trace: dict[str, Any], episode: dict[str, Any], file: File) -> Rollout:
        task = episode.get("task") or trace.get("task") or {}
        work = lookup(episode, "run.work") or {}
        reward, components = weighted_rewards(trace.get("rewards"))
        errors = [*(episode.get("errors") or []), *(trace.get("errors") or [])]
        group = lookup(episode, "group.id") or trace.get("group_id")
        explicit = group is not None
        if not explicit:
            group = task.get("key") or task.get("hash") or lookup(task, "data.idx")
            if group is not None and file.step is None and work.get("step") is None:
                group = f"{file.path.parent.name}/{group}"  # another evaluation of the same task is another group
        rollout = Rollout(
            _turns(trace),
            reward=reward,
            reward_source="weighted sum of rewards",
            components=components or None,
            step=integer(work.get("step", trace.get("step"))),
            group=None if group is None else str(group),
            group_source="group.id" if explicit else "task key",
            trajectory=trace.get("id"),
            columns={
                "env": lookup(episode, "env.name") or trace.get("env_name"),
                "error": "; ".join(
                    str(error.get("message", error) if isinstance(error, dict) else error) for error in errors
                )
                or None,
                "model_version": _text(lookup(work, "policy.start"), trace.get("policy_version")),
            },
        )
        kind = work.get("type") or lookup(episode, "run.type") or trace.get("kind")
        if kind in ("train", "eval"):
            rollout.split = "train" if kind == "train" else "val"
        return rollout


def _text(*values: Any) -> str | None:
    return next((str(value) for value in values if value is not None), None)


def _turns(trace: dict[str, Any]) -> list[Turn]:
    nodes = trace["nodes"]
    finish = {call["node"]: call.get("finish_reason") for call in trace.get("calls") or [] if "node" in call}
    path: list[int] = []
    index: int | None = len(nodes) - 1
    while index is not None and index not in path:
        path.append(index)
        index = nodes[index].get("parent")
    path.reverse()
    turns: list[Turn] = []
    messages: list[Any] = []
    context_ids: list[int] | None = []
    for index in path:
        node = nodes[index]
        message = as_message(node["message"])
        ids = node.get("token_ids")
        if message.role == "assistant" and node.get("sampled"):
            state = next((m.text for m in reversed(messages) if m.role not in ("assistant", "system")), None)
            columns = {"n_tool_calls": message.n_tool_calls, "response_truncated": truncated_by(finish.get(index))}
            if ids:
                columns |= _token_columns(node, context_ids)
            turns.append(Turn(strip_end_of_turn(message.text), render(messages), state, message.reasoning, columns))
        context_ids = [*context_ids, *ids] if ids and context_ids is not None else None
        messages.append(message)
    return turns


def _token_columns(node: dict[str, Any], context_ids: list[int] | None) -> dict[str, Any]:
    ids, mask = node["token_ids"], node.get("mask") or [True] * len(node["token_ids"])
    sampled = [token for token, is_sampled in zip(ids, mask, strict=True) if is_sampled]
    logprobs = node.get("logprobs") or None
    return {
        "response_ids": sampled,
        "response_tokens": len(sampled),
        "prompt_ids": context_ids or None,
        "prompt_tokens": len(context_ids) if context_ids else None,
        "logprobs": logprobs if logprobs and len(logprobs) == len(sampled) else None,
    }
