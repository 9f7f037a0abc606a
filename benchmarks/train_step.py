"""A training step against TRL's GRPOTrainer: rollout and update tokens per second, peak memory, and what logging costs.

    python -m benchmarks.train_step --steps 12 --repeats 3            both, alternating, each in a process of its own
    python -m benchmarks.train_step --side ours --steps 5             one of them

Same model, prompts (text for text), group shape, LoRA rank, learning rate, sampled distribution and token cap; one turn per
rollout, because TRL plays one. Both take one optimizer step per batch. The first step of a run warms up and does not count.
Peak memory is the process's, imports included. Prints the versions, every repeat, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ragen_diag.config import TrainConfig, load_config
from ragen_diag.rollout_log import read_steps, write_step

SIDES = ("ours", "trl")
SIZES = ("rollout.groups", "rollout.group_size")


def configuration(preset: str, steps: int, overrides: list[str]) -> TrainConfig:
    """The preset, held to what both trainers can do."""
    config = load_config(preset)
    sizes = {name: int(value) for name, _, value in (o.partition("=") for o in overrides) if name in SIZES}
    batch = sizes.get(SIZES[0], config.rollout.groups) * sizes.get(SIZES[1], config.rollout.group_size)
    micro = f"optim.micro_batch={min(config.optim.micro_batch, batch)}"
    one_turn = ["rollout.max_turns=1", "model.tuning=lora", "runtime.threads=1", "runtime.tracker=none"]
    quiet = ["diagnostics.every=0", "validation.every=0", "runtime.checkpoint_every=0", "algorithm.entropy_coef=0"]
    return load_config(preset, [f"steps={steps}", *one_turn, *quiet, f"optim.mini_batch={batch}", micro, *overrides])


def ours(config: TrainConfig) -> dict[str, float]:
    """Our trainer, from its own metrics and log."""
    from trainer.loop import train

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        result = train(config, folder, progress=False)
        logged = read_steps(folder, split="train", columns=["step", "response_tokens"])
        tokens = np.concatenate(
            [b.column("response_tokens").to_numpy() for b in logged if b.column("step")[0].as_py() > 1]
        )
        rows = result.metrics[1:]
        rollout_s = sum(row["rollout_wall_s"] or 0.0 for row in rows)
        step_s = sum(row["step_wall_s"] or 0.0 for row in rows)
        return {
            **_rates(int(tokens.sum()), rollout_s, step_s, len(rows)),
            "logging_share": _logging_s(folder) / (step_s / len(rows)),
        }


def _logging_s(folder: Path) -> float:
    """Time to build and write one step's rollout file, median of five."""
    rows = [row for batch in read_steps(folder, split="train") for row in batch.to_pylist() if row["step"] == 1]
    times = []
    for attempt in range(5):
        began = time.perf_counter()
        write_step(folder / f"again-{attempt}", 1, "train", rows)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def trl(config: TrainConfig) -> dict[str, float]:
    """TRL's trainer on the same prompts, timed around its own rollout method."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from trainer.policy import load_causal_lm, load_tokenizer

    torch.set_num_threads(config.runtime.threads)
    tokenizer = load_tokenizer(config.model.path)
    rollout_s: list[float] = []
    n_tokens: list[int] = []
    ends: list[float] = []

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            began = time.monotonic()
            out = super()._generate_and_score_completions(inputs)
            rollout_s.append(time.monotonic() - began)
            return out

        def training_step(self, *arguments: Any, **named: Any) -> Any:
            out = super().training_step(*arguments, **named)
            ends.append(time.monotonic())
            return out

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        n_tokens.append(sum(map(len, completion_ids)))
        return [float(len(ids) % 2) for ids in completion_ids]

    model, optim, rollout = config.model, config.optim, config.rollout
    lora = LoraConfig(r=model.lora_rank, lora_alpha=model.lora_alpha, target_modules="all-linear", lora_dropout=0.0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            folder, per_device_train_batch_size=rollout.groups * rollout.group_size, num_generations=rollout.group_size,
            max_steps=config.steps, use_cpu=True, max_completion_length=rollout.max_response_tokens, report_to=[],
            logging_steps=1, beta=0.0, learning_rate=optim.lr, lr_scheduler_type="constant", loss_type="grpo",
            gradient_checkpointing=False, bf16=False, save_strategy="no", disable_tqdm=True, temperature=rollout.temperature,
        )  # fmt: skip
        trainer = Timed(
            load_causal_lm(model), [reward], args=arguments, processing_class=tokenizer, peft_config=lora,
            train_dataset=Dataset.from_dict({"prompt": prompts(config, tokenizer)}),
        )  # fmt: skip
        trainer.train()
    return _rates(sum(n_tokens[1:]), sum(rollout_s[1:]), ends[-1] - ends[0], config.steps - 1)


def prompts(config: TrainConfig, tokenizer: Any) -> list[str]:
    """The first prompts of our own training run, as the policy sees them."""
    from trainer.prompts import ChatFormat, system_text, turn_text
    from trainer.rollout import make_env

    env, rollout, chat = make_env(config.env), config.rollout, ChatFormat(tokenizer, think=config.rollout.think)
    budget = rollout.max_actions or env.max_actions
    found = []
    for seed in range(rollout.train_seed, rollout.train_seed + rollout.groups * config.steps):
        state, _ = env.reset(seed=seed)
        system = system_text(
            env, max_actions=budget, max_actions_per_turn=rollout.max_actions_per_turn, separator=rollout.separator,
            think=rollout.think,
        )  # fmt: skip
        ids = chat.first_ids(system, turn_text(0, state, actions_left=budget, previous_reward=None))
        found.append(tokenizer.decode(ids))
    return found


def _rates(n_tokens: int, rollout_s: float, step_s: float, steps: int) -> dict[str, float]:
    return {
        "sampled_tokens_per_step": n_tokens / steps,
        "rollout_tokens_per_s": n_tokens / rollout_s,
        "update_tokens_per_s": n_tokens / (step_s - rollout_s),
        "step_s": step_s / steps,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _in_own_process(side: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.train_step", "--side", side, "--preset", arguments.preset]
    command += ["--steps", str(arguments.steps), *arguments.overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    if arguments.side is not None:
        config = configuration(arguments.preset, arguments.steps, arguments.overrides)
        print(json.dumps({"ours": ours, "trl": trl}[arguments.side](config)))
        return
    from importlib.metadata import version

    from trainer.run_folder import versions

    print({**versions(), "trl": version("trl")})
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for repeat in range(arguments.repeats):
        for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
            found[side].append(_in_own_process(side, arguments))
            print(side, {name: round(value, 4) for name, value in found[side][-1].items()}, flush=True)
    print("| median of the repeats | ragen-diag | TRL | ratio |\n|---|---|---|---|")
    for name in found["trl"][0]:
        mine, theirs = (float(np.median([run[name] for run in found[side]])) for side in SIDES)
        print(f"| {name} | {mine:.4g} | {theirs:.4g} | {mine / theirs:.2f} |")
    print(f"logging: {np.median([run['logging_share'] for run in found['ours']]):.2%} of a step")


if __name__ == "__main__":
    main()
