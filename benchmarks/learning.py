"""What each recipe learns: arms x seeds on one environment, with intervals, beside random play and the untrained policy.

    python -m benchmarks.learning --env frozen_lake:no_slip --seeds 5 --steps 40 --out runs/learning

An arm is a preset plus overrides. All arms share the warm start, the learning rate, the steps and the held-out seeds, and run seed by seed
in turn, so that a slow hour of the machine hits all. A run counts as collapsed when its last retrieval accuracy is below half of
its first. Each arm is also compared with its own unfiltered arm, paired by run seed. A run that is there already is not
trained again: a benchmark that was stopped goes on. Prints Markdown tables and writes results.json; every run stays under --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t

from ragen_diag.config import TrainConfig, load_config
from ragen_diag.rollout_log import read_metrics
from trainer.evaluate import evaluate, random_baseline
from trainer.loop import train

SHARED = ["rollout.group_size=8", "rollout.max_response_tokens=32", "rollout.max_context_tokens=1024", "validation.every=0",
          "runtime.tracker=none", "runtime.device=cpu", "runtime.threads=1", "runtime.checkpoint_every=0", "model.tuning=full",
          "optim.mini_batch=32", "optim.micro_batch=16", "optim.lr=1e-4", "algorithm.entropy_coef=0.001"]  # fmt: skip
TOP_P = ["filter.strategy=top_p", "filter.value=0.9", "filter.include_zero=false"]
AUTO = ["filter=auto", "filter.auto_every=5", "diagnostics.gradient_every=5"]
ARMS: dict[str, tuple[str, list[str]]] = {
    "PPO": ("no-filter", []),
    "PPO, top-p 0.9": ("no-filter", TOP_P),
    "PPO, filter: auto": ("no-filter", AUTO),
    "StarPO-S": ("starpo-s", []),
    "GRPO": ("starpo-grpo", []),
    "GRPO, top-p 0.9": ("starpo-grpo", TOP_P),
    "GRPO, filter: auto": ("starpo-grpo", AUTO),
}
BASELINE = {arm: arm.split(",")[0] if "," in arm else "PPO" for arm in ARMS if arm not in ("PPO", "GRPO")}


@dataclass(frozen=True)
class Outcome:
    """One run."""

    success: float
    collapsed: bool
    mi_lower_nats: float
    n_updates: int
    kept_group_share: float
    wall_s: float


def run_one(config: TrainConfig, folder: Path, n_eval: int) -> Outcome:
    """Train (unless the run is complete already) and measure."""
    rows = read_metrics(folder)
    if not rows or rows[-1]["step"] != config.steps:
        rows = list(train(config, folder, resume=folder.exists(), progress=False).metrics)
    measured = [row for row in rows if row.get("retrieval_accuracy") is not None]
    first, last = measured[0], measured[-1]
    return Outcome(
        success=evaluate(folder, n_seeds=n_eval).success_rate,
        collapsed=(last["retrieval_accuracy"] or 0) < 0.5 * (first["retrieval_accuracy"] or 0),
        mi_lower_nats=float(np.nan if last["mi_lower_nats"] is None else last["mi_lower_nats"]),
        n_updates=sum(row.get("grad_norm") is not None for row in rows),
        kept_group_share=float(
            np.mean([row["kept_group_share"] for row in rows if row.get("kept_group_share") is not None])
        ),
        wall_s=float(sum(row["step_wall_s"] or 0 for row in rows)),
    )


def mean_interval(values: list[float]) -> str:
    """Mean and 95 % t interval over runs."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.3g}"
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return f"{mean:.3g} ± {half:.2g}"


def show(found: dict[str, list[Outcome]]) -> None:
    """Two tables: the arms, and each arm against its unfiltered one."""
    print(
        "| arm | success | collapsed | MI lower end, nats | updates | groups kept | wall, s |\n|---|---|---|---|---|---|---|"
    )
    for arm, outcomes in found.items():
        columns = ("success", "mi_lower_nats", "n_updates", "kept_group_share", "wall_s")
        cells = {name: mean_interval([float(getattr(o, name)) for o in outcomes]) for name in columns}
        collapsed = f"{sum(o.collapsed for o in outcomes)}/{len(outcomes)}"
        shown = [cells["success"], collapsed, *(cells[name] for name in columns[1:])]
        print(f"| {arm} | {' | '.join(shown)} |")
    print("\n| arm − its baseline, paired by seed | success, points | wall time, % |\n|---|---|---|")
    for arm, baseline in BASELINE.items():
        if arm in found and baseline in found:
            pairs = list(zip(found[arm], found[baseline], strict=True))
            points = mean_interval([100 * (mine.success - theirs.success) for mine, theirs in pairs])
            time = mean_interval([100 * (mine.wall_s / theirs.wall_s - 1) for mine, theirs in pairs])
            print(f"| {arm} − {baseline} | {points} | {time} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eval-seeds", type=int, default=256)
    parser.add_argument("--env", default="frozen_lake:no_slip")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    env = [f"env.name={arguments.env}", "env.options={observation_format: coord}", f"steps={arguments.steps}"]
    shared = [*SHARED, *env, *arguments.overrides]
    untrained = load_config("starpo-grpo", shared)
    print(random_baseline(untrained.env, n_seeds=arguments.eval_seeds).summary())
    print(evaluate("tiny", n_seeds=arguments.eval_seeds, config=untrained).summary(), flush=True)
    found: dict[str, list[Outcome]] = {arm: [] for arm in arguments.arms}
    for seed in range(arguments.seeds):
        for arm in arguments.arms:
            preset, overrides = ARMS[arm]
            config = load_config(preset, [*shared, *overrides, f"seed={seed}"])
            folder = (
                arguments.out / arguments.env.replace(":", "-") / arm.replace(", ", "-").replace(" ", "-") / str(seed)
            )
            found[arm].append(run_one(config, folder, arguments.eval_seeds))
            print(arm, seed, found[arm][-1], flush=True)
    show(found)
    record = {arm: [dataclasses.asdict(outcome) for outcome in outcomes] for arm, outcomes in found.items()}
    (arguments.out / f"results-{arguments.env.replace(':', '-')}.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
