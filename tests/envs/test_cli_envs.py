"""`ragen-diag envs`: what it prints, what it reads, and what it says about a wrong name."""

import pytest
from typer.testing import CliRunner

from envs.registry import specs
from ragen_diag.cli_envs import app
from ragen_diag.errors import UsageError


def run(*arguments: str, stdin: str = "") -> str:
    result = CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_names_every_environment_and_variant():
    text = run("list")
    for spec in specs():
        assert spec.name in text
        assert all(variant in text for variant in spec.variants)


def test_show():
    text = run("show", "sokoban:new_vocab", "--seed", "124", "--set", "search_depth=300")
    assert "W wall" in text and "WGWWWW\nWB.WWW\nWAWWWW" in text and "Up, Down, Left, Right" in text


def test_play_reads_piped_actions_to_the_solution():
    text = run("play", "sokoban", "--seed", "124", stdin="left\nnonsense\nUp\n")
    assert "reward 0 (no valid action)" in text
    assert text.endswith("Solved after 2 actions, return 10.8.\n")


def test_play_ends_politely_at_end_of_input():
    assert run("play", "frozen_lake", stdin="").endswith("Left after 0 actions, return 0.\n")


def test_play_stops_at_the_budget():
    text = run("play", "sokoban", "--seed", "123", stdin="Right\n" * 11)
    assert text.endswith("No actions left after 10 actions, return -1.\n")


def test_random_prints_the_interval():
    text = run("random", "frozen_lake:no_slip", "--episodes", "64")
    assert "17.2% success of random actions, 95 % interval 9.9% to 28.2% (11 of 64, seeds 123 to 186)" in text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["show", "sokobann"], "did you mean 'sokoban'"),
        (["show", "sokoban:large"], "did you mean 'sokoban:larger'"),
        (["show", "sokoban", "--set", "boxes=3"], "did you mean 'num_boxes'"),
        (["show", "sokoban", "--set", "num_boxes"], "KEY=VALUE"),
        (["play", "nowhere.env:Class"], "cannot import 'nowhere.env'"),
        (["random", "json:loads"], "no environment named 'json'"),
    ],
)
def test_wrong_names_are_usage_errors(arguments, part):
    with pytest.raises(UsageError, match=part):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_audit():
    text = run("audit", "sokoban", "--seeds", "2")
    assert text.startswith("PASS  known solution: 2 of 2 succeed, best return 10.9\n") and "FAIL" not in text


def test_audit_failure_exits_with_findings():
    command = CliRunner().invoke(app, ["audit", "tests.envs.test_audit:Gullible"], standalone_mode=False)
    assert command.return_value == 1 and "FAIL (seed 123) every arm at once" in command.stdout
