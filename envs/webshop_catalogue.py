"""WebShop's products and goals: a generated catalogue, or the original's files. Not for: pages (`webshop.py`), rewards."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import product as combinations
from pathlib import Path
from typing import Any

N_GENERATED_PER_TYPE = 40
MAX_COMBINATIONS = 8
"""Option combinations of one product that become goals; the original takes all, which lets one product make hundreds."""

_BRANDS = (
    "Alder",
    "Birchway",
    "Calla",
    "Dunmore",
    "Elmfield",
    "Fjordly",
    "Greyhill",
    "Harrow",
    "Isola",
    "Juniper",
    "Kestrel",
    "Larkspur",
)


@dataclass(frozen=True, slots=True)
class Product:
    """One page of the shop. `price` in dollars; `options` maps an option's name to its values."""

    asin: str
    title: str
    category: str
    query: str
    price: float
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    description: str
    features: tuple[str, ...]

    def text(self) -> str:
        """What the search engine indexes."""
        values = [value for values in self.options.values() for value in values]
        return " ".join([self.title, self.query, self.description, *self.features, *self.attributes, *values])


@dataclass(frozen=True, slots=True)
class Goal:
    """What the customer wants; `price_cap` in dollars."""

    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: dict[str, str]
    price_cap: float


@lru_cache(maxsize=1)
def generated_products() -> tuple[Product, ...]:
    """1 200 products of the 30 types in `data/webshop_types.json`; always the same ones."""
    rng = random.Random(20)
    products: list[Product] = []
    for kind in json.loads((files("envs") / "data" / "webshop_types.json").read_text(encoding="utf-8")):
        for _ in range(N_GENERATED_PER_TYPE):
            own = tuple(rng.sample(kind["attributes"], 3))
            model = f"{rng.choice(_BRANDS)} {rng.randint(100, 999)}"
            options = {
                name: tuple(rng.sample(values, max(2, len(values) - 2))) for name, values in kind["options"].items()
            }
            products.append(
                Product(
                    asin=f"B{len(products):09d}",
                    title=f"{model} {kind['type']}, {own[0]}, {own[1]}",
                    category=kind["category"],
                    query=kind["type"],
                    price=rng.randint(500, 12_000) / 100,
                    attributes=own,
                    options=options,
                    description=f"The {model} is a {own[0]} {kind['type']} for every day.",
                    features=own,
                )
            )
    return tuple(products)


@lru_cache(maxsize=4)
def load_products(products_file: str, attributes_file: str) -> tuple[Product, ...]:
    """Products of the original's `items_shuffle*.json` with the attributes of its `items_ins_v2*.json`.

    Products without attributes or price are left out, as in the original. Raises ValueError for a file of another shape.
    """
    try:
        rows = json.loads(Path(products_file).read_text(encoding="utf-8"))
        attributes = json.loads(Path(attributes_file).read_text(encoding="utf-8"))
        products = tuple(_products_of(rows, attributes))
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{products_file}, {attributes_file}: not WebShop's product files: {error!r}") from error
    if not products:
        raise ValueError(f"{products_file}: no product has a price, and attributes in {attributes_file}")
    return products


def _products_of(rows: list[dict[str, Any]], attributes: dict[str, dict[str, Any]]) -> Iterator[Product]:
    for row in rows:
        prices = [float(price.replace(",", "")) for price in re.findall(r"\d[\d,]*\.?\d*", str(row.get("pricing", "")))]
        own = attributes.get(row["asin"], {}).get("attributes", [])
        if not prices or not own:
            continue
        options = {
            name.lower(): tuple(dict.fromkeys(entry["value"].strip().lower() for entry in entries))
            for name, entries in (row.get("customization_options") or {}).items()
            if entries
        }
        features = row.get("small_description") or []
        yield Product(
            asin=row["asin"],
            title=row["name"],
            category=row["product_category"],
            query=row["query"].lower().strip(),
            price=prices[0],
            attributes=tuple(own),
            options=options,
            description=row.get("full_description") or "",
            features=tuple(features) if isinstance(features, list) else (features,),
        )


def goals_of(products: tuple[Product, ...]) -> list[Goal]:
    """One goal per option combination, with two attributes and a price cap; the same list in every process.

    The cap is the larger of two picks among the next four multiples of 10 above the price, as in the original, which
    draws it unseeded.
    """
    goals = []
    for item in products:
        rng = random.Random(item.asin)
        every = [dict(zip(item.options, values, strict=True)) for values in combinations(*item.options.values())]
        for options in rng.sample(every, min(MAX_COMBINATIONS, len(every))):
            wanted = tuple(item.attributes[:2])
            first = int(item.price // 10 + 1) * 10
            cap = float(max(rng.choices(range(first, first + 40, 10), k=2)))
            chosen = "".join(f", and {name}: {value}" for name, value in options.items())
            instruction = f"Find me {', '.join(wanted)} {item.query}{chosen}, and price lower than {cap:.2f} dollars"
            goals.append(Goal(item, instruction, wanted, options, cap))
    return goals
