"""The monitor says each cause once, reads what trainings hand over, and stops nothing by itself."""

import random

import numpy as np
import pytest

from ragen_diag.callbacks import Monitor, attach_to_verl, verl_step
from ragen_diag.callbacks.sinks import TensorBoard, make_sink
from ragen_diag.errors import BadLog, UsageError
from ragen_diag.findings import Verdict


def rollouts(*, tied: bool, n_prompts: int = 8, n_each: int = 4, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    words = ["first", "second", "left", "right", "above", "below", "then", "maybe", "count", "again"]
    return [
        {
            "prompt": f"What is {prompt} plus {prompt}?",
            "response": f"<think>{prompt} and {prompt}: {' '.join(draw.choices(words, k=30))}</think>{2 * prompt}",
            "reward": 1.0 if tied else float(index % 2),
        }
        for prompt in range(n_prompts)
        for index in range(n_each)
    ]


def test_five_lines_raise_an_alert_once(capsys):
    monitor = Monitor("mine")
    for step in range(5):
        monitor.step(step, rollouts=rollouts(tied=True, seed=step), metrics={"kl": 0.01})
    alerts = [(alert.finding.code, alert.finding.status) for alert in monitor.alerts]
    assert ("ZS03", "FAIL") in alerts
    assert len(alerts) == len(set(alerts))
    assert monitor.should_stop is False
    lines = [line for line in capsys.readouterr().out.splitlines() if "ZS03 " in line]
    assert lines and all(line.startswith("ragen-diag ALERT step ") for line in lines)


def test_a_varied_training_raises_none():
    monitor = Monitor(to=[])
    for step in range(4):
        assert monitor.step(step, rollouts=rollouts(tied=False, seed=step)) == []
    assert monitor.findings and monitor.alerts == []


def test_the_same_numbers_as_the_analysis_of_a_log(tmp_path):
    import json

    import ragen_diag

    monitor = Monitor(to=[])
    with (tmp_path / "rows.jsonl").open("w") as handle:
        for step in range(3):
            rows = rollouts(tied=step == 2, seed=step)
            monitor.step(step, rollouts=rows)
            for row in rows:
                record = {"input": row["prompt"], "output": row["response"], "score": row["reward"], "step": step}
                handle.write(json.dumps(record) + "\n")
    run = ragen_diag.analyze(tmp_path / "rows.jsonl").runs[0]

    def told(findings):
        return {f.code: (f.status, f.claim) for f in findings if f.code.startswith(("ZS", "RW", "AD", "DS", "GR"))}

    assert told(monitor.findings) == told(run.findings)
    assert monitor.verdict == run.verdict


def test_metrics_alone_are_checked_and_nan_is_seen():
    monitor = Monitor(to=[])
    for step in range(12):
        monitor.step(step, metrics={"reward": 0.5, "grad_norm": float("nan") if step > 3 else 0.5, "note": "text"})
    assert {alert.finding.code for alert in monitor.alerts} >= {"NU01"}
    assert monitor.verdict == Verdict.BROKEN_PIPELINE


def test_everything_a_rollout_can_say_arrives():
    monitor = Monitor(to=[])
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    tables = []
    monitor._live.add_rollouts = tables.append
    monitor._live.check = lambda: pytest.fail("not due")
    monitor._last_checked = 7
    monitor.step(7, rollouts=[
        {"messages": messages, "reward": {"accuracy": 1.0, "format": 0.5}, "group": 3, "advantage": np.float32(0.5)},
        {"prompt": "q", "response": "a", "thinking": "t", "reward": np.float64(0.25), "success": True, "trajectory": "x",
         "logprobs": np.array([-0.5, -1.0]), "response_ids": [5, 6], "response_truncated": False, "split": "val"},
        {"prompt": "q", "response": "a", "reward": None},
    ])  # fmt: skip
    first, second, third = tables[0].to_pylist()
    assert (first["return_"], first["reward_components"], first["group_id"]) == (
        1.5,
        [("accuracy", 1.0), ("format", 0.5)],
        "3",
    )
    assert (first["response_text"], first["advantage"], first["step"], first["split"]) == ("a", 0.5, 7, "train")
    assert (second["thinking_text"], second["return_"], second["success"], second["trajectory_id"]) == (
        "t",
        0.25,
        True,
        "x",
    )
    assert (second["logprobs"], second["response_ids"], second["response_truncated"], second["split"]) == (
        [-0.5, -1.0], [5, 6], False, "val",
    )  # fmt: skip
    assert third["return_"] is None


def test_a_rollout_that_cannot_be_read_says_why():
    monitor = Monitor(to=[])
    with pytest.raises(BadLog, match=r"rollout 2 of .*no field 'rewrd'. Did you mean 'reward'\?"):
        monitor.step(0, rollouts=[{"prompt": "q", "response": "a"}, {"prompt": "q", "response": "a", "rewrd": 1}])
    with pytest.raises(BadLog, match="key 'response' is missing"):
        monitor.step(0, rollouts=[{"prompt": "q"}])


@pytest.mark.parametrize("wrong", [{"every": 0}, {"stop_at": "INFO"}, {"to": "tensorbord"}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong)) if "to" not in wrong else "Did you mean 'tensorboard'"):
        Monitor(**wrong)


