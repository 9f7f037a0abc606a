"""pass@k against counting every choice of k rollouts."""

from itertools import combinations

import numpy as np
import pytest

from trainer.validation import EvalResult


def result(successes_SK):
    table = np.array(successes_SK, dtype=bool)
    return EvalResult("m", "e", tuple(range(len(table))), table, table.astype(float), 1.0)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_at_k_is_the_mean_over_all_choices(k):
    table = [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]]
    expected = np.mean([np.mean([any(choice) for choice in combinations(row, k)]) for row in table])
    assert result(table).pass_at(k) == pytest.approx(expected)


def test_literal_values_and_limits():
    found = result([[1, 0, 0, 0], [0, 0, 0, 0]])
    assert (found.pass_at(1), found.pass_at(2), found.pass_at_k) == (0.125, 0.25, 0.5)
    assert "pass@2 25.0%, pass@4 50.0%" in found.summary()
    for k in (0, 5):
        with pytest.raises(ValueError, match="needs 1 to 4"):
            found.pass_at(k)
