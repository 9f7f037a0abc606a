"""NeMo-RL's `{train,val}_data_step{N}.jsonl` (`logger.log_dir/exp_NNN/`), checked with 0.2.1 to 0.7.0.

Every value is wrapped in a list of length one; token lists are padded to the batch. The step is only in the file name (N is the
step plus one).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.base import Match
from analysis.readers.normal_form import Rollout, Turn, last_user_text, reward_of, turns_from_messages
from analysis.readers.peek import Peek
from analysis.readers.record_reader import File, RecordReader
from analysis.readers.thinking import strip_end_of_turn
from analysis.readers.tokens import add_token_columns


class NemoRl(RecordReader):
    """Rows {content, rewards, idx} of one-element lists."""

    name = "nemo_rl"
    needs = frozenset({"content", "rewards", "idx"})
    step_in_path = True

    def claims(self, seen: Peek) -> Match | None:
        """Lists of length one, and messages or strings inside `content`."""
        for row in seen.records if seen.kind == "json" else ():
            content = row.get("content")
            if (
                isinstance(content, list)
                and len(content) == 1
                and isinstance(content[0], list)
                and isinstance(row.get("rewards"), list)
            ):
                kind = "validation" if content[0] and isinstance(content[0][0], dict) else "training"
                return Match(0.9, "records have content and rewards, each a list of one", kind)
        return None

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row."""
        content = record["content"][0]
        if content and isinstance(content[0], dict):
            yield Rollout(
                turns_from_messages(content), reward=reward_of(record["rewards"]), reward_source="rewards", split="val"
            )
            return
        turns = _turns(content)
        columns: dict[str, Any] = {}
        if "filtered_rewards" in record:
            self.say(file.notes, "dynamic sampling was on (filtered_rewards): only surviving groups are in this file")
        if "sample_loss_mask" in record:
            columns["kept_by_filter"] = bool(record["sample_loss_mask"][0])
        if "token_ids" in record and "token_loss_mask" in record:
            length = int(record["input_lengths"][0])
            filled = add_token_columns(
                turns,
                record["token_ids"][0][:length],
                record["token_loss_mask"][0][:length],
                *(record[key][0] if key in record else None for key in ("generation_logprobs", "advantages")),
            )
            if not filled:
                self.say(
                    file.notes,
                    "trained token stretches do not line up with the turns on some rows: their log-probs are left out",
                )
        yield Rollout(turns, reward=reward_of(record["rewards"]), reward_source="rewards", columns=columns)


def _turns(content: list[str]) -> list[Turn]:
    """Texts alternate: prompt, response, environment, response, …"""
    turns: list[Turn] = []
    context = ""
    for index, text in enumerate(content):
        if index % 2 == 1:
            turns.append(
                Turn(strip_end_of_turn(text), context, last_user_text(content[index - 1]) or content[index - 1])
            )
        context += text
    return turns
