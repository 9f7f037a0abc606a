"""Numbers of one turn row: lengths, log-prob sums, hashes, text flags. Vectorised over one table; no aggregation."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.token_words import with_ids_as_words

# Markers that only an environment or a chat template writes: a response that holds one ran on into the next turn.
ENV_TEXT = re.compile(
    r"<\|im_start\|>|<\|start_header_id\|>|<\|(?:user|system|observation)\|>|(?:^|\n)Turn \d+:\nState:\n"
)
_SCANNED_CHARS = 2_000  # a degenerate response repeats at its start or end; scanning both bounds the cost of huge lines


def turn_features(table: pa.Table) -> pd.DataFrame:
    """One row of float features per turn, in (trajectory, turn) order of the table. nan = not measured."""
    responses = table.column("response_text").to_pylist()
    thinking = pc.utf8_trim_whitespace(table.column("thinking_text"))
    has_thinking = _floats(pc.fill_null(pc.greater(pc.utf8_length(thinking), 0), False))
    closed = _floats(pc.fill_null(table.column("thinking_closed"), True))
    tokens = _response_tokens(table)
    logprobs = _thinking_sum(table, "logprobs")
    format_valid, action_valid = _floats(table.column("format_valid")), _floats(table.column("action_valid"))
    advantage = _floats(table.column("advantage"))
    entropy_sum, entropy_n = _list_sum(table.column("entropies"))
    features = {
        "trajectory_id": table.column("trajectory_id").to_pandas(),
        "run_id": table.column("run_id").to_pandas(),
        "step": table.column("step").to_pandas(integer_object_nulls=False),
        "split": table.column("split").to_pandas(),
        "group_id": table.column("group_id").to_pandas(),
        "prompt_id": table.column("prompt_id").to_pandas(),
        "turn": _floats(table.column("turn")),
        "return_": _floats(table.column("return_")),
        "success": _floats(table.column("success")),
        "n_turns": _floats(table.column("n_turns")),
        "n_rows": np.ones(table.num_rows),
        "response_tokens": tokens,
        "response_chars": _floats(pc.utf8_length(table.column("response_text"))),
        "max_turn_tokens": tokens,
        "thinking_tokens": _floats(pc.subtract(table.column("thinking_end"), table.column("thinking_start"))),
        "thinking_chars": _floats(pc.fill_null(pc.utf8_length(thinking), 0)),
        "n_thinking_turns": has_thinking,
        "n_thinking_valid": has_thinking * closed,
        "truncated": _floats(table.column("response_truncated")),
        "format_valid_sum": format_valid,
        "format_valid_n": np.isfinite(format_valid).astype(float),
        "action_valid_sum": action_valid,
        "action_valid_n": np.isfinite(action_valid).astype(float),
        "tool_calls": _floats(table.column("n_tool_calls")),
        "advantage_sum": advantage,
        "advantage_n": np.isfinite(advantage).astype(float),
        "advantage_absmax": np.abs(advantage),
        "kept": _floats(table.column("kept_by_filter")),
        "filter_score": _floats(table.column("filter_score")),
        "first_thinking_logprob": logprobs,
        "thinking_logprob": logprobs,
        "thinking_tokens_all": _floats(pc.subtract(table.column("thinking_end"), table.column("thinking_start"))),
        "response_logprob": _list_sum(table.column("logprobs"))[0],
        "entropy_sum": entropy_sum,
        "entropy_n": entropy_n,
        "response_hash": _hashes(responses),
        "thinking_hash": _hashes(pc.utf8_trim_whitespace(with_ids_as_words(table).column("thinking_text")).to_pylist()),
        "top_token_share": np.array([_top_token_share(text) for text in responses]),
        "has_env_text": np.array([_has_env_text(text) for text in responses]),
        "max_response_tokens": _floats(table.column("max_response_tokens")),
        "error": _floats(pc.is_valid(table.column("error"))),
    }
    frame = pd.DataFrame(features)
    return frame.sort_values(["trajectory_id", "turn"], kind="stable").drop(columns="turn")


def _floats(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A nullable numeric or boolean column as float64 with nan for null."""
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype="float64")


def _response_tokens(table: pa.Table) -> np.ndarray:
    stated = _floats(table.column("response_tokens"))
    counted = _floats(pc.list_value_length(table.column("response_ids")))
    return np.where(np.isnan(stated), counted, stated)


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(cumulative sums with a leading 0, start offsets, lengths) of a list column; null lists have length 0."""
    array = column.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype("int64")
    values = np.asarray(pc.cast(array.flatten(), pa.float64()).to_numpy(zero_copy_only=False))
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    return np.concatenate([[0.0], np.cumsum(values)]), starts, lengths


def _list_sum(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Sum and length of each list; nan and 0 for a missing list."""
    cumulative, starts, lengths = _flat(column)
    sums = cumulative[starts + lengths] - cumulative[starts]
    return np.where(lengths > 0, sums, np.nan), lengths.astype(float)


def _thinking_sum(table: pa.Table, name: str) -> np.ndarray:
    """Sum of a per-token column over the thinking span; nan when the column or the span is missing."""
    cumulative, starts, lengths = _flat(table.column(name))
    first, last = _floats(table.column("thinking_start")), _floats(table.column("thinking_end"))
    usable = (lengths > 0) & np.isfinite(first) & np.isfinite(last) & (last <= lengths) & (first < last)
    low = starts + np.where(usable, first, 0).astype("int64")
    high = starts + np.where(usable, last, 0).astype("int64")
    return np.where(usable, cumulative[high] - cumulative[low], np.nan)


def _hashes(texts: list[str | None]) -> np.ndarray:
    """int64 hash per text, 0 for missing or empty."""
    values = pd.util.hash_array(np.array([text or "" for text in texts], dtype=object)).astype("int64")
    return np.where(np.array([not text for text in texts], dtype=bool), 0, values)


def _has_env_text(text: str | None) -> float:
    return np.nan if text is None else float(ENV_TEXT.search(text) is not None)


def _top_token_share(text: str | None) -> float:
    """Share of the commonest word; for text without spaces, of the commonest character."""
    if not text:
        return np.nan
    if len(text) > 2 * _SCANNED_CHARS:
        text = text[:_SCANNED_CHARS] + " " + text[-_SCANNED_CHARS:]
    words = text.split()
    units = words if len(words) >= 8 else list(text.replace(" ", ""))
    return Counter(units).most_common(1)[0][1] / len(units) if len(units) >= 8 else np.nan
