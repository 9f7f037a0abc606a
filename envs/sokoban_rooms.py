"""Sokoban rooms by reverse play: carve a floor, put boxes on their targets, pull them away as far as a search finds.

The draws are those of RAGEN's generator (itself gym-sokoban 0.0.6, MIT, room_utils.py, with a depth limit and a final walk
of the player), so equal seeds give equal rooms. Only what happens after a failed attempt differs: RAGEN reseeds with
Python's string hash, which changes from process to process; here the next seed is a CRC of the last.
Not for: playing (`sokoban.py`).
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from envs.grid_text import Cell

UP_DOWN_LEFT_RIGHT = ((-1, 0), (1, 0), (0, -1), (0, 1))

P_CHANGE_DIRECTION = 0.35
ROOMS_PER_SEED = 4
MAX_SEARCHED_STATES = 300_000
MAX_SEEDS = 1000
WALK_DIRECTIONS = [(1, 0), (0, 1), (-1, 0), (0, -1)]
CARVING_MASKS = [  # offsets of carved cells around the walker, row-major as in gym-sokoban's 3x3 masks
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
]


@dataclass(frozen=True, slots=True)
class Room:
    """A solvable room. Targets are sorted; `boxes[i]` was pulled from `targets[i]`."""

    shape: tuple[int, int]
    floor: frozenset[Cell]
    targets: tuple[Cell, ...]
    boxes: tuple[Cell, ...]
    player: Cell


@lru_cache(maxsize=1024)  # the members of a group ask for the same room
def generate_room(seed: int, shape: tuple[int, int], num_boxes: int, search_depth: int) -> Room:
    """The room of `seed`: solvable, no box on a target.

    Raises ValueError if no seed of the chain gives a room, which means that the boxes do not fit.
    """
    for _ in range(MAX_SEEDS):
        room = _rooms_of_one_seed(seed, shape, num_boxes, search_depth)
        if room is not None:
            return room
        seed = zlib.crc32(str(seed).encode())
    raise ValueError(
        f"sokoban: {MAX_SEEDS} attempts gave no {shape[0]}x{shape[1]} room for {num_boxes} boxes; enlarge it"
    )


def _rooms_of_one_seed(seed: int, shape: tuple[int, int], num_boxes: int, search_depth: int) -> Room | None:
    carver = random.Random(seed)
    placer = np.random.RandomState(seed % 2**32)
    for _ in range(ROOMS_PER_SEED):
        floor = _carve(carver, shape)
        if len(floor) <= num_boxes + 1:
            return None
        free = sorted(floor)
        player = free.pop(placer.randint(len(free)))
        targets = tuple(sorted(free.pop(placer.randint(len(free))) for _ in range(num_boxes)))
        player, boxes = _pull_away(floor, targets, player, search_depth)
        distance = _displacement(boxes, targets)
        if distance > 0:
            player = _wander(carver, floor, boxes, player, p_move=0.8 if distance == 1 else 0.5)
            return Room(shape, floor, targets, boxes, player)
    return None


def _carve(rng: random.Random, shape: tuple[int, int]) -> frozenset[Cell]:
    rows, cols = shape
    direction = rng.sample(WALK_DIRECTIONS, 1)[0]
    row, col = rng.randint(1, rows - 1), rng.randint(1, cols - 1)
    carved: set[Cell] = set()
    for _ in range(int(1.7 * (rows + cols))):
        if rng.random() < P_CHANGE_DIRECTION:
            direction = rng.sample(WALK_DIRECTIONS, 1)[0]
        row = max(min(row + direction[0], rows - 2), 1)
        col = max(min(col + direction[1], cols - 2), 1)
        carved.update((row + dr, col + dc) for dr, dc in rng.sample(CARVING_MASKS, 1)[0])
    return frozenset((r, c) for r, c in carved if 0 < r < rows - 1 and 0 < c < cols - 1)


def _displacement(boxes: tuple[Cell, ...], targets: tuple[Cell, ...]) -> int:
    return sum(abs(box[0] - home[0]) + abs(box[1] - home[1]) for box, home in zip(boxes, targets, strict=True))


def _pull_away(
    floor: frozenset[Cell], targets: tuple[Cell, ...], player: Cell, depth: int
) -> tuple[Cell, tuple[Cell, ...]]:
    """Depth-first reverse play; the state with the largest (changes of box pulled x displacement), first found wins.

    States in which a box or the player covers a target score 0. A state is searched once, by the path that meets it
    first, as in the original: `pulled` marks boxes that have left home, which the original's board codes tell apart.
    """
    best_score, best = -1, (player, targets)
    explored: set[tuple[Cell, frozenset[tuple[Cell, bool]]]] = set()
    stack = [(player, targets, (False,) * len(targets), 0, -1, depth)]
    while stack:
        player, boxes, pulled, swaps, last, moves_left = stack.pop()
        key = (player, frozenset(zip(boxes, pulled, strict=True)))
        if moves_left <= 1 or len(explored) >= MAX_SEARCHED_STATES or key in explored:
            continue
        explored.add(key)
        score = 0 if player in targets or not set(targets).isdisjoint(boxes) else swaps * _displacement(boxes, targets)
        if score > best_score:
            best_score, best = score, (player, boxes)
        for dr, dc in reversed(UP_DOWN_LEFT_RIGHT):  # reversed: the stack pops Up first
            ahead, behind = (player[0] + dr, player[1] + dc), (player[0] - dr, player[1] - dc)
            if ahead not in floor or ahead in boxes:
                continue
            if behind in boxes:
                i = boxes.index(behind)
                moved = (*boxes[:i], player, *boxes[i + 1 :])
                left_home = (*pulled[:i], True, *pulled[i + 1 :])
                stack.append((ahead, moved, left_home, swaps + (i != last), i, moves_left - 1))
            else:
                stack.append((ahead, boxes, pulled, swaps, last, moves_left - 1))
    return best


def _wander(rng: random.Random, floor: frozenset[Cell], boxes: tuple[Cell, ...], player: Cell, p_move: float) -> Cell:
    """Up to three random steps without coming back, so that the last pull does not give the first push away."""
    if rng.random() > p_move:
        return player
    visited = [player]
    for step in range(3):
        near = [(player[0] + dr, player[1] + dc) for dr, dc in UP_DOWN_LEFT_RIGHT]
        near = [cell for cell in near if cell in floor and cell not in boxes and cell not in visited]
        if not near:
            break
        player = rng.choice(near)
        visited.append(player)
        if step == 2 or rng.random() > 0.5:
            break
    return player