def test_every_skips_checks_but_no_data():
    monitor = Monitor(to=[], every=3)
    checked = []
    original = monitor._live.check
    monitor._live.check = lambda: checked.append(1) or original()
    for step in range(7):
        monitor.step(step, metrics={"reward": 0.1 * step})
    assert len(checked) == 3  # steps 0, 3, 6
    assert monitor._live._points["reward"][5] == pytest.approx(0.5)


def test_alerts_reach_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Monitor(to=TensorBoard(tmp_path)) as monitor:
        for step in range(3):
            monitor.step(step, rollouts=rollouts(tied=True, seed=step))
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    code = monitor.alerts[0].finding.code
    assert [point.step for point in events.Scalars(f"ragen_diag/{code}")] == [
        alert.step for alert in monitor.alerts if alert.finding.code == code
    ]


def test_a_function_is_a_sink():
    assert make_sink(print) is print


# --- verl


class VerlTrainer:
    """The part of verl's trainers that is used: names and signature as in 0.4 to 0.9."""

    def __init__(self, **settings):
        self.config = type("Config", (), {"trainer": settings})()
        self.global_steps, self.dumped = 1, []

    def _dump_generations(self, inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path):
        self.dumped.append((self.global_steps, dump_path, len(inputs)))


def verl_lists(step: int, *, uid: bool = False) -> dict:
    rows = rollouts(tied=True, seed=step)
    extras = {"acc": [1.0] * len(rows), "too_short": [1]}
    if uid:
        extras["uid"] = [f"p{row // 4}_{row % 4}_0" for row in range(len(rows))]
    return {
        "inputs": [f"user\n{row['prompt']}\nassistant\n" for row in rows],
        "outputs": [row["response"] for row in rows],
        "gts": ["4"] * len(rows),
        "scores": [row["reward"] for row in rows],
        "reward_extra_infos_dict": extras,
    }


@pytest.mark.parametrize("uid", [False, True])
def test_verls_dumps_are_checked_as_well(uid):
    trainer = VerlTrainer(rollout_data_dir="dump", validation_data_dir="val")
    monitor = Monitor(to=[], every=4)
    attach_to_verl(trainer, monitor)
    for step in range(1, 6):
        trainer.global_steps = step
        trainer._dump_generations(**verl_lists(step, uid=uid), dump_path="dump")
        trainer._dump_generations(**verl_lists(step + 10, uid=uid), dump_path="val")
    assert trainer.dumped == [(step, path, 32) for step in range(1, 6) for path in ("dump", "val")]
    assert ("ZS02", "FAIL") in {(alert.finding.code, alert.finding.status) for alert in monitor.alerts}
    run = monitor._live._run()
    assert run.rollouts["split"].value_counts().to_dict() == {"train": 160, "val": 160}
    assert run.train["group"].nunique() == 40


def test_verl_without_a_dump_is_refused():
    with pytest.raises(UsageError, match="rollout_data_dir"):
        attach_to_verl(VerlTrainer(), Monitor(to=[]))


def test_verl_lists_must_match():
    with pytest.raises(UsageError, match="2 inputs, but 1 values of 'output'"):
        verl_step(Monitor(to=[]), 1, inputs=["a", "b"], outputs=["x"], scores=[0.0, 1.0])


def test_verl_metrics_alone():
    monitor = Monitor(to=[])
    for step in range(12):
        verl_step(monitor, step, metrics={"actor/grad_norm": float("nan"), "critic/score/mean": 0.5})
    assert monitor.verdict == Verdict.BROKEN_PIPELINE
