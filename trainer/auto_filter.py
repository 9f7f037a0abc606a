"""`filter: auto`: the rollout filter chosen anew from the run's own log while it trains. The choice is `analysis.tuning`'s.

Every decision is written to `filter_decisions.jsonl` in the run folder, with the numbers it was taken on, also when nothing
changes. A decision depends on the log up to its step, the noise measured by then and the run's seed alone; the setting in
force is part of the checkpoint. So a resumed run decides as the uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from analysis.filters import FilterSetting
from analysis.run_data import ROLLOUT_COLUMNS, RunData
from analysis.tuning import FilterRecommendation, recommend
from ragen_diag.rollout_log import step_files, write_atomically
from trainer.metrics import Row

DECISIONS_FILE = "filter_decisions.jsonl"


def decide(
    run_dir: Path, in_force: FilterSetting, *, step: int, window: int, noise: float | None, seed: int
) -> tuple[FilterSetting, Row]:
    """Choose the filter for the steps after `step` from the log of the last `window`; returns it with the step's metrics.

    noise: measured gradient norm of groups without reward variance over that of groups with some (`gradient_analysis.py`);
    None takes the tuner's prior. With too few usable steps the setting in force stays.
    """
    found = recommend(logged_groups(run_dir, first=step - window + 1, last=step), noise=noise, seed=seed)
    setting = found.setting if found.table else in_force
    chosen = next((row for row in found.table if row.setting == setting), None)
    _record(run_dir, step, _entry(found, setting, in_force, step, noise))
    return setting, {
        "filter_changed": int(setting != in_force),
        "filter_value": setting.value if setting.strategy != "none" else 1.0,
        "filter_confidence": found.confidence,
        "filter_snr_gain": None if chosen is None else chosen.snr_gain,
    }


def logged_groups(run_dir: Path, *, first: int, last: int) -> RunData:
    """What the tuner reads of a log: one row per training rollout of steps first .. last, numbers only."""
    columns = ["step", "split", "group_id", "prompt_id", "trajectory_id", "return_", "success"]
    files = [path for step, _, path in step_files(run_dir, "train") if first <= step <= last]
    frames = [pq.read_table(path, columns=columns).to_pandas().drop_duplicates("trajectory_id") for path in files]
    if not frames:
        return RunData(run_dir.name, pd.DataFrame(columns=list(ROLLOUT_COLUMNS)), {}, pd.DataFrame(), [])
    rollouts = pd.concat(frames, ignore_index=True)
    rollouts["group"] = rollouts.groupby(["step", "group_id"], sort=False).ngroup()
    rollouts["prompt"] = pd.factorize(rollouts["prompt_id"])[0]
    rollouts["success"] = rollouts["success"].astype("float64")
    return RunData(run_dir.name, rollouts, {}, pd.DataFrame(index=rollouts.index), [])


def forget_after(run_dir: Path, step: int) -> None:
    """Drop the decisions of steps that a resumed run takes again."""
    kept = [entry for entry in read_decisions(run_dir) if entry["step"] <= step]
    if (run_dir / DECISIONS_FILE).exists():
        _write(run_dir, kept)


def read_decisions(run_dir: Path) -> list[dict[str, Any]]:
    """All decisions of a run, in order; an absent file is an empty list."""
    path = run_dir / DECISIONS_FILE
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _entry(
    found: FilterRecommendation, setting: FilterSetting, before: FilterSetting, step: int, noise: float | None
) -> dict[str, Any]:
    chosen = next((row for row in found.table if row.setting == setting), None)
    return {
        "step": step,
        "filter": setting.describe(),
        "changed": setting != before,
        "setting": dataclasses.asdict(setting),
        "confidence": found.confidence,
        "snr_gain": None if chosen is None else chosen.snr_gain,
        "snr_gain_ci95": None if chosen is None else chosen.snr_gain_ci95,
        "kept_group_share": None if chosen is None else chosen.kept_group_share,
        "noise": found.noise,
        "noise_measured": noise is not None,
        "n_steps": found.n_steps,
        "n_groups": found.n_groups,
        "reasons": list(found.reasons),
    }


def _record(run_dir: Path, step: int, entry: dict[str, Any]) -> None:
    _write(run_dir, [*(past for past in read_decisions(run_dir) if past["step"] < step), entry])


def _write(run_dir: Path, entries: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    write_atomically(run_dir / DECISIONS_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
