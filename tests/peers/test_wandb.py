"""An offline W&B run: tables as the media files W&B writes, history in its transaction log, and alerts raised into it."""

import math

import pytest

from analysis.readers.discover import discover
from ragen_diag.callbacks import Monitor
from tests.readers.conftest import counts, rows_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, the alert in the summary): TRL-style completion tables and verl's metric names for three steps."""
    wandb = pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("wandb")
    columns = ["step", "prompt", "completion", "accuracy_reward", "advantage"]
    with wandb.init(
        mode="offline", dir=str(folder), project="p", settings=wandb.Settings(console="off", silent=True)
    ) as open_run:
        monitor = Monitor("watched", to="wandb")
        for step in range(1, 4):
            rows = [
                [str(step), f"question {row // 4}", f"<think>{row}</think>x", float(row % 2), row % 2 - 0.5]
                for row in range(8)
            ]
            open_run.log(
                {
                    "completions": wandb.Table(columns=columns, data=rows),
                    "critic/score/mean": 0.25 * step,
                    "actor/grad_norm": float("nan") if step == 2 else 1.0,
                },
                step=step,
            )
        for step in range(12):
            monitor.step(step, metrics={"grad_norm": float("nan"), "reward": 0.5})
        alert = dict(open_run.summary["ragen_diag/NU01"])
    return folder, alert


def test_tables_are_read_back(run):
    folder, _ = run
    (source,) = [source for source in discover([folder]) if source.kind == "rollouts"]
    assert source.format == "wandb_table"
    assert counts(source) == (24, 3, 6, 24, 0.5, 0, 0)
    rows = rows_of(source)
    assert {row["thinking_text"] for row in rows} == {str(number) for number in range(8)}
    assert [row["advantage"] for row in rows[:2]] == [-0.5, 0.5]


def test_history_is_read_back(run):
    folder, _ = run
    series = discover(list(folder.glob("wandb/offline-run-*/run-*.wandb")))[0].series()
    assert series["reward_mean"] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert [step for step, _ in series["grad_norm"]] == [1, 2, 3]
    assert math.isnan(series["grad_norm"][1][1])


def test_alerts_stand_in_the_summary(run):
    _, alert = run
    assert alert["level"] == 2
    assert alert["text"].startswith("FAIL NU01 ")
