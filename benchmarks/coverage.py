"""How often the intervals contain the truth, on planted worlds with closed-form MI. Writes the tables of docs/calibration.md.

OMP_NUM_THREADS=1 python -m benchmarks.coverage --draws 1000 --out docs/calibration_table.md     (about 15 minutes, one core)
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from analysis.information import measure
from analysis.planning import METRICS, half_width, spread_of
from tests.planted.worlds import World

WORLDS = {
    "weak, 4 slots": World(slots=4, values=4, copy_prob=0.2),
    "medium, 4 slots": World(slots=4, values=4, copy_prob=0.5),
    "half template": World(slots=4, values=4, copy_prob=0.5, template_share=0.5),
    "mostly template": World(slots=4, values=4, copy_prob=0.5, template_share=0.9),
    "few states (8), strong": World(slots=1, values=8, copy_prob=0.9),
    "many states, strong": World(slots=6, values=5, copy_prob=0.5),
    "near saturation": World(slots=6, values=5, copy_prob=0.6),
    "independent": World(slots=4, values=4, copy_prob=0.5, template_share=1.0),
}
SIZES = ((32, 4), (64, 8))
COVERED = ("mi_lower_nats", "mi_upper_nats", "mi_nats", "mi_batch_nats", "conditional_entropy_nats_per_sequence")
SMALL = ((8, 16),)


def inside(estimate, truth: float) -> float:
    """1 covered, 0 not, nan withheld."""
    return (
        float("nan")
        if estimate.ci95 is None or estimate.value is None
        else float(estimate.ci95[0] <= truth <= estimate.ci95[1])
    )


def coverage_rows(sizes: tuple[tuple[int, int], ...], draws: int, seed: int) -> Iterator[list[object]]:
    """One row per world and size: share of draws whose interval covers, and share withheld."""
    for (name, world), (n_prompts, rollouts) in itertools.product(WORLDS.items(), sizes):
        if world.template_share == 1.0:
            continue
        hits, ends = [], []
        for draw in range(draws):
            batch = world.draw(n_prompts, rollouts, np.random.default_rng([seed, draw, n_prompts, rollouts]))
            found = measure(batch.cross(), names=COVERED, seed=draw, n_boot=500)
            lower, upper = found["mi_lower_nats"], found["mi_upper_nats"]
            bracket = (
                float(lower.ci95[0] <= world.mi_nats <= upper.ci95[1]) if lower.ci95 and upper.ci95 else float("nan")
            )
            batch_mi = batch.batch_mi_nats()
            hits.append(
                [
                    inside(found["mi_nats"], world.mi_nats),
                    inside(found["mi_batch_nats"], batch_mi),
                    inside(found["conditional_entropy_nats_per_sequence"], world.conditional_entropy_nats),
                    bracket,
                    float(found["mi_nats"].value is None),
                ]
            )
            ends.append([lower.value, upper.value])
        means = np.nanmean(np.ma.masked_invalid(hits), axis=0).filled(np.nan)
        low, high = np.mean(ends, axis=0)
        yield [name, n_prompts, rollouts, world.mi_nats, low, high, *means]


def permutation_rows(draws: int, seed: int) -> Iterator[list[object]]:
    """False alarms of p < 0.05: reasoning independent of the prompt, scored by a critic that expects dependence."""
    world, critic = WORLDS["independent"], WORLDS["medium, 4 slots"]
    honest = World(slots=4, values=4, copy_prob=0.0)
    for n_prompts, rollouts in (*SMALL, *SIZES):
        rejected = []
        for draw in range(draws):
            batch = honest.draw(n_prompts, rollouts, np.random.default_rng([seed, draw, n_prompts, rollouts]))
            found = measure(batch.cross(critic=critic), names=["p_no_dependence"], seed=draw, n_perm=400)
            rejected.append(found["p_no_dependence"].value <= 0.05)
        yield [n_prompts, rollouts, float(np.mean(rejected))]
    assert world.mi_nats == 0.0


def planning_rows(draws: int, seed: int) -> Iterator[list[object]]:
    """Half-width announced from a pilot of 128 prompts x 8 rollouts against the mean half-width then observed."""
    for metric in METRICS:
        for name in ("weak, 4 slots", "medium, 4 slots", "half template", "many states, strong"):
            world = WORLDS[name]
            pilots = [world.draw(128, 8, np.random.default_rng([seed, 7, i])).cross() for i in range(12)]
            spreads = [spread_of(pilot, metric) for pilot in pilots]
            for n_prompts, rollouts in ((32, 4), (64, 16), (200, 4)):
                observed = []
                for draw in range(draws):
                    batch = world.draw(n_prompts, rollouts, np.random.default_rng([seed, draw, n_prompts, rollouts]))
                    ci = measure(batch.cross(), names=[metric])[metric].ci95
                    if ci is not None:
                        observed.append((ci[1] - ci[0]) / 2)
                planned = float(np.mean([half_width(spread, n_prompts, rollouts) for spread in spreads]))
                seen = float(np.mean(observed))
                yield [metric, name, n_prompts, rollouts, planned, seen, planned / seen - 1]


def table(header: list[str], rows: Iterator[list[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        lines.append("| " + " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Write all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=["coverage", "small", "permutation", "planning"], action="append")
    options = parser.parse_args()
    start = time.monotonic()
    header = ["world", "N", "K", "MI nats", "mean lower", "mean upper"]
    header += ["mi_nats covers", "mi_batch_nats covers", "H(Z|X) covers", "bracket contains MI", "mi_nats withheld"]
    sections = {
        "coverage": lambda: table(header, coverage_rows(SIZES, options.draws, options.seed)),
        "small": lambda: table(header, coverage_rows(SMALL, options.draws, options.seed)),
        "permutation": lambda: table(["N", "K", "rejected at 5 %"], permutation_rows(options.draws, options.seed)),
        "planning": lambda: table(
            ["metric", "world", "N", "K", "planned half-width", "mean observed", "relative error"],
            planning_rows(min(options.draws, 60), options.seed),
        ),
    }
    parts = [f"### {name}\n\n{make()}\n" for name, make in sections.items() if not options.only or name in options.only]
    parts.append(f"{options.draws} draws, seed {options.seed}, {time.monotonic() - start:.0f} s on one core.\n")
    if options.out:
        options.out.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
