from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from analysis.information import measure
from analysis.scoring.models import ModelScorer, load_scorer
from analysis.scoring.offline import MAX_STEPS, score_log
from ragen_diag.errors import ModelError, UsageError
from ragen_diag.rollout_log import read_steps, write_step
from tests.analysis.scoring.conftest import ORACLE


@dataclass
class Log:
    path: Path

    def tables(self):
        for batch in read_steps(self.path):
            yield pa.Table.from_batches([batch])


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> Path:
    """The oracle model with a tokenizer that reads 'w17 w3' as the ids 17 and 3."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(ORACLE / "model", folder)
    vocabulary = {f"w{i}": i for i in range(383)} | {"<think>": 383}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("<think>", "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, pre_tokenizers.WhitespaceSplit()])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def run(oracle, model_dir, tmp_path) -> Log:
    """Two steps of the oracle's rollouts; the second was sampled by checkpoint 1 and logged with token ids."""
    for step, version in ((1, 0), (2, 1)):
        rows = []
        for r, (reasoning, group) in enumerate(zip(oracle["reasoning_ids"], oracle["group_ids"], strict=True)):
            prompt = oracle["prompt_ids"][group]
            ids = {
                "prompt_ids": prompt,
                "response_ids": [*reasoning, 1],
                "thinking_start": 0,
                "thinking_end": len(reasoning),
            }
            rows.append(
                {
                    "run_id": "r", "step": step, "split": "train", "group_id": f"g{group}", "prompt_id": f"p{group}",
                    "trajectory_id": f"{step}-{r}", "turn": 0, "prompt_text": " ".join(f"w{i}" for i in prompt),
                    "thinking_text": " ".join(f"w{i}" for i in reasoning), "thinking_closed": True,
                    "model_version": f"update-{version}", "temperature": 1.0,
                }
                | (ids if step == 2 else {})
            )  # fmt: skip
        write_step(tmp_path, step, "train", rows)
    shutil.copytree(model_dir, tmp_path / "checkpoints" / "step-000001" / "model")
    return Log(tmp_path)


def test_the_checkpoint_that_sampled_a_step_scores_it_exactly(run, oracle):
    said = []
    foreign, exact = score_log(run, "checkpoint", say=said.append)
    expected = np.array(oracle["logprob_sum"])
    assert exact.scorer == f"checkpoint:{run.path}/checkpoints/step-000001"
    column_of_group = dict(zip(oracle["group_ids"], exact.column_R.tolist(), strict=True))
    assert len(exact.weights_N) == 5  # two of the six prompts are the same token ids
    for group, column in column_of_group.items():
        np.testing.assert_allclose(exact.logprob_sum_RN[:, column], expected[:, group], atol=2e-3)
    assert exact.weights_N.max() == pytest.approx(2 / 6)
    assert measure(exact)["mi_upper_nats"].value is not None
    # Step 1 was sampled by an update nobody kept: the checkpoint is a foreign critic, which reads the text.
    assert foreign.scorer == str(run.path / "checkpoints" / "step-000001" / "model")
    assert measure(foreign)["mi_upper_nats"].value is None
    assert foreign.step == 1
    assert said[-1] == "scoring step 2 (2/2): 100% of 120 pairs"


def test_a_named_model_reads_the_text_with_its_own_tokenizer(run, model_dir, oracle):
    scorer = load_scorer(str(model_dir))
    assert scorer.tokenize("w17 w3<think>", special=True) == [17, 3, 383]
    first, second = score_log(run, str(model_dir))
    np.testing.assert_allclose(first.logprob_sum_RN, second.logprob_sum_RN, atol=1e-4)
    context = [*oracle["prompt_ids"][0], 383]
    direct = ModelScorer(str(model_dir)).score([context], [oracle["reasoning_ids"][0]])
    assert first.logprob_sum_RN[0, first.column_R[0]] == pytest.approx(direct[0, 0], abs=1e-3)
    assert load_scorer(str(run.path / "checkpoints" / "step-000001")).name.endswith("step-000001/model")


def test_long_runs_are_sampled_and_small_batches_respected(tmp_path, model_dir):
    for step in range(40):
        rows = [
            {
                "run_id": "r", "step": step, "split": "train", "group_id": f"g{i // 2}", "prompt_id": f"p{i // 2}",
                "trajectory_id": f"{step}-{i}", "turn": 0, "prompt_text": f"w{i // 2 + 1}", "thinking_text": "w3 w4",
            }
            for i in range(12)
        ]  # fmt: skip
        write_step(tmp_path, step, "train", rows)
    matrices = score_log(Log(tmp_path), str(model_dir), max_rows=6)
    assert len(matrices) == MAX_STEPS
    assert [matrices[0].step, matrices[-1].step] == [0, 39]
    assert {cross.logprob_sum_RN.shape for cross in matrices} == {(6, 3)}


def test_errors_say_what_is_missing(tmp_path, model_dir):
    with pytest.raises(UsageError, match="no turn with closed thinking"):
        score_log(Log(tmp_path), str(model_dir))
    row = {
        "run_id": "r",
        "step": 1,
        "split": "val",
        "prompt_id": "p",
        "trajectory_id": "t",
        "turn": 0,
        "prompt_text": "w1",
    }
    write_step(tmp_path, 1, "val", [row | {"thinking_text": "w2"}])
    with pytest.raises(UsageError, match="two prompts"):
        score_log(Log(tmp_path), str(model_dir))
    with pytest.raises(ModelError, match="no finished checkpoint"):
        score_log(Log(tmp_path), "checkpoint")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_scorer(str(tmp_path / "nowhere"))
