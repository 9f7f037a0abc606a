"""Worlds of prompts and reasonings whose H(Z|X) and I(X;Z) are known in closed form: cross scores and texts, exact and seeded.

A prompt is a state of D slots with V values each, drawn uniformly. A reasoning is written in one of two modes: with probability
`template_share` the template (every slot filled at random, whatever the state), else the attentive mode, which copies each slot
from the state with probability `copy_prob` and fills it at random otherwise. The mode shows in the text. A random number of
filler words, the same distribution for every prompt, adds entropy and length but no information.

    I(X;Z)  = (1 - τ) · D · [log V + a log a + (V - 1) b log b],   a = q + (1 - q)/V,   b = (1 - q)/V
    H(Z|X)  = h(τ) + τ D log V + (1 - τ) D [-a log a - (V - 1) b log b] + H(filler)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from analysis.run_data import TextRow
from ragen_diag.cross_scores import CrossScores

FILLERS = ("well", "so", "now", "then", "hmm", "okay", "right", "maybe")
VALUES = (
    ("red", "blue", "green", "amber", "violet", "white", "black", "teal", "pink", "grey"),
    ("north", "south", "east", "west", "up", "down", "left", "right", "ahead", "behind"),
    ("key", "box", "lamp", "door", "coin", "rope", "map", "book", "cup", "ring"),
    ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
)
NAMES = ("colour", "heading", "object", "count")


def _xlogx(p: float) -> float:
    return p * float(np.log(p)) if p > 0 else 0.0


@dataclass(frozen=True)
class Batch:
    """Groups drawn from a world. R reasonings, G groups."""

    world: World
    states_GD: np.ndarray
    group_R: np.ndarray
    template_R: np.ndarray
    slots_RD: np.ndarray
    fillers: tuple[tuple[int, ...], ...]

    @property
    def tokens_R(self) -> np.ndarray:
        """Mode + slots + fillers + end."""
        return np.array([2 + self.slots_RD.shape[1] + len(words) for words in self.fillers])

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct states (N, D), the column of each group (G,), weights (N,)."""
        states, column_G = np.unique(self.states_GD, axis=0, return_inverse=True)
        column_G = column_G.ravel()
        return states, column_G, np.bincount(column_G) / len(column_G)

    def batch_mi_nats(self) -> float:
        """I(X;Z) with X uniform over this batch's groups, by enumeration of every slot filling (V**D of them)."""
        states, _, weights = self.columns()
        world = self.world
        fillings = np.array(list(itertools.product(range(world.values), repeat=world.slots)))
        same = (fillings[:, None, :] == states[None]).sum(axis=2)
        given = (
            np.exp(same * np.log(world.hit) + (world.slots - same) * np.log(world.miss))
            if world.miss
            else 1.0 * (same == world.slots)
        )
        marginal = given @ weights
        ratio = np.log(np.where(given > 0, given, 1.0) / marginal[:, None])
        return float((1 - world.template_share) * (weights * (given * ratio)).sum())

    def cross(self, *, critic: World | None = None, step: int = 0, scope: str = "first_turn") -> CrossScores:
        """Exact scores of the policy, or those of another world's policy as a foreign critic."""
        scorer = self.world if critic is None else critic
        states, column_G, weights = self.columns()
        column_R = column_G[self.group_R]
        return CrossScores(
            step=step,
            split="train",
            scope=scope,
            scorer="policy" if critic is None else "planted/critic",
            logprob_sum_RN=scorer.log_prob(self, states),
            tokens_R=self.tokens_R,
            column_R=column_R,
            weights_N=weights,
            prompt_ids_N=tuple("-".join(map(str, state)) for state in states.tolist()),
            trajectory_ids_R=tuple(f"s{step}-r{r}" for r in range(len(column_R))),
            turn_R=np.zeros(len(column_R), dtype=np.int64),
        )

    def texts(self, step: int | None = 0) -> list[TextRow]:
        """The same reasonings as text."""
        _, column_G, _ = self.columns()
        rows = []
        for r, group in enumerate(self.group_R.tolist()):
            state = self.states_GD[group]
            rows.append(
                TextRow(
                    step=step,
                    split="train",
                    group=group,
                    prompt=int(column_G[group]),
                    trajectory_id=f"s{step}-r{r}",
                    prompt_text="State: "
                    + ", ".join(f"{_name(d)} {_word(d, v)}" for d, v in enumerate(state.tolist())),
                    thinking_text=self.world.write(
                        bool(self.template_R[r]), self.slots_RD[r].tolist(), self.fillers[r]
                    ),
                    response_text="",
                    return_=float("nan"),
                )
            )
        return rows


