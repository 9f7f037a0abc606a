"""ALFWorld: the generated rooms against the package's own engine, each task's goal, and real game files."""

import json
from pathlib import Path

import numpy as np
import pytest

from envs.alfworld import INTRO
from envs.household import NOTHING_HAPPENS, Receptacle, Room, Thing
from envs.household_tasks import TEMPLATES, Task, draw_task, table
from envs.registry import BadOption, MissingExtra, make
from envs.task_files import split_of

TRANSCRIPTS = Path(__file__).with_name("alfworld_transcripts.json")


def room(**states) -> Room:
    """A countertop with an egg and a knife, a closed fridge with an apple, a microwave, a sinkbasin, a desk with a lamp."""
    kinds = {"countertop": False, "fridge": True, "microwave": True, "sinkbasin": False, "desk": False}
    receptacles = {f"{kind} 1": Receptacle(f"{kind} 1", kind, openable) for kind, openable in kinds.items()}
    rules = table()["objects"]
    things = {}
    for name, where in (
        ("egg 1", "countertop 1"),
        ("egg 2", "fridge 1"),
        ("knife 1", "countertop 1"),
        ("desklamp 1", "desk 1"),
    ):
        kind = name.split()[0]
        places = frozenset({*rules[kind]["places"], "desk"})
        things[name] = Thing(name, kind, frozenset(rules[kind]["can"]), places, where)
    return Room(receptacles, things, **states)


def told(*commands: str) -> list[str]:
    house = room()
    return [house.act(command) for command in commands]


def test_what_commands_say():
    assert told("look", "go to countertop 1", "look", "take egg 1 from countertop 1", "inventory", "examine egg 1") == [
        "You are in the middle of a room. Looking quickly around you, you see a countertop 1, a fridge 1, a microwave 1,"
        " a sinkbasin 1, and a desk 1.",
        "You arrive at countertop 1. On the countertop 1, you see a egg 1, and a knife 1.",
        "You are facing the countertop 1. Next to it, you see nothing.",
        "You pick up the egg 1 from the countertop 1.",
        "You are carrying: a egg 1.",
        "There's nothing special about egg 1.",
    ]
    assert told("go to fridge 1", "open fridge 1", "close fridge 1", "take egg 2 from fridge 1")[1:] == [
        "You open the fridge 1. The fridge 1 is open. In it, you see a egg 2.",
        "You close the fridge 1.",
        NOTHING_HAPPENS,
    ]


def test_hot_clean_cold_and_sliced():
    take = ("go to countertop 1", "take egg 1 from countertop 1")
    heat = (*take, "go to microwave 1", "heat egg 1 with microwave 1")
    clean = ("go to sinkbasin 1", "clean egg 1 with sinkbasin 1")
    cool = ("go to fridge 1", "cool egg 1 with fridge 1")
    assert told(*heat, "examine egg 1")[-2:] == ["You heat the egg 1 using the microwave 1.", "This is a hot egg 1."]
    assert told(*heat, *clean, "examine egg 1")[-1] == "This is a hot and clean egg 1."
    assert told(*heat, *cool, "examine egg 1")[-1] == "This is a cold egg 1."
    assert told(*heat, *clean, *cool, "examine egg 1")[-1] == "This is a cool and clean egg 1."
    slices = ("go to countertop 1", "take knife 1 from countertop 1", "slice egg 1 with knife 1", "examine egg 1")
    assert told(*slices)[-2:] == ["You sliced the egg 1 with the knife 1.", NOTHING_HAPPENS]  # only what is held
    assert told(*slices, "move knife 1 to countertop 1", *take[1:], "examine egg 1")[-1] == "This is a sliced egg 1."
    assert told("heat egg 1 with microwave 1") == [NOTHING_HAPPENS]
    assert told("go to desk 1", "use desklamp 1")[1:] == ["You turn on the desklamp 1."]


@pytest.mark.parametrize(
    ("kind", "place", "commands", "n_missing"),
    [
        ("pick_and_place", "desk", ["move egg 1 to desk 1"], 0),
        ("heat", "desk", ["move egg 1 to desk 1"], 1),
        ("look_in_light", "desklamp", ["use desklamp 1"], 0),
        ("pick_two", "desk", ["move egg 1 to desk 1"], 1),
    ],
)
def test_goals_are_reached_by_the_plan_and_not_before(kind, place, commands, n_missing):
    house, task = room(), Task(kind, "egg", place, "")
    for command in ("go to countertop 1", "take egg 1 from countertop 1", "go to desk 1"):
        house.act(command)
        assert not task.done(house)
    for command in commands:
        house.act(command)
    assert task.done(house) is (n_missing == 0)
    for command in task.plan(house):
        assert not task.done(house)
        assert house.act(command) != NOTHING_HAPPENS
    assert task.done(house)


