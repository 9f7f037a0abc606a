"""A room of ALFWorld: receptacles, objects, what the commands do and say. Restates the package's `alfred.pddl` and
`alfred.twl2` (alfworld 0.4.2); a test plays the same rooms in the package's own engine and compares.

Not for: drawing rooms and tasks (`household_tasks.py`), rewards (`alfworld.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

NOTHING_HAPPENS = "Nothing happens."
HELP = """
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
STATIONS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""Which type of receptacle changes an object in which way; the agent stands there and holds the object."""
RESULT = {"clean": "clean", "heat": "hot", "cool": "cool"}
SHARP = ("knife", "butterknife")


@dataclass(slots=True)
class Receptacle:
    """Something that can hold objects, at a place of its own."""

    name: str
    kind: str
    openable: bool = False
    is_open: bool = False

    @property
    def shut(self) -> bool:
        """Its content can neither be seen nor reached."""
        return self.openable and not self.is_open


@dataclass(slots=True)
class Thing:
    """An object. `where` is a receptacle's name, or None while the agent holds it."""

    name: str
    kind: str
    can: frozenset[str]
    """Of clean, cool, heat, slice, use."""
    places: frozenset[str]
    """Types of receptacle it may be put on or in."""
    where: str | None
    states: set[str] = field(default_factory=set)
    """Of clean, hot, cool, sliced, on."""


@dataclass(slots=True)
class Room:
    """The state of a room. `at` is where the agent stands: a receptacle's name, None for the middle of the room."""

    receptacles: dict[str, Receptacle]
    things: dict[str, Thing]
    at: str | None = None

    def copy(self) -> Room:
        """An independent room in the same state."""
        return copy.deepcopy(self)

    @property
    def held(self) -> Thing | None:
        """What the agent holds."""
        return next((thing for thing in self.things.values() if thing.where is None), None)

    def inside(self, receptacle: str) -> list[Thing]:
        """What is in or on a receptacle, by name."""
        return [thing for thing in self.things.values() if thing.where == receptacle]

    def admissible(self) -> list[str]:
        """Commands that the rules allow now, sorted."""
        return sorted(self._admissible())

    def _admissible(self) -> Iterator[str]:
        yield from ("look", "inventory", "help")
        yield from (f"go to {name}" for name in self.receptacles if name != self.at)
        held = self.held
        if held is not None:
            yield f"examine {held.name}"
        if self.at is None:
            return
        here = self.receptacles[self.at]
        yield f"examine {here.name}"
        if here.openable:
            yield f"{'close' if here.is_open else 'open'} {here.name}"
        for thing in self.inside(here.name):
            if not here.shut and held is None and "use" not in thing.can:
                yield f"take {thing.name} from {here.name}"
            if "use" in thing.can:
                yield f"use {thing.name}"
            if held is not None and held.kind in SHARP and "slice" in thing.can:
                yield f"slice {thing.name} with {held.name}"
        if held is not None:
            if not here.shut and here.kind in held.places:
                yield f"move {held.name} to {here.name}"
            for verb, kind in STATIONS.items():
                if here.kind == kind and verb in held.can:
                    yield f"{verb} {held.name} with {here.name}"

    def act(self, command: str) -> str:
        """Carry out a command and tell what happened; what is not admissible changes nothing."""
        if command not in self.admissible():
            return NOTHING_HAPPENS
        verb, _, rest = command.partition(" ")
        if verb in ("look", "inventory", "help"):
            return {"look": self.look, "inventory": self._inventory, "help": lambda: HELP}[verb]()
        if verb == "go":
            self.at = rest.removeprefix("to ")
            return f"You arrive at {self.at}. {self._tell_receptacle(self.at)}"
        if verb in ("open", "close"):
            self.receptacles[rest].is_open = verb == "open"
            return f"You {verb} the {rest}." + (f" {self._tell_receptacle(rest)}" if verb == "open" else "")
        if verb == "examine":
            return self._tell_receptacle(rest) if rest in self.receptacles else _tell_thing(self.things[rest])
        if verb == "use":
            self.things[rest].states.add("on")
            return f"You turn on the {rest}."
        return self._handle(verb, rest)

    def _handle(self, verb: str, rest: str) -> str:
        """Commands with an object and a second thing."""
        name, _, other = rest.partition({"take": " from ", "move": " to "}.get(verb, " with "))
        thing = self.things[name]
        if verb == "take":
            thing.where = None
            return f"You pick up the {name} from the {other}."
        if verb == "move":
            thing.where = other
            return f"You move the {name} to the {other}."
        if verb == "slice":
            thing.states.add("sliced")
            return f"You sliced the {name} with the {other}."
        thing.states.add(RESULT[verb])
        if verb != "clean":
            thing.states.discard("hot" if verb == "cool" else "cool")
        return f"You {verb} the {name} using the {other}."

    def look(self) -> str:
        """What the agent sees from where it stands."""
        if self.at is not None:
            return f"You are facing the {self.at}. Next to it, you see nothing."
        seen = _list(self.receptacles)
        return f"You are in the middle of a room. Looking quickly around you, you see {seen}."

    def _inventory(self) -> str:
        held = self.held
        return f"You are carrying: a {held.name}." if held else "You are not carrying anything."

    def _tell_receptacle(self, name: str) -> str:
        receptacle = self.receptacles[name]
        if receptacle.shut:
            return f"The {name} is closed."
        seen = _list(thing.name for thing in self.inside(name))
        if receptacle.openable:
            return f"The {name} is open. In it, you see {seen}."
        return f"On the {name}, you see {seen}."


def _list(names: Iterator[str] | dict[str, Receptacle]) -> str:
    *before, last = [f"a {name}" for name in names] or ["nothing"]
    return f"{', '.join(before)}, and {last}" if before else last


def _tell_thing(thing: Thing) -> str:
    """The first fitting line of the grammar's list, in its order."""
    states = thing.states
    warmth = "hot" if "hot" in states else "cool" if "cool" in states else ""
    clean, sliced = "clean" in states, "sliced" in states
    if warmth == "cool" and not clean and not sliced:
        warmth = "cold"  # the grammar's own word for it
    if warmth or clean:
        how = " and ".join(word for word in (warmth, "clean" if clean else "") if word)
        return f"This is a {how} {'sliced ' if sliced else ''}{thing.name}."
    return f"This is a sliced {thing.name}." if sliced else f"There's nothing special about {thing.name}."
