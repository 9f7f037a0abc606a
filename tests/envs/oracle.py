"""The reference's boards and plays (RAGEN at 20daedc, measured), one gzip file for all environments' tests.

Left out there: seeds whose board depends on PYTHONHASHSEED in the reference.
"""

import gzip
import json
from pathlib import Path

import pytest

from envs.text_env import TextEnv

BOARDS = json.loads(gzip.decompress(Path(__file__).with_name("boards.json.gz").read_bytes()))


def replay(env: TextEnv, play: dict | None) -> None:
    """Step through a recorded play and compare every reward, every end, and the last board; nothing to do for None."""
    if play is None:
        return
    for action, reward, done in zip(play["actions"], play["rewards"], play["dones"], strict=True):
        observation, got, terminated, truncated, info = env.step(env.action_names[action - 1])
        assert got == pytest.approx(reward, abs=1e-9)
        assert (terminated, truncated) == (done, False)
    assert observation == play["final"]
    assert info["success"] == play["success"]
