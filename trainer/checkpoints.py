"""Saving and restoring a run's state, so that a resumed run equals an uninterrupted one bit for bit on CPU.

    checkpoints/step-000010/
        model/               the policy for everybody else: PEFT adapter or transformers model, with tokenizer
        trained.safetensors  every trained weight, critic included
        optimizer.pt         AdamW's state
        state.json           counters and memories of the loop

Random numbers need no state: each stream is a function of seeds and step (`sampling.stream`). A checkpoint is written under a
temporary name, flushed and renamed; one that carries its final name is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ragen_diag.errors import ModelError, RunFolderError
from ragen_diag.rollout_log import CHECKPOINTS_DIR
from trainer.policy import POLICY, Policy

_NAME = re.compile(r"step-(\d+)$")


@dataclass(slots=True)
class LoopState:
    """What the loop remembers between steps."""

    step: int = 0
    """Steps done."""
    n_prompts: int = 0
    """Training prompts used so far: the next seed is train_seed + n_prompts."""
    empty_steps: int = 0
    """Consecutive steps in which the filter kept nothing."""
    std_history: list[float] = field(default_factory=list)
    """In-group reward std of the steps that kept something (early stop)."""
    low_validations: int = 0
    """Consecutive validations below the early stop's limit."""
    stop_reason: str | None = None
    filter: dict[str, Any] | None = None
    """The filter that `filter: auto` has put in force; None until its first decision."""
    noise_ratio: float | None = None
    """Latest `gradient_noise_ratio`, which such decisions use."""


def save(
    run_dir: Path, state: LoopState, policy: Policy, optimizer_state: dict[str, Any], tokenizer: Any, *, keep: int
) -> Path:
    """Write a checkpoint and delete all but the newest `keep` (0 keeps all). Raises RunFolderError when the disk refuses."""
    final = run_dir / CHECKPOINTS_DIR / f"step-{state.step:06d}"
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        selected = {"selected_adapters": [POLICY]} if policy.config.tuning == "lora" else {}
        policy.model.save_pretrained(temporary / "model", **selected)
        tokenizer.save_pretrained(temporary / "model")
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.trained_state().items()}
        save_file(weights, temporary / "trained.safetensors")
        torch.save(optimizer_state, temporary / "optimizer.pt")
        (temporary / "state.json").write_text(json.dumps(dataclasses.asdict(state)), encoding="utf-8")
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb+") as handle:
                    os.fsync(handle.fileno())
        _remove(final)
        temporary.rename(final)
    except OSError as error:
        raise RunFolderError(f"{final}: cannot write the checkpoint ({error}). Free space, then --resume.") from error
    if keep:
        for _, old in list_checkpoints(run_dir)[:-keep]:
            _remove(old)
    return final


def _remove(folder: Path) -> None:
    """Delete a checkpoint; its final name is gone before its content is, so no torn one is ever seen."""
    if folder.exists():
        doomed = folder.with_name(f".{folder.name}.old-{os.getpid()}")
        folder.rename(doomed)
        shutil.rmtree(doomed)


def list_checkpoints(run_dir: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every complete checkpoint, oldest first."""
    found = [
        (int(match[1]), path)
        for path in (run_dir / CHECKPOINTS_DIR).glob("step-*")
        if (match := _NAME.match(path.name))
    ]
    return sorted(found)


def load_weights(folder: Path, policy: Policy) -> None:
    """Put a checkpoint's trained weights into a policy. Raises ModelError when they do not fit or cannot be read."""
    try:
        policy.load_trained_state(load_file(folder / "trained.safetensors"))
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{folder}: its weights cannot be loaded ({error})") from error


def load(folder: Path, policy: Policy) -> tuple[LoopState, dict[str, Any]]:
    """Restore weights in place; returns the loop's memory and the optimizer's state."""
    load_weights(folder, policy)
    state = LoopState(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
    return state, torch.load(folder / "optimizer.pt", weights_only=True, map_location="cpu")
