"""Make the embedded default model: tokenizer, weights, and the numbers for its card. Not needed to use the package.

    OMP_NUM_THREADS=1 python scripts/make_tiny_model.py --out ragen_diag/tiny_model

A byte-level BPE tokenizer is trained on the environments' prompts; a small Llama is then trained by imitation on noisy
expert traces. Everything follows from --seed. The traces use seeds far from those of training (10000 and up) and
validation (123 and up).
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from envs import registry
from envs.text_env import TextEnv
from trainer.prompts import ChatFormat, system_text, turn_text

FIRST_SEED = 1_000_000
POOL = 8
ACTIONS_PER_TURN, SEPARATOR = 2, "||"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ROLES = ("system\n", "user\n", "assistant\n")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<answer>{% else %}<think>{% endif %}{% endif %}"
)
# Coordinates, digits, grid symbols and the action separator are tokens of their own; so are the passages of a prompt
# that never change (`fixed_passages`), which makes prompts several times shorter. Everything else is byte-level BPE
# over words.
ALONE = r"\(\d, \d\)|[0-9_#√]|\s*\|\|\s*"
WORD = r" ?[A-Za-z]+|\s+|[^A-Za-z\s]"


@dataclass(frozen=True)
class Task:
    """One environment of the mixture."""

    name: str
    options: dict[str, object]
    share: float
    """Of the traces."""


@dataclass(frozen=True)
class Phase:
    """A stretch of imitation."""

    max_turns: int
    steps: int
    batch_size: int
    noise: float
    """Probability that a move is drawn at random instead of from the expert's plan."""


# Short and clean traces first, from which words and directions are learnt quickly; then whole noisy episodes, so that
# the warm start is a poor player that knows better, and reinforcement learning has something to improve.
PHASES = "1:650:64:0.3,5:130:40:0.6"
TASKS = (
    Task("frozen_lake:no_slip", {"observation_format": "coord"}, 0.84),
    Task("frozen_lake:no_slip", {}, 0.04),
    Task("sokoban", {"observation_format": "coord"}, 0.08),
    Task("bandit", {}, 0.04),
)
THOUGHTS = (
    " I am at, goal Player Goal From to, so is up down left right and of : . Avoid, box, target. Box. Push it then Up Down"
    " Left Right, I choose it, it looks better. pays more on average, so I choose it."
)
CELLS = [f"({row}, {column})" for row in range(8) for column in range(8)]


def first_prompt(env: TextEnv, state: str) -> tuple[str, str]:
    system = system_text(
        env, max_actions=env.max_actions, max_actions_per_turn=_per_turn(env), separator=SEPARATOR, think=True
    )
    return system, turn_text(0, state, actions_left=env.max_actions, previous_reward=None)


def _per_turn(env: TextEnv) -> int:
    return min(ACTIONS_PER_TURN, env.max_actions)


def prompts(task: Task, seeds: range) -> Iterator[str]:
    """System and user texts of first prompts, and user texts of later turns."""
    env = registry.make(task.name, **task.options)
    for seed in seeds:
        state = env.reset(seed=seed)[0]
        yield from first_prompt(env, state)
        yield turn_text(1, state, actions_left=8, previous_reward=0.0)
        yield turn_text(2, state, actions_left=6, previous_reward=-0.1, invalid=True)


def fixed_passages(tasks: tuple[Task, ...], seeds: range, min_chars: int = 5) -> list[str]:
    """Passages between variable parts that stand in a tenth or more of a task's prompts, longest first."""
    passages: set[str] = set()
    for task in tasks:
        texts = list(prompts(task, seeds))
        counts = Counter(
            piece
            for text in texts
            for line in re.split(f"{ALONE}|{'|'.join(TAGS)}", text)
            for piece in re.findall(r".+?(?:\. |\.\n|$)", line, re.DOTALL)
        )
        passages |= {piece for piece, n in counts.items() if n >= len(texts) / 10 and len(piece) >= min_chars}
    return sorted(passages, key=lambda piece: (-len(piece), piece))


