"""WebShop: pages, graded and binary reward, goals that are the same everywhere, the original's files."""

import json
from dataclasses import replace

import pytest

from envs.registry import BadOption, make
from envs.webshop_catalogue import generated_products, goals_of
from envs.webshop_reward import purchase_reward, token_set_ratio

pytest.importorskip("bm25s")


@pytest.fixture
def env():
    """At the search page: feather filled, hidden zipper throw pillow; color: white; size: 40 cm; below 140 dollars."""
    env = make("webshop")
    observation, _ = env.reset(seed=1)
    assert observation == (
        "Instruction: [SEP] Find me feather filled, hidden zipper throw pillow, and color: white, and size: 40 cm, and"
        " price lower than 140.00 dollars [SEP] Search\nAvailable actions: search[keywords]"
    )
    return env


def actions(observation: str) -> list[str]:
    return observation.rpartition("Available actions: ")[2].split(", ")


def test_catalogue_and_goals():
    products = generated_products()
    goals = goals_of(products)
    assert len(products) == len({item.asin for item in products}) == 1200
    assert len(goals) >= 500 and all(goal.product.price < goal.price_cap <= goal.product.price + 40 for goal in goals)


def test_every_goal_can_be_met_and_found_on_the_first_page():
    env = make("webshop")
    for goal in env._shop.goals[::150]:
        env.reset(seed=0)
        env.goal = goal
        plan = env.solve()
        assert len(plan) <= env.max_actions
        *_, (_, reward, terminated, _, info) = [env.step(action) for action in plan]
        assert (reward, terminated, info["raw_reward"], info["success"]) == (1.0, True, 1.0, True)


def test_pages(env):
    assert env.step("click[back to search]")[4]["action_is_valid"] is False  # nothing to click here
    observation = env.step("search[throw pillow]")[0]
    assert "Page 1 (Total results: 40)" in observation and len(actions(observation)) == 12
    assert env.step("search[again]")[4]["action_is_valid"] is False  # no search bar here
    for _ in range(3):
        observation = env.step("click[Next >]")[0]
    assert "Page 4" in observation and "click[next >]" not in actions(observation)
    observation = env.step("click[< Prev]")[0]
    asin = observation.split(" [SEP] ")[3]
    observation = env.step(f"click[{asin}]")[0]
    assert "click[buy now]" in actions(observation)
    assert " [SEP] Features [SEP] " in env.step("click[features]")[0]
    assert actions(env.step("click[< prev]")[0])[-1] == "click[buy now]"
    assert "Page 3" in env.step("click[< prev]")[0]
    assert env.step("click[back to search]")[0].endswith("Available actions: search[keywords]")


def test_options_replace_each_other_and_a_wrong_one_costs_the_purchase(env):
    *to_options, buy = env.solve()
    for action in to_options:
        env.step(action)
    observation, _, _, _, info = env.step("click[teal]")
    assert "(teal)" in observation and "(white)" not in observation and info["action_is_effective"]
    assert env.step("click[teal]")[4]["action_is_effective"] is False
    observation, reward, terminated, _, info = env.step(buy)
    assert (observation, reward, terminated) == ("Thank you for shopping with us!", 0.0, True)
    assert info["raw_reward"] == pytest.approx(4 / 5) and not info["success"]


def test_graded_reward():
    goal = goals_of(generated_products())[0]
    item = goal.product
    assert purchase_reward(item, goal.options, goal) == 1.0
    assert purchase_reward(item, {}, goal) == pytest.approx(3 / 5)
    assert purchase_reward(replace(item, price=goal.price_cap + 1), goal.options, goal) == pytest.approx(4 / 5)
    other = replace(item, query="kayak", category="Sports › Water › Boats", title="Blue kayak")
    assert purchase_reward(other, goal.options, goal) == 0.0  # no word of the title in common


@pytest.mark.parametrize(
    ("a", "b", "ratio"),
    [("red", "red", 100), ("dark red", "red", 100), ("red", "blue", 28.57), ("", "red", 0), ("!", "?", 0)],
)
def test_token_set_ratio(a, b, ratio):
    assert token_set_ratio(a, b) == pytest.approx(ratio, abs=0.01)


ROW = {
    "asin": "B0",
    "name": "Acme Tin Whistle",
    "product_category": "Toys › Music › Whistles",
    "query": "tin whistle",
    "pricing": "$1,012.50$1,030.00",
    "customization_options": {"Key": [{"value": "C "}, {"value": "D"}]},
    "full_description": "It whistles.",
    "small_description": ["made of tin"],
}


def test_the_originals_files(tmp_path):
    products, attributes = tmp_path / "items_shuffle_1000.json", tmp_path / "items_ins_v2_1000.json"
    rows = [{**ROW, "asin": f"B{n}", "name": f"Acme Tin Whistle {n}"} for n in range(20)]
    products.write_text(json.dumps([*rows, {**ROW, "asin": "none", "pricing": ""}]))
    attributes.write_text(json.dumps({f"B{n}": {"attributes": ["made of tin", "loud"]} for n in range(20)}))
    env = make("webshop", products=str(products), attributes=str(attributes))
    observation, _ = env.reset(seed=0)
    assert "Find me made of tin, loud tin whistle, and key: " in observation
    assert 1020 <= env.goal.price_cap <= 1050 and len(env._shop.products) == 20
    assert env.step("search[whistle]")[0].count("Acme Tin Whistle") == 10
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(BadOption, match="not WebShop's product files"):
        make("webshop", products=str(products), attributes=str(tmp_path / "other.json"))
    with pytest.raises(BadOption, match="given together"):
        make("webshop", products=str(products))
    with pytest.raises(BadOption, match="cannot read"):
        make("webshop", products=str(products), attributes=str(tmp_path / "absent.json"))
