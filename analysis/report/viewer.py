"""The rollouts a report shows: a bounded selection, why each was chosen, and their turns ready for display. No HTML here.

Without log tables only the first turns that the analysis kept in memory are shown; given the tables, one streaming pass
collects every turn of the chosen rollouts and of nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.report.shared_phrases import Segment, SharedPhrases
from analysis.report.words import is_normal
from analysis.result import RunReport
from analysis.run_data import TextRow
from ragen_diag.findings import EXAMPLES_PER_FINDING, Status
from ragen_diag.visible_text import cut, cut_note, visible

MAX_TURNS = 24
MAX_TEXT_CHARS = 4_000
_TURN_COLUMNS = [
    "trajectory_id",
    "turn",
    "state_text",
    "prompt_text",
    "response_text",
    "thinking_text",
    "turn_reward",
    "return_",
    "action_valid",
    "format_valid",
    "response_truncated",
    "response_tokens",
    "advantage",
    "error",
    "step",
    "split",
    "group_id",
]


class Clip(NamedTuple):
    """The beginning (or end) of a text, and how long the whole was."""

    text: str
    n_chars: int

    def shown(self, text_chars: int, keep: str = "head") -> str:
        """Visible text cut to a length, with a note of how many characters of the whole are missing."""
        missing = self.n_chars - min(len(self.text), text_chars)
        if missing <= 0:
            return visible(self.text)
        note = cut_note(missing)
        return (
            f"{note} {visible(self.text[-text_chars:])}"
            if keep == "tail"
            else f"{visible(self.text[:text_chars])}{note}"
        )


@dataclass(frozen=True)
class RawTurn:
    """One turn as read, texts clipped so that memory stays bounded."""

    turn: int
    env: Clip
    thinking: Clip
    response: Clip
    reward: float | None
    tokens: int | None
    marks: list[str]

    @property
    def env_keep(self) -> str:
        """Later contexts repeat the history: their end is what is new."""
        return "tail" if self.turn else "head"


RawTurns = dict[str, list[RawTurn]]
"""Trajectory id -> turns in order."""


@dataclass(frozen=True)
class ViewTurn:
    """One turn: what the environment said, what the policy wrote, thinking apart."""

    turn: int
    env_text: str
    thinking: list[Segment]
    response_text: str
    reward: float | None
    tokens: int | None
    marks: list[str]


@dataclass
class ViewRollout:
    """One rollout of the viewer."""

    anchor: str
    trajectory_id: str
    step: int | None
    split: str
    prompt: int
    group: int
    return_: float | None
    success: float | None
    n_turns: int | None
    marks: list[str]
    """'truncated', 'invalid action', ...: words, not colours."""
    reasons: list[str]
    turns: list[ViewTurn] = field(default_factory=list)
    turns_note: str = ""

    @property
    def outcomes(self) -> list[str]:
        """Values of the viewer's outcome filter that this rollout has."""
        judged = [] if self.success is None else ["success" if self.success == 1 else "failure"]
        thinks = any(turn.thinking for turn in self.turns)
        return [*judged, *self.marks, *(["no thinking"] if self.turns and not thinks else [])]

    @property
    def preview(self) -> str:
        """The beginning of the first thinking or response."""
        if not self.turns:
            return ""
        first = self.turns[0]
        return cut(" ".join(("".join(part.text for part in first.thinking) or first.response_text).split()), 220)


def choose(run: RunReport, max_rollouts: int) -> dict[str, list[str]]:
    """Trajectory ids to show, with the reasons: first what findings point at, then whole groups from start, middle and end."""
    chosen: dict[str, list[str]] = {}

    def add(trajectory_id: str, reason: str) -> None:
        if trajectory_id in chosen or len(chosen) < max_rollouts:
            chosen.setdefault(trajectory_id, []).append(reason)

    for finding in run.findings:
        if finding.status in (Status.FAIL, Status.WARN, Status.ERROR, Status.INCONCLUSIVE) and not is_normal(finding):
            for trajectory_id in finding.examples[:EXAMPLES_PER_FINDING]:
                add(trajectory_id, f"shows {finding.code}")
            for trajectory_id in finding.counter_examples[:EXAMPLES_PER_FINDING]:
                add(trajectory_id, f"does not show {finding.code}")
    for reason, row in _spread_over_run(run.data.texts, max_rollouts):
        add(row.trajectory_id, reason)
    return chosen


