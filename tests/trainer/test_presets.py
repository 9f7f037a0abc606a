"""Every shipped preset trains the embedded model for two steps."""

import pytest

from ragen_diag.config import load_config, presets
from trainer.loop import train

TINY = ["steps=2", "rollout.groups=4", "rollout.group_size=4", "rollout.max_turns=1", "rollout.max_response_tokens=32",
        "optim.mini_batch=8", "optim.micro_batch=8", "validation.every=0", "runtime.tracker=none", "runtime.threads=1",
        "runtime.device=cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def a_log(tmp_path_factory):
    run = tmp_path_factory.mktemp("presets") / "log"
    train(load_config("demo", [*TINY, "diagnostics.every=0"]), run, progress=False)
    return run


@pytest.mark.parametrize("name", presets())
def test_two_steps(name, tmp_path, request):
    overrides = list(TINY)
    if name == "offline":
        overrides.append(f"offline.log={request.getfixturevalue('a_log')}")
    config = load_config(name, overrides)
    result = train(config, tmp_path / "run", progress=False)
    assert result.steps_done == 2
    updated = [row for row in result.metrics if row.get("grad_norm") is not None]
    assert updated, "no step was trained on"
    assert all(row["grad_norm"] >= 0 for row in updated)
    if config.replay.groups:
        assert result.metrics[-1]["replayed_group_share"] == pytest.approx(2 / 6)
    if config.algorithm.thinking_gate:
        assert result.metrics[0]["thinking_quality_loss"] == pytest.approx(0.6931, abs=1e-3)  # untrained: ln 2
    if config.diagnostics.gradient_every:
        assert "grad_norm/bucket_4/task" in result.metrics[0]
