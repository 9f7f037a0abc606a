"""Rollout logs whose reasoning is worded anew every time: about its prompt, or a template in ever other words.

Truth is known by construction: a templated reasoning is drawn without looking at its prompt. Written as a trainer's JSONL
dump, so that reading is part of the test. Runs with levels over steps and exact templates: runs.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

OPENINGS = ("Okay,", "Let me see.", "Looking at this,", "Hmm,", "First,", "Well,", "Alright,", "So,")
FILLERS = (
    "I should think carefully about each option", "it helps to check the details again",
    "the important part is to avoid mistakes", "we can go one step at a time", "let me consider what could go wrong",
    "I want to be sure before answering", "a careful plan is better than a guess", "I will weigh the options",
)  # fmt: skip
ENDINGS = (
    "therefore I decide.",
    "that settles it.",
    "so the answer follows.",
    "this should work.",
    "that is my choice.",
)
BOILERPLATE = (
    "We are solving a grid navigation task. The agent must act in as few moves as possible. It is important to avoid leaving "
    "the board. Every step costs something."
)
COLOURS = ("red", "blue", "green", "amber", "violet", "white", "black", "teal")
THINGS = ("box", "cup", "key", "lamp", "door", "crate", "ball", "book")
WAYS = ("left", "right", "up", "down")
SCRIPTS = "абвгджעבאםקעلمنهويकखगघचกขคงจ漢字仮名文한국어말글qxzjkvw"

Shares = Callable[[float], float]
KINDS: dict[str, Shares] = {
    # share of templated reasonings, by the share of the run that has passed
    "about its prompt": lambda done: 0.0,
    "half of it templates": lambda done: 0.5,
    "templates from the middle on": lambda done: min(1.0, max(0.0, (done - 0.4) / 0.2)),
    "templates from the start": lambda done: 1.0,
    "a long template with a slot": lambda done: 0.0,
    "gibberish from the middle on": lambda done: min(1.0, max(0.0, (done - 0.4) / 0.2)),
    "answers alone": lambda done: 0.0,
    "a prescribed format": lambda done: 0.0,
}


def write_dump(
    kind: str,
    seed: int,
    folder: Path,
    *,
    steps: int = 30,
    prompts: int = 8,
    rollouts: int = 6,
    same_prompts: bool = False,
) -> Path:
    """Write one JSONL file a step under `folder`; returns `folder`. same_prompts: every step draws the first one's prompts."""
    rng = random.Random(f"{kind} {seed}")
    folder.mkdir(parents=True)
    for step in range(1, steps + 1):
        rows = []
        for number in range(prompts):
            prompt_rng = random.Random(f"{kind} {seed} {number}") if same_prompts else rng
            rows += _group(rng, prompt_rng, kind, KINDS[kind](step / steps), rollouts, step)
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def _group(
    rng: random.Random, prompt_rng: random.Random, kind: str, share: float, rollouts: int, step: int
) -> list[dict[str, object]]:
    column, row, way = prompt_rng.randint(0, 9), prompt_rng.randint(0, 9), prompt_rng.choice(WAYS)
    colour, thing = prompt_rng.choice(COLOURS), prompt_rng.choice(THINGS)
    prompt = f"You are at ({column}, {row}). The {colour} {thing} lies to the {way}. What do you do?"
    facts = [
        f"I stand at {column},{row}", f"the {colour} {thing} is {way} of me", f"column {column} and row {row}",
        f"moving {way} reaches the {thing}",
    ]  # fmt: skip
    found = []
    for _ in range(rollouts):
        first, second = rng.sample(FILLERS if rng.random() < share else facts, 2)
        thinking = f"{rng.choice(OPENINGS)} {first} and {second}; {rng.choice(FILLERS)}, {rng.choice(ENDINGS)}"
        if kind == "a long template with a slot":
            thinking = f"{BOILERPLATE} {rng.choice(OPENINGS)} the {thing} lies to the {way} so I go {way}."
        right = rng.random() < 0.5
        answer = way if right else rng.choice([other for other in WAYS if other != way])
        output = f"<think>{thinking}</think><answer>{answer}</answer>"
        if kind == "gibberish from the middle on" and rng.random() < share:
            thinking = " ".join("".join(rng.choices(SCRIPTS, k=rng.randint(2, 9))) for _ in range(30))
            output = f"<think>{thinking}</think><answer>{answer}</answer>"
        if kind == "answers alone":
            output = f"<answer>{answer}</answer>"
        elif kind == "a prescribed format":
            output = json.dumps(
                {"thought": None, "action": {"name": "move", "arguments": {"way": answer, "repeat": 1}}}
            )
        found.append({"input": prompt, "output": output, "gts": way, "score": float(right), "step": step})
    return found
