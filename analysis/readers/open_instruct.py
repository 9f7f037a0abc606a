"""open-instruct's `<run>_rollouts_000000.jsonl` shards (`rollouts_save_path`), checked at e6c3044. Token ids only, no text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.readers.normal_form import Rollout, Turn, integer, number, reward_of, truncated_by
from analysis.readers.record_reader import File, RecordReader, lookup


class OpenInstruct(RecordReader):
    """Rows of step, prompt_idx, prompt_tokens, response_tokens, reward, logprobs."""

    name = "open_instruct"
    needs = frozenset({"prompt_tokens", "response_tokens", "prompt_idx"})
    assumes = (
        "token ids only: the whole response stands in for the thinking, ids are compared as words, checks of formats are off",
    )

    def rollouts(self, record: dict[str, Any], file: File) -> Iterator[Rollout]:
        """One trajectory per row; prompts are compared by their tokens."""
        prompt, response = record["prompt_tokens"], record["response_tokens"]
        logprobs = record.get("logprobs")
        turn = Turn(
            None,
            columns={
                "prompt_ids": prompt,
                "prompt_tokens": len(prompt),
                "response_ids": response,
                "response_tokens": len(response),
                "logprobs": logprobs if logprobs and len(logprobs) == len(response) else None,
                "response_truncated": truncated_by(record.get("finish_reason")),
                "n_tool_calls": integer(lookup(record, "request_info.num_calls")),
            },
        )
        yield Rollout(
            [turn],
            reward=reward_of(record.get("reward")),
            reward_source="reward",
            step=integer(record.get("step")),
            group=str(record["prompt_idx"]),
            group_source="prompt_idx",
            prompt_key=prompt,
            columns={"advantage": number(record.get("advantage")), "env": _text(record.get("dataset"))},
        )


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) else None