def make_tokenizer(tasks: tuple[Task, ...], vocab_size: int) -> PreTrainedTokenizerFast:
    """256 bytes, special tokens, merges learnt from prompts' words, and one token for each fixed passage."""
    seeds = range(FIRST_SEED, FIRST_SEED + 100)
    texts = [text for task in tasks for text in prompts(task, seeds)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(ALONE), behavior="isolated"),
            pre_tokenizers.Split(Regex(f"{ALONE}|{WORD}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [*texts, *len(texts) * [THOUGHTS, " ".join(CELLS), f"Up {SEPARATOR} Down", "Left", "Right", "Down"]],
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    passages = fixed_passages(tasks, seeds)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in (*TAGS, *ROLES, *passages)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


# --- expert traces


def _cells(state: str, label: str, symbol: str = "") -> list[tuple[int, int]]:
    """Cells of a labelled line, or of a symbol where the state is a bare grid."""
    line = re.search(rf"^{label}: (.*)$", state, re.MULTILINE)
    if line:
        return [(int(r), int(c)) for r, c in re.findall(r"\((\d+), (\d+)\)", line[1])]
    rows = state.splitlines() if symbol and "Board size" not in state else []
    return [(r, c) for r, row in enumerate(rows) for c, found in enumerate(row) if found == symbol]


def _thought(env: TextEnv, state: str, moves: list[str], rng: np.random.Generator) -> str:
    """Thinking that names the state and the next moves, in one of several wordings."""
    plan = rng.choice([" then ", ", "]).join(moves)
    if env.name == "bandit":
        high = moves[0]
        return str(
            rng.choice([f" I choose {high}, it looks better.", f" {high} pays more on average, so I choose it."])
        )
    if env.name == "sokoban":
        player, boxes, targets = _cells(state, "Player"), _cells(state, "Boxes"), _cells(state, "Targets")
        here = (player or _cells(state, "Player on target") or [(0, 0)])[0]
        box, target = (boxes or [(0, 0)])[0], (targets or [here])[0]
        wordings = [
            f" Player {here}, box {box}, target {target}. {plan}.",
            f" I am at {here}. Push {box} to {target}: {plan}.",
        ]
        return str(rng.choice(wordings))
    here, goal = _cells(state, "Player", "P")[0], _cells(state, "Goal", "G")[0]
    holes = _cells(state, "Holes", "O")
    near = [cell for cell in holes if abs(cell[0] - here[0]) + abs(cell[1] - here[1]) == 1]
    down, right = goal[0] - here[0], goal[1] - here[1]
    ways = [
        name for name, on in (("up", down < 0), ("down", down > 0), ("left", right < 0), ("right", right > 0)) if on
    ]
    wordings = [
        f" I am at {here}, goal {goal}: {plan}.",
        f" Player {here}, goal {goal}. {plan}.",
        f" From {here} to {goal}, so {plan}.",
        f" Goal {goal} is {' and '.join(ways)} of {here}: {plan}.",
    ]
    if near:
        wordings.append(f" Player {here}, goal {goal}. Avoid {near[0]}: {plan}.")
    return str(rng.choice(wordings))


def trace(
    env: TextEnv, seed: int, chat: ChatFormat, rng: np.random.Generator, phase: Phase
) -> tuple[list[int], list[int]]:
    """One noisy expert episode: token ids, and 1 where a token belongs to a reply.

    Half of the episodes begin where a few random moves led, so that the player is not always at the start.
    """
    state, _ = env.reset(seed=seed, options={"rollout_seed": 0})
    for _ in range(int(rng.integers(1, 5)) if env.max_actions > 1 and rng.random() < 0.5 else 0):
        state, _, over, _, _ = env.step(env.random_action(rng))
        if over:
            state, _ = env.reset(seed=seed, options={"rollout_seed": 0})
    ids, mask = chat.first_ids(*first_prompt(env, state)), []
    mask = [0] * len(ids)
    left = env.max_actions
    eos = chat.tokenizer.eos_token_id
    for turn in range(phase.max_turns):
        plan = env.solve() or []
        n_moves = min(left, _per_turn(env), max(len(plan), 1))
        if rng.random() < 0.15:
            n_moves = 1
        moves = [
            env.random_action(rng) if rng.random() < phase.noise or i >= len(plan) else plan[i] for i in range(n_moves)
        ]
        text = f"{_thought(env, state, moves, rng)}</think><answer>{f' {SEPARATOR} '.join(moves)}</answer>"
        reply = [*chat.tokenizer(text, add_special_tokens=False)["input_ids"], eos]
        ids, mask = ids + reply, mask + [1] * len(reply)
        reward, over = 0.0, False
        for move in moves:
            state, gained, over, _, _ = env.step(move)
            reward, left = reward + gained, left - 1
            if over:
                break
        if over or left == 0 or turn == phase.max_turns - 1:
            break
        more = chat.next_ids(turn_text(turn + 1, state, actions_left=left, previous_reward=reward), last_id=eos)
        ids, mask = ids + more, mask + [0] * len(more)
    return ids, mask


def batches(
    tasks: tuple[Task, ...], chat: ChatFormat, phase: Phase, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids, labels) batches, right-padded; labels -100 outside replies."""
    rng = np.random.default_rng(seed)
    envs = [registry.make(task.name, **task.options) for task in tasks]
    shares = np.array([task.share for task in tasks]) / sum(task.share for task in tasks)
    for start in itertools.count(FIRST_SEED * (1 + phase.max_turns), phase.batch_size * POOL):
        which = rng.choice(len(tasks), size=phase.batch_size * POOL, p=shares)
        traces = [trace(envs[k], start + i, chat, rng, phase) for i, k in enumerate(which)]
        traces.sort(key=lambda pair: len(pair[0]))  # rows of similar length share a batch: a third of the padding
        for first in rng.permutation(POOL) * phase.batch_size:
            rows = traces[first : first + phase.batch_size]
            width = max(len(ids) for ids, _ in rows)
            ids = torch.full((phase.batch_size, width), chat.tokenizer.pad_token_id)
            labels = torch.full((phase.batch_size, width), -100)
            for i, (row, mask) in enumerate(rows):
                ids[i, : len(row)] = torch.tensor(row)
                labels[i, : len(row)] = torch.where(torch.tensor(mask) == 1, torch.tensor(row), -100)
            yield ids, labels


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        tie_word_embeddings=False,  # reload of tied weights goes wrong in some serving engines
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
        initializer_range=0.06,  # the usual 0.02 suits wide models; here attention patterns would form far later
    )
    return LlamaForCausalLM(config)


def imitate(
    model: LlamaForCausalLM, tasks: tuple[Task, ...], chat: ChatFormat, phases: list[Phase], lr: float, seed: int
) -> float:
    """Cross-entropy on replies, one learning-rate cycle over all phases; returns the mean loss of the last 50 steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    steps = sum(phase.steps for phase in phases)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.05)
    losses, began = [], time.monotonic()
    for phase in phases:
        data = batches(tasks, chat, phase, seed)
        for ids, labels in itertools.islice(data, phase.steps):
            hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
            chosen = labels[:, 1:] != -100  # logits only where a reply token is predicted
            loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[chosen]), labels[:, 1:][chosen])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if len(losses) % 25 == 0:
                print(
                    f"step {len(losses):4d}  loss {np.mean(losses[-25:]):.3f}  {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return float(np.mean(losses[-50:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--phases", default=PHASES, help="turns:steps:batch size:noise, ...")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--vocab-size", type=int, default=640)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only-frozen-lake", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tasks = tuple(task for task in TASKS if task.name.startswith("frozen") or not arguments.only_frozen_lake)
    tokenizer = make_tokenizer(tasks, arguments.vocab_size)
    chat = ChatFormat(tokenizer)
    model = make_model(tokenizer, arguments.seed)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokenizer)} tokens")
    fields = (part.split(":") for part in arguments.phases.split(","))
    phases = [Phase(int(turns), int(steps), int(size), float(noise)) for turns, steps, size, noise in fields]
    loss = imitate(model, tasks, chat, phases, arguments.lr, arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(arguments.out, max_shard_size="900KB")
    tokenizer.save_pretrained(arguments.out)
    config = json.loads((arguments.out / "config.json").read_text())
    config["dtype"] = "float32"  # stored in half precision, computed in single
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"mean loss of the last 50 steps: {loss:.4f}")


if __name__ == "__main__":
    main()
