"""Which environments exist, and how to make one by name.

Not for: the environment contract (`text_env.py`) or anything one environment knows about itself (its own file).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from gymnasium.envs.registration import EnvSpec as GymSpec

from envs.errors import BadOption, EnvError, MissingExtra, ServiceError, UnknownEnv
from envs.text_env import AnyText, Outcome, TextEnv

__all__ = [
    "AnyText",
    "BadOption",
    "EnvError",
    "EnvSpec",
    "MissingExtra",
    "Outcome",
    "ServiceError",
    "TextEnv",
    "UnknownEnv",
    "held_out_options",
    "make",
    "specs",
]

ENTRY_POINT_GROUP = "ragen_diag.envs"

BUILTIN = {
    "alfworld": "envs.alfworld:AlfworldEnv",
    "bandit": "envs.bandit:BanditEnv",
    "countdown": "envs.countdown:CountdownEnv",
    "deepcoder": "envs.deepcoder:DeepCoderEnv",
    "frozen_lake": "envs.frozen_lake:FrozenLakeEnv",
    "game_2048": "envs.game_2048:Game2048Env",
    "lean": "envs.lean:LeanEnv",
    "metamathqa": "envs.metamathqa:MetaMathQAEnv",
    "minigrid": "envs.minigrid_text:MiniGridEnv",
    "reasoning_gym": "envs.reasoning_gym_tasks:ReasoningGymEnv",
    "rubiks_2x2": "envs.rubiks_2x2:Rubiks2x2Env",
    "search_qa": "envs.search_qa:SearchQAEnv",
    "sokoban": "envs.sokoban:SokobanEnv",
    "sudoku": "envs.sudoku:SudokuEnv",
    "textarena": "envs.textarena_games:TextArenaEnv",
    "webshop": "envs.webshop:WebShopEnv",
}


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What `ragen-diag envs list` shows about one environment."""

    name: str
    entry_point: str
    """`module:Class`."""
    variants: Mapping[str, Mapping[str, Any]]
    """Variant name -> constructor arguments, without the default variant."""
    extra: str | None
    """Extra to install, or None."""
    data: str
    """Where the tasks come from without a download."""
    summary: str
    max_actions: int
    problem: str | None = None
    """Why the class does not load, for a third party's broken entry point; None when it does."""


def make(name_or_class: str, **options: Any) -> TextEnv:
    """The environment of a name (`sokoban`), a variant (`sokoban:larger`) or a class (`package.module:Class`).

    Options go to the constructor and win over the variant's. Raises UnknownEnv, BadOption or MissingExtra.
    """
    cls, variant = _class_of(name_or_class)
    return _construct(cls, name_or_class, {**variant, **options})


def _class_of(name_or_class: str) -> tuple[type[TextEnv], Mapping[str, Any]]:
    """The class behind a name, and the arguments of its variant. Raises UnknownEnv."""
    base, _, rest = name_or_class.partition(":")
    known = _entry_points_by_name()
    if base in known:
        cls = _load(known[base], asked_for=name_or_class)
        if rest and rest not in cls.variants and cls.open_variant:
            return cls, {cls.open_variant: rest}
        if rest and rest not in cls.variants:
            hint = _hint(rest, cls.variants, prefix=base + ":")
            raise UnknownEnv(f"environment {base!r} has no variant {rest!r}{hint}")
        return cls, cls.variants.get(rest, {})
    if rest[:1].isupper() or (rest and "." in base):
        return _load(name_or_class, asked_for=name_or_class), {}
    raise UnknownEnv(f"no environment named {base!r}{_hint(base, known)}; your own class is package.module:Class")


def held_out_options(name_or_class: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` for the same environment's held-out tasks (its validation split); unchanged where it has no splits."""
    return {**options, **_class_of(name_or_class)[0].held_out}


def specs() -> list[EnvSpec]:
    """All environments by name, built in first; one whose class does not load is listed with its `problem`."""
    found = []
    for name, entry_point in _entry_points_by_name().items():
        try:
            cls = _load(entry_point, asked_for=name)
        except EnvError as error:
            found.append(EnvSpec(name, entry_point, {}, None, "unknown", "does not load", 0, problem=str(error)))
            continue
        found.append(EnvSpec(name, entry_point, cls.variants, cls.extra, cls.data, cls.summary, cls.max_actions))
    return found


def _entry_points_by_name() -> dict[str, str]:
    """Built-in names win: an installed package cannot silently replace `sokoban`."""
    third_party = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**BUILTIN, **{name: value for name, value in third_party.items() if name not in BUILTIN}}


def _load(entry_point: str, *, asked_for: str) -> type[TextEnv]:
    module_name, _, class_name = entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UnknownEnv(f"environment {asked_for!r}: cannot import {module_name!r}: {error}") from error
    cls = getattr(module, class_name, None)
    if cls is None:
        classes = [name for name, value in vars(module).items() if _is_env_class(value)]
        raise UnknownEnv(f"environment {asked_for!r}: {module_name} has no {class_name!r}{_hint(class_name, classes)}")
    if not _is_env_class(cls):
        raise UnknownEnv(f"environment {asked_for!r}: {entry_point} is not a subclass of envs.registry.TextEnv")
    return cls


def _is_env_class(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, TextEnv) and value is not TextEnv


def _construct(cls: type[TextEnv], asked_for: str, arguments: Mapping[str, Any]) -> TextEnv:
    can_draw = len(cls.metadata["render_modes"]) > 1
    accepted = [name for name in inspect.signature(cls).parameters if name != "render_mode" or can_draw]
    for name in arguments:
        if name not in accepted:
            raise BadOption(f"environment {asked_for!r} has no option {name!r}{_hint(name, accepted)}")
    try:
        env = cls(**arguments)
    except EnvError:
        raise
    except (TypeError, ValueError) as error:
        raise BadOption(f"environment {asked_for!r}: {error}") from error
    env.spec = GymSpec(
        id=f"ragen_diag/{cls.__name__.removesuffix('Env')}-v0",
        entry_point=f"{cls.__module__}:{cls.__qualname__}",
        kwargs=dict(arguments),
    )
    return env


def _hint(asked: str, known: Iterable[str], *, prefix: str = "") -> str:
    close = difflib.get_close_matches(asked.lower(), known, n=1)
    if close:
        return f"; did you mean {prefix + close[0]!r}?"
    return f"; there is {', '.join(prefix + name for name in known) or 'none'}"
