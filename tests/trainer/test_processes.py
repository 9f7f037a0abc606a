"""Two real CPU processes against one: same rollouts, same updates, one log; and the launcher that would silently start one."""

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from accelerate.utils import DistributedType
from safetensors.torch import load_file

from ragen_diag import api, cli_train
from ragen_diag.config import load_config, to_dict
from ragen_diag.errors import ConfigError, MissingExtra, UsageError
from ragen_diag.rollout_log import read_metrics, step_files
from trainer import processes
from trainer.loop import train
from trainer.policy import Policy
from trainer.processes import processes_asked_for

RUNNER = """
import sys
from pathlib import Path
from ragen_diag import api, cli_train
from ragen_diag.config import load_config
from trainer.loop import train
if __name__ == "__main__":
    train(load_config(sys.argv[1]), Path(sys.argv[2]), resume="resume" in sys.argv, progress=False)
"""


DEEPSPEED = Path(os.environ.get("DEEPSPEED_FOLDER", ".venv-deepspeed")).absolute()
"""Where `make distributed` puts DeepSpeed: beside the environment, because Accelerate behaves otherwise where it finds it."""
with_deepspeed = pytest.mark.skipif(
    not (DEEPSPEED / "deepspeed").is_dir() and find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)


def launch(launcher, tmp_path, config, run_dir, *arguments):
    (tmp_path / "runner.py").write_text(RUNNER)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    paths = os.pathsep.join([str(Path.cwd()), str(DEEPSPEED), os.environ.get("PYTHONPATH", "")])
    programs = os.pathsep.join([str(DEEPSPEED / "bin"), os.environ["PATH"]])  # ninja
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    environment |= {"PYTHONPATH": paths, "PATH": programs}
    command = [
        sys.executable,
        "-m",
        *launcher,
        str(tmp_path / "runner.py"),
        str(tmp_path / "config.yaml"),
        str(run_dir),
    ]
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def torchrun():
    """Two processes that meet on a free local port; `--standalone` would ask for the machine's name, which may not resolve."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return ["torch.distributed.run", "--master_addr", "127.0.0.1", "--master_port", port, "--nproc_per_node", "2"]


@pytest.mark.distributed
@pytest.mark.parametrize(
    "extra",
    [
        ["diagnostics.every=1"],
        pytest.param(
            [
                "filter=auto",
                "filter.auto_every=1",
                "diagnostics.gradient_every=1",
                "replay.groups=1",
                "replay.capacity=8",
            ],
            marks=pytest.mark.slow,
        ),
        ["optim.mini_batch=5"],  # the last mini-batch has one sample, and one process no share of it
    ],
    ids=["diagnosed", "auto-and-replay", "uneven"],
)
def test_two_processes_train_like_one_and_resume(small, tmp_path, extra):
    sizes = ["rollout.groups=3", "optim.mini_batch=6", "runtime.checkpoint_every=1", *extra]
    one = small("steps=2", *sizes)
    train(one, tmp_path / "one", progress=False)
    for steps, arguments in ((1, []), (2, ["resume"])):
        done = launch(torchrun(), tmp_path, small(f"steps={steps}", *sizes), tmp_path / "two", *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
    alone, together = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    for mine, theirs in zip(alone, together, strict=True):
        for name, value in mine.items():
            if "wall" not in name:
                assert theirs[name] == pytest.approx(value, abs=1e-4), name
    for (_, _, mine), (_, _, theirs) in zip(step_files(tmp_path / "one"), step_files(tmp_path / "two"), strict=True):
        columns = ["trajectory_id", "turn", "response_text", "return_"]
        assert pq.read_table(mine, columns=columns).equals(pq.read_table(theirs, columns=columns))


UNEVEN = ["model.tuning=lora", "algorithm.advantage=gae", "optim.mini_batch=5", "optim.micro_batch=1"]
"""The processes have different numbers of passes to make."""
CLIPPED = [*UNEVEN, "model.tuning=full", "optim.micro_batch=3", "optim.grad_clip=0.05"]
PACKED = ["model.tuning=full", "algorithm.kl_coef=0.01", "optim.pack_tokens=400", "model.gradient_checkpointing=true",
          "optim.mini_batch=6"]  # fmt: skip


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("sharding", "extra"),
    [
        ("fsdp", UNEVEN),
        pytest.param("fsdp", PACKED, marks=pytest.mark.slow),
        pytest.param("zero2", CLIPPED, marks=with_deepspeed),
        pytest.param("zero1", PACKED, marks=[pytest.mark.slow, with_deepspeed]),
    ],
    ids=["fsdp-lora-critic-uneven", "fsdp-full-packed", "zero2-full-critic-uneven-clipped", "zero1-full-packed"],
)
def test_shards_train_like_one_process_and_resume(small, tmp_path, sharding, extra):
    sizes = ["rollout.groups=3", "runtime.checkpoint_every=1", "runtime.keep_checkpoints=0", *extra]
    sizes += ["diagnostics.gradient_every=1", "diagnostics.every=1"]
    one = small("steps=3", *sizes)
    train(one, tmp_path / "one", progress=False)
    for steps, arguments in ((1, []), (2, ["resume"])):
        config = small(f"steps={steps}", f"runtime.sharding={sharding}", *sizes)
        done = launch(torchrun(), tmp_path, config, tmp_path / "two", *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
    train(one, tmp_path / "two", resume=True, progress=False)  # and once more without shards
    alone, together = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    for mine, theirs in zip(alone, together, strict=True):
        for name, value in mine.items():
            if "wall" not in name:
                assert theirs[name] == pytest.approx(value, abs=1e-4, rel=1e-4), (name, mine["step"])
    weights, gradients = first_update(tmp_path / "one")
    sharded_weights, sharded_gradients = first_update(tmp_path / "two")
    assert (sharded_gradients - gradients).norm() <= 1e-5 * gradients.norm()
    critic = one.algorithm.advantage == "gae"
    start = flat(Policy(one.model, seed=one.seed, with_critic=critic, with_reference=False).trained_state())
    # Adam divides by the gradient's size, so rounding shows where that is next to nothing.
    assert (sharded_weights - weights).norm() <= 1e-3 * (weights - start).norm()


def flat(tensors):
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def first_update(run_dir):
    """Weights and (running mean of the) gradient in the first step's checkpoint, as one process would have written them."""
    folder = run_dir / "checkpoints" / "step-000001"
    state = torch.load(folder / "optimizer.pt", weights_only=True)["state"]
    return flat(load_file(folder / "trained.safetensors")), flat({i: s["exp_avg"] for i, s in state.items()})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m accelerate.commands.launch --cpu --num_processes 2 x.py", 2),
        ("/usr/bin/accelerate launch --num_processes=4 x.py", 4),
        ("accelerate launch --num-processes 3 x.py", 3),
        ("accelerate launch x.py", None),
        ("python other.py --num_processes 2", None),
        ("", None),
    ],
)
def test_what_the_launcher_was_asked_for(command, expected):
    assert processes_asked_for(command.replace(" ", "\0")) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("distributed_type", DistributedType.DEEPSPEED, "with runtime.sharding=zero2 or fsdp"),
        ("num_processes", 2, "start a single one"),
    ],
)
def test_launches_that_cannot_be_served(small, tmp_path, monkeypatch, name, value, message):
    config = small("rollout.backend=vllm", "model.tuning=lora")
    monkeypatch.setattr(processes.Accelerator, name, value)
    with pytest.raises(UsageError, match=message):
        processes.make_accelerator(config, tmp_path)


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_a_sharding_launch_is_refused_before_accelerate_ignores_it(small, tmp_path, monkeypatch, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(
        UsageError, match=f"{name} wraps the model.*multi_gpu_bf16.yaml.*runtime.sharding=zero2 or fsdp"
    ):
        processes.make_accelerator(small(), tmp_path)


@pytest.mark.parametrize(("rank", "lines"), [("0", 2), ("1", 0)])
def test_only_the_first_process_tells_the_result(monkeypatch, capsys, rank, lines):
    monkeypatch.setattr(api, "train", lambda *_, **__: SimpleNamespace(summary=lambda: "runs/A: 2 steps in 3 s"))
    monkeypatch.setenv("RANK", rank)
    cli_train.train("starpo-grpo")
    assert len(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.parametrize("name", ["fsdp", "deepspeed_zero2"])
def test_the_examples_ask_for_what_their_names_say(name):
    config = load_config(f"examples/scale/{name}.yaml")
    assert (config.runtime.sharding, config.model.tuning) == (name.removeprefix("deepspeed_"), "full")


def test_zero_without_deepspeed_says_what_to_install(small, tmp_path, monkeypatch):
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"zero2 needs the package deepspeed\..*ragen-diag\[deepspeed\].*or take fsdp"
    ):
        processes.make_accelerator(small("runtime.sharding=zero2"), tmp_path)


def test_shards_need_several_processes_and_no_loss_scaling(small, tmp_path):
    with pytest.raises(
        UsageError, match=r"runtime\.sharding shares the update out over several processes, and there is one"
    ):
        processes.make_accelerator(small("runtime.sharding=fsdp"), tmp_path)
    with pytest.raises(ConfigError, match=r"runtime\.sharding has no loss scaling"):
        small("runtime.sharding=fsdp", "runtime.precision=fp16")


@pytest.mark.distributed
@pytest.mark.skipif(sys.platform != "linux", reason="the launcher's command line is read from /proc")
def test_the_launcher_that_silently_starts_one_process_is_refused(small, tmp_path):
    launcher = ["accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    done = launch(launcher, tmp_path, small("steps=1"), tmp_path / "run")
    assert done.returncode != 0
    assert "2 processes were asked for, but `accelerate launch --cpu` started one" in done.stderr
    assert not (tmp_path / "run").exists()
