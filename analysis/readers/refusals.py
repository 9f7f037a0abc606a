"""Right answers for files that are no rollout log: what they are instead, or which formats they come nearest to."""

from __future__ import annotations

from pathlib import Path

from analysis.readers.mapping import csv_columns, suggested_mapping
from analysis.readers.peek import Peek
from analysis.readers.registry import record_readers

_KINDS_BY_SUFFIX = {
    "image": ".png .jpg .jpeg .gif .webp .bmp .svg .tiff .ico",
    "video or sound": ".mp4 .webm .avi .mov .wav .mp3 .flac .ogg",
    "model weights or checkpoint": ".safetensors .bin .gguf .onnx .ckpt .pth .distcp .metadata",
    "array": ".npy .npz .h5 .hdf5 .arrow",
    "source or document": ".py .sh .md .rst .html .css .js .ts .toml .ini .cfg .lock .pdf .ipynb .txt~ .c .cpp .h .so .pyc",
}
_SUFFIXES = {suffix: kind for kind, suffixes in _KINDS_BY_SUFFIX.items() for suffix in suffixes.split()}
_NAMES = {
    "tokenizer.json": "tokenizer", "tokenizer_config.json": "tokenizer", "vocab.json": "tokenizer", "merges.txt": "tokenizer",
    "special_tokens_map.json": "tokenizer", "added_tokens.json": "tokenizer", "tokenizer.model": "tokenizer",
    "config.json": "model configuration", "generation_config.json": "model configuration",
    "adapter_config.json": "model configuration", "model.safetensors.index.json": "model weights or checkpoint",
    "wandb-summary.json": "W&B summary (last values only)", "wandb-metadata.json": "W&B metadata",
    "requirements.txt": "package list", ".DS_Store": "folder settings",
}  # fmt: skip


def quiet_reason(path: Path) -> str | None:
    """Why a file found in a folder is passed over without opening it; None = look inside."""
    return _NAMES.get(path.name) or _SUFFIXES.get(path.suffix.lower())


def what_it_is(seen: Peek) -> str | None:
    """Name of a well-known kind of file that holds no rollouts; None when it is not one of them."""
    if seen.kind == "empty":
        return "an empty file"
    if seen.kind == "binary":
        return "a binary file of no known log format"
    if seen.damage:
        return f"a {seen.damage}"
    if seen.kind == "zip" and any(name.endswith("/data.pkl") for name in seen.members):
        return "a torch file without rollouts: weights, or the state of an optimizer"
    if seen.kind == "zip" and seen.encrypted:
        return "a password-protected zip file: unpack it first"
    keys = seen.key_sets[0] if seen.key_sets else set()
    if {"custom_id", "method", "url", "body"} <= keys:
        return "OpenAI Batch API requests: prompts without responses"
    if {"custom_id", "response"} <= keys:
        return "OpenAI Batch API results: responses without prompts or rewards"
    if {"instruction", "output"} <= keys:
        return "an Alpaca instruction data set: reference answers, no rollouts of a policy"
    if {"chosen", "rejected"} <= keys:
        return "a preference data set (chosen, rejected), not rollouts"
    if (
        seen.kind == "parquet"
        and keys & {"image", "images", "pixel_values"}
        and not keys & {"reward", "completion", "response"}
    ):
        return "a Parquet table of images"
    return None


def nearest_formats(seen: Peek, count: int = 3) -> list[tuple[str, list[str]]]:
    """(format, keys it lacks) of the formats whose needed keys are best covered."""
    best: dict[str, tuple[float, list[str]]] = {}
    for keys in seen.key_sets:
        for reader in record_readers():
            lacking = sorted(reader.needs - keys)
            share = 1 - len(lacking) / len(reader.needs)
            if share > 0 and share > best.get(reader.name, (0.0, []))[0]:
                best[reader.name] = (share, lacking)
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], len(item[1][1]), item[0]))
    return [(name, lacking) for name, (_, lacking) in ranked[:count]]


def describe(seen: Peek) -> str:
    """One or two clauses on a file nobody claims: what it is, or its keys and the nearest formats."""
    known = what_it_is(seen)
    if known:
        return known
    if not seen.key_sets:
        columns = csv_columns(seen)
        as_table = suggested_mapping(columns)
        return (
            f"a table with columns {', '.join(columns)}: to read it, --map {as_table}"
            if as_table
            else (f"a {seen.kind} file of no known log format")
        )
    keys = sorted(set().union(*seen.key_sets))
    shown = ", ".join(keys[:20]) + (", …" if len(keys) > 20 else "")
    nearest = "; ".join(
        f"{name} (lacks {', '.join(lacking)})" if lacking else f"{name} (same keys, other values)"
        for name, lacking in nearest_formats(seen)
    )
    as_table = suggested_mapping(keys)
    how = f"; to read it all the same: --map {as_table}" if as_table else ""
    return f"keys {shown}; nearest formats: {nearest or 'none shares a key'}{how}"
