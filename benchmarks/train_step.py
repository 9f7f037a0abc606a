"""Where a training step's time goes: rollout and update tokens per second, cost of logging, peak memory.

    python -m benchmarks.train_step --preset demo --steps 5

With --trl the same model, prompts, group shape, rank and token budget run through TRL's GRPOTrainer in the same process
afterwards (`pip install trl`); it samples one turn, so both are held to one turn.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ragen_diag.config import TrainConfig, load_config
from ragen_diag.rollout_log import read_steps, write_step
from trainer import loop as training
from trainer.rollout import make_env
from trainer.run_folder import versions


def ours(config: TrainConfig, folder: Path) -> dict[str, float]:
    result = training.train(config, folder, progress=False)
    rows = list(result.metrics)[1:]  # the first step warms up
    columns = ["step", "prompt_tokens", "response_tokens"]
    tokens = sum(
        int(np.sum(batch.column("response_tokens").to_numpy()))
        for batch in read_steps(folder, split="train", columns=columns)
    ) / len(result.metrics)
    rollout_s = float(np.mean([row["rollout_wall_s"] for row in rows]))
    step_s = float(np.mean([row["step_wall_s"] for row in rows]))
    return {
        "sampled tokens/step": tokens,
        "rollout tokens/s": tokens / rollout_s,
        "update tokens/s": tokens / (step_s - rollout_s),
        "step s": step_s,
        "logging share of a step": logging_s(folder) / step_s,
    }


def logging_s(folder: Path) -> float:
    """Time to write one step's rollouts again."""
    rows = [row for batch in read_steps(folder, split="train") for row in batch.to_pylist() if row["step"] == 1]
    began = time.perf_counter()
    write_step(folder / "again", 1, "train", rows)
    return time.perf_counter() - began


def trl(config: TrainConfig, steps: int) -> dict[str, float]:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from trainer.policy import load_causal_lm, load_tokenizer
    from trainer.prompts import system_text, turn_text

    env, rollout = make_env(config.env), config.rollout
    system = system_text(env, max_actions=env.max_actions, max_actions_per_turn=2, separator="||", think=True)
    prompts = [
        [
            {"role": "system", "content": system},
            {"role": "user", "content": turn_text(0, env.reset(seed=seed)[0], actions_left=10, previous_reward=None)},
        ]
        for seed in range(10_000, 10_000 + rollout.groups * steps)
    ]
    lengths: list[int] = []

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.extend(map(len, completion_ids))
        return [float(len(ids) % 2) for ids in completion_ids]

    batch = rollout.groups * rollout.group_size
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            load_causal_lm(config.model), [reward],
            args=GRPOConfig(
                folder, per_device_train_batch_size=batch, num_generations=rollout.group_size, max_steps=steps,
                use_cpu=True, max_completion_length=rollout.max_response_tokens, report_to=[], logging_steps=1,
                beta=0.0, learning_rate=config.optim.lr, gradient_checkpointing=False, bf16=False,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts}), processing_class=load_tokenizer(config.model.path),
        )  # fmt: skip
        began = time.monotonic()
        trainer.train()
        wall_s = time.monotonic() - began
    return {"sampled tokens/step": sum(lengths) / steps, "step s": wall_s / steps, "tokens/s": sum(lengths) / wall_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--trl", action="store_true")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    one_turn = ["rollout.max_turns=1"] if arguments.trl else []
    shared = [
        f"steps={arguments.steps}",
        "diagnostics.every=0",
        "validation.every=0",
        "runtime.checkpoint_every=0",
        *one_turn,
    ]
    config = load_config(arguments.preset, [*shared, *arguments.overrides])
    with tempfile.TemporaryDirectory() as folder:
        results = {"ragen-diag": ours(config, Path(folder) / "run")}
    if arguments.trl:
        results["TRL"] = trl(config, arguments.steps)
    print(versions())
    for name, numbers in results.items():
        print(name, {key: round(value, 4) for key, value in numbers.items()})
    print(f"peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
