"""Rollouts of a log as trajectories to train on: offline learning, and the replay buffer. Not for writing logs (`trajectory.py`).

Foreign logs hold less: without token ids the texts are tokenized, without log-probs the current policy stands in for the
one that sampled. What a score holds beyond the turns' rewards (penalties) counts at the last turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragen_diag.config import RolloutConfig
from ragen_diag.errors import ConfigError
from ragen_diag.rollout_log import conform, step_files
from trainer.parsing import parse_reply
from trainer.sampling import Sample
from trainer.trajectory import Trajectory, Turn

MISSING_LOGPROB = float("nan")


@dataclass(frozen=True, slots=True)
class _Group:
    """Where a group is stored."""

    path: Path
    key: str
    n_trajectories: int


class LoggedGroups:
    """The training groups of a rollout log, read from disk only when they are used."""

    def __init__(
        self, groups: Sequence[_Group], tokenizer: Any, rollout: RolloutConfig, *, kept_only: bool = False
    ) -> None:
        self._groups, self._tokenizer, self._rollout, self._kept_only = list(groups), tokenizer, rollout, kept_only

    def __len__(self) -> int:
        return len(self._groups)

    @classmethod
    def of_log(cls, run_dir: Path, tokenizer: Any, rollout: RolloutConfig) -> LoggedGroups:
        """All training groups of a run folder. Raises ConfigError when there is none."""
        groups = [group for _, _, path in step_files(run_dir, "train") for group in _groups_of(path, kept_only=False)]
        if not groups:
            raise ConfigError(
                f"offline.log: {run_dir} holds no training rollouts. Give a run folder; `ragen-diag convert` makes one "
                "from another framework's log."
            )
        return cls(groups, tokenizer, rollout)

    @classmethod
    def newest(
        cls, run_dir: Path, tokenizer: Any, rollout: RolloutConfig, *, before: int, capacity: int
    ) -> LoggedGroups:
        """The newest groups that the steps before one trained on, as many as `capacity` trajectories allow."""
        found: list[_Group] = []
        room = capacity
        for step, _, path in reversed(step_files(run_dir, "train")):
            if step >= before:
                continue
            for group in _groups_of(path, kept_only=True):
                room -= group.n_trajectories
                if room < 0:
                    return cls(found, tokenizer, rollout, kept_only=True)
                found.append(group)
        return cls(found, tokenizer, rollout, kept_only=True)

    def load(self, chosen: Sequence[int], *, first_group: int) -> list[Trajectory]:
        """The trajectories of some groups, which are numbered from first_group in the order given."""
        loaded = []
        for number, index in enumerate(chosen):
            group = self._groups[index]
            table = conform(pq.read_table(group.path))
            rows = [row for row in table.to_pylist() if _key(row["group_id"], row["prompt_id"]) == group.key]
            loaded += self._trajectories(rows, first_group + number)
        return loaded

    def _trajectories(self, rows: Sequence[dict[str, Any]], group: int) -> list[Trajectory]:
        by_id: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if _is_usable(row, kept_only=self._kept_only):
                by_id.setdefault(row["trajectory_id"], []).append(row)
        return [self._trajectory(turns, group, member) for member, turns in enumerate(by_id.values())]

    def _trajectory(self, rows: Sequence[dict[str, Any]], group: int, member: int) -> Trajectory:
        first = rows[0]
        turns = [self._turn(row) for row in sorted(rows, key=lambda row: row["turn"])]
        turns[-1].penalty = first["return_"] - sum(turn.reward for turn in turns)
        return Trajectory(
            group=group,
            member=member if first["rollout_index"] is None else first["rollout_index"],
            seed=-1 if first["seed"] is None else first["seed"],
            turns=turns,
            success=bool(first["success"]),
            terminated=bool(first["terminated"]),
            truncated=bool(first["truncated"]),
        )

    def _turn(self, row: dict[str, Any]) -> Turn:
        ids = row["response_ids"] or self._encode(row["response_text"])
        text = row["response_text"] or ""
        reply = parse_reply(
            text,
            think=self._rollout.think,
            separator=self._rollout.separator,
            max_actions=self._rollout.max_actions_per_turn,
        )
        sample = Sample(
            ids,
            row["logprobs"] or [MISSING_LOGPROB] * len(ids),
            row["entropies"] or [MISSING_LOGPROB] * len(ids),
            cut=bool(row["response_truncated"]),
        )
        turn = Turn(
            row["state_text"] or "",
            row["prompt_ids"] or self._encode(row["prompt_text"]),
            sample,
            text,
            reply,
            reward=row["turn_reward"] or 0.0,
        )
        turn.action_valid, turn.n_actions = bool(row["action_valid"]), len(row["actions"] or [])
        return turn

    def _encode(self, text: str | None) -> list[int]:
        return list(self._tokenizer(text or "", add_special_tokens=False)["input_ids"])


def _groups_of(path: Path, *, kept_only: bool) -> list[_Group]:
    """Groups of one step file with something to train on, in order of appearance."""
    columns = ["group_id", "prompt_id", "trajectory_id", "return_", "error", "kept_by_filter"]
    with pq.ParquetFile(path) as file:
        table: pa.Table = file.read([name for name in columns if name in file.schema_arrow.names])
    members: dict[str, set[str]] = {}
    for row in table.to_pylist():
        if _is_usable(row, kept_only=kept_only):
            members.setdefault(_key(row.get("group_id"), row["prompt_id"]), set()).add(row["trajectory_id"])
    return [_Group(path, key, len(ids)) for key, ids in members.items()]


def _is_usable(row: dict[str, Any], *, kept_only: bool) -> bool:
    scored = row["return_"] is not None and row.get("error") is None
    return scored and (row.get("kept_by_filter") is not False or not kept_only)


def _key(group_id: str | None, prompt: str) -> str:
    """Identity of a group inside its step; rollouts without an id are grouped by their prompt."""
    return f"g{group_id}" if group_id is not None else f"p{prompt}"
