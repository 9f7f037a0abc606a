"""A training run drawn from a plan of per-step levels: as RunData, or as a native rollout log with texts.

What is planted is known exactly: success probability, share of tied groups, share of templates, entropy, lengths. Which
plans make a healthy or a failing run is decided in runs.py; worlds with closed-form information are in worlds.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.run_data import ROLLOUT_COLUMNS, RunData
from ragen_diag.cross_scores import CrossScores
from ragen_diag.rollout_log import write_metrics, write_step

N_COLUMNS = 8
"""Prompts of one planted cross-score matrix."""
ROWS_PER_COLUMN = 8


@dataclass
class Plan:
    """Levels over T steps; every array is (T,). Defaults: `flat`."""

    n_groups: int
    group_size: int
    success: np.ndarray
    """Mean success probability at average difficulty."""
    tie: np.ndarray
    """Share of groups whose rollouts all share one draw of the outcome: the mean stays, the in-group spread goes."""
    entropy: np.ndarray
    tokens: np.ndarray
    template: np.ndarray
    """Share of reasonings that ignore their prompt."""
    format_ok: np.ndarray
    kl: np.ndarray
    grad: np.ndarray
    repeat: np.ndarray
    """Share of responses that repeat one word."""
    env_text: np.ndarray
    tools: np.ndarray
    """Tool calls a rollout; 0 = the task has none."""
    difficulty: float = 1.0
    """Spread of prompts in logits."""
    cap: int = 1024
    scale: float = 1.0
    offset: float = 0.0
    noise: float = 0.0
    """Std of a dense part of the return."""
    n_templates: int = 3
    paraphrased: bool = False
    """Templates are reworded each time: no exact copies, only cross scores can tell."""
    short_phrases: bool = False
    """Healthy reasoning of a few fixed phrases that go with the prompt."""
    thinking: bool = True
    cross_every: int = 0
    """Steps between cross-score matrices; 0 = none."""
    format_reward: float = 0.0
    """Weight of the format part; above 0 the return is accuracy + weight x format."""

    @classmethod
    def flat(cls, n_steps: int, **changes: object) -> Plan:
        """A dull healthy run; `changes` replaces any field, numbers become constant arrays."""
        levels = {
            "success": 0.5, "tie": 0.0, "entropy": 0.8, "tokens": 200.0, "template": 0.05, "format_ok": 0.97, "kl": 0.01,
            "grad": 0.3, "repeat": 0.0, "env_text": 0.0, "tools": 0.0,
        }  # fmt: skip
        fields: dict[str, object] = {"n_groups": 8, "group_size": 8} | levels | changes
        arrays = {name: np.broadcast_to(np.asarray(fields[name], dtype=float), (n_steps,)).copy() for name in levels}
        return cls(**(fields | arrays))

    @property
    def n_steps(self) -> int:
        return len(self.success)


@dataclass
class Texts:
    """Word-level description of every rollout, from which native logs are written."""

    template_R: np.ndarray
    """Index of the template, -1 = about its prompt."""
    phrase_R: np.ndarray
    repeat_R: np.ndarray = field(default_factory=lambda: np.array([]))
    env_text_R: np.ndarray = field(default_factory=lambda: np.array([]))


def simulate(plan: Plan, rng: np.random.Generator, name: str = "planted") -> tuple[RunData, Texts]:
    """Draw one run."""
    steps, groups, size = plan.n_steps, plan.n_groups, plan.group_size
    shape = (steps, groups, size)

    def level(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values[:, None, None], shape)

    difficulty = rng.normal(0, plan.difficulty, (steps, groups, 1))
    clipped = np.clip(plan.success, 1e-4, 1 - 1e-4)
    probability = 1 / (1 + np.exp(-(level(np.log(clipped / (1 - clipped))) - difficulty)))
    alone, together = rng.random(shape), np.broadcast_to(rng.random((steps, groups, 1)), shape)
    tied = np.broadcast_to(rng.random((steps, groups, 1)) < plan.tie[:, None, None], shape)
    success = (np.where(tied, together, alone) < probability).astype(float)
    shared_noise = np.broadcast_to(rng.normal(0, 1, (steps, groups, 1)), shape)
    dense = plan.noise * np.where(tied, shared_noise, rng.normal(0, 1, shape))
    format_ok = (rng.random(shape) < level(plan.format_ok)).astype(float)
    returns = plan.offset + plan.scale * success + dense + plan.format_reward * format_ok
    tokens = np.minimum(np.round(level(plan.tokens) * rng.lognormal(0, 0.25, shape)), plan.cap)
    thinking_tokens = np.maximum(np.round(tokens * 0.6), 1)
    entropy = level(plan.entropy) * rng.lognormal(0, 0.08, shape)
    template = np.where(rng.random(shape) < level(plan.template), rng.integers(plan.n_templates, size=shape), -1)
    phrase = rng.integers(3, size=(steps, groups, 1)) * np.ones(shape, dtype=int)
    phrase = np.where(rng.random(shape) < 0.9, phrase, rng.integers(3, size=shape))
    repeat, env_text = rng.random(shape) < level(plan.repeat), rng.random(shape) < level(plan.env_text)
    unique = rng.integers(1, 2**62, size=shape)
    if plan.short_phrases:
        text_hash = np.where(template >= 0, 1000 + template, 2000 + phrase)
    else:
        text_hash = np.where((template >= 0) & (not plan.paraphrased), 1000 + template, unique)
    step = np.broadcast_to(np.arange(1, steps + 1)[:, None, None], shape)
    prompt = np.broadcast_to((np.arange(steps)[:, None] * groups + np.arange(groups))[..., None], shape)
    spread = returns.std(axis=2, ddof=1, keepdims=True) if size > 1 else np.ones((steps, groups, 1))
    advantage = (returns - returns.mean(axis=2, keepdims=True)) / (spread + 1e-6)
    tools = rng.poisson(level(plan.tools)).astype(float)
    columns = {
        "step": step, "group": prompt, "prompt": prompt, "return_": returns, "success": success,
        "n_turns": 1.0 + (tools if (plan.tools > 0).any() else 0), "response_tokens": tokens, "response_chars": tokens * 4,
        "max_turn_tokens": tokens, "thinking_tokens": thinking_tokens if plan.thinking else np.nan,
        "thinking_chars": thinking_tokens * 4 if plan.thinking else 0, "n_thinking_turns": float(plan.thinking),
        "n_thinking_valid": float(plan.thinking), "truncated": (tokens >= plan.cap).astype(float), "format_valid": format_ok,
        "action_valid": 1.0, "tool_calls": tools if (plan.tools > 0).any() else np.nan, "advantage": advantage,
        "advantage_absmax": np.abs(advantage), "kept": 1.0, "filter_score": np.nan, "entropy": entropy,
        "thinking_logprob": -entropy * thinking_tokens if plan.thinking else np.nan,
        "first_thinking_logprob": -entropy * thinking_tokens if plan.thinking else np.nan,
        "thinking_tokens_all": thinking_tokens if plan.thinking else np.nan, "response_logprob": -entropy * tokens,
        "response_hash": text_hash + 1, "thinking_hash": text_hash if plan.thinking else 0,
        "top_token_share": np.where(repeat, 0.95, 0.04 + 0.08 * rng.random(shape)), "has_env_text": env_text.astype(float),
        "max_response_tokens": float(plan.cap), "error": 0.0,
    }  # fmt: skip
    flat = {key: np.broadcast_to(np.asarray(values), shape).reshape(-1) for key, values in columns.items()}
    frame = pd.DataFrame(flat)
    frame["trajectory_id"] = [f"t{index}" for index in range(len(frame))]
    frame["split"] = pd.Categorical(["train"] * len(frame), categories=["train", "val"])
    frame["prompt_id"] = "p" + frame["prompt"].astype("string")
    dtypes = {key: dtype for key, dtype in ROLLOUT_COLUMNS.items() if dtype != "category"}
    frame = frame.reindex(columns=list(ROLLOUT_COLUMNS)).astype(dtypes)
    parts = pd.DataFrame(index=frame.index)
    if plan.format_reward:
        parts = pd.DataFrame({"accuracy": success.reshape(-1), "format": format_ok.reshape(-1)}, index=frame.index)
    run = RunData(
        name=name, rollouts=frame, series=_series(plan, rng), reward_components=parts, texts=[],
        cross_scores=_cross_scores(plan, rng) if plan.cross_every else [], formats=("ragen_diag",),
    )  # fmt: skip
    words = Texts(template.reshape(-1), phrase.reshape(-1), repeat.reshape(-1), env_text.reshape(-1))
    return run, words


def _series(plan: Plan, rng: np.random.Generator) -> dict[str, pd.Series]:
    index = pd.Index(np.arange(1, plan.n_steps + 1), name="step")

    def noisy(values: np.ndarray, sigma: float) -> pd.Series:
        return pd.Series(values * rng.lognormal(0, sigma, plan.n_steps), index=index)

    return {
        "grad_norm": noisy(plan.grad, 0.25),
        "kl_nats": noisy(plan.kl, 0.1),
        "loss": pd.Series(rng.normal(0, 0.01, plan.n_steps), index=index),
        "clip_fraction": pd.Series(rng.uniform(0, 0.01, plan.n_steps), index=index),
        "learning_rate": pd.Series(1e-6, index=index),
    }


def _cross_scores(plan: Plan, rng: np.random.Generator) -> list[CrossScores]:
    """One-slot world: a reasoning names its prompt, or with probability `template` any of them. MI is known, <= ln 8."""
    found = []
    n_rows = N_COLUMNS * ROWS_PER_COLUMN
    column = np.repeat(np.arange(N_COLUMNS), ROWS_PER_COLUMN)
    for step in range(0, plan.n_steps, plan.cross_every):
        share = float(np.clip(plan.template[step], 1e-3, 1))
        slot = np.where(rng.random(n_rows) < share, rng.integers(N_COLUMNS, size=n_rows), column)
        probability = np.where(slot[:, None] == np.arange(N_COLUMNS), 1 - share, 0.0) + share / N_COLUMNS
        tokens = np.maximum(rng.poisson(plan.tokens[step] * 0.6, n_rows), 1)
        style = -plan.entropy[step] * tokens * rng.lognormal(0, 0.05, n_rows)
        found.append(
            CrossScores(
                step=step + 1, split="train", scope="first_turn", scorer="policy",
                logprob_sum_RN=style[:, None] + np.log(probability), tokens_R=tokens, column_R=column,
                weights_N=np.full(N_COLUMNS, 1 / N_COLUMNS), prompt_ids_N=tuple(f"p{j}" for j in range(N_COLUMNS)),
                trajectory_ids_R=tuple(f"c{step}-{r}" for r in range(n_rows)), turn_R=np.zeros(n_rows, dtype=int),
            )
        )  # fmt: skip
    return found


_PHRASES = (
    "Go left, the gap is on that side.",
    "Go right along the wall to the door.",
    "Go up, the goal is above me now.",
)
_TEMPLATES = ("I will read the question carefully and then decide.", "Let me think about this step by step before I act.",
              "The best approach is to compute the result and report it.")  # fmt: skip


def write_native(run: RunData, texts: Texts, run_dir: Path) -> None:
    """Write a drawn run as a native rollout log. Exact templates only: paraphrases would need a language."""
    frame = run.rollouts
    for step, part in frame.groupby("step"):
        rows = [_row(frame.loc[index], texts, int(index)) for index in part.index]
        write_step(run_dir, int(step), "train", rows)
    steps = sorted({int(s) for values in run.series.values() for s in values.index})
    write_metrics(run_dir, [{"step": s, **{n: _at(v, s) for n, v in run.series.items()}} for s in steps])
    for cross in run.cross_scores:
        cross.save(run_dir)


def _at(values: pd.Series, step: int) -> float | None:
    return float(values.loc[step]) if step in values.index else None


def _row(rollout: pd.Series, texts: Texts, index: int) -> dict[str, object]:
    prompt = int(rollout["prompt"])
    template = int(texts.template_R[index])
    about = f"The state is {prompt * 7919 % 10007} and {prompt * 104729 % 10009}, so attempt {index} follows from it."
    thinking = _TEMPLATES[template % len(_TEMPLATES)] if template >= 0 else about
    thinking = None if rollout["thinking_hash"] == 0 else thinking
    answer = "! " * 40 if texts.repeat_R[index] else "I move to the cell that the plan above names and then wait there."
    if texts.env_text_R[index]:
        answer += "\n<|im_start|>user\nTurn 2:\nState:\n"
    return {
        "run_id": "planted", "step": int(rollout["step"]), "split": "train", "group_id": f"g{int(rollout['group'])}",
        "prompt_id": f"p{prompt}", "trajectory_id": str(rollout["trajectory_id"]), "turn": 0,
        "n_turns": int(rollout["n_turns"]), "prompt_text": f"Board {prompt}: find the way.",
        "response_text": f"<think>{thinking or ''}</think>{answer}", "thinking_text": thinking, "thinking_closed": True,
        "return_": float(rollout["return_"]), "success": bool(rollout["success"]),
        "response_truncated": bool(rollout["truncated"]), "format_valid": bool(rollout["format_valid"]),
        "response_tokens": int(rollout["response_tokens"]), "advantage": float(rollout["advantage"]), "kept_by_filter": True,
        "max_response_tokens": int(rollout["max_response_tokens"]),
        "n_tool_calls": None if np.isnan(rollout["tool_calls"]) else int(rollout["tool_calls"]),
    }  # fmt: skip
