"""Breadth-first search over game states, for the experts that `solve()` offers. Not for: anything a policy sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


def shortest_plan(
    start: State,
    successors: Callable[[State], Iterable[tuple[str, State]]],
    is_goal: Callable[[State], bool],
    *,
    max_states: int = 300_000,
) -> list[str] | None:
    """Action names along a shortest path from `start` to a goal; None if there is none among the first `max_states` states.

    `successors` yields (action name, next state) in the order in which ties are broken.
    """
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue and len(came_from) <= max_states:
        state = queue.popleft()
        if is_goal(state):
            return _unwind(state, came_from)
        for name, following in successors(state):
            if following not in came_from:
                came_from[following] = (state, name)
                queue.append(following)
    return None


def _unwind(state: State, came_from: dict[State, tuple[State, str] | None]) -> list[str]:
    names = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]
