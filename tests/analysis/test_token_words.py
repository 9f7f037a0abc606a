"""A log of token ids without text is compared by its ids, and still counts as a log without thinking."""

import json
import random

import pytest

from ragen_diag import api
from ragen_diag.findings import Status, Verdict


def write_ids(path, *, about_the_prompt: bool) -> None:
    """open-instruct's shard: eight prompts of four rollouts, ten steps; ids about the prompt, or of a template."""
    rng = random.Random(3)
    rows = []
    for step in range(1, 11):
        for prompt in range(8):
            words = [rng.randrange(500, 9000) for _ in range(12)]
            for _ in range(4):
                said = [
                    9,
                    8,
                    7,
                    *(rng.sample(words, 6) if about_the_prompt else range(40, 46)),
                    rng.randrange(100, 104),
                ]
                rows.append({"step": step, "sample_idx": len(rows), "prompt_idx": prompt, "prompt_tokens": words, "response_tokens": said,
                             "reward": float(rng.random() < 0.5), "finish_reason": "stop"})  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(
    ("about_the_prompt", "status"), [(True, Status.PASS), (False, Status.FAIL)], ids=["about the prompt", "template"]
)
def test_ids_are_compared_as_words(tmp_path, about_the_prompt, status):
    write_ids(tmp_path / "run_rollouts_000000.jsonl", about_the_prompt=about_the_prompt)
    report = api.analyze(tmp_path)
    (run,), (read,) = report.runs, report.inputs
    assert (read.format, read.n_rollouts, read.n_with_thinking) == ("open_instruct", 320, 0)
    assert next(finding for finding in run.findings if finding.code == "TC01").status == status
    assert (run.verdict == Verdict.COLLAPSED) == (status == Status.FAIL)
