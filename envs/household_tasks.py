"""Drawing a room and one of ALFWorld's six tasks for it, and solving it. Not for: what commands do (`household.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from envs.household import RESULT, STATIONS, Receptacle, Room, Thing

TEMPLATES = {
    "pick_and_place": ("put a {thing} in {place}", "put some {thing} on {place}"),
    "look_in_light": ("look at {thing} under the {place}", "examine the {thing} with the {place}"),
    "clean": ("put a clean {thing} in {place}", "clean some {thing} and put it in {place}"),
    "heat": ("put a hot {thing} in {place}", "heat some {thing} and put it in {place}"),
    "cool": ("put a cool {thing} in {place}", "cool some {thing} and put it in {place}"),
    "pick_two": ("put two {thing} in {place}", "find two {thing} and put them in {place}"),
}
"""Task type -> wordings, as in the package's goal library."""
LAMP = "desklamp"


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done: `thing` and `place` are types, such as mug and shelf."""

    kind: str
    thing: str
    place: str
    text: str

    def done(self, room: Room) -> bool:
        """Is the goal reached? The package's goal formulas."""
        if self.kind == "look_in_light":
            lamps = [thing for thing in room.things.values() if thing.kind == self.place and "on" in thing.states]
            held = room.held
            return held is not None and held.kind == self.thing and any(lamp.where == room.at for lamp in lamps)
        wanted = 2 if self.kind == "pick_two" else 1
        return any(len(self._placed(room, name)) >= wanted for name in self._places(room))

    def _places(self, room: Room) -> list[str]:
        return [name for name, receptacle in room.receptacles.items() if receptacle.kind == self.place]

    def _placed(self, room: Room, place: str) -> list[Thing]:
        return [thing for thing in room.inside(place) if thing.kind == self.thing and self._ready(thing)]

    def _ready(self, thing: Thing) -> bool:
        return self.kind not in RESULT or RESULT[self.kind] in thing.states

    def plan(self, room: Room) -> list[str]:
        """Commands that reach the goal from the state of `room`, which is left as it is."""
        room, plan = room.copy(), []

        def act(commands: Iterator[str]) -> None:
            for command in commands:
                plan.append(command)
                room.act(command)

        if (held := room.held) is not None and held.kind != self.thing:
            act(_put_down(room, held, next(r.name for r in room.receptacles.values() if r.kind in held.places)))
        if self.kind == "look_in_light":
            act(_fetch(room, self._nearest(room, avoid=None)))
            lamp = next(thing for thing in room.things.values() if thing.kind == self.place)
            act(_go(room, str(lamp.where)))
            if not self.done(room):
                act(iter([f"use {lamp.name}"]))
            return plan
        place = max(self._places(room), key=lambda name: len(self._placed(room, name)))
        while not self.done(room):
            thing = self._nearest(room, avoid=place)
            act(_fetch(room, thing))
            if not self._ready(thing):
                act(_change(room, thing, self.kind))
            act(_put_down(room, thing, place))
        return plan

    def _nearest(self, room: Room, *, avoid: str | None) -> Thing:
        """A thing to take next: the one in hand, else one that is not where it belongs."""
        things = [thing for thing in room.things.values() if thing.kind == self.thing]
        elsewhere = room.receptacles.keys() - {avoid}
        free = [thing for thing in things if thing.where in (None, *elsewhere) or not self._ready(thing)]
        return min(free, key=lambda thing: (thing.where is not None, thing.name))


def _go(room: Room, place: str) -> Iterator[str]:
    if room.at != place:
        yield f"go to {place}"


def _enter(room: Room, place: str) -> Iterator[str]:
    yield from _go(room, place)
    if room.receptacles[place].shut:
        yield f"open {place}"


def _fetch(room: Room, thing: Thing) -> Iterator[str]:
    if (place := room.things[thing.name].where) is not None:
        yield from _enter(room, place)
        yield f"take {thing.name} from {place}"


def _put_down(room: Room, thing: Thing, place: str) -> Iterator[str]:
    yield from _enter(room, place)
    yield f"move {thing.name} to {place}"


def _change(room: Room, thing: Thing, verb: str) -> Iterator[str]:
    station = next(name for name, receptacle in room.receptacles.items() if receptacle.kind == STATIONS[verb])
    yield from _go(room, station)
    yield f"{verb} {thing.name} with {station}"


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """Rooms, receptacles and objects, and who may hold what."""
    return json.loads((files("envs") / "data" / "household.json").read_text(encoding="utf-8"))


def draw_room(rng: np.random.Generator, kind: str) -> Room:
    """A room with one to three of most of its kinds of objects, each where it may be."""
    rules = table()
    receptacles, things = {}, {}
    for name, (low, high) in rules["rooms"][kind]["receptacles"].items():
        for number in range(1, int(rng.integers(low, high + 1)) + 1):
            receptacles[f"{name} {number}"] = Receptacle(f"{name} {number}", name, openable=name in rules["openable"])
    for name in rules["rooms"][kind]["objects"]:
        rule = rules["objects"][name]
        homes = [receptacle.name for receptacle in receptacles.values() if receptacle.kind in rule["places"]]
        n_things = 1 if name == LAMP else int(rng.choice(4, p=[0.25, 0.35, 0.25, 0.15]))
        for number in range(1, n_things + 1 if homes else 1):
            where = homes[int(rng.integers(len(homes)))]
            thing = Thing(f"{name} {number}", name, frozenset(rule["can"]), frozenset(rule["places"]), where)
            things[thing.name] = thing
    return Room(receptacles, things)


def draw_task(rng: np.random.Generator, kinds: tuple[str, ...]) -> tuple[Room, Task]:
    """A room and a task of one of `kinds` that is not done yet."""
    while True:
        rooms = sorted(table()["rooms"])
        room = draw_room(rng, rooms[int(rng.integers(len(rooms)))])
        kind = kinds[int(rng.integers(len(kinds)))]
        candidates = sorted(_candidates(room, kind))
        if not candidates:
            continue
        thing, place = candidates[int(rng.integers(len(candidates)))]
        wording = TEMPLATES[kind][int(rng.integers(2))]
        task = Task(kind, thing, place, wording.format(thing=thing, place=place))
        if not task.done(room):
            return room, task


def _candidates(room: Room, kind: str) -> set[tuple[str, str]]:
    """(type of object, type of place) of all tasks of this kind that can be done in the room."""
    movable = [thing for thing in room.things.values() if "use" not in thing.can]
    if kind == "look_in_light":
        return {(thing.kind, LAMP) for thing in movable if f"{LAMP} 1" in room.things}
    places = {receptacle.kind for receptacle in room.receptacles.values()}
    if kind in STATIONS:
        movable = [thing for thing in movable if kind in thing.can and STATIONS[kind] in places]
        places = places - {STATIONS[kind]}
    if kind == "pick_two":
        movable = [thing for thing in movable if sum(other.kind == thing.kind for other in movable) > 1]
    return {(thing.kind, place) for thing in movable for place in thing.places & places}
