"""ALFWorld's own games, played by the `alfworld` and `textworld` packages (extra `alfworld`). Not for: generated rooms."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.errors import require

LEFT_OUT = ("movable", "Sliced")
_TASK = "Your task is to: "


@lru_cache(maxsize=4)  # a walk over thousands of folders, once per process
def game_files(folder: str) -> tuple[str, ...]:
    """Paths of the solvable games under a folder, sorted. Raises ValueError when there is none, MissingExtra without the package."""
    require("alfworld", needed_by="alfworld", extra="alfworld")
    found = sorted(str(path) for path in Path(folder).rglob("game.tw-pddl"))
    games = [path for path in found if not any(word in path for word in LEFT_OUT)]
    games = [path for path in games if json.loads(Path(path).read_text(encoding="utf-8")).get("solvable")]
    if not games:
        raise ValueError(
            f"games {folder!r}: no solvable game.tw-pddl below it ({len(found)} files). Try: alfworld-download, then"
            " $ALFWORLD_DATA/json_2.1.1/train"
        )
    return tuple(games)


class GameSession:
    """One TextWorld engine, reloaded for each game. The interface is `alfworld.Session`."""

    def __init__(self) -> None:
        self._engine = _engine(plans=False)
        self.text, self.task, self.admissible, self.won = "", "", [""], False

    def load(self, path: str) -> None:
        """Begin the game of a file."""
        self._path, self._played = path, list[str]()
        self._engine.load(path)
        self._take(self._engine.reset())
        self.task = self.text.rpartition(_TASK)[2].strip().rstrip(".")

    def act(self, command: str) -> None:
        """See alfworld.Session."""
        self._played.append(command)
        self._take(self._engine.step(command)[0])

    def plan(self) -> list[str] | None:
        """The package's planner's commands; None where it finds none. It takes seconds, hence not at every step."""
        planner = _engine(plans=True)
        planner.load(self._path)
        state = planner.reset()
        for command in self._played:
            state = planner.step(command)[0]
        return list(state["policy_commands"] or ()) or None

    def _take(self, state: Any) -> None:
        self.text, self.won = state["feedback"], bool(state["won"])
        self.admissible = sorted(state["admissible_commands"])


def _engine(*, plans: bool) -> Any:
    textworld = require("textworld", needed_by="alfworld", extra="alfworld")
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    infos = textworld.EnvInfos(won=True, admissible_commands=True, policy_commands=plans, feedback=True)
    return AlfredDemangler(textworld.envs.PddlEnv(infos))
