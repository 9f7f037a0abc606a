"""Writes a small native run with log-probs and cross scores: reasoning that names its prompt, success that rises."""

from pathlib import Path

import numpy as np

from ragen_diag import rollout_log
from ragen_diag.cross_scores import CrossScores


def write_run(folder: Path, *, steps: int = 24, prompts: int = 6, rollouts: int = 6, dependence: float = 1.0) -> Path:
    """A run folder. dependence: 1 = the reasoning names its own prompt, 0 = any prompt of the step at random."""
    rng = np.random.default_rng(0)
    for step in range(1, steps + 1):
        rows, named = [], []
        for group in range(prompts):
            for k in range(rollouts):
                about = group if rng.random() < dependence else int(rng.integers(prompts))
                named.append(about)
                rows.append(_row(step, group, k, about, rng))
        rollout_log.write_step(folder, step, "train", rows)
        if step % 4 == 1:
            _cross_scores(step, prompts, rollouts, named, rows).save(folder)
    metrics = [
        {"step": step, "grad_norm": float(rng.uniform(0.4, 0.6)), "kl_nats": 1e-3 * step}
        for step in range(1, steps + 1)
    ]
    rollout_log.write_metrics(folder, metrics)
    (folder / rollout_log.RUN_FILE).write_text("name: planted\n")
    return folder


def _row(step: int, group: int, k: int, about: int, rng: np.random.Generator) -> dict:
    success = bool(rng.random() < 0.3 + 0.015 * step + 0.05 * group)
    thinking = f" the goal of board {step}-{about} lies {rng.choice(['left', 'right', 'up', 'down'])} of me, way {rng.integers(9)}"
    prompt = f"board {step}-{group}: find the goal"
    return {
        "run_id": "planted", "step": step, "split": "train", "env": "planted", "group_id": f"{group}",
        "prompt_id": rollout_log.prompt_id(prompt), "trajectory_id": f"{step}-{group}-{k}", "turn": 0, "n_turns": 1,
        "rollout_index": k, "prompt_text": prompt, "response_text": f"{thinking}</think><answer>left</answer>",
        "thinking_text": thinking, "thinking_closed": True, "answer_text": "left", "actions": ["left"], "return_": float(success),
        "success": success, "response_truncated": False, "format_valid": True, "action_valid": True, "response_tokens": 14,
        "prompt_tokens": 9, "thinking_start": 0, "thinking_end": 10, "logprobs": list(rng.normal(-0.4, 0.05, 14)),
        "entropies": list(rng.uniform(0.4, 0.6, 14)), "advantage": float(success) - 0.5, "max_response_tokens": 64,
    }  # fmt: skip


def _cross_scores(step: int, prompts: int, rollouts: int, named: list[int], rows: list[dict]) -> CrossScores:
    own = np.repeat(np.arange(prompts), rollouts)
    scores = np.full((len(own), prompts), -9.0)
    scores[np.arange(len(own)), named] = -4.0
    return CrossScores(
        step=step, split="train", scope="first_turn", scorer="policy", logprob_sum_RN=scores,
        tokens_R=np.full(len(own), 10), column_R=own, weights_N=np.full(prompts, 1 / prompts),
        prompt_ids_N=tuple(f"p{step}-{j}" for j in range(prompts)),
        trajectory_ids_R=tuple(row["trajectory_id"] for row in rows), turn_R=np.zeros(len(own), dtype=int),
    )  # fmt: skip
