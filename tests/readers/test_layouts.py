"""Every sample layout is detected and counted right. The numbers were counted from the raw files, not by the readers."""

import pytest

from analysis.readers.discover import discover
from ragen_diag.metric_names import METRICS
from ragen_diag.rollout_log import SCHEMA
from tests.readers.conftest import counts, rows_of

# (layout, format, (n_rollouts, n_steps, n_groups, n_with_thinking, mean_reward, n_reward_missing, n_bad_rows))
LAYOUTS = [
    ("agent_lightning/collapsed", "agent_lightning", (48, 3, 12, 48, 0.25, 0, 0)),
    ("agent_lightning/healthy", "agent_lightning", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("agent_lightning_spans/collapsed", "agent_lightning_spans", (48, 0, 12, 48, 0.25, 0, 0)),
    ("agent_lightning_spans/healthy", "agent_lightning_spans", (48, 0, 12, 48, 0.7917, 0, 0)),
    ("areal/collapsed", "areal", (64, 4, 20, 64, 0.25, 0, 0)),
    ("areal/healthy", "areal", (64, 4, 20, 64, 0.7656, 0, 0)),
    ("art/collapsed", "art", (48, 3, 12, 48, 0.25, 0, 0)),
    ("art/healthy", "art", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("art_jsonl/collapsed", "art_jsonl", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("art_jsonl/healthy", "art_jsonl", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("art_yaml/healthy", "art_yaml", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("atropos/collapsed", "atropos", (32, 0, 8, 32, 0.375, 0, 0)),
    ("atropos/healthy", "atropos", (32, 0, 8, 32, 0.6875, 0, 0)),
    ("easyr1/collapsed", "easyr1", (48, 0, 12, 48, 0.25, 0, 0)),
    ("easyr1/healthy", "easyr1", (48, 0, 12, 48, 0.7917, 0, 0)),
    ("inspect_ai/collapsed", "inspect_ai", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("inspect_ai/healthy", "inspect_ai", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("inspect_ai_deflate/collapsed", "inspect_ai", (48, 3, 12, 48, 0.25, 0, 0)),
    ("inspect_ai_deflate/healthy", "inspect_ai", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("inspect_ai_json/collapsed", "inspect_ai", (48, 3, 12, 48, 0.25, 0, 0)),
    ("inspect_ai_json/healthy", "inspect_ai", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("langfuse/collapsed", "langfuse", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("langfuse/healthy", "langfuse", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("langsmith/collapsed", "langsmith", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("langsmith/healthy", "langsmith", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("lighteval/collapsed", "lighteval", (48, 0, 12, 48, None, 48, 0)),
    ("lighteval/healthy", "lighteval", (48, 0, 12, 48, None, 48, 0)),
    ("lm_eval/collapsed", "lm_eval", (48, 0, 12, 48, 0.1667, 36, 0)),
    ("lm_eval/healthy", "lm_eval", (48, 0, 12, 48, 0.8333, 36, 0)),
    ("ms_swift/collapsed", "ms_swift", (48, 3, 12, 48, 1.25, 0, 0)),
    ("ms_swift/healthy", "ms_swift", (48, 3, 12, 48, 1.7917, 0, 0)),
    ("ms_swift_ray/collapsed", "ms_swift", (48, 3, 12, 48, 0.25, 0, 0)),
    ("ms_swift_ray/healthy", "ms_swift", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("nemo_rl/collapsed", "nemo_rl", (64, 4, 20, 64, 0.25, 0, 0)),
    ("nemo_rl/collapsed_multiturn", "nemo_rl", (48, 3, 12, 48, -0.1354, 0, 0)),
    ("nemo_rl/healthy", "nemo_rl", (64, 4, 20, 64, 0.7656, 0, 0)),
    ("nemo_rl/healthy_multiturn", "nemo_rl", (48, 3, 12, 48, 0.5062, 0, 0)),
    ("open_instruct/collapsed", "open_instruct", (48, 3, 12, 0, 0.25, 0, 0)),
    ("open_instruct/healthy", "open_instruct", (48, 3, 12, 0, 0.7917, 0, 0)),
    ("openai_chat/collapsed", "openai_chat", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("openai_chat/healthy", "openai_chat", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("openrlhf/collapsed", "openrlhf", (48, 0, 12, 48, 0.25, 0, 0)),
    ("openrlhf/healthy", "openrlhf", (48, 0, 12, 48, 0.7917, 0, 0)),
    ("otel_genai/collapsed", "otel_genai", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("otel_genai/healthy", "otel_genai", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("otel_genai_legacy/collapsed", "otel_genai", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("otel_genai_legacy/healthy", "otel_genai", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("prime_rl/collapsed", "verifiers_v1", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("prime_rl/healthy", "verifiers_v1", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("prime_rl_v06/collapsed", "verifiers", (48, 3, 12, 48, 0.25, 0, 0)),
    ("prime_rl_v06/healthy", "verifiers", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("ragen/collapsed", "ragen", (48, 0, 12, 48, -0.1354, 0, 0)),
    ("ragen/healthy", "ragen", (48, 0, 12, 48, 0.5062, 0, 0)),
    ("rllm/collapsed", "rllm", (48, 3, 12, 48, -0.1354, 0, 0)),
    ("rllm/healthy", "rllm", (48, 3, 12, 48, 0.5062, 0, 0)),
    ("roll/collapsed", "roll", (48, 3, 12, 48, 0.25, 0, 0)),
    ("roll/healthy", "roll", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("sharegpt/collapsed", "sharegpt", (48, 0, 12, 48, 0.25, 0, 0)),
    ("sharegpt/healthy", "sharegpt", (48, 0, 12, 48, 0.7917, 0, 0)),
    ("skyrl/collapsed", "skyrl", (48, 3, 12, 48, 0.25, 0, 0)),
    ("skyrl/healthy", "skyrl", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("slime/collapsed", "slime", (64, 4, 20, 64, 0.25, 0, 0)),
    ("slime/healthy", "slime", (64, 4, 20, 64, 0.7656, 0, 0)),
    ("tinker_cookbook/collapsed", "tinker_cookbook", (48, 3, 12, 0, 0.25, 0, 0)),
    ("tinker_cookbook/healthy", "tinker_cookbook", (48, 3, 12, 0, 0.7917, 0, 0)),
    ("trl/collapsed_conversational", "trl", (48, 3, 12, 48, 0.7292, 0, 0)),
    ("trl/collapsed_text", "trl", (48, 3, 12, 48, 0.8125, 0, 0)),
    ("trl/healthy_conversational", "trl", (48, 3, 12, 48, 1.0417, 0, 0)),
    ("trl/healthy_text", "trl", (48, 3, 12, 48, 1.3333, 0, 0)),
    ("verifiers/collapsed", "verifiers", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("verifiers/healthy", "verifiers", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("verifiers_v1/collapsed", "verifiers_v1", (48, 3, 12, 48, 0.2292, 0, 0)),
    ("verifiers_v1/healthy", "verifiers_v1", (48, 3, 12, 48, 0.5417, 0, 0)),
    ("verl/collapsed", "verl", (64, 4, 20, 64, 0.25, 0, 0)),
    ("verl/collapsed_multiturn", "verl", (48, 3, 12, 48, -0.1354, 0, 0)),
    ("verl/healthy", "verl", (64, 4, 20, 64, 0.7656, 0, 0)),
    ("verl/healthy_multiturn", "verl", (48, 3, 12, 48, 0.5062, 0, 0)),
    ("verl_agent/collapsed", "verl", (124, 3, 40, 124, -0.2774, 0, 0)),
    ("verl_agent/healthy", "verl", (98, 3, 37, 98, 0.3908, 0, 0)),
    ("verl_v04/collapsed", "verl", (48, 3, 12, 48, 0.3125, 0, 0)),
    ("verl_v04/healthy", "verl", (48, 3, 12, 48, 0.8333, 0, 0)),
    ("verl_v1/collapsed", "verl", (48, 3, 12, 48, 0.25, 0, 0)),
    ("verl_v1/healthy", "verl", (48, 3, 12, 48, 0.7917, 0, 0)),
    ("wandb/collapsed", "wandb_table", (57, 3, 15, 57, 0.2281, 0, 0)),
    ("wandb/healthy", "wandb_table", (57, 3, 15, 57, 0.7895, 0, 0)),
    ("xtuner/collapsed", "xtuner", (48, 3, 12, 48, 0.25, 0, 0)),
    ("xtuner/healthy", "xtuner", (48, 3, 12, 48, 0.7917, 0, 0)),
]


@pytest.mark.parametrize(("layout", "format_", "expected"), LAYOUTS, ids=[row[0] for row in LAYOUTS])
def test_layout_is_detected_and_counted(layouts, layout, format_, expected):
    source = discover([layouts / layout])[0]
    assert source.format == format_
    assert counts(source) == expected


def test_every_row_conforms_to_the_schema_and_says_where_it_came_from(layouts):
    for source in discover([layouts]):
        ids = []
        for table in source.tables():
            assert table.schema.equals(SCHEMA)
            for row in table.to_pylist():
                assert row["source_path"] and row["source_line"] >= 1
                assert (row["step"] is None) == (row["step_source"] is None)
                assert (row["return_"] is None) == (row["reward_source"] is None)
                assert row["group_source"]
                ids.append((row["trajectory_id"], row["turn"]))
        assert len(ids) == len(set(ids)), source.name


def test_all_layouts_in_one_tree_are_separate_runs(layouts):
    sources = discover([layouts])
    assert len(sources) == 89  # 87 sample runs, and OpenRLHF's W&B tables twice
    assert len({source.name for source in sources}) == 89
    assert {source.kind for source in sources} == {"rollouts"}


@pytest.mark.parametrize(
    ("layout", "n_turns"),
    [
        ("verl/healthy_multiturn", 98),
        ("nemo_rl/healthy_multiturn", 98),
        ("verifiers/healthy", 96),
        ("ragen/healthy", 98),
    ],
)
def test_conversations_become_one_row_per_assistant_turn(layouts, layout, n_turns):
    rows = rows_of(discover([layouts / layout])[0])
    assert len(rows) == n_turns
    assert all(row["n_turns"] > row["turn"] for row in rows)


@pytest.mark.parametrize(
    "layout", ["nemo_rl/healthy", "slime/healthy", "verifiers_v1/healthy", "open_instruct/healthy", "prime_rl/healthy"]
)
def test_logged_logprobs_arrive_with_their_tokens(layouts, layout):
    rows = [row for row in rows_of(discover([layouts / layout])[0]) if row["logprobs"] is not None]
    assert rows
    assert all(len(row["logprobs"]) == len(row["response_ids"]) == row["response_tokens"] for row in rows)
    assert all(value <= 0 for row in rows for value in row["logprobs"])


def test_train_and_validation_are_kept_apart(layouts):
    for layout in ("verl/healthy", "nemo_rl/healthy", "slime/healthy", "areal/healthy"):
        rows = rows_of(discover([layouts / layout])[0])
        steps = {split: {row["step"] for row in rows if row["split"] == split} for split in ("train", "val")}
        assert steps == {"train": {1, 2, 3}, "val": {0, 3}}, layout


def test_metrics_beside_rollouts_are_merged_in(layouts):
    series = discover([layouts / "skyrl/healthy"])[0].series()
    assert series["val_reward_mean"] == [(1, 0.6875), (2, 0.8125), (3, 0.875)]
    assert "val_reward_mean" in METRICS


def test_what_the_format_cannot_tell_is_said(layouts):
    def assumptions(layout: str) -> str:
        source = discover([layouts / layout])[0]
        rows_of(source)
        return "\n".join(source.notes.assumptions)

    assert "only surviving groups" in assumptions("atropos/healthy")
    assert "one row per turn" in assumptions("verl_agent/healthy")
    assert "reward weights unknown" in assumptions("ms_swift/healthy")
    assert "no step in the log" in assumptions("sharegpt/healthy")
    assert "drops reasoning fields" in assumptions("art/healthy")
    assert "last turn only" in assumptions("agent_lightning/healthy")
    assert "token ids only" in assumptions("open_instruct/healthy")
    assert "no group id" in assumptions("verl/healthy")
    assert "no group id" not in assumptions("verl_v1/healthy")
