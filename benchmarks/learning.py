"""What each recipe learns: arms x seeds on one environment, success on held-out seeds with intervals, beside the random baseline.

    python -m benchmarks.learning --arms demo no-filter starpo-grpo --seeds 5 --steps 40 --out runs/learning

Each arm is a preset plus overrides; all arms share the warm start, the budget of steps and the held-out seeds. A run
counts as collapsed when its last retrieval accuracy is below half of its first. Prints a Markdown table; every run
stays under --out.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t

from ragen_diag.config import TrainConfig, load_config
from trainer.evaluate import evaluate, random_baseline
from trainer.loop import train

SHARED = ["rollout.group_size=8", "rollout.max_response_tokens=32", "validation.every=0", "runtime.tracker=none",
          "runtime.threads=1", "model.tuning=full", "optim.micro_batch=16", "optim.lr=3e-5"]  # fmt: skip
ARMS: dict[str, tuple[str, list[str]]] = {
    "no filter (GRPO)": ("starpo-grpo", []),
    "no filter (PPO)": ("no-filter", []),
    "top-p 0.9 (GRPO)": ("starpo-grpo", ["filter.strategy=top_p", "filter.value=0.9", "filter.include_zero=false"]),
    "StarPO-S": ("starpo-s", []),
    "DAPO": ("dapo", []),
    "Dr.GRPO": ("dr-grpo", []),
}


@dataclass(frozen=True)
class Outcome:
    """One run."""

    success: float
    collapsed: bool
    mi_lower_nats: float
    n_updates: int
    wall_s: float


def run_one(config: TrainConfig, folder: Path, n_eval: int) -> Outcome:
    began = time.monotonic()
    result = train(config, folder, progress=False)
    wall_s = time.monotonic() - began
    measured = [row for row in result.metrics if row.get("retrieval_accuracy") is not None]
    first, last = measured[0], measured[-1]
    collapsed = (last["retrieval_accuracy"] or 0) < 0.5 * (first["retrieval_accuracy"] or 0)
    updates = sum(row.get("grad_norm") is not None for row in result.metrics)
    success = evaluate(folder, n_seeds=n_eval).success_rate
    return Outcome(success, collapsed, float(last["mi_lower_nats"] or np.nan), updates, wall_s)


def mean_interval(values: list[float]) -> str:
    """Mean and 95 % t interval over runs."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.3g}"
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{mean:.3g} ± {half:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, "all"], default=["all"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eval-seeds", type=int, default=256)
    parser.add_argument("--env", default="frozen_lake:no_slip")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    env = [f"env.name={arguments.env}", "env.options={observation_format: coord}", f"steps={arguments.steps}"]
    config = load_config("starpo-grpo", [*SHARED, *env])
    print(random_baseline(config.env, n_seeds=arguments.eval_seeds).summary())
    print(evaluate("tiny", n_seeds=arguments.eval_seeds, config=config).summary(), flush=True)
    print(
        "| arm | success | collapsed | MI lower end, nats | updates | wall, s |\n|---|---|---|---|---|---|", flush=True
    )
    for arm in ARMS if "all" in arguments.arms else arguments.arms:
        preset, overrides = ARMS[arm]
        outcomes = [
            run_one(
                load_config(preset, [*SHARED, *env, *overrides, f"seed={seed}"]),
                arguments.out / f"{arm}-{seed}",
                arguments.eval_seeds,
            )
            for seed in range(arguments.seeds)
        ]
        cells = [
            mean_interval([outcome.success for outcome in outcomes]),
            f"{sum(outcome.collapsed for outcome in outcomes)}/{len(outcomes)}",
            mean_interval([outcome.mi_lower_nats for outcome in outcomes]),
            mean_interval([float(outcome.n_updates) for outcome in outcomes]),
            mean_interval([outcome.wall_s for outcome in outcomes]),
        ]
        print(f"| {arm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
