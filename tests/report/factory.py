"""Finished analyses made up for the report's tests: four kinds of runs, with the shapes the detectors hand over.

The numbers are planted, not measured: these tests are about showing a result, not about finding it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.result import InputSummary, Report, RunReport
from analysis.run_data import ROLLOUT_COLUMNS, RunData, TextRow
from ragen_diag.cross_scores import CrossScores
from ragen_diag.findings import Estimate, Finding, SeriesPoint, Status, Verdict
from ragen_diag.rollout_log import BadRecord

KINDS = ("healthy", "template_collapse", "echo_trap", "broken_pipeline")
ROOMS = ("kitchen", "cellar", "garden", "attic", "workshop", "library", "stable", "chapel")
TEMPLATE = "I need to think about this carefully and step by step before I choose an action"


def report(*kinds: str, n_steps: int = 200, n_groups: int = 8, group_size: int = 8) -> Report:
    """A report with one run per kind."""
    kinds = kinds or KINDS
    runs = [run(kind, n_steps=n_steps, n_groups=n_groups, group_size=group_size) for kind in kinds]
    return Report(inputs=[_input(entry, n_steps, n_groups) for entry in runs], runs=runs)


def run(kind: str, *, n_steps: int = 200, n_groups: int = 8, group_size: int = 8, seed: int = 0) -> RunReport:
    """One run of a kind with its series, rollouts, texts, cross scores and findings."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    time = np.linspace(0, 1, n_steps)
    level = _levels(kind, time)
    rollouts = _rollouts(kind, rng, level, n_groups, group_size)
    data = RunData(
        name=f"runs/{kind.replace('_', '-')}",
        rollouts=rollouts,
        series={
            name: pd.Series(values, index=np.arange(n_steps)) for name, values in _logged(kind, rng, level).items()
        },
        reward_components=pd.DataFrame(index=rollouts.index),
        texts=_texts(kind, rollouts, n_steps, group_size),
        text_sampling="whole groups of 24 of the steps, 192 rollouts in all",
        cross_scores=[_cross_scores(rng, 0, 1.0), _cross_scores(rng, n_steps - 1, float(level["dependence"][-1]))],
        config={
            "algorithm": "grpo",
            "env": {"name": "frozen_lake", "slip": True},
            "learning_rate": 1e-5,
            "group_size": group_size,
        },
        formats=("ragen_diag",),
        assumptions=["Log-probs are taken at the sampling temperature 1.0, top-p off (from the log)."],
    )
    verdict, reason, regime, phase = _VERDICTS[kind]
    return RunReport(
        name=data.name,
        verdict=verdict,
        reason=reason,
        regime=regime,
        phase=phase,
        findings=_findings(kind, data, n_steps),
        metrics=_metrics(level, n_groups, len(rollouts)),
        series=_series(rng, level),
        filter=_filter(kind),
        data=data,
    )


_VERDICTS = {
    "healthy": (
        Verdict.HEALTHY,
        "Reward rises, the reasoning still depends on the prompt, no check failed.",
        "input_driven",
        "healthy",
    ),
    "template_collapse": (
        Verdict.COLLAPSED,
        "Since step 120 the reasoning no longer depends on the prompt while its entropy stayed: template collapse.",
        "template_collapse",
        "trapped",
    ),
    "echo_trap": (
        Verdict.COLLAPSED,
        "Reward spread inside groups fell from step 92, 38 steps before the reward; the gradient norm spiked at step 150.",
        "low_entropy_collapse",
        "irreversible",
    ),
    "broken_pipeline": (
        Verdict.BROKEN_PIPELINE,
        "Every advantage is exactly 0 although rewards differ inside groups: advantages are not computed per group.",
        "unknown",
        "unknown",
    ),
}


def _levels(kind: str, time: np.ndarray) -> dict[str, np.ndarray]:
    """Smooth levels over the run, 0..1: input dependence, entropy relative to the start, success."""

    def falls(at: float) -> np.ndarray:
        return 1 / (1 + np.exp((time - at) * 25))

    rises = 0.2 + 0.6 * (1 - np.exp(-3 * time))
    if kind == "template_collapse":
        return {
            "dependence": 0.05 + 0.85 * falls(0.55),
            "entropy": 0.95 - 0.05 * time,
            "success": rises * (0.45 + 0.55 * falls(0.6)),
        }
    if kind == "echo_trap":
        return {
            "dependence": 0.1 + 0.8 * falls(0.6),
            "entropy": 0.15 + 0.85 * falls(0.55),
            "success": rises * (0.1 + 0.9 * falls(0.65)),
        }
    if kind == "broken_pipeline":
        return {"dependence": 0.9 + 0 * time, "entropy": 1.0 + 0 * time, "success": 0.2 + 0 * time}
    return {"dependence": 0.9 - 0.1 * time, "entropy": 1 - 0.25 * time, "success": rises}