def _spread_over_run(texts: list[TextRow], max_rollouts: int) -> Iterable[tuple[str, TextRow]]:
    groups: dict[tuple[int, str, int], list[TextRow]] = {}
    for row in texts:
        groups.setdefault((-1 if row.step is None else row.step, row.split, row.group), []).append(row)
    keys = sorted(groups)
    wanted = max(min(len(keys), max_rollouts // 4), 1)
    for position, number in enumerate(np.unique(np.linspace(0, len(keys) - 1, wanted).astype(int)) if keys else []):
        place = (
            "start of the run"
            if position == 0
            else "end of the run"
            if number == len(keys) - 1
            else "spread over the run"
        )
        members = sorted(groups[keys[number]], key=lambda row: -np.inf if np.isnan(row.return_) else row.return_)
        for row in [members[0], members[-1], *members[1:-1]][: min(4, len(members))]:
            yield place, row


def view_rollouts(
    run: RunReport, prefix: str, max_rollouts: int, text_chars: int, turns: RawTurns
) -> list[ViewRollout]:
    """Build the viewer's rollouts of a run in step order. prefix: makes the anchors unique in the page."""
    chosen = choose(run, max_rollouts)
    phrases = SharedPhrases(run.data.texts)
    texts = {row.trajectory_id: row for row in run.data.texts if row.trajectory_id in chosen}
    frame = run.data.rollouts
    facts = frame[frame["trajectory_id"].isin([name for name in chosen if _storable(name)])]
    row_of = {str(name): position for position, name in enumerate(facts["trajectory_id"])}
    views = []
    for trajectory_id, reasons in chosen.items():
        row = facts.iloc[row_of[trajectory_id]] if trajectory_id in row_of else None
        view = _facts(trajectory_id, row, texts.get(trajectory_id), reasons)
        raw = turns.get(trajectory_id, [])
        if not raw and (first := texts.get(trajectory_id)) is not None:
            raw = [_raw_turn(0, first.prompt_text, first.thinking_text, first.response_text)]
        view.turns = [_shown(turn, phrases, text_chars) for turn in raw]
        missing = (view.n_turns or len(view.turns)) - len(view.turns)
        if view.turns and missing > 0:
            view.turns_note = f"{len(view.turns)} of {view.n_turns} turns shown; `ragen-diag show` prints all of them."
        views.append(view)
    views.sort(key=lambda view: (-1 if view.step is None else view.step, view.group))
    for position, view in enumerate(views):
        view.anchor = f"{prefix}-{position}"
    return views


def _storable(name: str) -> bool:
    """Arrow holds UTF-8 only; an id with a lone surrogate cannot be in any of its columns."""
    return name.encode("utf-8", errors="ignore").decode("utf-8") == name


def _facts(trajectory_id: str, row: pd.Series | None, text: TextRow | None, reasons: list[str]) -> ViewRollout:
    if row is None:
        step, split, prompt, group = (
            (text.step, text.split, text.prompt, text.group) if text else (None, "train", -1, -1)
        )
        return ViewRollout(
            "", trajectory_id, step, split, prompt, group, text.return_ if text else None, None, None, [], reasons
        )
    marks = [
        label
        for label, present in (
            ("truncated", row["truncated"] == 1),
            ("failed rollout", row["error"] == 1),
            ("format not followed", row["format_valid"] < 1),
            ("invalid action", row["action_valid"] < 1),
            ("dropped by the filter", row["kept"] == 0),
            ("environment text in a response", row["has_env_text"] == 1),
        )
        if bool(present)
    ]
    step = None if pd.isna(row["step"]) else int(row["step"])
    n_turns = None if pd.isna(row["n_turns"]) else int(row["n_turns"])
    success = None if pd.isna(row["success"]) else float(row["success"])
    return_ = None if pd.isna(row["return_"]) else float(row["return_"])
    group, prompt = int(row["group"]), int(row["prompt"])
    return ViewRollout(
        "", trajectory_id, step, str(row["split"]), prompt, group, return_, success, n_turns, marks, reasons
    )


def read_turns(tables: Iterable[pa.Table], wanted: Collection[str]) -> RawTurns:
    """Stream a log once and keep the turns of the wanted trajectories, at most MAX_TURNS of each."""
    found: RawTurns = {}
    values = pa.array(sorted(name for name in wanted if _storable(name)), type=pa.string())
    for table in tables:
        rows = table.select([name for name in _TURN_COLUMNS if name in table.column_names])
        for row in rows.filter(pc.is_in(rows["trajectory_id"], value_set=values)).to_pylist():
            turns = found.setdefault(row["trajectory_id"], [])
            if len(turns) < MAX_TURNS:
                turns.append(_turn_from_row(row))
    return {trajectory_id: sorted(turns, key=lambda turn: turn.turn) for trajectory_id, turns in found.items()}


def _turn_from_row(row: dict[str, Any]) -> RawTurn:
    marks = [
        label
        for label, present in (
            ("cut at the token cap", row.get("response_truncated") is True),
            ("format not followed", row.get("format_valid") is False),
            ("invalid action", row.get("action_valid") is False),
            (f"error: {cut(str(row.get('error')), 200)}", bool(row.get("error"))),
        )
        if present
    ]
    env_text = row.get("state_text") or row.get("prompt_text") or ""
    texts = env_text, row.get("thinking_text") or "", row.get("response_text") or ""
    return _raw_turn(row["turn"], *texts, row.get("turn_reward"), row.get("response_tokens"), marks)


def _raw_turn(
    turn: int,
    env: str,
    thinking: str,
    response: str,
    reward: float | None = None,
    tokens: int | None = None,
    marks: Iterable[str] = (),
) -> RawTurn:
    spoken = response
    if thinking:
        spoken = response.replace(thinking, "", 1).replace("<think>", "", 1).replace("</think>", "", 1)
    env, thinking, spoken = env.strip("\n"), thinking.strip(), spoken.strip()
    env_clip = Clip(env[-MAX_TEXT_CHARS:] if turn else env[:MAX_TEXT_CHARS], len(env))
    return RawTurn(
        turn,
        env_clip,
        Clip(thinking[:MAX_TEXT_CHARS], len(thinking)),
        Clip(spoken[:MAX_TEXT_CHARS], len(spoken)),
        reward,
        tokens,
        list(marks),
    )


def _shown(raw: RawTurn, phrases: SharedPhrases, text_chars: int) -> ViewTurn:
    return ViewTurn(
        turn=raw.turn,
        env_text=raw.env.shown(text_chars, raw.env_keep),
        thinking=phrases.segments(raw.thinking.shown(text_chars)) if raw.thinking.text else [],
        response_text=raw.response.shown(text_chars),
        reward=raw.reward,
        tokens=raw.tokens,
        marks=raw.marks,
    )
