"""Names, variants, classes and third-party entry points."""

from importlib.metadata import EntryPoint

import pytest

import envs.registry as registry
from envs.registry import BadOption, Outcome, TextEnv, UnknownEnv, make, specs


class CountdownToZero(TextEnv):
    """A third party's environment: say the number until it is zero."""

    name, summary, action_names, max_actions = "to_zero", "count down", ("less",), 5

    def __init__(self, start: int = 3, *, render_mode: str | None = "ansi") -> None:
        super().__init__(render_mode=render_mode)
        self.start = start

    def _begin(self, seed: int) -> None:
        self.left = self.start + seed % 2

    def _apply(self, action: str) -> Outcome:
        self.left -= 1
        return Outcome(reward=1.0, terminated=self.left == 0, effective=True, success=self.left == 0)

    def _observe(self) -> str:
        return str(self.left)

    def _rules(self) -> str:
        return "Say less."


class NotAnEnv:
    pass


def test_a_class_of_your_own():
    env = make(f"{__name__}:CountdownToZero", start=2)
    assert env.reset(seed=0)[0] == "2"
    assert env.step("LESS")[:3] == ("1", 1.0, False)
    assert env.step("less")[4] == {"action_is_valid": True, "action_is_effective": True, "success": True}


def test_entry_points_add_names_but_never_replace_ours(monkeypatch):
    points = [
        EntryPoint("to_zero", f"{__name__}:CountdownToZero", registry.ENTRY_POINT_GROUP),
        EntryPoint("sokoban", f"{__name__}:CountdownToZero", registry.ENTRY_POINT_GROUP),
        EntryPoint("broken", "no_such_module:Env", registry.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    listed = {spec.name: spec for spec in specs()}
    assert make("to_zero").name == "to_zero" and make("sokoban").name == "sokoban"
    assert listed["to_zero"].problem is None
    assert "no_such_module" in listed["broken"].problem


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("frozenlake", "did you mean 'frozen_lake'"),
        ("frozen_lake:noslip", "did you mean 'frozen_lake:no_slip'"),
        ("chess", "there is alfworld, bandit"),
        ("", "package.module:Class"),
        ("no.such.module:Env", "cannot import"),
        (f"{__name__}:CountdownToZer", "did you mean 'CountdownToZero'"),
        (f"{__name__}:NotAnEnv", "not a subclass"),
    ],
)
def test_unknown_names(name, part):
    with pytest.raises(UnknownEnv, match=part):
        make(name)


def test_unknown_option_and_the_variant_s_option_overridden():
    with pytest.raises(BadOption, match="did you mean 'size'"):
        make("frozen_lake", sise=8)
    assert make("frozen_lake:no_slip", success_rate=0.5).success_rate == 0.5
