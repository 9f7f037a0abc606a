"""Environment or chat-role text inside the policy's own responses."""

from __future__ import annotations

from analysis.detectors.registry import detector
from analysis.detectors.windows import ids, recent_rollouts, steps_of
from analysis.measures import Measures
from analysis.run_data import RunData
from analysis.snr import wilson
from ragen_diag.findings import Family, Finding, Status


@detector("EN01", "environment text inside responses", Family.PIPELINE, "rollouts.has_env_text")
def env_text(run: RunData, measures: Measures, *, warn_at: float = 0.02, fail_at: float = 0.2) -> Finding:
    """EN01: responses that hold a chat-role marker or an environment header: the policy plays the environment's part.

    warn_at, fail_at: share of recent rollouts; the lower end of its 95 % interval must reach them. Ours.
    Source: RAGEN rollout files, AgenticArXiv#80 (tool outputs invented inside a turn).
    """
    limit = {"warn_at": warn_at, "fail_at": fail_at, "source": "ours"}
    rollouts = recent_rollouts(run)
    rollouts = rollouts[rollouts["has_env_text"].notna()]
    hit = rollouts["has_env_text"] > 0
    share, interval = wilson(int(hit.sum()), len(rollouts))
    if interval is None:
        return Finding("EN01", Status.INCONCLUSIVE, "no recent rollout has a response text", threshold=limit)
    status = Status.FAIL if interval[0] >= fail_at else Status.WARN if interval[0] >= warn_at else Status.PASS
    claim = f"{share:.1%} of {len(rollouts)} recent responses hold environment or chat-role text"
    evidence = {"env_text_share": share, "ci95": list(interval), "n_rollouts": len(rollouts)}
    could = ("special tokens kept in the log by the decoder", "a task whose answers quote chat markup")
    check = ("stop strings and the end-of-turn token of the sampler", "whether such tokens are masked from the loss")
    return Finding(
        "EN01",
        status,
        claim,
        evidence,
        limit,
        steps_of(rollouts),
        ids(rollouts[hit]),
        ids(rollouts[~hit]),
        could,
        check,
    )
