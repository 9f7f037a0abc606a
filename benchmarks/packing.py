"""What laying samples end to end saves: tokens through the network and CPU seconds of one scoring pass and one update.

    python -m benchmarks.packing                                             the embedded model
    python -m benchmarks.packing --model FOLDER --budgets 1024 --samples 16   another one

Samples have log-normal lengths, the shape that multi-turn rollouts of different numbers of turns have, cut at four times the
median. Padded micro-batches hold samples of similar length, as in training. Both ways alternate; the median of the repeats
is printed, in CPU seconds of this process, so that neighbours on the machine count little.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from accelerate import Accelerator

from ragen_diag.config import AlgorithmConfig, ModelConfig, OptimConfig
from trainer.batch import Batch
from trainer.credit import Credit
from trainer.policy import Policy
from trainer.update import Scored, Updater


def ragged_batch(n_samples: int, median: int, sigma: float, vocabulary: int) -> Batch:
    """Random tokens; the last 60 % of each sample are chosen ones."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(np.log(median), sigma, n_samples), 4 * median).astype(int).clip(min=8)
    attention = (torch.arange(int(lengths.max()))[None] < torch.from_numpy(lengths)[:, None]).long()
    mask = attention * (torch.arange(attention.shape[1])[None] >= torch.from_numpy(lengths * 2 // 5)[:, None])
    ids = torch.from_numpy(rng.integers(0, vocabulary, attention.shape))
    zeros, ones = torch.zeros(attention.shape), torch.ones(n_samples)
    return Batch(ids, attention, mask.float(), zeros, zeros.long(), zeros, torch.arange(n_samples), ones)


def timed(updater: Updater, batch: Batch) -> tuple[float, float]:
    """CPU seconds of a scoring pass and of one update on the whole batch."""
    began = time.process_time()
    batch.old_logp_BT = updater.score(batch, "logp")
    scored_at = time.process_time()
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=batch.mask_BT.shape)).float() * batch.mask_BT
    updater.run(Scored(batch, Credit(noise), None, None), rng=np.random.default_rng(0))
    return scored_at - began, time.process_time() - scored_at


def tokens(updater: Updater, batch: Batch) -> int:
    """Tokens, padding included, that go through the network in one pass over the batch."""
    parts = updater.micro_batches(batch, np.arange(len(batch)))
    return sum(updater.layout(batch, part).n_tokens for part in parts)


def main() -> None:
    """Print one line per way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--median", type=int, default=200, help="median length, tokens")
    parser.add_argument("--sigma", type=float, default=0.6, help="of the log length; 0 is no raggedness")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--budgets", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy = Policy(ModelConfig(path=args.model), seed=0, with_critic=False, with_reference=False)
    batch = ragged_batch(args.samples, args.median, args.sigma, policy.causal_lm.config.get_text_config().vocab_size)
    updaters = {
        budget: Updater(
            policy, AlgorithmConfig(), OptimConfig(lr=1e-9, micro_batch=args.micro_batch, pack_tokens=budget),
            Accelerator(cpu=True), temperature=1.0,
        )
        for budget in (0, *args.budgets)
    }  # fmt: skip
    times: dict[int, list[tuple[float, float]]] = {budget: [] for budget in updaters}
    for _ in range(args.repeats):
        for budget, updater in updaters.items():
            times[budget].append(timed(updater, batch))
    real, (score_s, update_s) = int(batch.lengths_B.sum()), np.median(times[0], axis=0)
    print(f"{len(batch)} samples of {batch.lengths_B.min()} to {batch.lengths_B.max()} tokens, {real} in all")
    for budget, updater in updaters.items():
        name, through = f"pack_tokens={budget}" if budget else f"micro_batch={args.micro_batch}", tokens(updater, batch)
        score, update = np.median(times[budget], axis=0)
        print(
            f"{name:17} {through:6} tokens, {1 - real / through:4.0%} padding; score {score:.2f} s ({score_s / score:.2f}x), "
            f"update {update:.2f} s ({update_s / update:.2f}x)"
        )


if __name__ == "__main__":
    main()
