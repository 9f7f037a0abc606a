"""Passages and two-hop questions from the packaged facts (`data/facts.json`): 53 countries, 53 books and their authors."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

Question = tuple[str, str, tuple[str, ...]]
"""Question, answer, and a search query per hop that finds what the hop needs."""


@lru_cache(maxsize=1)
def _facts() -> dict[str, list[dict[str, Any]]]:
    return json.loads((files("envs") / "data" / "facts.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def passages() -> tuple[str, ...]:
    """One passage per country, capital, work and author; no passage alone answers a question of `questions`."""
    texts = []
    for c in _facts()["countries"]:
        texts.append(
            f"{c['name']} is a country in {c['continent']}. Its currency is the {c['currency']}."
            f" The main official language of {c['name']} is {c['language']}."
        )
        texts.append(f"{c['capital']} is a city. It is the capital of {c['name']}.")
    for w in _facts()["works"]:
        texts.append(
            f"{w['title']} is a {w['kind']} by {w['author']}. {w['title']} was first published in {w['year']}."
        )
        texts.append(f"{w['author']} was born in {w['birthplace']}, in {w['country']}, in {w['birth_year']}.")
    return tuple(texts)


@lru_cache(maxsize=1)
def questions() -> tuple[Question, ...]:
    """Every question needs two passages: the first names what the second is about."""
    found: list[Question] = []
    for c in _facts()["countries"]:
        for asked in ("currency", "continent", "language"):
            noun = {"currency": "the currency", "continent": "the continent", "language": "the main official language"}[
                asked
            ]
            text = f"What is {noun} of the country whose capital is {c['capital']}?"
            found.append((text, c[asked], (f"{c['capital']} capital", f"{c['name']} {asked}")))
    for w in _facts()["works"]:
        hops = (w["title"], f"{w['author']} born")
        found.append((f"In which city or town was the author of {w['title']} born?", w["birthplace"], hops))
        found.append((f"In which year was the author of {w['title']} born?", w["birth_year"], hops))
    return tuple(found)