def test_the_light_must_be_where_the_agent_stands():
    house, task = room(), Task("look_in_light", "egg", "desklamp", "")
    for command in ("go to desk 1", "use desklamp 1", "go to countertop 1", "take egg 1 from countertop 1"):
        house.act(command)
        assert not task.done(house)
    assert task.plan(house) == ["go to desk 1"]


def test_plans_begin_anywhere_and_fit_the_budget():
    rng, longest = np.random.default_rng(0), 0
    for _ in range(120):
        house, task = draw_task(rng, tuple(TEMPLATES))
        for _ in range(int(rng.integers(15))):
            admissible = house.admissible()
            house.act(admissible[int(rng.integers(len(admissible)))])
        plan = task.plan(house)
        for command in plan:
            assert house.act(command) != NOTHING_HAPPENS
        assert task.done(house)
        longest = max(longest, len(plan))
    assert longest <= 20


def test_the_environment_tells_task_and_commands():
    env = make("alfworld:heat")
    first, _ = env.reset(seed=4)
    assert first.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
    task = env._session.task
    observation, reward, _, _, info = env.step(" Inventory ")
    assert observation.startswith(
        f"You are not carrying anything.\nYour task is to: {task}.\n\nAdmissible actions: [go to"
    )
    assert (reward, info["action_is_valid"], info["action_is_effective"]) == (0.0, True, False)
    assert env.step("fly")[4]["action_is_valid"] is False
    assert env.render() == observation
    for command in env.solve():
        _, reward, terminated, _, info = env.step(command)
    assert (reward, terminated, info["success"]) == (10.0, True, True)


def test_splits_share_no_task():
    for split, name in (("train", "alfworld"), ("validation", "alfworld:validation")):
        env = make(name)
        for seed in range(40):
            env.reset(seed=seed)
            task = env._session._task
            assert split_of(f"{task.kind} {task.thing} {task.place}") == split


def _as_set(text: str) -> tuple[str, list[str]]:
    """A sentence with its listed things sorted: the engine lists them in the order of its facts."""
    head, _, tail = text.strip().rpartition("you see ")
    items = tail.rstrip(".").replace(", and ", ", ").split(", ")
    return head, sorted(items)


def assert_same_play(generated: Room, task: Task, steps: list[dict]) -> None:
    """What the engine said and allowed at each step is what our room says and allows."""
    text, won = INTRO.format(look=generated.look(), task=task.text), task.done(generated)
    for step in steps:
        if step["command"] is not None:
            text, won = generated.act(step["command"]), task.done(generated)
        parts = zip(text.strip().split("\n\n"), step["text"].strip().split("\n\n"), strict=True)
        assert all(_as_set(ours) == _as_set(theirs) for ours, theirs in parts), (text, step["text"])
        assert generated.admissible() == step["admissible"]
        assert won is step["won"]


def test_the_packages_engine_played_the_same():
    games = json.loads(TRANSCRIPTS.read_text())["games"]
    assert len(games) == 12 and {game["kind"] for game in games} == set(TEMPLATES)
    for game in games:
        assert_same_play(*draw_task(np.random.default_rng(game["seed"]), (game["kind"],)), game["steps"])


def test_the_packages_engine_plays_the_same(tmp_path):
    pytest.importorskip("alfworld")
    from tests.envs.alfworld_transcripts import play

    for seed, kind in enumerate(TEMPLATES):
        house, task = draw_task(np.random.default_rng(seed), (kind,))
        assert_same_play(house, task, play(tmp_path / kind, seed, kind))


def test_real_games(tmp_path):
    pytest.importorskip("alfworld")
    from tests.envs.alfworld_pddl import write_game

    write_game(tmp_path / "a", *draw_task(np.random.default_rng(0), ("clean",)))
    write_game(tmp_path / "movable" / "b", *draw_task(np.random.default_rng(1), ("heat",)))
    env = make("alfworld", games=str(tmp_path))
    assert len(env._games) == 1
    env.reset(seed=7)
    for command in env.solve():
        observation, reward, terminated, _, info = env.step(command)
        assert "Admissible actions: [" in observation and "Your task is to: " in observation
    assert (reward, terminated, info["success"]) == (10.0, True, True)
    with pytest.raises(BadOption, match=r"no solvable game\.tw-pddl below it \(0 files\)"):
        make("alfworld", games=str(tmp_path / "a" / "none"))


def test_games_without_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "alfworld", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ragen-diag\[alfworld\]'"):
        make("alfworld", games="somewhere")


@pytest.mark.parametrize("options", [{"tasks": ["juggle"]}, {"tasks": []}, {"split": "test"}])
def test_bad_options(options):
    with pytest.raises(BadOption):
        make("alfworld", **options)
