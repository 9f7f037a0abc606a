"""One rollout in the terminal, turn by turn: environment against model text, thinking apart, rewards, flags.

Finds the rollout by step, group and index in a streaming pass; prints text only (no HTML, no statistics).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from ragen_diag.errors import BadLog, RunFolderError, UsageError, did_you_mean
from ragen_diag.rollout_log import conform, is_run, step_files, step_path
from ragen_diag.visible_text import cut, one_line, visible

if TYPE_CHECKING:
    from analysis.readers.base import LogSource

MAX_TEXT_CHARS = 20_000
_RULE = "─"
_Row = dict[str, Any]


def show(
    source: Path | LogSource | Iterable[pa.Table],
    *,
    step: int | None = None,
    group: int | str | None = None,
    index: int | None = None,
    split: str | None = None,
    file: TextIO | Console | None = None,
) -> None:
    """Print one rollout of a native run folder, a log source, or tables of the log schema.

    step: training step, default the last one. group: position of the group within the step, from 0, or its id. index:
    position of the rollout within the group, from 0. split: 'train' or 'val', default 'train' when there is any.
    Raises UsageError when there is no such rollout (the message lists what there is), RunFolderError when a path is no run.
    """
    rows = _rows_of_step(source, step, split)
    group_rows, group_line = _pick_group(rows, group)
    turns, rollout_line = _pick_rollout(group_rows, index)
    console = file if isinstance(file, Console) else Console(file=file or sys.stdout, highlight=False)
    for line in [*_heading(turns, group_line, rollout_line), *(line for turn in turns for line in _turn_lines(turn))]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _rows_of_step(source: Path | LogSource | Iterable[pa.Table], step: int | None, split: str | None) -> list[_Row]:
    """All turns of the wanted step: the only rows held in memory."""
    if isinstance(source, Path):
        return _rows_of_native_step(source, step, split)
    tables = source if isinstance(source, Iterable) else source.tables()
    kept: dict[tuple[str, int | None], list[pa.Table]] = {}
    seen: set[int | None] = set()
    for table in tables:
        table = conform(table)
        for one in pc.unique(table["step"]).to_pylist():
            seen.add(one)
            if step is not None and one != step:
                continue
            of_step = table.filter(pc.is_null(table["step"]) if one is None else pc.equal(table["step"], one))
            for name in pc.unique(of_step["split"]).to_pylist():
                kept.setdefault((name, one), []).append(of_step.filter(pc.equal(of_step["split"], name)))
        if step is None and kept:  # only the last step of each split can be the answer
            for name in {key[0] for key in kept}:
                last = max((key for key in kept if key[0] == name), key=lambda key: -1 if key[1] is None else key[1])
                kept = {key: value for key, value in kept.items() if key[0] != name or key == last}
    wanted = split or ("train" if any(key[0] == "train" for key in kept) else "val")
    found = [table for key, parts in kept.items() if key[0] == wanted for table in parts]
    if not found:
        raise UsageError(_no_step(step, wanted, [one for one in seen if one is not None]))
    return pa.concat_tables(found).to_pylist()


def _rows_of_native_step(run_dir: Path, step: int | None, split: str | None) -> list[_Row]:
    if not is_run(run_dir):
        raise RunFolderError(f"{run_dir} is not a run folder: it has neither run.yaml nor rollouts/step-*.parquet.")
    wanted = split or ("train" if step_files(run_dir, "train") else "val")
    steps = [number for number, _, _ in step_files(run_dir, wanted)]
    chosen = steps[-1] if step is None and steps else step
    if chosen not in steps:
        raise UsageError(_no_step(step, wanted, steps))
    path = step_path(run_dir, chosen, wanted)
    try:
        return conform(pq.read_table(path)).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise BadLog(
            f"{path}: not a complete Parquet file ({str(error).splitlines()[0]}). Choose another --step."
        ) from error


def _no_step(step: int | None, split: str, steps: Sequence[int]) -> str:
    if not steps:
        return f"no {split} rollouts here."
    near = min(steps, key=lambda number: abs(number - (step or 0)))
    span = f"steps {min(steps)} to {max(steps)}" if len(steps) > 1 else f"step {steps[0]}"
    return f"no {split} rollouts at step {step}: the log has {span} ({len(steps)} in all; nearest: {near})."


def _pick_group(rows: list[_Row], group: int | str | None) -> tuple[list[_Row], str]:
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row["group_id"] or row["prompt_id"], []).append(row)
    names = list(groups)
    if group is None:
        position = 0
    elif isinstance(group, int):
        if not 0 <= group < len(names):
            raise UsageError(f"--group {group}: step {rows[0]['step']} has {len(names)} groups, 0 to {len(names) - 1}.")
        position = group
    elif group in groups:
        position = names.index(group)
    else:
        raise UsageError(f"no group '{one_line(group, 80)}' at step {rows[0]['step']}.{did_you_mean(group, names)}")
    return groups[names[position]], f"group {position} of {len(names)} ({one_line(names[position], 60)})"


def _pick_rollout(rows: list[_Row], index: int | None) -> tuple[list[_Row], str]:
    rollouts: dict[str, list[_Row]] = {}
    for row in sorted(rows, key=lambda row: (row["rollout_index"] is None, row["rollout_index"] or 0)):
        rollouts.setdefault(row["trajectory_id"], []).append(row)
    position = index or 0
    if not 0 <= position < len(rollouts):
        raise UsageError(f"--index {index}: this group has {len(rollouts)} rollouts, 0 to {len(rollouts) - 1}.")
    turns = sorted(list(rollouts.values())[position], key=lambda row: row["turn"])
    return turns, f"rollout {position} of {len(rollouts)}"


def _heading(turns: list[_Row], group_line: str, rollout_line: str) -> list[Text]:
    first = turns[0]
    where = [
        f"step {first['step']}" if first["step"] is not None else "no step",
        first["split"],
        group_line,
        rollout_line,
    ]
    facts = [f"return {_number(first['return_'])}"]
    if first["success"] is not None:
        facts.append("success" if first["success"] else "failure")
    if first["n_turns"] is not None and first["n_turns"] != len(turns):
        facts.append(f"{len(turns)} of {first['n_turns']} turns in the log")
    if first["truncated"]:
        facts.append("ended by the turn or action budget")
    if first["kept_by_filter"] is False:
        facts.append("dropped by the filter")
    if first["advantage"] is not None:
        facts.append(f"advantage {_number(first['advantage'])}")
    components = dict(first["reward_components"] or [])
    facts += [f"{one_line(name, 40)} {_number(value)}" for name, value in components.items()]
    if first["source_path"]:
        facts.append(one_line(f"{first['source_path']}:{first['source_line'] or ''}".rstrip(":")))
    name = Text(one_line(f"{first['run_id']}  {first['trajectory_id']}"), style="bold")
    return [name, Text(" · ".join(where)), Text(" · ".join(facts))]


def _turn_lines(row: _Row) -> list[Text]:
    facts = [f"turn {row['turn'] + 1}"]
    if row["turn_reward"] is not None:
        facts.append(f"reward {_number(row['turn_reward'])}")
    if row["response_tokens"] is not None:
        facts.append(f"{row['response_tokens']} tokens")
    if row["response_truncated"]:
        facts.append("CUT at the token cap")
    if row["format_valid"] is False:
        facts.append("FORMAT not followed")
    if row["action_valid"] is False:
        facts.append("INVALID action")
    if row["error"]:
        facts.append(f"ERROR {one_line(row['error'], 200)}")
    lines = [Text(""), Text(f"{_RULE * 2} {' · '.join(facts)} {_RULE * 2}", style="bold")]
    lines += _block("environment", row["state_text"] or row["prompt_text"], "dim")
    thinking, response = row["thinking_text"], row["response_text"] or ""
    if thinking:
        lines += _block(
            "thinking" if row["thinking_closed"] is not False else "thinking (never closed)", thinking, "magenta"
        )
        response = response.replace(thinking, "", 1).replace("<think>", "", 1).replace("</think>", "", 1)
    lines += _block("model", response, "cyan")
    if row["actions"]:
        lines += _block("actions", ", ".join(row["actions"]), "")
    return lines


def _block(name: str, text: str | None, style: str) -> list[Text]:
    """A named text with a margin, so that who said what is readable without colour."""
    shown = visible(cut((text or "(nothing)").strip("\n"), MAX_TEXT_CHARS))
    return [Text(name, style="bold"), *(Text.assemble("  │ ", (line, style)) for line in shown.split("\n"))]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
