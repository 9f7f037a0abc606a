"""Makes alfworld_transcripts.json: what the package's own engine says and allows in our generated games.

    python -m tests.envs.alfworld_transcripts        # needs the extra alfworld; made with alfworld 0.4.2, textworld 1.7.0

The plan is followed with random admissible commands in between. The test then plays the same commands in our rooms.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from envs.alfworld_games import GameSession
from envs.household_tasks import TEMPLATES, draw_task
from tests.envs.alfworld_pddl import write_game


def play(folder: Path, seed: int, kind: str) -> list[dict]:
    """Steps of one game; the first is the state after the reset."""
    room, task = draw_task(np.random.default_rng(seed), (kind,))
    session, rng = GameSession(), np.random.default_rng(seed)
    session.load(str(write_game(folder, room, task)))
    steps = [{"command": None, "text": session.text, "admissible": session.admissible, "won": session.won}]
    while not session.won:
        stray = len(steps) < 12 and rng.random() < 0.6
        command = str(rng.choice(session.admissible)) if stray else (task.plan(room) or ["look"])[0]
        session.act(command)
        room.act(command)
        steps.append({"command": command, "text": session.text, "admissible": session.admissible, "won": session.won})
        assert len(steps) < 60
    return steps


def main() -> None:
    games = []
    for number in range(12):
        kind = list(TEMPLATES)[number % 6]
        with tempfile.TemporaryDirectory() as folder:
            games.append({"seed": 100 + number, "kind": kind, "steps": play(Path(folder), 100 + number, kind)})
    made_with = "alfworld 0.4.2, textworld 1.7.0; python -m tests.envs.alfworld_transcripts"
    text = json.dumps({"made_with": made_with, "games": games}, separators=(",", ":"))
    Path(__file__).with_name("alfworld_transcripts.json").write_text(text + "\n")
    print(f"{len(games)} games, {len(text)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
