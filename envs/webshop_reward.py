"""WebShop's reward: how well a purchase meets a goal (Yao et al. 2022, arXiv:2207.01206, section 3.1, and its code).

Title nouns are taken as all words: the original finds nouns with spaCy. Fuzzy matching is its token-set ratio above 85.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from envs.webshop_catalogue import Goal, Product

FUZZY_THRESHOLD = 85


def purchase_reward(bought: Product, options: dict[str, str], goal: Goal) -> float:
    """0..1: (attributes + options + price met) / their number, times the match of type."""
    n_attributes = sum(_has_attribute(bought, attribute) for attribute in goal.attributes)
    chosen = list(options.values())
    n_options = sum(
        any(token_set_ratio(value, wanted) > FUZZY_THRESHOLD for value in chosen) for wanted in goal.options.values()
    )
    met = n_attributes + n_options + (bought.price <= goal.price_cap)
    return met / (len(goal.attributes) + len(goal.options) + 1) * _type_match(bought, goal.product)


def _has_attribute(bought: Product, attribute: str) -> bool:
    if any(token_set_ratio(attribute, own) > FUZZY_THRESHOLD for own in bought.attributes):
        return True
    text = " ".join([bought.title, *bought.features, bought.description]).lower()
    return attribute.lower() in text


def _type_match(bought: Product, wanted: Product) -> float:
    """1 for the same query, two common category levels or a similar title; else 0.5, 0.1 or 0 by the share of title words."""
    words, goal_words = _words(bought.title), _words(wanted.title)
    title_score = len(words & goal_words) / len(goal_words) if goal_words else 1.0
    levels = [{part.strip() for part in item.category.split("›")} for item in (bought, wanted)]
    if bought.query == wanted.query or len(levels[0] & levels[1]) >= 2 or title_score > 0.2:
        return 1.0
    return 0.0 if title_score == 0 else 0.1 if title_score < 0.1 else 0.5


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z][a-z-]+", text.lower()))


def token_set_ratio(a: str, b: str) -> float:
    """0..100: similarity of two texts as sets of words (the measure of thefuzz): common words, with and without the rest."""
    left, right = set(re.findall(r"\w+", a.lower())), set(re.findall(r"\w+", b.lower()))
    if not left or not right:
        return 0.0
    common = " ".join(sorted(left & right))
    with_left = f"{common} {' '.join(sorted(left - right))}".strip()
    with_right = f"{common} {' '.join(sorted(right - left))}".strip()
    pairs = [(with_left, with_right)] + ([(common, with_left), (common, with_right)] if common else [])
    return max(100 * SequenceMatcher(None, x, y).ratio() for x, y in pairs)