@dataclass(frozen=True)
class World:
    """Parameters of a world; entropies and information in nats."""

    slots: int = 4
    values: int = 4
    copy_prob: float = 0.5
    template_share: float = 0.0
    filler_max: int = 6
    """Fillers per reasoning: uniform on 0..filler_max, each word uniform."""
    n_states: int | None = None
    """Draw states from the first n_states of a fixed list instead of all V**D: many groups then share a prompt."""

    @property
    def hit(self) -> float:
        """Probability that the attentive mode writes a slot's true value."""
        return self.copy_prob + (1 - self.copy_prob) / self.values

    @property
    def miss(self) -> float:
        """Probability of one particular wrong value."""
        return (1 - self.copy_prob) / self.values

    @property
    def slot_entropy_nats(self) -> float:
        """Entropy of one attentive slot given the state."""
        return -_xlogx(self.hit) - (self.values - 1) * _xlogx(self.miss)

    @property
    def mi_nats(self) -> float:
        """I(X;Z) over the prompt distribution; needs all states equally likely (n_states None)."""
        if self.n_states is not None:
            raise ValueError("no closed form over a list of states: use Batch.batch_mi_nats")
        return (1 - self.template_share) * self.slots * (float(np.log(self.values)) - self.slot_entropy_nats)

    @property
    def conditional_entropy_nats(self) -> float:
        """H(Z|X) per reasoning."""
        share = self.template_share
        mode = -_xlogx(share) - _xlogx(1 - share)
        slots = share * self.slots * float(np.log(self.values)) + (1 - share) * self.slots * self.slot_entropy_nats
        filler = float(np.log(self.filler_max + 1)) + self.filler_max / 2 * float(np.log(len(FILLERS)))
        return mode + slots + filler

    def draw(self, n_groups: int, rollouts: int | np.ndarray, rng: np.random.Generator) -> Batch:
        """Sample groups of `rollouts` reasonings each (one number, or one per group)."""
        if self.n_states is None:
            states = rng.integers(self.values, size=(n_groups, self.slots))
        else:
            fixed = np.random.default_rng(0).integers(self.values, size=(self.n_states, self.slots))
            states = fixed[rng.integers(self.n_states, size=n_groups)]
        group = np.repeat(np.arange(n_groups), rollouts)
        template = rng.random(len(group)) < self.template_share
        copied = (rng.random((len(group), self.slots)) < self.copy_prob) & ~template[:, None]
        slots = np.where(copied, states[group], rng.integers(self.values, size=(len(group), self.slots)))
        counts = rng.integers(self.filler_max + 1, size=len(group))
        fillers = tuple(tuple(rng.integers(len(FILLERS), size=n).tolist()) for n in counts)
        return Batch(self, states, group, template, slots, fillers)

    def log_prob(self, batch: Batch, states_ND: np.ndarray) -> np.ndarray:
        """Exact log p(z | state), (R, N)."""
        filler_R = np.array([-np.log(self.filler_max + 1) - len(w) * np.log(len(FILLERS)) for w in batch.fillers])
        same_RN = (batch.slots_RD[:, None, :] == states_ND[None]).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            missed = np.where(same_RN < self.slots, (self.slots - same_RN) * np.log(self.miss), 0.0)
            attentive_RN = np.log1p(-self.template_share) + same_RN * np.log(self.hit) + missed
            template = np.log(self.template_share) - self.slots * np.log(self.values)
        return filler_R[:, None] + np.where(batch.template_R[:, None], template, attentive_RN)

    def write(self, template: bool, slots: list[int], fillers: tuple[int, ...]) -> str:
        """A reasoning as text; a bijection, so the text carries exactly the planted information."""
        said = [f"{_name(d)} {_word(d, v)}" for d, v in enumerate(slots)]
        opening = "I should think step by step before I act, perhaps" if template else "Looking at the state I see"
        return " ".join([*(FILLERS[w] for w in fillers), opening, ", ".join(said) + "."])


def _name(slot: int) -> str:
    return NAMES[slot % len(NAMES)] + ("" if slot < len(NAMES) else str(slot // len(NAMES)))


def _word(slot: int, value: int) -> str:
    return VALUES[slot % len(VALUES)][value]
