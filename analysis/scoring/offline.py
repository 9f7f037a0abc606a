"""Cross scores of a log after the fact, with the scorer the user named. Picks steps, turns and tokens; scoring is elsewhere."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from analysis.scoring.build import ReasoningTurn, cross_scores
from analysis.scoring.models import ModelScorer, TextScorer, load_scorer
from analysis.thinking import LoggedTurn, logged_turns
from ragen_diag.cross_scores import CrossScores
from ragen_diag.errors import ModelError, UsageError
from ragen_diag.rollout_log import CHECKPOINTS_DIR

MAX_STEPS = 16
"""Steps that are scored, evenly spread, first and last included."""
MAX_ROWS = 128
"""Reasonings per step: the matrix has up to half as many prompts."""
NO_STEP = -1
_CHECKPOINT = re.compile(r"step-(\d+)$")


class Log(Protocol):
    """What is read: `analysis.readers.base.LogSource`."""

    path: Path

    def tables(self) -> Iterator[pa.Table]:
        """Rollout tables in step order."""
        ...


def score_log(
    source: Log,
    scorer: str,
    *,
    scope: str = "first_turn",
    seed: int = 0,
    max_rows: int = MAX_ROWS,
    say: Callable[[str], None] = lambda stage: None,
) -> list[CrossScores]:
    """One matrix per chosen training step (validation steps when there is no other), in step order.

    scorer: 'checkpoint' (per step the run's checkpoint that sampled it, else its last one), a model folder or hub name, or a
    server's URL. A checkpoint that sampled the step scores the logged token ids exactly; anything else reads the logged text with
    its own tokenizer, and counts as a foreign critic. Raises UsageError when nothing can be scored, ModelError for the scorer.
    """
    by_step = _turns_by_step(source, scope)
    if not by_step:
        raise UsageError(f"{source.path}: no turn with closed thinking and its prompt, so there is nothing to score")
    scorers = _Scorers(source.path, scorer)
    matrices = []
    for number, (step, turns) in enumerate(sorted(by_step.items()), start=1):
        model, exact = scorers.of(turns)

        def report(done: int, total: int, where: str = f"scoring step {step} ({number}/{len(by_step)})") -> None:
            say(f"{where}: {done / max(total, 1):.0%} of {total} pairs")

        rows = [row for turn in turns if (row := _tokens(turn, model, exact)) is not None]
        if len({tuple(row.context_ids) for row in rows}) < 2:
            continue
        matrices.append(
            cross_scores(
                rows,
                model,
                scope=scope,
                step=step,
                split=turns[0].split,
                scorer_name=model.name,
                max_rows=max_rows,
                seed=seed,
                progress=report,
            )
        )
    if not matrices:
        raise UsageError(f"{source.path}: no step has reasonings of two prompts that fit the scorer's context")
    return matrices


def _turns_by_step(source: Log, scope: str) -> dict[int, list[LoggedTurn]]:
    """Turns of a spread of steps of one split (training when the log has it), by step; other steps are never held."""
    seen: dict[str, set[int]] = defaultdict(set)
    for table in source.tables():
        for split, step in zip(table.column("split").to_pylist(), table.column("step").to_pylist(), strict=True):
            seen[split].add(NO_STEP if step is None else step)
    split = "train" if "train" in seen else "val"
    steps = sorted(seen[split])
    chosen = {steps[i] for i in np.linspace(0, len(steps) - 1, MAX_STEPS).round().astype(int)} if steps else set()
    found: dict[int, list[LoggedTurn]] = defaultdict(list)
    for table in source.tables():
        for turn in logged_turns(table, scope):
            step = NO_STEP if turn.step is None else turn.step
            if turn.split == split and step in chosen and (turn.context_text or turn.context_ids):
                found[step].append(turn)
    return dict(found)


class _Scorers:
    """The model for each step; checkpoints are loaded one at a time, when their step comes."""

    def __init__(self, log: Path, spec: str) -> None:
        self.checkpoints: dict[int, Path] = {}
        self.fixed: TextScorer | None = None
        if spec == "checkpoint":
            self.checkpoints = _checkpoints(log)
            if not self.checkpoints:
                raise ModelError(f"{log}: no finished checkpoint in {CHECKPOINTS_DIR}/; name a model folder instead")
        else:
            self.fixed = load_scorer(spec)
        self._loaded: tuple[int, ModelScorer] | None = None

    def of(self, turns: list[LoggedTurn]) -> tuple[TextScorer, bool]:
        """Scorer of one step's turns, and whether it is the policy that sampled them."""
        if self.fixed is not None:
            return self.fixed, False
        version = re.fullmatch(r"update-(\d+)", turns[0].model_version or "")
        number = int(version[1]) if version and int(version[1]) in self.checkpoints else max(self.checkpoints)
        exact = version is not None and int(version[1]) == number and all(turn.context_ids for turn in turns)
        folder = self.checkpoints[number] / "model"
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = (number, ModelScorer(str(folder)))
        model = self._loaded[1].with_temperature(turns[0].temperature or 1.0 if exact else 1.0)
        model.name = f"checkpoint:{folder.parent}" if exact else str(folder)
        return model, exact


def _checkpoints(log: Path) -> dict[int, Path]:
    """Update count -> folder of every checkpoint that holds a model."""
    folders = (log / CHECKPOINTS_DIR).glob("step-*") if log.is_dir() else []
    matched = [(match, folder) for folder in folders if (match := _CHECKPOINT.search(folder.name))]
    return {int(match[1]): folder for match, folder in matched if (folder / "model").is_dir()}


def _tokens(turn: LoggedTurn, model: TextScorer, exact: bool) -> ReasoningTurn | None:
    """Token ids as logged (exact) or by the scorer's tokenizer; None when they are missing, empty or too long for it."""
    if exact and turn.context_ids and turn.reasoning_ids:
        context, reasoning = list(turn.context_ids), list(turn.reasoning_ids)
    elif turn.context_text and turn.reasoning_text:
        context = model.tokenize(turn.context_text, special=True)
        reasoning = model.tokenize(turn.reasoning_text, special=False)
    else:
        return None
    too_long = model.longest is not None and len(context) + len(reasoning) > model.longest
    if too_long or not context or not reasoning:
        return None
    return ReasoningTurn(turn.trajectory_id, turn.group, turn.turn, context, reasoning, turn.prompt_id)
