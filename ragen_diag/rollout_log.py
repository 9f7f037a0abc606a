"""The rollout log: what a run is on disk. Schema, atomic writer, streaming reader. Not for foreign logs (analysis/readers).

A run is a folder:

    run.yaml                       resolved configuration, versions, seeds, model
    rollouts/step-000010.parquet   one file per step and split (validation: step-000010.val.parquet), one row per TURN
    metrics.parquet                one row per step, columns named in metric_names.METRICS
    cross_scores/step-000010.npz   cross-score matrices measured online (cross_scores.py)
    checkpoints/step-000010/

Files are written under a temporary name in the same folder, flushed to disk, and renamed: a killed run never leaves a torn
file under a final name. Trajectory fields repeat on the trajectory's turns; Parquet's encodings make that nearly free.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragen_diag.errors import RunFolderError

SCHEMA_VERSION = 1
ROLLOUTS_DIR = "rollouts"
METRICS_FILE = "metrics.parquet"
CROSS_SCORES_DIR = "cross_scores"
CHECKPOINTS_DIR = "checkpoints"
RUN_FILE = "run.yaml"
_STEP_FILE = re.compile(r"step-(\d+)(\.val)?\.parquet$")


def _column(name: str, type_: pa.DataType, doc: str, unit: str = "", *, required: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=not required, metadata={"doc": doc, "unit": unit})


_IDS, _REALS = pa.list_(pa.int32()), pa.list_(pa.float32())

SCHEMA = pa.schema(
    [
        # --- which turn of which trajectory of which run
        _column("run_id", pa.string(), "name of the run", required=True),
        _column("step", pa.int64(), "training step the rollout was sampled at; null = the log has no steps"),
        _column("split", pa.string(), "'train' or 'val'", required=True),
        _column("env", pa.string(), "environment name"),
        _column("group_id", pa.string(), "rollouts of one prompt sampled together; unique within (split, step)"),
        _column("prompt_id", pa.string(), "hash of the first prompt: equal prompts, equal id", required=True),
        _column("seed", pa.int64(), "seed that fixed the prompt"),
        _column("rollout_index", pa.int64(), "position inside the group, from 0"),
        _column("trajectory_id", pa.string(), "unique within the run", required=True),
        _column("turn", pa.int32(), "turn index, from 0", required=True),
        _column("n_turns", pa.int32(), "turns of the trajectory", "turns"),
        # --- text
        _column("state_text", pa.string(), "what the environment showed before this turn (observation alone)"),
        _column("prompt_text", pa.string(), "the whole context of this turn, as the policy saw it"),
        _column("response_text", pa.string(), "what the policy wrote in this turn"),
        _column(
            "thinking_text", pa.string(), "text strictly between the think tags; null = no thinking, or not stored"
        ),
        _column("thinking_closed", pa.bool_(), "the thinking was closed by its tag (false: cut off)"),
        _column("answer_text", pa.string(), "text of the answer"),
        _column("actions", pa.list_(pa.string()), "actions parsed from the answer, in order"),
        _column("n_tool_calls", pa.int32(), "tool calls made in this turn", "calls"),
        # --- outcome
        _column("turn_reward", pa.float64(), "environment reward of this turn, penalties excluded", "reward"),
        _column(
            "return_", pa.float64(), "score of the trajectory: the sum that training uses, penalties included", "reward"
        ),
        _column(
            "reward_components", pa.map_(pa.string(), pa.float64()), "named parts of the score as stored", "reward"
        ),
        _column("success", pa.bool_(), "the trajectory solved the task"),
        _column("terminated", pa.bool_(), "the environment ended the trajectory"),
        _column("truncated", pa.bool_(), "the turn or action budget ended the trajectory"),
        _column("response_truncated", pa.bool_(), "this response was cut at the token cap; null = not known"),
        _column("action_valid", pa.bool_(), "every parsed action was understood by the environment"),
        _column("format_valid", pa.bool_(), "the response followed the output format"),
        _column("error", pa.string(), "why the rollout failed, for failed rollouts (service down, crash)"),
        # --- tokens
        _column("prompt_tokens", pa.int64(), "length of the context of this turn", "tokens"),
        _column("response_tokens", pa.int64(), "tokens the policy sampled in this turn", "tokens"),
        _column("prompt_ids", _IDS, "token ids of the whole context of this turn, as the policy saw it"),
        _column("response_ids", _IDS, "token ids the policy sampled in this turn, end token included"),
        _column("thinking_start", pa.int32(), "first thinking token, as an index into response_ids", "tokens"),
        _column("thinking_end", pa.int32(), "one past the last thinking token", "tokens"),
        _column("logprobs", _REALS, "log-prob of each sampled token under the sampling distribution", "nats"),
        _column("entropies", _REALS, "full-distribution entropy at each sampled token", "nats"),
        # --- training
        _column("advantage", pa.float64(), "mean advantage over this turn's trained tokens", "advantage"),
        _column("kept_by_filter", pa.bool_(), "the group passed the rollout filter"),
        _column("filter_score", pa.float64(), "score the filter ranked the group by"),
        # --- how it was sampled
        _column("model_version", pa.string(), "checkpoint or update count that sampled this turn"),
        _column("temperature", pa.float32(), "sampling temperature"),
        _column("top_p", pa.float32(), "nucleus sampling mass, 1 = off"),
        _column("top_k", pa.int32(), "top-k sampling, 0 = off"),
        _column("max_response_tokens", pa.int64(), "token cap of one response", "tokens"),
        # --- provenance
        _column("source_path", pa.string(), "file the row was read from; null in native logs"),
        _column("source_line", pa.int64(), "1-based line or row of that file"),
        _column("step_source", pa.string(), "how step was obtained: 'record', 'file name', ..."),
        _column("group_source", pa.string(), "how group_id was obtained: 'explicit id', 'identical prompt', ..."),
        _column("reward_source", pa.string(), "how return_ was obtained: field name, 'sum of columns', ..."),
    ],
    metadata={"ragen_diag_schema_version": str(SCHEMA_VERSION)},
)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record or file that could not be read: counted and shown, never dropped in silence."""

    path: str
    line: int | None
    why: str


