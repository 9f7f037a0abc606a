"""Playing with a scripted policy: penalties, budgets, and that only sampled tokens carry loss."""

import contextlib
import dataclasses
import threading

import pytest
import torch

from envs import registry
from envs.frozen_lake import FrozenLakeEnv
from ragen_diag.config import RolloutConfig
from ragen_diag.errors import ConfigError
from trainer.agent_loop import AgentLoop, Episode
from trainer.batch import make_batch
from trainer.policy import load_tokenizer
from trainer.prompts import ChatFormat
from trainer.sampling import Sample, SamplingSettings, stream
from trainer.trajectory import LogContext, Trajectory, log_rows

TOKENIZER = load_tokenizer("tiny")
END = TOKENIZER.eos_token_id
ENV = registry.make("frozen_lake:no_slip", observation_format="coord")
SEED = 124  # O__G/____/____/_O_P: three steps up to the goal


class Scripted:
    """Says what it is told; an ending of `...` means that the reply was cut."""

    def __init__(self, *texts):
        self.texts, self.contexts = list(texts), []

    def begin(self):
        pass

    def sample(self, rows, contexts, streams):
        self.contexts.append(contexts[0])
        text = self.texts.pop(0)
        cut = text.endswith("...")
        ids = TOKENIZER(text, add_special_tokens=False)["input_ids"] + ([] if cut else [END])
        return [Sample(ids, [-1.0] * len(ids), [0.5] * len(ids), cut)]


def play(*texts, **changes):
    config = dataclasses.replace(RolloutConfig(), **changes)
    sampler = Scripted(*texts)
    loop = AgentLoop(config, sampler, ChatFormat(TOKENIZER, think=config.think), [END])
    trajectory = loop.play([Episode(Trajectory(0, 0, SEED), ENV, 0, stream(0))])[0]
    return trajectory, sampler


def say(answer, thinking=" hm"):
    return f"{thinking}</think><answer>{answer}</answer>"


def test_walking_to_the_goal():
    trajectory, sampler = play(say("Up || Up"), say("up"))
    assert (trajectory.success, trajectory.terminated, trajectory.truncated) == (True, True, False)
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0]
    assert trajectory.return_ == 1.0
    assert trajectory.turns[1].n_actions == 1
    text = TOKENIZER.decode(sampler.contexts[1])
    assert "Reward: 0\nTurn 2, 8 actions left.\n" in text
    assert text.endswith("<think>")


def test_the_next_context_holds_the_sampled_ids_untouched():
    odd = "  two  blanks</think>  <answer>Up||Up||Up</answer> and more"
    trajectory, sampler = play(odd, say("Up"))
    first = trajectory.turns[0]
    assert sampler.contexts[1][: len(first.prompt_ids) + len(first.sample.ids)] == first.prompt_ids + first.sample.ids
    assert odd in TOKENIZER.decode(sampler.contexts[1])


@pytest.mark.parametrize(
    ("text", "penalty", "n_actions", "valid"),
    [
        (say("Up"), 0.0, 1, True),
        (say("Fly"), -0.1, 0, False),
        (say("Up || Fly"), -0.1, 1, False),  # the known action is carried out, the turn is penalised once
        (say(""), -0.1, 0, False),
        ("no tags", -0.1, 0, False),
        ("cut off ...", -0.1, 0, False),
        (say("Up") + " and so on ...", -0.1, 1, True),  # its action counts, but it did not end by itself
    ],
)
def test_penalty_once_per_invalid_turn(text, penalty, n_actions, valid):
    trajectory, _ = play(text, max_turns=1)
    turn = trajectory.turns[0]
    assert (turn.penalty, turn.n_actions, turn.action_valid) == (penalty, n_actions, valid)


def test_five_useless_turns_cost_half_a_point_and_are_told_so():
    trajectory, sampler = play(*["?"] * 5)
    assert trajectory.return_ == pytest.approx(-0.5)
    assert (trajectory.terminated, trajectory.truncated, len(trajectory.turns)) == (False, True, 5)
    assert "Your last reply held no valid action." in TOKENIZER.decode(sampler.contexts[1])


def test_the_action_budget_ends_the_rollout():
    trajectory, _ = play(say("Left || Right"), say("Left || Right"), max_actions=3)
    assert [turn.n_actions for turn in trajectory.turns] == [2, 1]
    assert trajectory.truncated


def test_a_full_context_ends_the_rollout():
    short, _ = play(say("Left"), max_turns=1)
    room = len(short.turns[0].prompt_ids)
    trajectory, _ = play(say("Left"), max_context_tokens=room + 64)
    assert len(trajectory.turns) == 1
    assert trajectory.truncated
    with pytest.raises(ConfigError, match=f"the first prompt of frozen_lake has {room} tokens"):
        play(say("Left"), max_context_tokens=room + 63)


