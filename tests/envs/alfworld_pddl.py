"""A generated room and task as one of ALFWorld's game files, for the package's own engine. For tests and their fixture."""

import json
from pathlib import Path

from envs.household import STATIONS, Room
from envs.household_tasks import Task

PICK = (
    "(exists (?r - receptacle) (exists (?o - object) (and (objectType ?o {thing}Type) (receptacleType ?r {place}Type)"
    " {more} (inReceptacle ?o ?r))))"
)
MORE = {"pick_and_place": "", "clean": "(cleanable ?o) (isClean ?o)", "heat": "(heatable ?o) (isHot ?o)",
        "cool": "(coolable ?o) (isCool ?o)"}  # fmt: skip
GOALS = {
    "pick_two": "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {thing}Type) (receptacleType ?r {place}Type)"
    " (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 {thing}Type) (inReceptacle ?o2 ?r))))))",
    "look_in_light": "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot {place}Type)"
    " (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))"
    " (exists (?o - object ?a - agent) (and (objectType ?o {thing}Type) (holds ?a ?o)))",
}


def _id(name: str) -> str:
    """`sinkbasin 1` -> `sink_bar_1_bar_sinkbasin`, which the package turns back into the name."""
    kind, number = name.split()
    number = f"{99 - int(number):02d}"  # the package gives a kind's highest number to its alphabetically first id
    return f"{kind.removesuffix('basin')}_bar_{number}" + ("_bar_basin" if kind.endswith("basin") else "")


def _type(kind: str) -> str:
    return {"sinkbasin": "SinkBasinType", "microwave": "MicrowaveType", "fridge": "FridgeType", "knife": "KnifeType",
            "butterknife": "ButterKnifeType"}.get(kind, f"{kind}Type")  # fmt: skip


def problem(room: Room, task: Task) -> str:
    """The PDDL problem."""
    kinds = sorted({thing.kind for thing in room.things.values()})
    places = sorted({receptacle.kind for receptacle in room.receptacles.values()})
    init = ["(= (total-cost) 0)", "(atLocation agent1 loc0)"]
    for number, receptacle in enumerate(room.receptacles.values(), start=1):
        name = _id(receptacle.name)
        init += [f"(receptacleType {name} {_type(receptacle.kind)})", f"(receptacleAtLocation {name} loc{number})"]
        init += [f"(openable {name})"] if receptacle.openable else []
        for thing in room.inside(receptacle.name):
            init += [f"(inReceptacle {_id(thing.name)} {name})", f"(objectAtLocation {_id(thing.name)} loc{number})"]
    flags = {verb: f"{verb}able" for verb in STATIONS} | {"slice": "sliceable", "use": "toggleable"}
    for thing in room.things.values():
        init += [f"(objectType {_id(thing.name)} {_type(thing.kind)})"]
        init += [f"({flags[verb]} {_id(thing.name)})" for verb in sorted(thing.can)]
        init += [] if "use" in thing.can else [f"(pickupable {_id(thing.name)})"]
    rules = {kind: thing.places for thing in room.things.values() for kind in [thing.kind]}
    init += [f"(canContain {_type(place)} {_type(kind)})" for kind in kinds for place in places if place in rules[kind]]
    template = GOALS.get(task.kind) or PICK.replace("{more}", MORE[task.kind])
    goal = template.replace("{thing}Type", _type(task.thing)).replace("{place}Type", _type(task.place))
    objects = [
        "agent1 - agent",
        f"{' '.join(_id(name) for name in room.things)} - object",
        f"{' '.join(map(_type, kinds))} - otype",
        f"{' '.join(map(_type, sorted({*places, 'sinkbasin', 'microwave', 'fridge'})))} - rtype",
        f"{' '.join(f'loc{number}' for number in range(len(room.receptacles) + 1))} - location",
        f"{' '.join(_id(name) for name in room.receptacles)} - receptacle",
    ]
    if not {"knife", "butterknife"} <= set(kinds):
        objects.append("KnifeType ButterKnifeType - otype" if "knife" not in kinds and "butterknife" not in kinds
                       else f"{'KnifeType' if 'knife' not in kinds else 'ButterKnifeType'} - otype")  # fmt: skip
    return (
        f"(define (problem plan_1) (:domain alfred)\n(:objects {' '.join(objects)})\n"
        f"(:init {' '.join(init)})\n(:goal (and {goal}))\n(:metric minimize (total-cost)))"
    )


def write_game(folder: Path, room: Room, task: Task) -> Path:
    """A `game.tw-pddl` with the package's domain and grammar."""
    import alfworld

    data = Path(alfworld.__file__).parent / "data"
    grammar = (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL", task.text)
    game = {"pddl_domain": (data / "alfred.pddl").read_text(), "grammar": grammar, "pddl_problem": problem(room, task)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps({**game, "solvable": True}))
    return path
