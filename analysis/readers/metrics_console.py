"""Metrics printed to a console and kept in a file: verl's `step:12 - actor/entropy:0.3 - …` and the Trainer's dictionaries."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from analysis.readers.base import Match, Notes
from analysis.readers.containers import iter_lines
from analysis.readers.metrics_tables import MetricsLog, MetricsReader, series_of_rows
from analysis.readers.peek import Peek

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_VERL_LINE = re.compile(r"step:(\d+)((?: - [^\s:]+(?::[^\s:]+)*:\S+)+)")
_VERL_PAIR = re.compile(r" - (\S+?):(?:np\.\w+\()?(-?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf))\)?(?=\s|$)", re.IGNORECASE)
_TRAINER_LINE = re.compile(r"\{'(?:loss|reward|grad_norm|eval_loss|learning_rate)'.*?'epoch': [^}]*\}")
_BARE_NAN = re.compile(r"(?<=[ :])(nan|-?inf)(?=[,}])")


class Console(MetricsReader):
    """Text with step lines among other output."""

    name = "console"

    def claims(self, seen: Peek) -> Match | None:
        """Lines of either kind in the first 64 KB."""
        if seen.kind not in ("text", "json"):
            return None
        text = _ANSI.sub("", seen.text)
        if _VERL_LINE.search(text):
            return Match(0.7, "console lines step:N - metric:value", "verl")
        if _TRAINER_LINE.search(text):
            return Match(0.7, "console dictionaries with loss and epoch", "transformers Trainer")
        return None

    def read(self, path: Path, notes: Notes) -> list[MetricsLog]:
        """Every step line; all other output is passed over."""
        rows: list[dict[str, Any]] = []
        for _, line in iter_lines(path):
            text = _ANSI.sub("", line)
            if match := _VERL_LINE.search(text):
                rows.append({"step": int(match[1]), **dict(_VERL_PAIR.findall(match[2]))})
            elif match := _TRAINER_LINE.search(text):
                try:
                    row = ast.literal_eval(_BARE_NAN.sub(r"'\1'", match[0]))
                except (ValueError, SyntaxError):
                    continue
                if isinstance(row, dict) and "train_runtime" not in row:
                    rows.append(row)
        return series_of_rows(rows, notes)
