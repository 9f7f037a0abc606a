"""Sudoku: RAGEN's measured puzzle, the proof of uniqueness, and rewards that cannot be farmed."""

import numpy as np
import pytest

from envs.registry import BadOption, make
from envs.sudoku import count_solutions, draw_puzzle


def joined(grid):
    return "/".join("".join(map(str, row)) for row in grid)


def test_reference_puzzle_and_solution():  # RAGEN at 20daedc, seed 123, easy; it happens to have one solution
    solution, puzzle = draw_puzzle(123, 9, 32)
    assert joined(puzzle) == (
        "872010596/001096008/095270430/703040912/140009357/009137000/086000120/927081600/514960080"
    )
    assert joined(solution) == (
        "872413596/431596278/695278431/763845912/148629357/259137864/386754129/927381645/514962783"
    )


@pytest.mark.parametrize(("size", "blanks"), [(4, 6), (4, 9), (9, 32), (9, 48), (16, 30)])
def test_blanks_and_one_solution(size, blanks):
    for seed in range(5):
        solution, puzzle = draw_puzzle(seed, size, blanks)
        assert sum(row.count(0) for row in puzzle) == blanks
        grid = [list(row) for row in puzzle]
        assert count_solutions(grid) == 1 and joined(grid) == joined(puzzle)
        assert all(set(line) == set(range(1, size + 1)) for line in [*solution, *zip(*solution, strict=True)])


def test_counting_against_brute_force():
    rng = np.random.default_rng(0)
    for seed in range(20):
        solution, _ = draw_puzzle(seed, 4, 1)
        grid = [[0 if rng.random() < 0.75 else n for n in row] for row in solution]
        assert count_solutions(grid, limit=10**6) == brute_force(grid)


def brute_force(grid):
    for r in range(4):
        for c in range(4):
            if grid[r][c] == 0:
                total = 0
                for n in range(1, 5):
                    box = [
                        grid[i][j] for i in range(r // 2 * 2, r // 2 * 2 + 2) for j in range(c // 2 * 2, c // 2 * 2 + 2)
                    ]
                    if n not in grid[r] and n not in [row[c] for row in grid] and n not in box:
                        grid[r][c] = n
                        total += brute_force(grid)
                        grid[r][c] = 0
                return total
    return 1


@pytest.mark.parametrize("name", ["sudoku", "sudoku:easy", "sudoku:hard"])
def test_solution_fits_the_budget_and_earns_blanks_plus_ten(name):
    env = make(name)
    for seed in range(3):
        env.reset(seed=seed)
        plan = env.solve()
        assert len(plan) == env.blanks <= env.max_actions
        steps = [env.step(action) for action in plan]
        assert sum(step[1] for step in steps) == env.blanks + 10
        assert steps[-1][2] and steps[-1][4]["success"]


@pytest.fixture
def env():
    """[4][1] . [3] / [3] . | .  .  / [2][3]|[1] .  /  . [4]|[3][2]"""
    env = make("sudoku")
    observation, _ = env.reset(seed=3)
    assert observation == "[4][1]| . [3]\n[3] . | .  . \n-------------\n[2][3]|[1] . \n . [4]|[3][2]"
    return env


@pytest.mark.parametrize("text", ["place 2 at row 1 col 3", "Place 2 at (1,3)", "2 at 1,3", "(1, 3, 2)", "1,3,2"])
def test_forms(env, text):
    observation, reward, *_ = env.step(text)
    assert reward == 1.0 and observation.endswith("Placed 2 at row 1 col 3.")


@pytest.mark.parametrize(
    ("text", "valid", "part"),
    [
        ("place 9 at row 1 col 3", False, "no placement"),
        ("place 2 at row 0 col 3", False, "no placement"),
        ("I place 2 at row 1 col 3", False, "no placement"),
        ("place 2 at row 1 col 1", True, "is given"),
        ("place 4 at row 1 col 3", True, "stands already"),
    ],
)
def test_refusals(env, text, valid, part):
    observation, reward, terminated, _, info = env.step(text)
    assert (reward, terminated) == (-0.1, False) and part in observation
    assert info == {"action_is_valid": valid, "action_is_effective": False, "success": False}


def test_overwriting_earns_nothing_twice(env):
    assert env.step("4 at 2,3")[1] == 1.0  # solution of row 2: 3 2 4 1
    assert env.step("2 at 2,3")[1] == 0.0
    assert env.solve() is None  # a wrong number stands
    assert env.step("4 at 2,3")[1] == 0.0
    assert env.step("4 at 2,3")[1] == -0.1
    assert env.solve() is not None


@pytest.mark.parametrize("options", [{"size": 5}, {"blanks": 0}, {"size": 4, "blanks": 15}])
def test_bad_options(options):
    with pytest.raises(BadOption):
        make("sudoku", **options)
