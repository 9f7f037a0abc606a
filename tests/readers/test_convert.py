"""Converting to the native log keeps every rollout, group and reward."""

import pytest

from analysis.readers.convert import convert
from analysis.readers.discover import discover
from ragen_diag.errors import RunFolderError, UsageError
from tests.readers.conftest import counts, rows_of


@pytest.mark.parametrize(
    "layout",
    [
        "verl/healthy",
        "verl/collapsed_multiturn",
        "atropos/healthy",
        "slime/healthy",
        "wandb/healthy",
        "lm_eval/healthy",
    ],
)
def test_round_trip(layouts, tmp_path, layout):
    (source,) = discover([layouts / layout])
    (converted,) = convert(layouts / layout, tmp_path / "run")
    (native,) = discover([tmp_path / "run"])
    assert native.format == "ragen_diag"
    assert counts(native) == counts(source)
    assert converted.n_rows == len(rows_of(source))
    assert native.config["converted_from"]["format"] == source.format
    by_turn = lambda rows: sorted(rows, key=lambda row: (row["trajectory_id"], row["turn"]))  # noqa: E731
    assert by_turn(rows_of(native)) == by_turn(rows_of(source))


def test_several_runs_become_folders_and_metrics_come_along(layouts, cases, tmp_path):
    converted = convert(layouts / "trl", tmp_path / "trl")
    assert sorted(one.path.name for one in converted) == [
        "collapsed_conversational", "collapsed_text", "healthy_conversational", "healthy_text",
    ]  # fmt: skip
    convert(layouts / "skyrl/healthy", tmp_path / "skyrl")
    assert discover([tmp_path / "skyrl"])[0].series()["val_reward_mean"] == [(1, 0.6875), (2, 0.8125), (3, 0.875)]
    convert(cases / "51_nemorl_3550_healthy_plumbing.csv", tmp_path / "metrics")
    (native,) = discover([tmp_path / "metrics"])
    assert (native.kind, len(native.series()["grad_norm"])) == ("metrics", 10)


def test_existing_folders_are_not_touched(layouts, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not an empty folder"):
        convert(layouts / "verl/healthy", tmp_path)
    with pytest.raises(UsageError, match="inside the log"):
        convert(layouts / "verl/healthy", layouts / "verl/healthy" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
