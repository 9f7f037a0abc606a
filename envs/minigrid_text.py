"""MiniGrid worlds, told as text: what the agent sees, relative to where it stands and looks.

Not called `minigrid.py`: that name is the package's.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar

import gymnasium

from envs.errors import require
from envs.planning import shortest_plan
from envs.text_env import Outcome, TextEnv

WON = "won"


class MiniGridEnv(TextEnv):
    """Walk, look, pick up and toggle in a small partially seen world to fulfil a mission.

    ## Description
    The worlds of the `minigrid` package: rooms, doors, keys, boxes, lava. The agent sees seven cells ahead and three to
    each side, not through walls or closed doors.

    ## Action Space
    One of `Left`, `Right` (turn), `Forward`, `Pickup`, `Drop`, `Toggle` (open or close what is ahead), `Done`.

    ## Observation Space
    Text: the mission, what is carried, how far the way ahead is free, and each visible object with its distance
    `ahead` and to the `left` or `right`, in cells.

    ## Starting State
    The seed fixes the world as in `minigrid`.

    ## Rewards
    1 - 0.9 n / `max_steps` on fulfilling the mission with action n, else 0. Unit: points.

    ## Episode End
    Termination: mission fulfilled (`success`), or failed for good (lava, wrong object). No truncation.

    ## Arguments
    - `env_id`: any `MiniGrid-*` or `BabyAI-*` id (`MiniGrid-DoorKey-5x5-v0`).
    - `max_steps`: action budget, also the scale of the reward (40).

    ## Version History
    - v0: first version.
    """

    name = "minigrid"
    summary = "key-and-door worlds, seen from inside"
    variants: ClassVar = {
        "empty": {"env_id": "MiniGrid-Empty-Random-6x6-v0", "max_steps": 20},
        "lava": {"env_id": "MiniGrid-LavaGapS5-v0", "max_steps": 20},
        "fetch": {"env_id": "MiniGrid-Fetch-5x5-N2-v0", "max_steps": 20},
        "go_to_door": {"env_id": "MiniGrid-GoToDoor-5x5-v0", "max_steps": 20},
    }
    extra = "envs"
    data = "complete (package minigrid)"
    action_names = ("Left", "Right", "Forward", "Pickup", "Drop", "Toggle", "Done")  # minigrid's order

    def __init__(
        self, env_id: str = "MiniGrid-DoorKey-5x5-v0", max_steps: int = 40, *, render_mode: str | None = "ansi"
    ) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame greets on stdout, where results go
        require("minigrid", needed_by=self.name, extra="envs")
        if max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}; it is at least 1")
        super().__init__(render_mode=render_mode)
        try:
            self._world: Any = gymnasium.make(env_id, max_steps=max_steps, disable_env_checker=True).unwrapped
        except gymnasium.error.Error as error:
            raise ValueError(f"env_id {env_id!r} cannot be made: {error}") from error
        if not hasattr(self._world, "agent_dir"):
            raise ValueError(f"env_id {env_id!r} is no MiniGrid world")
        self.max_actions = max_steps

    def _rules(self) -> str:
        return (
            "You are in a small world of rooms. Fulfil the mission. Left and Right turn you on the spot, Forward walks one"
            " cell, Pickup takes the object right ahead, Drop puts it down ahead, Toggle opens or closes what is right"
            " ahead (a locked door needs its key), Done says that you are finished."
        )

    def _begin(self, seed: int) -> None:
        self._seen, _ = self._world.reset(seed=seed)

    def _apply(self, action: str) -> Outcome:
        before = _state(self._world)
        self._seen, reward, terminated, _, _ = self._world.step(self.action_names.index(action))
        effective = bool(terminated) or _state(self._world) != before
        return Outcome(float(reward), bool(terminated), effective=effective, success=bool(reward > 0))

    def _observe(self) -> str:
        from minigrid.core.constants import IDX_TO_OBJECT

        image = self._seen["image"]  # (right, down, 3) as seen; the agent stands in the middle of the last row
        middle, here = image.shape[0] // 2, image.shape[1] - 1
        objects, free = [], 0
        for ahead in range(here + 1):
            for right in range(-middle, image.shape[0] - middle):
                kind, colour, state = (int(code) for code in image[middle + right, here - ahead])
                if IDX_TO_OBJECT[kind] not in ("unseen", "empty", "wall", "floor", "agent") and (ahead, right) != (
                    0,
                    0,
                ):
                    objects.append(f"{_named(kind, colour, state)} {_where(ahead, right)}")
        while free < here and IDX_TO_OBJECT[int(image[middle, here - free - 1, 0])] in ("empty", "floor", "goal"):
            free += 1
        carrying = self._world.carrying
        lines = [f"Mission: {self._seen['mission']}"]
        lines.append(f"Carrying: {f'{carrying.color} {carrying.type}' if carrying else 'nothing'}")
        lines.append(f"Free cells ahead: {free}")
        lines.append(f"Seen: {'; '.join(objects) or 'nothing'}")
        return "\n".join(lines)

    def solve(self) -> list[str] | None:
        """A shortest plan from the full state, which the policy does not see."""
        worlds = {_state(self._world): self._world}

        def successors(state: Hashable) -> Iterator[tuple[str, Hashable]]:
            for index, name in enumerate(self.action_names):
                world = _copied(worlds[state])
                _, reward, terminated, _, _ = world.step(index)
                if reward > 0:
                    yield name, WON
                elif not terminated:
                    following = _state(world)
                    worlds.setdefault(following, world)
                    yield name, following

        return shortest_plan(_state(self._world), successors, lambda state: state == WON, max_states=5_000)


def _state(world: Any) -> Hashable:
    carrying = world.carrying
    held = (carrying.type, carrying.color) if carrying else None
    return tuple(world.agent_pos), world.agent_dir, held, world.grid.encode().tobytes()


def _copied(world: Any) -> Any:
    """A world to try an action in. Copying all of it (spaces, renderer) would take ten times as long."""
    twin = copy.copy(world)
    for part in ("grid", "carrying", "_np_random"):
        setattr(twin, part, copy.deepcopy(getattr(world, part)))
    return twin


def _named(kind: int, colour: int, state: int) -> str:
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    name = IDX_TO_OBJECT[kind]
    if name in ("goal", "lava"):
        return name
    if name == "door":
        condition = next(word for word, index in STATE_TO_IDX.items() if index == state)
        return f"{condition} {IDX_TO_COLOR[colour]} door"
    return f"{IDX_TO_COLOR[colour]} {name}"


def _where(ahead: int, right: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    if right:
        parts.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " ".join(parts)
