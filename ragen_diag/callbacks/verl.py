"""verl's PPO trainers, 0.4 to 0.9 (legacy and v1): the same lists that the trainer dumps go to a monitor as well.

Checked by reading verl 0.9.1: both trainers call `self._dump_generations(inputs, outputs, gts, scores, reward_extra_infos_dict,
dump_path)` for training (`trainer.rollout_data_dir`) and validation (`trainer.validation_data_dir`) data.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen_diag.callbacks.monitor import Monitor
from ragen_diag.callbacks.sinks import Alert
from ragen_diag.errors import UsageError


def verl_step(
    monitor: Monitor,
    step: int,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    scores: Sequence[float] | None = None,
    gts: Sequence[Any] | None = None,
    reward_extra_infos_dict: Mapping[str, Sequence[Any]] | None = None,
    metrics: Mapping[str, Any] | None = None,
    split: str = "train",
) -> list[Alert]:
    """Hand one step's lists, named as in verl's trainer, and its metrics to a monitor; returns the new alerts.

    inputs, outputs: decoded prompts and responses; scores: their rewards; reward_extra_infos_dict: further columns, `uid` among
    them. A column of another length than `inputs` is left out, as verl does. Raises UsageError when outputs or scores do not
    match inputs.
    """
    if inputs is None:
        return monitor.step(step, metrics=metrics)
    columns: dict[str, Sequence[Any]] = {"input": inputs, "output": outputs or [], "score": scores or []}
    for name, values in columns.items():
        if len(values) != len(inputs):
            raise UsageError(f"verl_step: {len(inputs)} inputs, but {len(values)} values of '{name}'")
    if gts is not None:
        columns["gts"] = gts
    columns |= {name: values for name, values in (reward_extra_infos_dict or {}).items() if len(values) == len(inputs)}
    records = [{name: values[row] for name, values in columns.items()} | {"step": step} for row in range(len(inputs))]
    table = monitor.table_of("verl", records, split=split)
    return monitor.step(step, rollouts=table, metrics=metrics)


def attach_to_verl(trainer: Any, monitor: Monitor) -> None:
    """Let a verl trainer's dumps go to `monitor` as well. Call it between building the trainer and `trainer.fit()`.

    The trainer must dump its rollouts (`trainer.rollout_data_dir=DIR`); it hands nothing over otherwise, and that is a
    UsageError. Metrics are local to verl's fit loop: pass them with `verl_step(monitor, step, metrics=...)` where you have them.
    """
    settings = trainer.config.trainer
    if not settings.get("rollout_data_dir", None):
        raise UsageError("verl hands over rollouts only while it dumps them: set trainer.rollout_data_dir=DIR")
    validation = settings.get("validation_data_dir", None)
    dump = trainer._dump_generations

    @functools.wraps(dump)
    def dump_and_check(inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path):  # verl passes them by name
        result = dump(
            inputs=inputs, outputs=outputs, gts=gts, scores=scores, reward_extra_infos_dict=reward_extra_infos_dict,
            dump_path=dump_path,
        )  # fmt: skip
        is_validation = validation is not None and Path(dump_path) == Path(validation)
        verl_step(
            monitor, trainer.global_steps, inputs=inputs, outputs=outputs, gts=gts, scores=scores,
            reward_extra_infos_dict=reward_extra_infos_dict, split="val" if is_validation else "train",
        )  # fmt: skip
        return result

    trainer._dump_generations = dump_and_check
