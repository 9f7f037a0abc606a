"""Bandit: two arms named after professions, one pull. Not for: classic k-armed bandits with many pulls."""

from __future__ import annotations

from typing import ClassVar

from gymnasium.utils import seeding

from envs.text_env import Outcome, TextEnv

# (safe-sounding, risky-sounding); RAGEN's pairs. The test split shares no name with the train split.
TRAIN_ARMS = (
    ("Teacher", "Trader"),
    ("Nurse", "StartupFounder"),
    ("Librarian", "Investor"),
    ("Accountant", "StockBroker"),
    ("Engineer", "RealEstateAgent"),
    ("Pharmacist", "Musician"),
    ("Clerk", "Freelancer"),
    ("Technician", "Youtuber"),
    ("Planner", "Artist"),
    ("Postman", "Pilot"),
    ("Banker", "VentureCapitalist"),
    ("Gardener", "Cryptominer"),
)
TEST_ARMS = (
    ("Receptionist", "Explorer"),
    ("Archivist", "Filmmaker"),
    ("Bookkeeper", "Consultant"),
    ("SocialWorker", "Photographer"),
    ("Mechanic", "GameDesigner"),
    ("Secretary", "Entrepreneur"),
    ("Cashier", "DataScientist"),
    ("CivilServant", "StartupAccelerator"),
)
ARMS = {"train": TRAIN_ARMS, "test": TEST_ARMS}


class BanditEnv(TextEnv):
    """Choose the arm that pays more on average, from what its name suggests.

    ## Description
    Two arms carry names of professions, one that sounds safe and one that sounds risky. The risky one pays rarely but
    more, so its mean is higher (0.25 against 0.1). A policy can only know this from the names.

    ## Action Space
    The name of one of the two arms (any case).

    ## Observation Space
    Text: the names of the arms in this instance's order; after the pull, the arm and its payout.

    ## Starting State
    The seed fixes the pair and the order of its arms, the same for all members of a group.

    ## Rewards
    The payout in points. Low arm: `lo_arm_score` always. High arm: `hi_arm_hiscore` with probability
    `hi_arm_hiscore_prob`, else `hi_arm_loscore`; drawn per rollout.

    ## Episode End
    Termination after one pull. `success`: the high arm was pulled, whatever it paid.

    ## Arguments
    - `split`: `train` (12 pairs) or `test` (8 others).
    - `reverse`: the safe-sounding name gets the high arm (False), against what the names suggest.
    - `lo_arm_score` (0.1), `hi_arm_hiscore` (1.0), `hi_arm_loscore` (0.0), `hi_arm_hiscore_prob` (0.25): payouts, points.

    ## Version History
    - v0: the prompt follows from the seed; RAGEN adds a counter of instances, so its group members see different arms.
    """

    name = "bandit"
    summary = "pull the better of two arms, judged by their names"
    variants: ClassVar = {
        "test": {"split": "test"},
        "reversed": {"reverse": True},
        "test_reversed": {"split": "test", "reverse": True},
    }
    max_actions = 1

    def __init__(
        self,
        split: str = "train",
        reverse: bool = False,
        lo_arm_score: float = 0.1,
        hi_arm_hiscore: float = 1.0,
        hi_arm_loscore: float = 0.0,
        hi_arm_hiscore_prob: float = 0.25,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        if split not in ARMS:
            raise ValueError(f"split is {split!r}; it is one of {', '.join(ARMS)}")
        if not 0 <= hi_arm_hiscore_prob <= 1:
            raise ValueError(f"hi_arm_hiscore_prob is {hi_arm_hiscore_prob}; it is a probability, 0 to 1")
        super().__init__(render_mode=render_mode)
        self.split, self.reverse = split, reverse
        self.lo_arm_score, self.hi_arm_hiscore, self.hi_arm_loscore = lo_arm_score, hi_arm_hiscore, hi_arm_loscore
        self.hi_arm_hiscore_prob = hi_arm_hiscore_prob

    def _rules(self) -> str:
        return (
            "You play a bandit game with two arms and one pull. Each arm has its own payout distribution, related to what"
            " its name symbolizes. Name the arm that gives more points on average."
        )

    def _begin(self, seed: int) -> None:
        rng, _ = seeding.np_random(seed)
        pairs = ARMS[self.split]
        safe, risky = pairs[int(rng.random() * len(pairs))]
        low, self._high = (risky, safe) if self.reverse else (safe, risky)
        self.action_names = (low, self._high) if rng.random() < 0.5 else (self._high, low)
        self.action_space.examples = self.action_names
        self._result: str | None = None

    def _apply(self, action: str) -> Outcome:
        if action != self._high:
            payout = self.lo_arm_score
        elif self.noise_rng.random() < self.hi_arm_hiscore_prob:
            payout = self.hi_arm_hiscore
        else:
            payout = self.hi_arm_loscore
        self._result = f"{action}: {payout:g} points"
        return Outcome(reward=float(payout), terminated=True, effective=True, success=action == self._high)

    def _observe(self) -> str:
        return self._result or f"Arms: {', '.join(self.action_names or ())}"

    def solve(self) -> list[str] | None:
        """The high arm; None once an arm has been pulled."""
        return [self._high] if self._result is None else None
