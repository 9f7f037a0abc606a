from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model

from analysis.information import reference_metrics
from analysis.scoring.cross_scorer import CrossScorer
from ragen_diag.errors import ModelError
from tests.analysis.scoring.conftest import one_pair_at_a_time

SMALL = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT2 = {
    "vocab_size": 384,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize("token_budget", [8192, 64, 5])
def test_equals_the_reference_matrix(oracle, oracle_model, token_budget):
    scores = CrossScorer(oracle_model, token_budget=token_budget).score(oracle["prompt_ids"], oracle["reasoning_ids"])
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, oracle["logprob_sum"], atol=2e-3)


def test_metrics_of_the_model_equal_the_reference(oracle, oracle_model):
    scores = CrossScorer(oracle_model).score(oracle["prompt_ids"], oracle["reasoning_ids"])
    tokens = [len(reasoning) for reasoning in oracle["reasoning_ids"]]
    found = reference_metrics(scores, tokens, oracle["group_ids"], [tuple(ids) for ids in oracle["prompt_ids"]])
    assert found.keys() == oracle["expected"].keys()
    for name, value in oracle["expected"].items():
        assert found[name] == pytest.approx(value, abs=1e-4), name


@pytest.mark.parametrize(
    "config",
    [
        transformers.LlamaConfig(**SMALL),
        transformers.GPT2Config(**GPT2),
        transformers.Qwen3Config(**SMALL),
        # A window shorter than the prompt: the cache must keep what the window hides.
        transformers.MistralConfig(**SMALL, sliding_window=6),
        # The head alone is not the logits: soft-capping (Gemma 2), scaling (Granite).
        transformers.Gemma2Config(**SMALL, sliding_window=6, final_logit_softcapping=5.0),
        transformers.GraniteConfig(**SMALL, logits_scaling=3.0),
    ],
    ids=lambda config: config.model_type,
)
def test_model_families_equal_the_loop(config, oracle):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    # Nested, equal, one-token prompts; equal and one-token reasonings.
    prompts = [*oracle["prompt_ids"][:3], oracle["prompt_ids"][0][:20], oracle["prompt_ids"][0], [7]]
    reasonings = [*oracle["reasoning_ids"][:4], oracle["reasoning_ids"][0], [255]]
    scores = CrossScorer(model, temperature=0.7, token_budget=40).score(prompts, reasonings)
    np.testing.assert_allclose(scores, one_pair_at_a_time(model, prompts, reasonings, 0.7), atol=1e-3)


def test_adapters_are_scored_and_modes_restored(oracle):
    torch.manual_seed(0)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model = get_peft_model(
        base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, lora_dropout=0.5)
    )
    model.train()
    model.base_model.model.model.layers[0].eval()  # somebody froze a part
    before = [module.training for module in model.modules()]
    prompts, reasonings = oracle["prompt_ids"][:2], oracle["reasoning_ids"][:3]
    scores = CrossScorer(model).score(prompts, reasonings)
    assert [module.training for module in model.modules()] == before
    model.eval()
    np.testing.assert_allclose(scores, one_pair_at_a_time(model, prompts, reasonings), atol=1e-3)
    with model.disable_adapter():
        assert np.abs(CrossScorer(model).score(prompts, reasonings) - scores).max() > 0.1


def test_prompt_tuning_falls_back_to_whole_sequences(oracle):
    torch.manual_seed(0)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model = get_peft_model(base, PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=3)).eval()
    prompt, reasoning = oracle["prompt_ids"][0], oracle["reasoning_ids"][0]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *reasoning]])).logits[0, 3:]
    expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(reasoning)[:, None]).sum()
    assert CrossScorer(model).score([prompt], [reasoning])[0, 0] == pytest.approx(float(expected), abs=1e-3)