def test_window_and_single_turn_contexts():
    script = [say("Left"), say("Right"), say("Left")]
    window, sampler = play(*script, max_turns=3, context="window", window=2)
    last = TOKENIZER.decode(sampler.contexts[2])
    assert "Turn 1," not in last and "Turn 2," in last and "Turn 3," in last
    assert len(make_batch([window], pad_id=0)) == 2  # turns 1 and 2 share a sample, turn 3 was rewritten
    single, sampler = play(*script, max_turns=3, context="single_turn", window=1)
    last = TOKENIZER.decode(sampler.contexts[2])
    assert last.count("<|im_start|>user") == 1
    assert "Turn 2:\nState:\n" in last and "Turn 1:" not in last
    assert len(make_batch([single], pad_id=0)) == 3


def test_only_sampled_tokens_carry_loss():
    trajectory, _ = play(say("Left"), say("Up || Up"), say("Up || Right"))
    batch = make_batch([trajectory], pad_id=0)
    chosen = batch.ids_BT[batch.mask_BT.bool()].tolist()
    assert chosen == [token for turn in trajectory.turns for token in turn.sample.ids]
    assert batch.turn_end_BT.sum() == 3
    ends = batch.ids_BT[batch.turn_end_BT.bool()].tolist()
    assert ends == [END] * 3
    assert torch.unique(batch.turn_BT[batch.mask_BT.bool()]).tolist() == [0, 1, 2]
    assert (batch.old_logp_BT[batch.mask_BT.bool()] == -1).all()


def test_log_rows_hold_the_exact_ids():
    trajectory, _ = play(say("Up || Up", thinking=" go up"), say("Up"))
    context = LogContext("run", 3, "train", "frozen_lake", "update-2", SamplingSettings(32), True)
    first, second = log_rows([trajectory], context, TOKENIZER)
    assert first["prompt_text"] == TOKENIZER.decode(first["prompt_ids"])
    assert first["response_text"] == TOKENIZER.decode(first["response_ids"])
    thinking = first["response_ids"][first["thinking_start"] : first["thinking_end"]]
    assert TOKENIZER.decode(thinking) == first["thinking_text"] == " go up"
    assert first["actions"] == ["Up", "Up"]
    assert (first["return_"], first["turn_reward"], second["turn_reward"]) == (1.0, 0.0, 1.0)
    assert first["reward_components"] == {"environment": 1.0, "format": 0.0}
    assert first["prompt_id"] == second["prompt_id"]
    assert first["trajectory_id"] == second["trajectory_id"] == "train-000003-g0000-r000"


def test_without_thinking():
    trajectory, sampler = play(" Up || Up</answer>", "Up</answer>", think=False)
    assert trajectory.success
    assert TOKENIZER.decode(sampler.contexts[0]).endswith("<answer>")


def test_thinking_off_its_wanted_length_costs_per_token():
    tokens = len(TOKENIZER(" go up", add_special_tokens=False)["input_ids"])
    trajectory, _ = play(say("Up", thinking=" go up"), max_turns=1, thinking_target=tokens + 3, thinking_cost=0.25)
    assert trajectory.turns[0].thinking_cost == 0.75
    assert trajectory.return_ == -0.75
    context = LogContext("run", 3, "train", "frozen_lake", "update-2", SamplingSettings(32), True)
    (row,) = log_rows([trajectory], context, TOKENIZER)
    assert row["reward_components"] == {"environment": 0.0, "format": 0.0, "thinking_length": -0.75}


class MeetingEnv(FrozenLakeEnv):
    """Its actions wait for each other: they return only once two environments act at the same time, or after a while."""

    def __init__(self, barrier):
        super().__init__(observation_format="coord", success_rate=1.0)
        self.barrier = barrier

    def step(self, action):
        with contextlib.suppress(threading.BrokenBarrierError):
            self.barrier.wait(timeout=5)
        return super().step(action)


class SameForAll(Scripted):
    """One reply for every row."""

    def sample(self, rows, contexts, streams):
        (sample,) = super().sample(rows[:1], contexts[:1], streams[:1])
        return [dataclasses.replace(sample) for _ in rows]


@pytest.mark.parametrize("threads", [1, 2])
def test_environments_act_at_once_with_the_same_outcome(threads):
    barrier = threading.Barrier(2)
    if threads == 1:
        barrier.abort()  # nobody to meet
    config = dataclasses.replace(RolloutConfig(), env_threads=threads)
    loop = AgentLoop(config, SameForAll(say("Up"), say("Up"), say("Up")), ChatFormat(TOKENIZER), [END])
    found = loop.play([Episode(Trajectory(0, m, SEED), MeetingEnv(barrier), m, stream(m)) for m in range(2)])
    assert [(t.success, t.return_, len(t.turns)) for t in found] == [(True, 1.0, 3)] * 2
    assert barrier.broken == (threads == 1)
