"""Sample logs in 41 layouts (invented content, real schemas) and the metrics quoted in public reports, unpacked once."""

import math
import tarfile
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


def _unpack(name: str, folder: Path) -> Path:
    with tarfile.open(DATA / name) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def layouts(tmp_path_factory) -> Path:
    return _unpack("layouts.tar.xz", tmp_path_factory.mktemp("layouts"))


@pytest.fixture(scope="session")
def cases(tmp_path_factory) -> Path:
    return _unpack("cases.tar.xz", tmp_path_factory.mktemp("cases"))


def rows_of(source) -> list[dict]:
    return [row for table in source.tables() for row in table.to_pylist()]


def counts(source) -> tuple:
    """(n_rollouts, n_steps, n_groups, n_with_thinking, mean_reward, n_reward_missing, n_bad_rows): see docs/formats.md."""
    rows = rows_of(source)
    rewards = {row["trajectory_id"]: row["return_"] for row in rows}
    known = [reward for reward in rewards.values() if reward is not None and math.isfinite(reward)]
    return (
        len(rewards),
        len({row["step"] for row in rows} - {None}),
        len({(row["split"], row["step"], row["prompt_id"]) for row in rows if row["turn"] == 0}),
        len({row["trajectory_id"] for row in rows if row["thinking_text"]}),
        round(sum(known) / len(known), 4) if known else None,
        len(rewards) - len(known),
        source.notes.n_bad_rows,
    )
