"""ALFWorld: household tasks by text commands. Not for: the rooms' rules (`household.py`), real games (`alfworld_games.py`)."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from envs.alfworld_games import GameSession, game_files
from envs.household import Room
from envs.household_tasks import TEMPLATES, Task, draw_task
from envs.task_files import check_split, split_of
from envs.text_env import Outcome, TextEnv

MAX_COMMAND_CHARS = 200
INTRO = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\nYour task is to: {task}."


class Session(Protocol):
    """A game being played: what it says, what it allows, whether it is won."""

    text: str
    task: str
    admissible: list[str]
    won: bool

    def act(self, command: str) -> None:
        """Carry out an admissible command."""

    def plan(self) -> list[str] | None:
        """Commands that win from here."""


class GeneratedSession:
    """A generated room and task."""

    def __init__(self, room: Room, task: Task) -> None:
        self.room, self._task, self.task = room, task, task.text
        self.text = INTRO.format(look=room.look(), task=task.text)
        self.admissible, self.won = room.admissible(), False

    def act(self, command: str) -> None:
        """See Session."""
        self.text = self.room.act(command)
        self.admissible, self.won = self.room.admissible(), self._task.done(self.room)

    def plan(self) -> list[str] | None:
        """See Session."""
        return self._task.plan(self.room)


class AlfworldEnv(TextEnv):
    """Do a household task in a room, by text commands.

    ## Description
    ALFWorld's six kinds of tasks: put a thing somewhere; look at it under a lamp; put it somewhere clean, hot or cool;
    put two of them in one place. By default in generated rooms, which follow the rules, objects and words of the
    `alfworld` package; with `games`, the package's engine plays the real games.

    ## Action Space
    Text: one of the admissible commands, which every observation lists (any case), such as `go to fridge 1`,
    `open fridge 1`, `take egg 2 from fridge 1`, `heat egg 2 with microwave 1`, `move egg 2 to countertop 1`.

    ## Observation Space
    Text: what happened or is seen, the task, and the admissible commands.

    ## Starting State
    The seed draws room, objects and task. A checksum of the task's sentence decides its split, so a validation task
    ("put a hot egg in garbagecan") never occurs in training. With `games`: game = seed modulo the number of games.

    ## Rewards
    10 when the task is done, else 0. Unit: points.

    ## Episode End
    Termination: the task is done (`success`). No truncation; the reference allows 50 actions.

    ## Arguments
    - `split`: `train` or `validation`; generated tasks only.
    - `tasks`: which kinds of generated tasks (all six): `pick_and_place`, `look_in_light`, `clean`, `heat`, `cool`, `pick_two`.
    - `games`: a folder with ALFWorld's games (`.../json_2.1.1/train`, `valid_seen`, `valid_unseen`); needs the extra
      `alfworld`. Games that the reference leaves out (movable receptacles, slicing, unsolvable) are left out.

    ## Version History
    - v0: one engine per environment; RAGEN registers a new gym id at each reset and draws games by Python's string hash.
    """

    name = "alfworld"
    summary = "household tasks by text commands"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {
        "validation": {"split": "validation"},
        **{kind: {"tasks": (kind,)} for kind in TEMPLATES},
    }
    data = "generated rooms and tasks, or ALFWorld's games (extra alfworld)"
    max_actions = 50

    def __init__(
        self,
        split: str = "train",
        tasks: tuple[str, ...] = tuple(TEMPLATES),
        games: str | None = None,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        if not tasks or not set(tasks) <= set(TEMPLATES):
            raise ValueError(f"tasks is {tasks}; choose among {', '.join(TEMPLATES)}")
        super().__init__(render_mode=render_mode)
        self.split, self.tasks = split, tuple(tasks)
        self._games = None if games is None else game_files(games)
        self._engine: GameSession | None = None

    def _rules(self) -> str:
        return (
            "You are in a household. Do the task with the commands that are admissible in each situation. You carry at"
            " most one thing. Heat with a microwave, cool with a fridge, clean with a sinkbasin, while you hold the thing."
        )

    def _begin(self, seed: int) -> None:
        self._session: Session
        if self._games is not None:
            self._engine = self._engine or GameSession()
            self._engine.load(self._games[seed % len(self._games)])
            self._session = self._engine
            return
        rng = np.random.default_rng(seed)
        while True:
            room, task = draw_task(rng, self.tasks)
            if split_of(f"{task.kind} {task.thing} {task.place}") == self.split:
                self._session = GeneratedSession(room, task)
                return

    def _apply(self, action: str) -> Outcome:
        session, wanted = self._session, action.strip().lower()
        if len(wanted) > MAX_COMMAND_CHARS or wanted not in session.admissible:
            return Outcome(valid=False)
        before = session.admissible
        session.act(wanted)
        looks = wanted.startswith(("look", "inventory", "help", "examine"))
        effective = session.won or not looks or session.admissible != before
        return Outcome(10.0 * session.won, terminated=session.won, effective=effective, success=session.won)

    def _observe(self) -> str:
        session = self._session
        task = "" if "Your task is to: " in session.text else f"\nYour task is to: {session.task}."
        return f"{session.text.strip()}{task}\n\nAdmissible actions: [{', '.join(session.admissible)}]"

    def random_action(self, rng: np.random.Generator) -> str:
        """A uniformly random admissible command."""
        return self._session.admissible[int(rng.integers(len(self._session.admissible)))]

    def solve(self) -> list[str] | None:
        """A plan from here (not always the shortest); None after the end."""
        return None if self._session.won else self._session.plan()
