"""CrossScorer against scoring one pair at a time as a whole sequence: time, peak memory, equality of the numbers.

    OMP_NUM_THREADS=1 python -m benchmarks.cross_scoring                       (one core: a few minutes)
    OMP_NUM_THREADS=1 python -m benchmarks.cross_scoring --pairs 4096          (every pair by both: about ten minutes)

The slow side scores a random sample of the 64 x 64 pairs and its time is scaled to all of them. The two sides run in processes of
their own, so that peak memory is each one's own, and take turns, a quarter of the prompts at a time, so that a slow minute of the
machine hits both. The slow side does per pair what RAGEN-2's detector does per
sequence: one forward pass over prompt + reasoning, log-softmax over the vocabulary at every position, gather, sum. Times are CPU
seconds (wall seconds on CUDA).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N_PROMPTS, N_REASONINGS, PROMPT_TOKENS, REASONING_TOKENS, VOCABULARY = 64, 64, 320, 80, 4096
N_ROUNDS = 4


def build_model(device: str):
    """A Qwen2 of about 8 M parameters with fixed random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=896, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=512, initializer_range=0.08, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval().to(device)


def build_inputs(repeated: float) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts that share a 200-token system prefix; `repeated`: share of reasonings that copy another one."""
    rng = np.random.default_rng(0)
    system = rng.integers(VOCABULARY, size=200).tolist()
    prompts = [system + rng.integers(VOCABULARY, size=PROMPT_TOKENS - 200).tolist() for _ in range(N_PROMPTS)]
    distinct = max(1, round(N_REASONINGS * (1 - repeated)))
    pool = [rng.integers(VOCABULARY, size=REASONING_TOKENS).tolist() for _ in range(distinct)]
    return prompts, [pool[i % distinct] for i in range(N_REASONINGS)]


def pair_sample(pairs: int, n_prompts: int) -> np.ndarray:
    """Bool (R, N) mask of the pairs that the slow side scores in one round."""
    mask = np.zeros(n_prompts * N_REASONINGS, bool)
    mask[np.random.default_rng(1).permutation(len(mask))[:pairs]] = True
    return mask.reshape(N_REASONINGS, n_prompts)


def score_pairs(model, prompts, reasonings, mask: np.ndarray) -> np.ndarray:
    """One whole sequence per pair."""
    import torch

    scores = np.full(mask.shape, np.nan)
    with torch.inference_mode():
        for row, column in np.argwhere(mask).tolist():
            ids = torch.tensor([prompts[column] + reasonings[row]], device=model.device)
            log_probs = model(input_ids=ids).logits[:, :-1].float().log_softmax(-1)
            chosen = log_probs.gather(2, ids[:, 1:, None])[0, :, 0]
            scores[row, column] = float(chosen[len(prompts[column]) - 1 :].double().sum())
    return scores


def run_side(options: argparse.Namespace) -> None:
    """Child process: score, save the matrix, print time and peak memory as JSON."""
    import torch

    # CPU time is what wall time would be on a free core; a busy machine stretches only the latter.
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    model = build_model(options.device)
    prompts, reasonings = build_inputs(options.repeated)
    prompts = prompts[options.round :: N_ROUNDS]
    if options.side == "pairs":
        score_pairs(model, prompts[:1], reasonings[:1], np.ones((1, 1), bool))  # warm-up
        start = clock()
        scores = score_pairs(model, prompts, reasonings, pair_sample(options.pairs // N_ROUNDS, len(prompts)))
    else:
        from analysis.scoring.cross_scorer import CrossScorer

        scorer = CrossScorer(model, token_budget=options.token_budget)
        scorer.score(prompts[:1], reasonings[:1])
        start = clock()
        scores = scorer.score(prompts, reasonings)
    seconds = clock() - start
    np.save(options.matrix, scores)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "load": os.getloadavg()[0]}))


def measure_side(side: str, repeated: float, number: int, options: argparse.Namespace) -> tuple[dict, np.ndarray]:
    """Run one round of one side in a process of its own: its time and memory, and the matrix (R, prompts of the round)."""
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "scores.npy"
        command = [sys.executable, "-m", "benchmarks.cross_scoring", "--side", side, "--repeated", str(repeated)]
        command += ["--round", str(number), "--matrix", str(matrix), "--pairs", str(options.pairs)]
        command += ["--device", options.device, "--token-budget", str(options.token_budget)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1]), np.load(matrix)


def compare(repeated: float, wanted: float, options: argparse.Namespace) -> bool:
    """Print one line; True when speed, memory and numbers are as wanted."""
    slow_s = fast_s = error = load = 0.0
    slow_mib, fast_mib, timed = [], [], 0
    for number in range(N_ROUNDS):
        slow, expected = measure_side("pairs", repeated, number, options)
        fast, found = measure_side("cross", repeated, number, options)
        mask = ~np.isnan(expected)
        slow_s, fast_s = slow_s + slow["seconds"] * expected.size / mask.sum(), fast_s + fast["seconds"]
        error = max(error, float(np.abs(found - expected)[mask].max()))
        timed, load = timed + int(mask.sum()), max(load, fast["load"])
        slow_mib.append(slow["peak_mib"])
        fast_mib.append(fast["peak_mib"])
    speedup, memory = slow_s / fast_s, max(fast_mib) / max(slow_mib)
    good = speedup >= wanted and memory <= 1.5 and error <= 1e-3
    print(
        f"{'ok  ' if good else 'MISS'} {repeated:.0%} repeated: pairs {slow_s:.1f} s ({timed} of {N_PROMPTS * N_REASONINGS} timed), "
        f"CrossScorer {fast_s:.1f} s, {speedup:.2f}x (wanted {wanted:.0f}x); largest difference {error:.1e} nats; "
        f"peak {max(slow_mib):.0f} -> {max(fast_mib):.0f} MiB ({memory:.2f}x); load up to {load:.1f}",
        flush=True,
    )
    return good


def main() -> None:
    """Compare both sides with distinct and with mostly repeated reasonings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument("--side", choices=["pairs", "cross"], help=argparse.SUPPRESS)
    parser.add_argument("--repeated", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--matrix", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return run_side(options)
    sys.exit(not all([compare(0.0, 4.0, options), compare(0.9, 15.0, options)]))


if __name__ == "__main__":
    main()
