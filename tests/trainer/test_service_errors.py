"""A failing service ends its own rollout as an error: logged, without a return, trained on by nobody."""

import math

import pytest

from envs.errors import ServiceError
from envs.frozen_lake import FrozenLakeEnv
from ragen_diag.errors import UsageError
from ragen_diag.rollout_log import read_metrics, read_steps
from trainer.evaluate import evaluate
from trainer.loop import train


class FlakyLakeEnv(FrozenLakeEnv):
    """Its service fails in every second rollout of a group: at a step, or already at the reset."""

    def __init__(self, when: str = "step", share: int = 2, *, render_mode: str | None = "ansi") -> None:
        super().__init__(observation_format="coord", render_mode=render_mode)
        self.when, self.share = when, share

    def reset(self, *, seed=None, options=None):
        self.fails = (seed + options["rollout_seed"]) % self.share == 0
        if self.fails and self.when == "reset":
            raise ServiceError("the lake is closed")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.fails:
            raise ServiceError("the lake is closed")
        return super().step(action)


HERE = "env.name=tests.trainer.test_service_errors:FlakyLakeEnv"


def rows_of(run, split):
    return [row for batch in read_steps(run, split=split) for row in batch.to_pylist()]


@pytest.mark.parametrize("when", ["step", "reset"])
def test_only_the_rollout_it_hit_ends_and_it_counts_for_nothing(small, tmp_path, when):
    config = small(HERE, f"env.options={{when: {when}}}", "rollout.group_size=4", "steps=1")
    result = train(config, tmp_path / "run", progress=False)
    rows = rows_of(tmp_path / "run", "train")
    assert len({row["trajectory_id"] for row in rows}) == 8
    for row in rows:
        doomed = (row["seed"] + row["rollout_index"]) % 2 == 0
        hit = doomed and (when == "reset" or row["error"] is not None)  # no known action, no call of the service
        if hit:
            assert row["error"] == "the lake is closed"
            assert row["return_"] is row["success"] is row["advantage"] is None
            assert row["kept_by_filter"] in (False, None)
        else:
            assert row["error"] is None and row["return_"] is not None
    failed = {row["trajectory_id"] for row in rows if row["error"] is not None}
    assert failed
    (metrics,) = read_metrics(tmp_path / "run")
    assert metrics["rollout_error_share"] == len(failed) / 8
    assert all(math.isfinite(value) for value in metrics.values() if value is not None)
    sound = {row["trajectory_id"]: row["return_"] for row in rows if row["trajectory_id"] not in failed}
    assert metrics["reward_mean"] == pytest.approx(sum(sound.values()) / len(sound))
    assert result.steps_done == 1


def test_a_service_that_is_down_stops_the_run_and_says_so(small, tmp_path, capsys):
    config = small(HERE, "env.options={when: reset, share: 1}", "steps=9", "filter.empty_stop_steps=2")
    result = train(config, tmp_path / "run")
    assert (result.steps_done, result.stop_reason) == (2, "every rollout failed for 2 steps in a row")
    assert "a service failed in 4 of 4 rollouts: the lake is closed" in capsys.readouterr().err


def test_evaluation_leaves_failed_seeds_out(small):
    name = HERE.removeprefix("env.name=")
    result = evaluate("tiny", env=name, env_options={"when": "reset"}, n_seeds=4, config=small())
    assert (result.seeds, result.n_failed, result.successes_SK.shape) == ((123, 125), 2, (2, 1))
    assert "2 seeds" in result.summary() and "2 more left out: a service failed" in result.summary()


def test_evaluation_without_any_sound_rollout_says_so(small):
    name = HERE.removeprefix("env.name=")
    with pytest.raises(UsageError, match=r"a service failed for every seed: the lake is closed"):
        evaluate("tiny", env=name, env_options={"when": "reset", "share": 1}, n_seeds=2, config=small())
