"""What a path says: step, split, natural order, and which folders belong inside a run. Never decides a format."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ragen_diag.errors import UsageError

_SPLIT_WORD = r"(?P<split>train|training|val|valid|validation|eval|evals|evaluation|test|dev)"
_STORE_WORD = r"(?:data|dumps?|samples?|generations?|completions?|rollouts?|trajectories|episodes|results)"
# Whole folder names only: a folder such as `test_my_run` says nothing about the split.
_SPLIT_WORD_2 = _SPLIT_WORD.replace("split", "split2")
_SPLIT_FOLDER = re.compile(
    rf"(?:{_SPLIT_WORD}(?:[_-]{_STORE_WORD})*(?:[_-]step[_-]?\d+.*)?|(?:{_STORE_WORD}[_-])+{_SPLIT_WORD_2})",
    re.IGNORECASE,
)
_SPLIT_STEM = re.compile(rf"^{_SPLIT_WORD}(?=[_.-]|$)|[_.-]{_SPLIT_WORD_2}$", re.IGNORECASE)
_STEP_IN_NAME = re.compile(
    r"(?:global_step|step|iteration|iter|checkpoint|ckpt|completions|rollout|rollouts|eval)[_.-]?(\d+)", re.IGNORECASE
)
_INSIDE_A_RUN = re.compile(
    r"(?:global_step|step|iteration|iter|epoch|checkpoint)[_-]?\d+.*|\d+|[0-9a-f]{8}|all|logs?|outputs?|evals?|results?|exports?"
    r"|artifacts|completions|trajectories|episodes|rollouts?|rollout[_-](?:data|dump)|dumped_evals|data|raw",
    re.IGNORECASE,
)


def natural_key(path: Path) -> list[tuple[int, int | str]]:
    """Sort key that puts step 10 after step 2."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", str(path)) if part]


def bare_name(path: Path) -> str:
    """File name without the suffix of a compressor."""
    return re.sub(r"\.(?:gz|zst|zstd)$", "", path.name)


def split_of(path: Path, depth: int = 4) -> str | None:
    """'train' or 'val' when the file name or one of the nearest folders says so."""
    found = _SPLIT_STEM.search(path.name.split(".")[0])
    names = [found] if found else [_SPLIT_FOLDER.fullmatch(part) for part in reversed(path.parts[:-1][-depth:])]
    for match in names:
        if match:
            word = (match["split"] or match["split2"]).lower()
            return "train" if word.startswith("train") else "val"
    return None


def step_of(path: Path, depth: int = 3) -> tuple[int, str] | None:
    """(step, 'file name' or 'folder name') from a numbered file (`7.jsonl`, `x_step7.jsonl`) or folder (`step_7`, `7`)."""
    stem = path.name.split(".")[0]
    if stem.isdigit():
        return int(stem), "file name"
    # `rollout_dump_data.step_7.jsonl` has its step behind the first dot.
    if found := list(_STEP_IN_NAME.finditer(stem)) or list(_STEP_IN_NAME.finditer(path.name)):
        return int(found[-1][1]), "file name"
    for part in reversed(path.parts[:-1][-depth:]):
        if match := re.fullmatch(r"(?:global_|train_|val_)?(?:step|iteration|iter|checkpoint|ckpt)[_-]?(\d+).*", part):
            return int(match[1]), "folder name"
    return None


@lru_cache(maxsize=16)
def step_pattern(pattern: str) -> re.Pattern[str]:
    """Compile --step-from-path. Raises UsageError when it is no regular expression with exactly one group."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--step-from-path {pattern!r} is not a regular expression: {error}") from error
    if compiled.groups != 1:
        raise UsageError(f"--step-from-path {pattern!r} needs exactly one group, such as 'step_(\\d+)'")
    return compiled


def run_root(path: Path, top: Path, inside: re.Pattern[str] | None = None) -> Path:
    """Folder of the run a file belongs to: the nearest parent whose name is not part of a log layout; `top` at most.

    inside: folder names of this format's own layout, besides the usual ones.
    """
    folder = path.parent
    while folder != top and top in folder.parents:
        name = folder.name
        if not (_INSIDE_A_RUN.fullmatch(name) or _SPLIT_FOLDER.fullmatch(name) or (inside and inside.fullmatch(name))):
            break
        folder = folder.parent
    return folder
