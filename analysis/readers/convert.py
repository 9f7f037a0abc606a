"""Any log `discover` finds -> a native run folder. The other direction is nobody's business here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from analysis.readers.base import LogSource, ReadOptions
from analysis.readers.discover import discover
from ragen_diag.errors import RunFolderError, UsageError
from ragen_diag.rollout_log import RUN_FILE, SCHEMA, is_run, step_path, write_atomically, write_metrics

_NO_STEP = 0


@dataclass(frozen=True, slots=True)
class Converted:
    """One native run that was written."""

    path: Path
    source: LogSource
    n_rows: int
    """Turns written; 0 for a metrics-only log."""


def convert(src: Path, dst: Path, options: ReadOptions | None = None) -> list[Converted]:
    """Write every log under `src` as a native run: one goes to `dst` itself, several to sub-folders of it.

    Raises what `discover` raises, and RunFolderError when `dst` holds a run already or cannot be written.
    """
    sources = discover([src], options)
    if dst.exists() and (is_run(dst) or any(dst.iterdir() if dst.is_dir() else [dst])):
        raise RunFolderError(f"{dst}: not an empty folder. Choose a new one.")
    if dst.resolve() == src.resolve() or (src.is_dir() and src.resolve() in dst.resolve().parents):
        raise UsageError(f"{dst}: lies inside the log that is read. Choose a folder elsewhere.")
    folders = [dst] if len(sources) == 1 else [dst / _folder_name(source.name) for source in sources]
    return [_convert_one(source, folder) for source, folder in zip(sources, folders, strict=True)]


def _convert_one(source: LogSource, folder: Path) -> Converted:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        n_rows, had_steps = _write_rollouts(source, folder) if source.kind == "rollouts" else (0, True)
        if series := source.series():
            write_metrics(folder, _rows_of(series))
        if not had_steps:
            source.notes.assumptions.append(
                f"rollouts without a step are in the file of step {_NO_STEP}, their step is null"
            )
        about = {
            "converted_from": {
                "path": str(source.path),
                "format": source.format,
                "format_version": source.format_version,
                "why": source.why,
                "assumptions": list(source.notes.assumptions),
                "n_bad_rows": source.notes.n_bad_rows,
            },
            **({"config": source.config} if source.config else {}),
        }
        text = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
        write_atomically(folder / RUN_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot write the converted run ({error})") from error
    return Converted(folder, source, n_rows)


def _write_rollouts(source: LogSource, folder: Path) -> tuple[int, bool]:
    """Write step files; a step file stays open while its rows arrive, in whatever order the log has them."""
    writers: dict[tuple[int, str], tuple[pq.ParquetWriter, Path]] = {}
    n_rows, had_steps = 0, True
    try:
        for table in source.tables():
            had_steps = had_steps and table.column("step").null_count == 0
            for (step, split), part in _by_step(table):
                key = (_NO_STEP if step is None else step, split)
                if key not in writers:
                    final = step_path(folder, *key)
                    final.parent.mkdir(parents=True, exist_ok=True)
                    writers[key] = (
                        pq.ParquetWriter(final.with_name(f".{final.name}.tmp"), SCHEMA, compression="zstd"),
                        final,
                    )
                writers[key][0].write_table(part)
                n_rows += part.num_rows
        for writer, final in writers.values():
            writer.close()
            final.with_name(f".{final.name}.tmp").replace(final)
    finally:
        for writer, final in writers.values():
            writer.close()
            final.with_name(f".{final.name}.tmp").unlink(missing_ok=True)
    return n_rows, had_steps


def _by_step(table: pa.Table) -> Iterator[tuple[tuple[int | None, str], pa.Table]]:
    keys = table.select(["step", "split"]).group_by(["step", "split"], use_threads=False).aggregate([]).to_pylist()
    for key in keys:
        same_step = pc.is_null(table["step"]) if key["step"] is None else pc.equal(table["step"], key["step"])
        yield (key["step"], key["split"]), table.filter(pc.and_(same_step, pc.equal(table["split"], key["split"])))


def _rows_of(series: dict[str, list[tuple[int, float | None]]]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for name, points in series.items():
        for step, value in points:
            rows.setdefault(step, {"step": step})[name] = value
    return [rows[step] for step in sorted(rows)]


def _folder_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name).strip("._") or "run"
