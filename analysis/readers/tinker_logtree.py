"""The part of tinker-cookbook's `*_logtree.json` that is rollouts: a tree of titled sections, read at 9dfcc3a.

`ProblemEnv` logs every attempt as three sections in a row, Prompt, Policy Response and Reward; attempts of one "Group Rollout" are a
group. Environments that log otherwise leave no triple, and the file says so.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

_GROUP, _PROMPT, _RESPONSE, _REWARD = "Group Rollout", "Prompt", "Policy Response", "Reward"


def attempts(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """{group, prompt, completion, reward} of each attempt in the order of the tree; reward None = not in its table."""
    group, prompt, response = -1, None, None
    for title, body in _sections(tree["root"]):
        if title == _GROUP:
            group += 1
        elif title == _PROMPT:
            prompt, response = _conversation(body), None
        elif title == _RESPONSE:
            response = _conversation(body)
        elif title == _REWARD and prompt and response:
            yield {"group": group, "prompt": prompt, "completion": response, "reward": _table(body).get("reward")}
            prompt, response = None, None


def _sections(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(title, node) of every section, outer ones first."""
    if not isinstance(node, dict):
        return
    children = node.get("children") or []
    if node.get("tag") == "section" and children and isinstance(children[0], dict):
        yield _text(children[0]), node
    for child in children:
        yield from _sections(child)


def _conversation(node: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Messages of the first conversation below a node."""
    data = node.get("data")
    if isinstance(data, dict) and data.get("type") == "conversation":
        return data.get("messages")
    for child in node.get("children") or []:
        if isinstance(child, dict) and (found := _conversation(child)):
            return found
    return None


def _table(node: dict[str, Any]) -> dict[str, str]:
    """First two cells of every table row below a node."""
    found: dict[str, str] = {}
    for child in node.get("children") or []:
        if isinstance(child, dict):
            cells = [_text(cell) for cell in child.get("children") or [] if isinstance(cell, dict)]
            if child.get("tag") == "tr" and len(cells) == 2:
                found[cells[0]] = cells[1]
            else:
                found |= _table(child)
    return found


def _text(node: dict[str, Any]) -> str:
    return html.unescape("".join(child for child in node.get("children") or [] if isinstance(child, str))).strip()