def _rollouts(
    kind: str, rng: np.random.Generator, level: dict[str, np.ndarray], n_groups: int, group_size: int
) -> pd.DataFrame:
    n_steps = len(level["success"])
    n = n_steps * n_groups * group_size
    step = np.repeat(np.arange(n_steps), n_groups * group_size)
    group = np.repeat(np.arange(n_steps * n_groups), group_size)
    prompt = group % (n_groups * 3)
    skill = np.clip(level["success"][step] + 0.3 * np.sin(prompt), 0.02, 0.98)
    if kind in ("template_collapse", "echo_trap"):  # groups agree more and more: nothing left to learn from
        skill = np.where(level["dependence"][step] < 0.4, np.where(skill > 0.55, 0.995, 0.005), skill)
    success = (rng.random(n) < skill).astype(float)
    tokens = np.clip(rng.normal(120 + 60 * (1 - level["dependence"][step]), 20), 8, 256).round()
    columns: dict[str, object] = {
        "step": pd.array(step, dtype="Int64"),
        "split": pd.Categorical.from_codes(np.zeros(n, dtype=np.int8), ["train", "val"]),
        "group": group,
        "prompt": prompt,
        "trajectory_id": pd.array([f"t{number}" for number in range(n)], dtype="string"),
        "return_": success - 0.1 * (tokens > 200),
        "success": success,
        "n_turns": np.full(n, 1.0),
        "response_tokens": tokens,
        "truncated": (tokens >= 230).astype(float),
        "format_valid": np.ones(n),
        "action_valid": np.where(rng.random(n) < 0.03, 0.5, 1.0),
        "advantage": np.zeros(n) if kind == "broken_pipeline" else success - 0.5,
    }
    blank = np.full(n, np.nan)
    zeros = np.zeros(n, dtype=np.int64)
    frame = {name: columns.get(name, zeros if dtype == "int64" else blank) for name, dtype in ROLLOUT_COLUMNS.items()}
    return pd.DataFrame(frame)


