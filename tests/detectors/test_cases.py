"""Public reports: every one whose numbers suffice ends in its expected status, and does not say what people wrongly read.

The status of a case is that of its worst finding. `says` are codes that must WARN or FAIL, `quiet` codes that must not; a
pattern in `never` must not appear in any claim that complains. Snapshots of a state that lasted are repeated 20 times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from analysis.detectors import run_detectors, worst
from analysis.ingest import ingest
from analysis.readers.base import ReadOptions
from analysis.readers.discover import discover
from analysis.run_data import RunData
from analysis.verdict import judge
from ragen_diag.findings import Finding, Status, Verdict

CASES = Path(__file__).parent.parent / "cases"
LOUD = (Status.WARN, Status.FAIL, Status.ERROR)


@dataclass(frozen=True)
class Case:
    file: str
    status: str
    says: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    never: str = r"(?!)"
    label: str = ""
    """The run inside the file, when it holds several."""
    repeat: int = 1
    mapping: tuple[tuple[str, str], ...] = ()


POLICY = ("TC01", "ET01", "RD01", "HE01", "HE02", "FH01", "DT01", "KL01")
CASE_LIST = [
    # https://github.com/huggingface/open-r1/issues/255
    Case("01_openr1_255_format_hack", "FAIL", ("FH01", "LT03"), ("HE01", "HE02", "ET01"), r"improv"),
    # https://github.com/huggingface/open-r1/issues/257
    Case("02_openr1_257_healthy_prefix", "INCONCLUSIVE", (), POLICY),
    # https://github.com/MakazhanAlpamys/Soup/issues/286
    Case("03_soup_286_two_phase_hack", "FAIL", ("FH01",)),
    # https://github.com/AgentR1/Agent-R1/issues/30
    Case("07_agentr1_30_nan", "FAIL", ("NU01", "DT01"), ("LT01",), r"truncat"),
    Case("07_agentr1_30_nan", "FAIL", ("NU01", "DT01"), ("LT01",), r"truncat", repeat=20),
    # https://github.com/verl-project/verl/issues/721
    Case("08_verl_721_nan", "FAIL", ("NU01",), ("HE01",), r"entropy (collapse|fell)"),
    # https://github.com/greyhaven-ai/autocontext/pull/1067
    Case("10_autocontext_1067_truncated", "FAIL", ("LT01",), ("TC01",), r"too hard|cannot learn"),
    Case("10_autocontext_1067_truncated", "FAIL", ("LT01", "ZS01"), ("TC01",), r"too hard|cannot learn", repeat=20),
    # https://github.com/Open-Athena/MarinFold/pull/240
    Case("17_marinfold_237_kl_window", "WARN", ("KL01",), (), r"limit|threshold"),
    # https://github.com/AgentR1/Agent-R1/issues/32
    Case("21_agentr1_32_sparkline_1to8", "WARN", ("HE01", "KL01"), (), r"collapsed"),
    # https://github.com/zhaochenyang20/Awesome-ML-SYS-Tutorial/issues/106
    Case("23_mlsys_106_zero_advantages", "FAIL", ("AD01",), ("ZS01", "ZS02", "ZS03"), r"saturat|easy"),
    Case("23_mlsys_106_zero_advantages", "FAIL", ("AD01",), ("ZS01", "ZS02", "ZS03"), r"saturat|easy", repeat=20),
    # https://github.com/bingreeky/MemGen/pull/33
    Case("27_memgen_33_after_fix", "WARN", ("ZS03",), ("LT01", "WM01")),
    # https://github.com/FareedKhan-dev/train-deepseek-r1/issues/4
    Case("29_traindsr1_4_constant_half", "FAIL", ("RW01",), (), r"50 ?%"),
    # https://github.com/verl-project/verl/issues/7771
    Case("38_verl_7771_padding_dilution", "WARN", ("PD01",), ("LG01",), r"improved"),
    # https://github.com/huggingface/trl/issues/3452
    Case("39_trl_3452_loss_zero_flat", "WARN", ("NP01",), ("WM01", "RW01"), r"\bloss\b"),
    # https://github.com/huggingface/trl/issues/3120
    Case("41_clip_ratio_zero_onpolicy", "INCONCLUSIVE", (), ("WM01",), r"frozen|not moving", label="UI-R1#20"),
    Case("41_clip_ratio_zero_onpolicy", "INCONCLUSIVE", (), ("WM01",), r"frozen|not moving", label="TinyLoRA#4"),
    # https://github.com/huggingface/trl/issues/3857: one step can be an all-tied batch; twenty of them are the state it was
    Case("42_trl_3857_group_vs_batch_std", "WARN", ("ZS03",), ("WM01",), r"logging"),
    Case("42_trl_3857_group_vs_batch_std", "FAIL", ("ZS03",), ("WM01", "RW01"), r"logging", repeat=20),
    # https://github.com/radixark/miles/issues/3098
    Case("47_miles_3098_healthy", "INCONCLUSIVE", (), POLICY),
    # https://github.com/NVIDIA-NeMo/RL/pull/3550
    Case("51_nemorl_3550_healthy_plumbing", "INCONCLUSIVE", (), (*POLICY, "WM01")),
    # https://github.com/modelscope/ms-swift/issues/5890
    Case("53_msswift_5890_gradnorm_zero_then_fixed", "FAIL", ("WM01",), ("ZS01", "ZS02", "ZS03"), label="broken"),
    Case("53_msswift_5890_gradnorm_zero_then_fixed", "WARN", ("ZS03", "LT01"), ("WM01",), label="fixed"),
    # https://github.com/verl-project/verl/pull/6348: a table of rollouts, so its columns are named
    Case("56_verl_6348_two_estimators", "WARN", ("AD02",), (), r"healthy",
         mapping=(("prompt", "prompt"), ("reward", "reward"), ("advantage", "canonical_grpo_advantage"))),
    # https://github.com/jsboige/CoursIA/issues/13596
    Case("57_coursia_13596_all_at_cap", "FAIL", ("LT01",), ("TC01", "DT01"), r"says nothing|template"),
    # https://github.com/modelscope/ms-swift/issues/4465
    Case("59_msswift_4465_kl_nan_loss_finite", "WARN", ("NU01",), (), r"diverged"),
    # Dissent 1, https://github.com/MakazhanAlpamys/Soup/issues/342, proposed: FAIL for NaN. The file holds run numbers and steps
    # and not one metric; that the runs died of NaN stands in the thread only. A reader of the file alone cannot know it.
    Case("18_soup_342_unpredictable_nan", "INCONCLUSIVE", (), ("NU01",), r"predict"),
    # Dissent 2, https://github.com/redai-studio/Relax/issues/174, proposed: PASS, "a tie (0.24 SE)". The standard error is in
    # the thread only; two columns of one value each neither prove a tie nor a healthy run. Nothing complains, which is right.
    Case("58_relax_174_rloo_vs_grpo_tie", "INCONCLUSIVE", (), (*POLICY, "ZS03"), r"better|broken", label="rloo"),
    Case("58_relax_174_rloo_vs_grpo_tie", "INCONCLUSIVE", (), POLICY, r"better|broken", label="grpo"),
]  # fmt: skip


def load(case: Case) -> RunData:
    sources = discover([CASES / f"{case.file}.csv"], ReadOptions(mapping=dict(case.mapping) or None))
    source = next(s for s in sources if not case.label or s.name.endswith(f":{case.label}"))
    run, _ = ingest(source)
    if case.repeat > 1:
        run.series = {
            name: pd.Series([*values] * case.repeat, index=pd.RangeIndex(len(values) * case.repeat), dtype="float64")
            for name, values in run.series.items()
        }
    return run


@pytest.mark.parametrize(
    "case", CASE_LIST, ids=lambda case: f"{case.file}{case.label and '-' + case.label}x{case.repeat}"
)
def test_case_ends_in_its_status_and_says_nothing_wrong(case: Case):
    findings = run_detectors(load(case), strict=True)
    loud = {finding.code: finding for finding in findings if finding.status in LOUD}
    assert worst(findings) == case.status, sorted(loud)
    assert set(case.says) <= set(loud)
    assert not set(case.quiet) & set(loud)
    for finding in loud.values():
        assert not re.search(case.never, finding.claim, re.IGNORECASE), finding.claim
    verdict = judge(findings).verdict
    assert verdict != Verdict.HEALTHY
    if case.status == "INCONCLUSIVE":
        assert verdict == Verdict.INCONCLUSIVE


def one(findings: list[Finding], code: str) -> Finding:
    return next(finding for finding in findings if finding.code == code)


def test_nan_is_named_with_what_is_still_finite():
    finding = one(run_detectors(load(Case("59_msswift_4465_kl_nan_loss_finite", "WARN"))), "NU01")
    assert finding.evidence["first_step"] == 300
    assert finding.evidence["metrics_first"] == ["clip_fraction", "clip_fraction_high", "clip_fraction_low", "kl_nats"]
    assert {"loss", "grad_norm"} <= set(finding.evidence["still_finite"])


def test_two_windows_of_one_hack_are_told_apart():
    finding = one(run_detectors(load(Case("03_soup_286_two_phase_hack", "FAIL"))), "FH01")
    first, second = finding.evidence["phases"]
    assert "reward_mean" in first["rose"] and "format_blind_acc" not in first["fell"]
    assert "words" in second["rose"] and "format_blind_acc" in second["fell"]


def test_truncation_is_named_inside_the_zero_signal():
    findings = run_detectors(load(Case("10_autocontext_1067_truncated", "FAIL", repeat=20)))
    assert "cut at the cap, look there first" in one(findings, "ZS01").claim


def test_normal_zeros_are_listed_as_normal():
    loss_zero = one(run_detectors(load(Case("39_trl_3452_loss_zero_flat", "WARN"))), "NZ01")
    assert loss_zero.status == Status.PASS and "loss at or near 0" in loss_zero.claim
    clip_zero = one(run_detectors(load(Case("41_clip_ratio_zero_onpolicy", "", label="TinyLoRA#4"))), "NZ01")
    assert "clip fraction of 0" in clip_zero.claim
    all_correct = one(run_detectors(load(Case("51_nemorl_3550_healthy_plumbing", ""))), "NZ01")
    assert "gradient of 0 in 3 steps" in all_correct.claim
    negative = one(run_detectors(load(Case("58_relax_174_rloo_vs_grpo_tie", "", label="rloo"))), "NZ01")
    assert "negative policy loss" in negative.claim