def test_recurrent_models_fall_back_to_whole_sequences(oracle):
    torch.manual_seed(0)
    config = transformers.Qwen3NextConfig(
        **SMALL, layer_types=["linear_attention", "full_attention", "linear_attention"], num_experts=2, num_experts_per_tok=1,
        moe_intermediate_size=16, shared_expert_intermediate_size=16, linear_num_key_heads=2, linear_num_value_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=8,
    )  # fmt: skip
    model = transformers.Qwen3NextForCausalLM(config).float().eval()
    scorer = CrossScorer(model)
    assert not scorer.lm.cacheable
    prompts, reasonings = oracle["prompt_ids"][:2], oracle["reasoning_ids"][:3]
    np.testing.assert_allclose(
        scorer.score(prompts, reasonings), one_pair_at_a_time(model, prompts, reasonings), atol=1e-3
    )


def test_only_wanted_pairs_and_progress(oracle, oracle_model):
    wanted = np.random.default_rng(0).random((8, 6)) < 0.4
    calls = []
    scores = CrossScorer(oracle_model, token_budget=30).score(
        oracle["prompt_ids"],
        oracle["reasoning_ids"][:8],
        pairs_RN=wanted,
        progress=lambda done, total: calls.append((done, total)),
    )
    np.testing.assert_allclose(scores[wanted], np.array(oracle["logprob_sum"])[:8][wanted], atol=2e-3)
    assert np.isnan(scores[~wanted]).all()
    # Two of the six prompts are the same token ids: that column is scored once.
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1] < wanted.sum()


def test_work_is_shared(oracle, oracle_model):
    """Every distinct prompt token once (shared prefix included), every distinct continuation once, no more."""
    seen = []
    hook = oracle_model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    reasonings = oracle["reasoning_ids"][:6]
    try:
        CrossScorer(oracle_model).score(oracle["prompt_ids"], reasonings * 5)
    finally:
        hook.remove()
    distinct = sorted({tuple(prompt) for prompt in oracle["prompt_ids"]})
    prefix = 0
    while len({prompt[: prefix + 1] for prompt in distinct}) == 1:
        prefix += 1
    prompt_tokens = prefix + sum(len(prompt) - prefix for prompt in distinct)
    padded = len(reasonings) * (max(map(len, reasonings)) - 1)
    head_check = 8 * 2
    assert sum(seen) <= prompt_tokens + len(distinct) * padded + head_check


def test_refuses_what_it_cannot_score(oracle_model):
    scorer = CrossScorer(oracle_model)
    with pytest.raises(ValueError, match="reasoning 1 is empty"):
        scorer.score([[1, 2]], [[3], []])
    with pytest.raises(ValueError, match="prompt 0 is empty"):
        scorer.score([[]], [[3]])
    with pytest.raises(ValueError, match="pairs_RN has shape"):
        scorer.score([[1]], [[3]], pairs_RN=np.ones((2, 2), bool))
    with pytest.raises(ModelError, match="at most 512"):
        scorer.score([[1] * 500], [[2] * 20])
    with pytest.raises(ValueError, match="temperature"):
        CrossScorer(oracle_model, temperature=0.0)
    assert scorer.score([], []).shape == (0, 0)


def _score_on_rank(rank: int, world: int, store: str, queue) -> None:
    import json

    import torch.distributed as dist

    from tests.analysis.scoring.conftest import ORACLE

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    oracle = json.loads((ORACLE / "cross_scoring.json").read_text())
    model = transformers.AutoModelForCausalLM.from_pretrained(ORACLE / "model")
    scorer = CrossScorer(model)
    many = scorer.score(oracle["prompt_ids"], oracle["reasoning_ids"])
    one_column = scorer.score(oracle["prompt_ids"][:1], oracle["reasoning_ids"])
    try:
        scorer.score(oracle["prompt_ids"][rank : rank + 1], oracle["reasoning_ids"])
        refused = False
    except ValueError:
        refused = True
    queue.put((rank, many, one_column, refused))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_share_the_work_and_agree(oracle, tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [
        context.Process(target=_score_on_rank, args=(rank, 2, str(tmp_path / "store"), queue)) for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=240) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    for _, many, one_column, refused in results:
        np.testing.assert_allclose(many, oracle["logprob_sum"], atol=2e-3)
        np.testing.assert_allclose(one_column[:, 0], np.array(oracle["logprob_sum"])[:, 0], atol=2e-3)
        assert refused
