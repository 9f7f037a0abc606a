"""slime's `rollout_data/{id}.pt` and `eval_{id}.pt` (`--save-debug-rollout-data`, `--dump-details`), checked at 624b824.

Forks such as miles write the same. Read without torch and without running the pickle.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.readers.base import Match
from analysis.readers.containers import Bad, Record, open_seekable, read_member
from analysis.readers.messages import as_messages, render
from analysis.readers.normal_form import Rollout, integer, reward_of, turns_from_text, weighted_rewards
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.restricted_pickle import PickleRefused, load_torch_zip
from analysis.readers.tokens import add_token_columns
from ragen_diag.errors import BadLog


class Slime(RecordReader):
    """A torch file {rollout_id, samples}."""

    name = "slime"
    needs = frozenset({"rollout_id", "samples"})
    step_in_path = True

    def claims(self, seen: Peek) -> Match | None:
        """The pickle names `samples` and `response_length`."""
        member = next((name for name in seen.members if name.endswith("/data.pkl")), None)
        if member and _mentions(seen.path, member, b"samples", b"response_length"):
            return Match(0.95, "a torch file with samples of prompt, response, reward")
        return None

    def records(self, file: File) -> Iterator[Record]:
        """Samples, with the file's rollout id as `\\0rollout_id`."""
        try:
            content = load_torch_zip(file.path)
            samples = content["samples"]
        except (PickleRefused, KeyError, TypeError) as error:
            yield Record(1, Bad(f"not a readable slime file: {error}"))
            return
        for number, sample in enumerate(samples, start=1):
            yield Record(
                number, {**sample, _ROLLOUT_ID: content.get("rollout_id")} if isinstance(sample, dict) else sample
            )

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per sample."""
        prompt = record["prompt"]
        if not isinstance(prompt, str):
            prompt = render(as_messages(prompt))
        turns = turns_from_text(prompt, record["response"])
        status = record.get("status")
        reward = record.get("reward")
        parts = weighted_rewards(reward)[1] if isinstance(reward, dict) else {}
        tokens, length = list(record.get("tokens") or []), record.get("response_length") or 0
        if tokens and length:
            mask = record.get("loss_mask") or [1] * length
            logprobs = record.get("rollout_log_probs")
            pad = [0] * (len(tokens) - length)
            filled = add_token_columns(
                turns, tokens, [*pad, *mask], None if not logprobs or len(logprobs) != length else [*pad, *logprobs]
            )
            if not filled:
                self.say(
                    file.notes,
                    "loss-mask stretches do not line up with the turns on some samples: their log-probs are left out",
                )
        if status in ("completed", "truncated"):
            turns[-1].columns["response_truncated"] = status == "truncated"
        versions = record.get("weight_versions") or []
        yield Rollout(
            turns,
            reward=reward_of(reward),
            reward_source="reward",
            components=parts or None,
            step=integer(record[_ROLLOUT_ID]),
            step_source="rollout_id",
            group=None if record.get("group_index") is None else str(record["group_index"]),
            group_source="group_index",
            columns={
                "kept_by_filter": False if record.get("remove_sample") else None,
                "error": f"status {status}" if status in ("aborted", "failed") else None,
                "model_version": str(versions[-1]) if versions else None,
            },
        )


_ROLLOUT_ID = "\0rollout_id"


def _mentions(path: Path, member: str, *words: bytes) -> bool:
    try:
        with open_seekable(path) as handle, zipfile.ZipFile(handle) as archive:
            start = read_member(archive, archive.getinfo(member))[: 1 << 16]
    except (zipfile.BadZipFile, BadLog, OSError):
        return False
    return all(word in start for word in words)