def _logged(kind: str, rng: np.random.Generator, level: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    n_steps = len(level["success"])
    grad_norm = 0.8 + 0.1 * rng.random(n_steps)
    kl = 0.002 + 0.05 * np.linspace(0, 1, n_steps) + 0.002 * rng.random(n_steps)
    if kind == "echo_trap":
        grad_norm[int(n_steps * 0.75)] = 61.0
    if kind == "broken_pipeline":
        grad_norm[:], kl[:] = 0.0, 0.0
    return {"grad_norm": grad_norm, "kl_nats": kl, "loss": np.zeros(n_steps)}


def _series(rng: np.random.Generator, level: dict[str, np.ndarray]) -> dict[str, list[SeriesPoint]]:
    n_steps = len(level["success"])

    def points(values: np.ndarray, half_width: float) -> list[SeriesPoint]:
        noisy = values + rng.normal(0, half_width / 3, n_steps)
        return [
            SeriesPoint(step, float(value), float(value - half_width), float(value + half_width))
            for step, value in enumerate(noisy)
        ]

    dependence, entropy, success = level["dependence"], level["entropy"], level["success"]
    tied = np.clip(1.05 - dependence, 0.05, 0.95)
    series = {
        "conditional_entropy_nats_per_token": points(1.4 * entropy, 0.05),
        "conditional_entropy_nats": points(1.4 * entropy, 0.05),
        "normalised_mi": points(dependence, 0.04),
        "mi_lower_nats": points(1.9 * dependence, 0.08),
        "mi_upper_nats": points(2.4 * dependence + 0.05, 0.12),
        "retrieval_accuracy": points(0.125 + 0.8 * dependence, 0.05),
        "retrieval_chance": [SeriesPoint(step, 0.125) for step in range(n_steps)],
        "reward_mean": points(success, 0.03),
        "success_rate": points(success, 0.03),
        "reward_std_in_group": points(0.42 * dependence, 0.02),
        "zero_variance_share": points(tied, 0.03),
        "all_wrong_share": points(tied * (1 - success), 0.03),
        "all_right_share": points(tied * success, 0.03),
        "response_tokens_mean": points(120 + 60 * (1 - dependence), 4),
        "truncated_share": points(0.02 + 0.1 * (1 - dependence), 0.01),
    }
    for bucket in (1, 2, 3):
        series[f"grad_norm/bucket_{bucket}/task"] = points(bucket * (0.5 + 0.5 * dependence), 0.1)
    return series


def _metrics(level: dict[str, np.ndarray], n_groups: int, n_rollouts: int) -> dict[str, Estimate]:
    dependence, entropy, success = (float(level[name][-1]) for name in ("dependence", "entropy", "success"))

    def estimate(value: float, half_width: float, unit: str, method: str) -> Estimate:
        return Estimate(value, (value - half_width, value + half_width), unit, n_groups, n_rollouts, method)

    return {
        "success_rate": estimate(success, 0.03, "share", "last 10 steps, cluster bootstrap over prompts"),
        "mi_lower_nats": estimate(1.9 * dependence, 0.1, "nats", "mean(matched − mix), jackknife over prompts"),
        "conditional_entropy_nats_per_token": estimate(
            1.4 * entropy, 0.04, "nats/token", "−mean log-prob of sampled thinking tokens"
        ),
        "retrieval_accuracy": estimate(0.125 + 0.8 * dependence, 0.05, "share", "own prompt scores best, chance 0.125"),
        "kl_nats": Estimate(None, None, "nats/token", 0, 0, "no reference log-probs in the log"),
    }


def _texts(kind: str, rollouts: pd.DataFrame, n_steps: int, group_size: int) -> list[TextRow]:
    rows = []
    for step in np.unique(np.linspace(0, n_steps - 1, 24).astype(int)):
        at_step = rollouts[rollouts["step"] == step]
        place = int(step) * 7 % max(len(at_step) // group_size, 1) * group_size
        for row in at_step.iloc[place : place + group_size].itertuples():
            room = ROOMS[row.prompt % len(ROOMS)]
            own = f"The goal is {row.prompt % 3 + 1} right and {row.prompt % 4} down, there is a hole by the {room}, so I go around it"
            templated = kind == "template_collapse" and step > n_steps // 2
            thinking = f"{TEMPLATE}. Room {room}." if templated else f"{own} ({row.Index % 7})."
            rows.append(
                TextRow(
                    step=int(step),
                    split="train",
                    group=int(row.group),
                    prompt=int(row.prompt),
                    trajectory_id=str(row.trajectory_id),
                    prompt_text=f"You are in the {room}.\nP _ _ O\n_ O _ _\n_ _ _ G\nChoose from Up, Down, Left, Right.",
                    thinking_text=thinking,
                    response_text=f"<think>{thinking}</think><answer>Right</answer>",
                    return_=float(row.return_),
                )
            )
    return rows


def _cross_scores(
    rng: np.random.Generator, step: int, dependence: float, n_prompts: int = 24, per_prompt: int = 4
) -> CrossScores:
    own = np.repeat(np.arange(n_prompts), per_prompt)
    topic = np.arange(n_prompts) % 4
    scores = -60 + 4 * rng.normal(size=(len(own), n_prompts)) + 8 * dependence * (topic[own][:, None] == topic)
    scores[np.arange(len(own)), own] += 18 * dependence
    return CrossScores(
        step=step,
        split="train",
        scope="first_turn",
        scorer="policy",
        logprob_sum_RN=scores,
        tokens_R=np.full(len(own), 40),
        column_R=own,
        weights_N=np.full(n_prompts, 1 / n_prompts),
        prompt_ids_N=tuple(f"{number:016x}" for number in range(n_prompts)),
        trajectory_ids_R=tuple(f"t{number}" for number in range(len(own))),
        turn_R=np.zeros(len(own), dtype=np.int64),
    )


def _filter(kind: str) -> dict[str, object] | None:
    if kind == "broken_pipeline":
        return None
    strategies = [("top_p", 0.9), ("top_p", 0.7), ("top_k", 0.5), ("off", None)]
    table = [
        {
            "strategy": name,
            "value": value,
            "kept_groups_share": 0.9 - 0.2 * place,
            "expected_snr": 1.4 - 0.15 * abs(place - 1),
        }
        for place, (name, value) in enumerate(strategies)
    ]
    setting = {"strategy": "top_p", "value": 0.7}
    return {
        "setting": setting,
        "table": table,
        "confidence": 0.81,
        "reasons": ["Best expected gradient SNR in 81 % of bootstrap draws."],
    }


_SOURCE = {"source": "ours, from planted runs"}


def _findings(kind: str, data: RunData, n_steps: int) -> list[Finding]:
    ids = [row.trajectory_id for row in data.texts]
    window = (int(n_steps * 0.6), n_steps - 1)
    make = {"healthy": _healthy, "template_collapse": _template, "echo_trap": _trap, "broken_pipeline": _broken}[kind]
    return [
        *make(n_steps, window, tuple(ids[-4:]), tuple(ids[:4])),
        Finding("NU01", Status.PASS, "all values of 11 logged metrics are finite"),
        Finding("GR01", Status.PASS, "every group has 8 rollouts"),
        Finding("TU01", Status.SKIPPED, "not in this log. To check this, log tool_calls_mean or turns_mean"),
        Finding("NZ01", Status.PASS, "normal, not a problem", {"normal": ["a loss at or near 0 (on-policy)"]}),
    ]


_Ids = tuple[str, ...]
_Window = tuple[int, int]


def _healthy(n_steps: int, window: _Window, late: _Ids, early: _Ids) -> list[Finding]:
    limits = {"warn_at": 0.5, "fail_at": 0.8, **_SOURCE}
    return [Finding("ZS01", Status.PASS, "12% of recent groups are all wrong", {"tied_share": 0.12}, limits)]


def _template(n_steps: int, window: _Window, late: _Ids, early: _Ids) -> list[Finding]:
    collapse = Finding(
        code="TC01",
        status=Status.FAIL,
        claim="the reasoning stopped depending on the prompt: retrieval fell from 0.85 to 0.16, chance is 0.13",
        evidence={"retrieval_start": 0.85, "retrieval_end": 0.16, "templates": [TEMPLATE, TEMPLATE[:44]]},
        threshold={"mi_share_low": 0.15, "copied_share": 0.5, **_SOURCE},
        steps=window,
        examples=late,
        counter_examples=early,
        could_also_be=("prompts that hardly differ",),
        check_next=("three rollouts of different prompts at the end of the run", "the entropy coefficient"),
    )
    tied = Finding(
        code="ZS02",
        status=Status.WARN,
        claim="56% of groups are tied (wrong 20%, right 36%) over 640 groups in the last 40 steps",
        evidence={"tied_share": 0.56, "n_groups": 640, "wrong_share": 0.2, "right_share": 0.36},
        threshold={"warn_at": 0.5, "fail_at": 0.8, "sustained_steps": 5, **_SOURCE},
        steps=window,
        examples=late,
        counter_examples=early,
        could_also_be=("a grader that always says right",),
        check_next=("harder prompts", "validation on harder tasks"),
    )
    return [collapse, tied]


def _trap(n_steps: int, window: _Window, late: _Ids, early: _Ids) -> list[Finding]:
    spike = int(n_steps * 0.75)
    trap = Finding(
        code="ET01",
        status=Status.FAIL,
        claim="irreversible: the reward's spread turned before the reward, which fell at step 130",
        evidence={
            "phase": "irreversible",
            "turned_at_step": {"reward_std_in_group": 92, "conditional_entropy_nats": 104},
            "lead_steps": {"reward_std_in_group": 38, "conditional_entropy_nats": 26},
            "reward_fell_at_step": 130,
            "gradient_spike_steps": [spike],
        },
        threshold={"std_ratio": 0.5, **_SOURCE},
        steps=(92, n_steps - 1),
        examples=late,
        counter_examples=early,
        check_next=("filter groups by reward variance (`ragen-diag tune`)",),
    )
    evidence = {"spike_steps": [spike], "n_spikes": 1, "median_norm": 0.85, "highest_norm": 61.0}
    gradient = Finding(
        "GN01",
        Status.FAIL,
        "1 gradient spike, up to 61 (normally 0.85)",
        evidence,
        {"ratio": 10.0, **_SOURCE},
        (spike, spike),
    )
    entropy = Finding(
        "HE01", Status.INCONCLUSIVE, "entropy fell while the score is too noisy to judge", {"n_points": 20}
    )
    return [trap, gradient, entropy]


def _broken(n_steps: int, window: _Window, late: _Ids, early: _Ids) -> list[Finding]:
    advantages = Finding(
        code="AD01",
        status=Status.FAIL,
        claim="all 12 800 advantages are exactly 0 although 93% of the groups have different rewards",
        evidence={"zero_share_of_steps": 1.0, "n_steps": n_steps},
        threshold={"warn_at": 0.2, "fail_at": 0.9, **_SOURCE},
        steps=(0, n_steps - 1),
        examples=early,
        check_next=("which id the trainer groups by",),
    )
    trace = 'Traceback (most recent call last):\n  File "weights.py", line 3\nValueError: boom'
    return [advantages, Finding("WM01", Status.ERROR, "this check crashed (ValueError: boom)", {"traceback": trace})]


def _input(entry: RunReport, n_steps: int, n_groups: int) -> InputSummary:
    n_rollouts = len(entry.data.rollouts)
    return InputSummary(
        path=entry.name,
        kind="rollouts",
        format="ragen_diag",
        format_version="1",
        why="run.yaml and rollouts/step-*.parquet",
        n_files=n_steps,
        n_rollouts=n_rollouts,
        n_turns=n_rollouts,
        n_steps=n_steps,
        n_groups=n_steps * n_groups,
        n_with_thinking=n_rollouts,
        mean_reward=0.5,
        n_reward_missing=0,
        n_bad_rows=1,
        assumptions=["The policy's own log-probs are used as they were logged."],
        skipped=[BadRecord(f"{entry.name}/rollouts/step-000007.parquet", 12, "reward is not a number: 'n/a'")],
    )
