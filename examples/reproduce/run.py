"""The reference's experiments as runs of this trainer, and a reduced twin of each that a laptop runs in seconds.

    python examples/reproduce/run.py                              what there is
    python examples/reproduce/run.py top_p_sweep                  its runs, and what they need
    python examples/reproduce/run.py top_p_sweep 0.9 --out runs   train one (or `all`)
    python examples/reproduce/run.py top_p_sweep 0.9 --twin       the embedded model, one step, a few rollouts

An experiment is a YAML file: `axes` whose cross product are the runs (`skip` leaves some out), `set` for what all share over
base.yaml, `twin` for what the twin must set differently. Everything else is text for the reader.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ragen_diag import api
from ragen_diag.config import TrainConfig, load_config

HERE = Path(__file__).parent
TWIN = [
    "model.path=tiny", "model.dtype=float32", "model.tuning=full", "model.gradient_checkpointing=false", "steps=1",
    "rollout.groups=4", "rollout.group_size=2", "rollout.max_turns=2", "rollout.max_response_tokens=16",
    "optim.mini_batch=8", "optim.micro_batch=8", "validation.every=0", "diagnostics.every=0", "runtime.tracker=none",
    "runtime.device=cpu", "runtime.checkpoint_every=0",
]  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One run of an experiment."""

    experiment: str
    name: str
    overrides: tuple[str, ...]
    twin: tuple[str, ...]

    def config(self, *, twin: bool = False) -> TrainConfig:
        """The full configuration, or that of the reduced twin."""
        chosen = [*self.overrides, *TWIN, *self.twin] if twin else list(self.overrides)
        return load_config(HERE / "base.yaml", [*chosen, f"name={self.experiment}-{self.name.replace('/', '-')}"])


def experiments() -> list[str]:
    """Names of all experiments."""
    return sorted(path.stem for path in HERE.glob("*.yaml") if path.stem != "base")


def load(experiment: str) -> tuple[dict[str, Any], list[Run]]:
    """The file's content, and its runs."""
    content = yaml.safe_load((HERE / f"{experiment}.yaml").read_text(encoding="utf-8"))
    runs = []
    for choice in itertools.product(*(axis.items() for axis in content["axes"].values())):
        name = "/".join(str(value) for value, _ in choice)
        if name in content.get("skip", []):
            continue
        parts = [entry if isinstance(entry, dict) else {"set": entry} for _, entry in choice]
        shared = content.get("set", [])
        overrides = tuple(itertools.chain(shared, *(part["set"] for part in parts)))
        twin = tuple(itertools.chain(content.get("twin", []), *(part.get("twin", []) for part in parts)))
        runs.append(Run(experiment, name, overrides, twin))
    return content, runs


def main() -> None:
    """Show experiments and runs, or train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", choices=experiments())
    parser.add_argument("run", nargs="?")
    parser.add_argument("--twin", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    arguments = parser.parse_args()
    if arguments.experiment is None:
        for name in experiments():
            content, runs = load(name)
            print(f"{name:<22} {len(runs):>2} runs  {content['question']}")
        return
    content, runs = load(arguments.experiment)
    if arguments.run is None:
        for key in ("question", "source", "needs", "expect", "note"):
            if key in content:
                print(f"{key}: {content[key]}")
        print("runs:", *(run.name for run in runs), sep="\n  ")
        return
    chosen = [run for run in runs if arguments.run in (run.name, "all")]
    if not chosen:
        parser.error(
            f"{arguments.experiment} has no run {arguments.run!r}; it has {', '.join(run.name for run in runs)}"
        )
    for run in chosen:
        folder = (
            arguments.out / ("twin" if arguments.twin else "full") / arguments.experiment / run.name.replace("/", "-")
        )
        print(api.train(run.config(twin=arguments.twin), folder).summary())


if __name__ == "__main__":
    main()
