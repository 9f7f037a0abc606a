"""How boards are told: symbol grid, coordinate list, or both, in RAGEN's wording. Shared by FrozenLake and Sokoban."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

Cell = tuple[int, int]
Format = Literal["grid", "coord", "grid_coord"]


def check_format(observation_format: str) -> None:
    """Raises ValueError unless `observation_format` is one of `Format`."""
    if observation_format not in get_args(Format):
        raise ValueError(f"observation_format is {observation_format!r}; it is one of {', '.join(get_args(Format))}")


def tell_board(rows: Sequence[str], entities: Iterable[tuple[str, Sequence[Cell]]], observation_format: Format) -> str:
    """The board of `rows` (one string per row) with its named entities; labels without a cell are left out."""
    grid = "\n".join(rows)
    if observation_format == "grid":
        return grid
    lines = [f"Board size: {len(rows)} rows x {len(rows[0])} cols (zero-indexed)."]
    lines += [f"{label}: {', '.join(map(str, cells))}" for label, cells in entities if cells]
    coordinates = "\n".join(lines)
    if observation_format == "coord":
        return coordinates
    return f"Coordinates: \n{coordinates}\nGrid Map: \n{grid}"


def tell_legend(symbols: Iterable[tuple[str, str]], shape: tuple[int, int], observation_format: Format) -> str:
    """What the symbols and coordinates of this very instance mean; starts with a newline."""
    text = ""
    if observation_format != "coord":
        text += "\nSymbols: " + ", ".join(f"{symbol} {meaning}" for symbol, meaning in symbols) + "."
    if observation_format != "grid":
        last = f"({shape[0] - 1}, {shape[1] - 1})"
        text += f"\nCoordinates are (row, column), from (0, 0) at top left to {last} at bottom right."
    return text
