"""The base class of every environment: text in, text out, one action a step.

Not for: prompts and answer formats (the trainer writes those), action budgets (the caller stops after `max_actions`),
names and look-up (`registry.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Text

MAX_TEXT_CHARS = 2**24
"""Upper bound of any observation or action a space accepts; models are held to far less by their token limits."""


class AnyText(Text):
    """Every string up to `max_length` characters; samples are `examples`, or letters and digits without any."""

    def __init__(self, max_length: int = MAX_TEXT_CHARS, examples: Sequence[str] = ()) -> None:
        super().__init__(max_length, min_length=0)
        self.examples = tuple(examples)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """One of `examples`, or 1 to 32 letters and digits."""
        if self.examples:
            return self.examples[int(self.np_random.integers(len(self.examples)))]
        if mask is None and probability is None:
            mask = (int(self.np_random.integers(1, 33)), None)
        return super().sample(mask, probability)

    def contains(self, x: Any) -> bool:
        """Any string that is not too long: what a model writes is never outside the space."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one action did. `reward` is in the environment's own units; `extra` goes into `info` as it is."""

    reward: float = 0.0
    terminated: bool = False
    valid: bool = True
    """The action was understood and allowed by the rules."""
    effective: bool = False
    """The action changed the state."""
    success: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class TextEnv(gymnasium.Env[str, str]):
    """A `gymnasium.Env` over text; subclasses write `_begin`, `_apply`, `_observe`, `_rules`; the contract is here.

    - `reset(seed=s)` fixes the *prompt* (board, arms, question): same seed, same first observation, in any process.
    - `reset(seed=s, options={"rollout_seed": r})` seeds the transition noise with (s, r): the members of a group share
      the seed and differ in `rollout_seed`. Without it the noise follows from the seed alone.
    - `step(text)` takes one action, never raises for any text, and always reports `action_is_valid`,
      `action_is_effective` and `success` in `info`. Text that names no action leaves the environment where it was,
      with reward 0.
    - Budgets are the caller's: no environment truncates by itself; `max_actions` says what the reference allows.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}  # type: ignore[misc]  # gymnasium: instance

    name: ClassVar[str]
    """Registry name, snake_case."""
    summary: ClassVar[str]
    """One line for `ragen-diag envs list`."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Variant name -> constructor arguments."""
    open_variant: ClassVar[str | None] = None
    """Constructor argument that any other variant name goes to: a door to another package's tasks."""
    held_out: ClassVar[Mapping[str, Any]] = {}
    """Constructor arguments that select tasks which training never sees; empty where seeds alone keep them apart."""
    extra: ClassVar[str | None] = None
    """The installation extra this environment needs, or None."""
    data: ClassVar[str] = "complete"
    """Where its tasks come from without any download."""
    max_actions: int = 10
    """Actions allowed per trajectory; the reference's `max_actions_per_traj`."""
    action_names: tuple[str, ...] | None = None
    """Names `step` accepts, matched without regard to case; None for free text."""

    action_space: AnyText
    noise_rng: np.random.Generator
    """Transition noise and payouts; seeded by `reset`."""

    def __init__(self, *, render_mode: str | None = "ansi") -> None:
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText(examples=self.action_names or ())
        self._over: bool | None = None  # None until the first reset
        self._success = False

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Set up the prompt of `seed`; draw nothing from `self.noise_rng`."""

    @abstractmethod
    def _apply(self, action: str) -> Outcome:
        """Carry out one action: a member of `action_names`, or any text when that is None."""

    @abstractmethod
    def _observe(self) -> str:
        """The current observation."""

    @abstractmethod
    def _rules(self) -> str:
        """See `instruction`."""

    @property
    def instruction(self) -> str:
        """The rules, and the legend of this instance's symbols; no advice on the reply format."""
        return self._rules()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """See the class. Without a seed, the next one is drawn from the generator that the last seed set up."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        rollout_seed = (options or {}).get("rollout_seed")
        entropy = (seed,) if rollout_seed is None else (seed, int(rollout_seed))
        self.noise_rng = np.random.default_rng(np.random.SeedSequence(entropy))
        self._over, self._success = False, False
        self._begin(seed)
        return self._observe(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One action. Raises gymnasium's ResetNeeded before the first reset; after the end nothing changes any more."""
        if self._over is None:
            raise ResetNeeded(f"{self.name}: call reset() before step()")
        known = None if self._over else self._recognise(action)
        if known is None:
            outcome = Outcome(terminated=self._over, valid=False, success=self._success)
        else:
            outcome = self._apply(known)
            self._over, self._success = outcome.terminated, outcome.success
        info = {
            "action_is_valid": outcome.valid,
            "action_is_effective": outcome.effective,
            "success": outcome.success,
            **outcome.extra,
        }
        return self._observe(), outcome.reward, outcome.terminated, False, info

    def _recognise(self, action: str) -> str | None:
        """The action meant by `action`, or None. Free-text environments take everything and judge in `_apply`."""
        if self.action_names is None:
            return action
        wanted = action.strip().lower()
        return next((name for name in self.action_names if name.lower() == wanted), None)

    def render(self) -> Any:
        """The current observation; environments that can draw return an RGB array in render mode `rgb_array`."""
        return self._observe()

    def random_action(self, rng: np.random.Generator) -> str:
        """A uniformly random action, for the random baseline. Free-text environments override it.

        Raises NotImplementedError where no random action has been defined.
        """
        if self.action_names is None:
            raise NotImplementedError(f"{self.name} takes free text and defines no random action")
        return self.action_names[int(rng.integers(len(self.action_names)))]

    def solve(self) -> list[str] | None:
        """Actions that earn success from the current state, or None if there are none (or no solver)."""
        return None
