"""RAGEN's evaluation dumps `val_rollouts_<timestamp>.{jsonl,pkl}`, checked at 20daedc (2026-04).

Two values are unreliable there: `total_reward` is 0.0 on every row and `success` is always false, so `<Tag>/episodic_return` and
`<Tag>/success` are read instead. "(reward: x)" glued to a state is the reward of the action taken AFTER it: it is cut from the
state before prompts are compared. There is no step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, iter_json
from analysis.readers.layout import bare_name
from analysis.readers.messages import Message, as_messages, render
from analysis.readers.normal_form import Rollout, Turn, number, reward_of
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.restricted_pickle import PickleRefused, load_data_proto

_GLUED_REWARD = re.compile(r"\s*\(reward:\s*(-?[\d.]+(?:e-?\d+)?)\)\s*$")
_METADATA = {"env_id", "group_id", "num_turns"}


class Ragen(RecordReader):
    """Rows {custom_id, messages, metadata} with env_id, group_id, num_turns in metadata; or a pickled DataProto."""

    name = "ragen"
    needs = frozenset({"custom_id", "messages", "metadata"})
    fixed_split = "val"
    assumes = ("RAGEN writes no step: rollouts of different files are kept apart, but not in training order",)

    def claims(self, seen: Peek) -> Match | None:
        """By metadata keys, or by the DataProto class name inside a pickle."""
        if seen.kind == "binary" and seen.path.suffix == ".pkl":
            with seen.path.open("rb") as handle:
                if b"verl.protocol" in handle.read(200):
                    return Match(0.9, "a pickled verl DataProto", "pickle")
        row = seen.having(self.needs)
        if row and isinstance(row["metadata"], dict) and set(row["metadata"]) >= _METADATA:
            return Match(0.95, "records have custom_id, messages, metadata with env_id, group_id, num_turns", "jsonl")
        return None

    def select(self, files: list[Path]) -> tuple[list[Path], dict[Path, str]]:
        """A pickle next to a JSONL of the same evaluation holds the same rollouts."""
        have = {path.with_name(bare_name(path)) for path in files}
        passed = {
            path: f"same rollouts as {plain.stem}.jsonl"
            for path in files
            if (plain := path.with_name(bare_name(path))).suffix == ".pkl" and plain.with_suffix(".jsonl") in have
        }
        return [path for path in files if path not in passed], passed

    def records(self, file: File) -> Iterator[Record]:
        """JSONL rows, or rows rebuilt from the pickle's non-tensor part."""
        if file.path.suffix == ".pkl":
            yield from _pickle_records(file.path)
        else:
            yield from iter_json(file.path)

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row, one turn per assistant message."""
        metadata = record["metadata"]
        tagged = {key.split("/", 1)[1]: value for key, value in metadata.items() if "/" in key}
        source = next((key for key in metadata if key.endswith("/episodic_return")), None)
        if source is None:
            source = "total_reward"
            self.say(
                file.notes, "RAGEN writes total_reward 0.0 on every row in some versions: check rewards that are all 0"
            )
        turns = _turns(record["messages"])
        if len(turns) == 1 and (n_tokens := number(metadata.get("n_tokens"))) is not None:
            turns[0].columns["response_tokens"] = int(n_tokens)
        success = number(tagged.get("success"))
        yield Rollout(
            turns,
            reward=reward_of(metadata.get(source)),
            reward_source=source,
            group=f"{file.path.stem}:{metadata['group_id']}",
            group_source="metadata.group_id",
            columns={
                "env": next((key.split("/", 1)[0] for key in metadata if "/" in key), None),
                "success": None if success is None else success > 0,
            },
        )


def _turns(raw_messages: Any) -> list[Turn]:
    turns: list[Turn] = []
    before: list[Message] = []
    state: str | None = None
    upcoming: float | None = None
    for message in as_messages(raw_messages):
        if message.role == "assistant":
            columns = {} if upcoming is None else {"turn_reward": upcoming}
            turns.append(Turn(message.text, render(before), state, message.reasoning, columns))
            upcoming = None
        elif message.role == "user":
            glued = _GLUED_REWARD.search(message.text)
            if glued:
                message.text, upcoming = message.text[: glued.start()], number(glued[1])
            state = message.text
        before.append(message)
    return turns


def _pickle_records(path: Path) -> Iterator[Record]:
    try:
        non_tensor = load_data_proto(path)
        n_rows = len(non_tensor["env_ids"])
    except (PickleRefused, KeyError, TypeError) as error:
        yield Record(1, Bad(f"not a readable DataProto pickle: {error}"))
        return
    for row in range(n_rows):
        history = non_tensor["history"][row] if "history" in non_tensor else []
        messages = non_tensor["messages_list"][row] if "messages_list" in non_tensor else _messages_of(history)
        metrics = non_tensor["metrics"][row] if "metrics" in non_tensor else {}
        rewards = [turn.get("reward") for turn in history if isinstance(turn, dict)]
        metadata = {
            "env_id": _plain(non_tensor["env_ids"][row]),
            "group_id": _plain(non_tensor["group_ids"][row]),
            "num_turns": len([turn for turn in history if isinstance(turn, dict) and turn.get("llm_response")]),
            **{str(key): _plain(value) for key, value in dict(metrics).items()},
        }
        if any(reward is not None for reward in rewards):
            metadata["history/episodic_return"] = sum(number(_plain(reward)) or 0.0 for reward in rewards)
            for key in [key for key in metadata if key.endswith("/episodic_return") and not key.startswith("history/")]:
                del metadata[key]  # the sum of the per-turn rewards is the exact one
        yield Record(row + 1, {"custom_id": f"traj_{row}", "messages": messages, "metadata": metadata})


def _messages_of(history: list[Any]) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = []
    for turn in history:
        if "state" in turn:
            messages.append({"role": "user", "content": str(turn["state"])})
        if turn.get("llm_response") or turn.get("llm_raw_response"):
            messages.append({"role": "assistant", "content": turn.get("llm_raw_response") or turn["llm_response"]})
    return messages


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
