"""WebShop: search a shop, choose options and buy what an instruction asks for. Pages and actions only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

import numpy as np

from envs.retrieval import BM25Retriever
from envs.task_files import check_split, split_of
from envs.text_env import Outcome, TextEnv
from envs.webshop_catalogue import Goal, Product, generated_products, goals_of, load_products
from envs.webshop_reward import purchase_reward

TOP_K = 50
PAGE_SIZE = 10
MAX_ACTION_CHARS = 300
_ACTION = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.IGNORECASE | re.DOTALL)


class WebShopEnv(TextEnv):
    """Buy the product that an instruction describes.

    ## Description
    A text shop: a search page, result pages of ten, product pages with options and two sub-pages, and a buy button. The
    default shop has 1 200 generated products; the original's product files can be given.

    ## Action Space
    Text: `search[keywords]` where there is a search bar, else `click[...]` with one of the actions that the page lists (in
    any case). Anything else is invalid and changes nothing.

    ## Observation Space
    Text: the visible page, its parts joined by ` [SEP] `, then the available actions.

    ## Starting State
    The search page with the instruction of a goal, drawn by the seed. A checksum of the instruction decides its split.

    ## Rewards
    1 on buying a product that meets the goal entirely (type, attributes, options, price), else 0. `info["raw_reward"]` of
    the purchase is WebShop's graded reward, 0 to 1. Unit: purchases.

    ## Episode End
    Termination: a purchase (`success` if it meets the goal). No truncation; the reference allows 9 actions.

    ## Arguments
    - `split`: `train` or `validation`.
    - `products`, `attributes`: the original's `items_shuffle_1000.json` and `items_ins_v2_1000.json`, given together.

    ## Version History
    - v0: goals and price caps are the same in every process; the page gives no advice that contradicts the budget.
    """

    name = "webshop"
    summary = "search a shop, choose options, buy what is asked for"
    held_out: ClassVar = {"split": "validation"}
    variants: ClassVar = {"validation": {"split": "validation"}}
    extra = "envs"
    data = "generated catalogue, or WebShop's product files"
    max_actions = 9

    def __init__(
        self,
        split: str = "train",
        products: str | None = None,
        attributes: str | None = None,
        *,
        render_mode: str | None = "ansi",
    ) -> None:
        check_split(split)
        if (products is None) != (attributes is None):
            raise ValueError("products and attributes are two files of WebShop's data and are given together")
        super().__init__(render_mode=render_mode)
        self.split = split
        self._shop = _shared_shop(products, attributes)
        self._goals = [goal for goal in self._shop.goals if split_of(goal.instruction) == split]
        if not self._goals:
            raise ValueError(f"{products}: no goal belongs to split {split!r}")

    def _rules(self) -> str:
        return (
            "Shop for the product of the instruction. search[keywords] searches, click[text] clicks one of the available"
            " actions. Choose the wanted options before you click Buy Now."
        )

    def _begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.goal = self._goals[int(rng.integers(len(self._goals)))]
        self._to_search()
        self._bought: Product | None = None

    def _to_search(self) -> None:
        self._results: list[Product] | None = None
        self._page, self._item, self._sub_page = 0, None, ""
        self._chosen: dict[str, str] = {}

    _item: Product | None

    def _apply(self, action: str) -> Outcome:
        match = _ACTION.fullmatch(action) if len(action) <= MAX_ACTION_CHARS else None
        argument = match[2].strip().lower() if match else ""
        before = self._observe()
        if match is None or not argument:
            return Outcome(valid=False)
        if match[1].lower() == "search":
            if self._results is not None:
                return Outcome(valid=False)
            self._results = self._shop.search(argument)
            return Outcome(effective=True)
        if argument not in self._clickables():
            return Outcome(valid=False)
        if argument == "buy now" and self._item is not None:
            self._bought = self._item
            raw = purchase_reward(self._item, self._chosen, self.goal)
            return Outcome(float(raw >= 1), True, effective=True, success=raw >= 1, extra={"raw_reward": raw})
        self._click(argument)
        return Outcome(effective=self._observe() != before)

    def _click(self, target: str) -> None:
        if target == "back to search":
            self._to_search()
        elif target in ("next >", "< prev") and self._item is None:
            self._page += 1 if target == "next >" else -1
        elif target == "< prev":
            self._item, self._sub_page = (self._item, "") if self._sub_page else (None, "")
        elif self._item is None:
            self._item, self._chosen = next(item for item in self._shown() if item.asin.lower() == target), {}
        elif target in ("description", "features"):
            self._sub_page = target
        else:
            name = next(name for name, values in self._item.options.items() if target in values)
            self._chosen[name] = target

    def _shown(self) -> list[Product]:
        return (self._results or [])[self._page * PAGE_SIZE : (self._page + 1) * PAGE_SIZE]

    def _clickables(self) -> list[str]:
        """Lower-case targets of click[...] on this page."""
        if self._bought is not None or self._results is None:
            return []
        if self._item is None:
            paging = ["next >"] if (self._page + 1) * PAGE_SIZE < len(self._results) else []
            paging += ["< prev"] if self._page else []
            return ["back to search", *paging, *(item.asin.lower() for item in self._shown())]
        if self._sub_page:
            return ["back to search", "< prev"]
        values = [value for values in self._item.options.values() for value in values]
        return ["back to search", "< prev", "description", "features", *values, "buy now"]

    def _observe(self) -> str:
        actions = (
            ["search[keywords]"] if self._results is None else [f"click[{target}]" for target in self._clickables()]
        )
        if self._bought is not None:
            return "Thank you for shopping with us!"
        return f"{' [SEP] '.join(self._parts())}\nAvailable actions: {', '.join(actions)}"

    def _parts(self) -> Iterator[str]:
        yield from ("Instruction:", self.goal.instruction)
        if self._results is None:
            yield "Search"
        elif self._item is None:
            yield f"Page {self._page + 1} (Total results: {len(self._results)})"
            for item in self._shown():
                yield from (item.asin, item.title, f"${item.price:.2f}")
        elif self._sub_page:
            yield from (self._sub_page.title(), *self._sub_page_lines())
        else:
            for name, values in self._item.options.items():
                yield f"{name}: {', '.join(f'({v})' if self._chosen.get(name) == v else v for v in values)}"
            yield from (self._item.title, f"Price: ${self._item.price:.2f}")

    def _sub_page_lines(self) -> tuple[str, ...]:
        assert self._item is not None
        return (self._item.description,) if self._sub_page == "description" else self._item.features

    def random_action(self, rng: np.random.Generator) -> str:
        """A random click, or a search for two random words of the instruction."""
        clickables = self._clickables()
        if clickables:
            return f"click[{clickables[int(rng.integers(len(clickables)))]}]"
        words = self.goal.instruction.split()
        return f"search[{' '.join(words[int(i)] for i in rng.integers(len(words), size=2))}]"

    def solve(self) -> list[str] | None:
        """Search for the title, open the product, choose the options, buy; None unless it stands on the first page."""
        if self._bought is not None:
            return None
        wanted = self.goal.product
        back = [] if self._results is None else ["click[back to search]"]
        if wanted not in self._shop.search(wanted.title.lower())[:PAGE_SIZE]:
            return None
        clicks = [wanted.asin.lower(), *self.goal.options.values(), "buy now"]
        return [*back, f"search[{wanted.title}]", *(f"click[{target}]" for target in clicks)]


class _Shop:
    """Catalogue, goals and search engine; one per process."""

    def __init__(self, products: tuple[Product, ...]) -> None:
        self.products = products
        self.goals: list[Goal] = goals_of(products)
        self._index = BM25Retriever([item.text() for item in products])

    def search(self, keywords: str) -> list[Product]:
        return [self.products[int(hit.id.removeprefix("doc_"))] for hit in self._index.search(keywords, TOP_K)]


@lru_cache(maxsize=2)
def _shared_shop(products: str | None, attributes: str | None) -> _Shop:
    return _Shop(load_products(products, attributes) if products and attributes else generated_products())
