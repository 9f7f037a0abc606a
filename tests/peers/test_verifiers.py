"""verifiers 0.4: episodes built with its own models and appended by its own writer, with tokens and log-probs."""

import pytest

from analysis.readers.discover import discover
from tests.readers.conftest import counts, rows_of


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """2 training steps x 2 tasks x 2 rollouts; the last rollout was never scored."""
    pytest.importorskip("verifiers")
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import AgentInfo, ModelCall, Reward, Trace, TraceTask
    from verifiers.v1.types import AssistantMessage, UserMessage
    from verifiers.v1.utils.trace_store import write_episode

    folder = tmp_path_factory.mktemp("verifiers")
    for step in (1, 2):
        for prompt in range(2):
            for attempt in range(2):
                task = TraceTask(
                    type="Sum", data=TaskData(idx=prompt, prompt=f"question {prompt}"), key=f"task-{prompt}"
                )
                reply = AssistantMessage(
                    content=f"answer {attempt}", reasoning_content=f"thinking {step}{prompt}{attempt}"
                )
                scored = (step, prompt, attempt) != (2, 1, 1)
                trace = Trace(
                    task=task,
                    agent=AgentInfo(config=AgentConfig()),
                    nodes=[
                        MessageNode(message=UserMessage(content=f"question {prompt}"), token_ids=[1, 2], mask=[False, False]),
                        MessageNode(
                            parent=0, message=reply, sampled=True, token_ids=[3, 4, 5], mask=[False, True, True],
                            logprobs=[-0.25, -1.5],
                        ),
                    ],
                    calls=[ModelCall(node=1, finish_reason="length" if attempt else "stop")],
                    rewards={
                        "correct": Reward(score=float(attempt)) if scored else None,
                        "format": Reward(score=1.0, weight=0.5) if scored else None,
                    },
                    is_completed=True,
                    ok=scored,
                )  # fmt: skip
                work = TrainWorkInfo(step=step, policy=PolicySpan(start=step - 1, end=step))
                episode = Episode(
                    env=EnvInfo(id="sums", name="sums"), task=task, group=GroupInfo(id=f"{step}-{prompt}"), ok=scored,
                    run=TrainRunInfo(id="run", work=work), traces=[trace],
                )  # fmt: skip
                write_episode(folder, episode)
    return folder


def test_its_episodes_are_read_back(written):
    (source,) = discover([written])
    assert (source.format, source.format_version) == ("verifiers_v1", "episodes (0.4+)")
    assert counts(source) == (8, 2, 4, 8, 0.9286, 1, 0)  # seven scored: four at 0.5 and three at 1.5
    rows = rows_of(source)
    assert [row["return_"] for row in rows] == [0.5, 1.5, 0.5, 1.5, 0.5, 1.5, 0.5, None]
    assert rows[0]["reward_components"] == [("correct", 0.0), ("format", 1.0)]
    assert [row["thinking_text"] for row in rows[:3]] == ["thinking 100", "thinking 101", "thinking 110"]
    assert {row["group_id"] for row in rows} == {"1-0", "1-1", "2-0", "2-1"}
    assert {(row["split"], row["env"]) for row in rows} == {("train", "sums")}
    assert (rows[0]["response_ids"], rows[0]["logprobs"], rows[0]["prompt_ids"]) == ([4, 5], [-0.25, -1.5], [1, 2])
    assert [row["response_truncated"] for row in rows[:2]] == [False, True]
    assert rows[4]["model_version"] == "1"
