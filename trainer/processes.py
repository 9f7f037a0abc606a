"""Processes, precision and trackers, all through Accelerate; and the launches that would not do what was asked, refused."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from ragen_diag.config import TrainConfig
from ragen_diag.config_checks import TRACKERS
from ragen_diag.errors import MissingExtra, UsageError

SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
_SWITCHES = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")
"""What `accelerate launch` sets for them; on CPU Accelerate then starts plain data parallel without a word."""
_ASKED = re.compile(r"--num[_-]processes[=\0](\d+)")


def make_accelerator(config: TrainConfig, run_dir: Path) -> Accelerator:
    """Raises MissingExtra for a tracker that is not installed, UsageError for a launch this trainer cannot serve."""
    trackers = [] if config.runtime.tracker == "none" else config.runtime.tracker.split(",")
    for tracker in trackers:  # Accelerate drops what is not installed without a word
        if importlib.util.find_spec(TRACKERS[tracker]) is None:
            raise MissingExtra(
                f"runtime.tracker={tracker} needs the package {TRACKERS[tracker]}. "
                f"Install it with `pip install {TRACKERS[tracker]}`, or choose another tracker, or none."
            )
    if config.runtime.sharding.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        raise MissingExtra(
            f"runtime.sharding={config.runtime.sharding} needs the package deepspeed. Install it with "
            "`pip install 'ragen-diag[deepspeed]'`, or take fsdp, which needs nothing."
        )
    for switch in _SWITCHES:
        if os.environ.get(switch, "false").lower() == "true":
            raise UsageError(_refusal(switch.removeprefix("ACCELERATE_USE_")))
    AcceleratorState._reset_state()  # a second run in one process may want another precision
    accelerator = Accelerator(
        cpu=config.runtime.device == "cpu",
        mixed_precision=config.runtime.precision,
        log_with=trackers or None,  # type: ignore[arg-type]
        project_dir=str(run_dir / "tracker") if trackers else None,
    )
    if accelerator.distributed_type in SHARDED:
        raise UsageError(_refusal(accelerator.distributed_type.value))
    if config.runtime.sharding != "none" and accelerator.num_processes == 1:
        raise UsageError(
            "runtime.sharding shares the update out over several processes, and there is one. Start more, or set it to none."
        )
    if config.rollout.backend == "vllm" and accelerator.num_processes > 1:
        raise UsageError("rollout.backend=vllm runs inside one training process; start a single one")
    return accelerator


def _refusal(launch: str) -> str:
    return (
        f"{launch} wraps the model for training alone, and rollouts need the weights whole in every process. Launch plain data "
        "parallel (examples/accelerate/multi_gpu_bf16.yaml) with runtime.sharding=zero2 or fsdp, which share out gradients and "
        "optimizer state, fsdp the weights too, during the update; model.tuning=lora and model.gradient_checkpointing=true save "
        "memory as well."
    )


def refuse_silent_single_process() -> None:
    """Raise UsageError where `accelerate launch --cpu --num_processes N` started one process that would train alone.

    Nothing in the environment tells N, so the launcher's command line is read where the system shows it (Linux).
    """
    launcher = Path(f"/proc/{os.getppid()}/cmdline")
    command = launcher.read_bytes().decode(errors="replace") if launcher.exists() else ""
    n_asked, n_started = processes_asked_for(command), int(os.environ.get("WORLD_SIZE", "1"))
    if n_asked is not None and n_asked > n_started:
        raise UsageError(
            f"{n_asked} processes were asked for, but `accelerate launch --cpu` started one. "
            f"Use: ACCELERATE_USE_CPU=true torchrun --nproc_per_node {n_asked} -m ragen_diag train ..."
        )


def processes_asked_for(command: str) -> int | None:
    """N of an `accelerate launch ... --num_processes N` command line (words separated by NUL); None for other commands."""
    found = _ASKED.search(command)
    return int(found[1]) if found and "accelerate" in command else None