def prompt_id(first_prompt: str | Sequence[int]) -> str:
    """Hash of a first prompt (text or token ids): 16 hex digits, the same in every process."""
    data = first_prompt if isinstance(first_prompt, str) else ",".join(map(str, first_prompt))
    return hashlib.blake2b(data.encode("utf-8", errors="replace"), digest_size=8).hexdigest()


def rows_to_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Build a schema-conforming table from row dictionaries; absent keys become null, unknown keys are an error."""
    rows = list(rows)
    unknown = {key for row in rows for key in row} - set(SCHEMA.names)
    if unknown:
        raise KeyError(f"not columns of the rollout log: {sorted(unknown)}")
    columns = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def conform(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """Bring a table written by this or an older schema version to the current schema: missing columns become null."""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_atomically(path: Path, write: Any) -> None:
    """Call `write(temporary_path)`, flush to disk, and rename to `path`; a crash leaves either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def step_path(run_dir: Path, step: int, split: str) -> Path:
    """File of one step and split."""
    suffix = ".val.parquet" if split == "val" else ".parquet"
    return run_dir / ROLLOUTS_DIR / f"step-{step:06d}{suffix}"


def write_step(run_dir: Path, step: int, split: str, rows: Iterable[Mapping[str, Any]] | pa.Table) -> Path:
    """Write all turns of one step and split; returns the final path. Raises RunFolderError when the folder is not writable."""
    table = rows if isinstance(rows, pa.Table) else rows_to_table(rows)
    path = step_path(run_dir, step, split)
    try:
        write_atomically(
            path, lambda temporary: pq.write_table(table, temporary, compression="zstd", use_dictionary=True)
        )
    except OSError as error:
        raise RunFolderError(
            f"{path}: cannot write the rollout log ({error}). Free space or choose another folder."
        ) from error
    return path


def step_files(run_dir: Path, split: str | None = None) -> list[tuple[int, str, Path]]:
    """(step, split, path) of every finished step file, in step order; temporary files are not listed."""
    found = []
    for path in (run_dir / ROLLOUTS_DIR).glob("step-*.parquet"):
        match = _STEP_FILE.match(path.name)
        if match:
            found.append((int(match[1]), "val" if match[2] else "train", path))
    return sorted(entry for entry in found if split is None or entry[1] == split)


def read_steps(
    run_dir: Path, *, split: str | None = None, columns: Sequence[str] | None = None, bad: list[BadRecord] | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream a native run in step order, one record batch at a time; memory is bounded by one row group.

    bad: collects files that cannot be read (torn by a copy, say); without it such a file raises pyarrow's error.
    """
    for _step, _split, path in step_files(run_dir, split):
        try:
            with pq.ParquetFile(path) as file:
                wanted = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
                for batch in file.iter_batches(columns=wanted):
                    yield from (conform(batch).to_batches() if columns is None else [batch])
        except (pa.ArrowInvalid, OSError) as error:
            if bad is None:
                raise
            bad.append(BadRecord(str(path), None, f"not a complete Parquet file: {str(error).splitlines()[0]}"))


def write_metrics(run_dir: Path, rows: Sequence[Mapping[str, float | int | None]]) -> None:
    """Write `metrics.parquet`: one row per step ("step" and any metric names), null where a metric was not measured."""
    names = ["step", *sorted({name for row in rows for name in row} - {"step"})]
    columns = {
        name: pa.array([row.get(name) for row in rows], type=pa.int64() if name == "step" else pa.float64())
        for name in names
    }
    write_atomically(run_dir / METRICS_FILE, lambda temporary: pq.write_table(pa.table(columns), temporary))


def read_metrics(run_dir: Path) -> list[dict[str, float | int | None]]:
    """Read `metrics.parquet` back as rows; an absent file is an empty list."""
    path = run_dir / METRICS_FILE
    return pq.read_table(path).to_pylist() if path.exists() else []


def is_run(path: Path) -> bool:
    """Whether a folder is a native run."""
    return (path / RUN_FILE).is_file() or bool(step_files(path))
