"""MkDocs hook: pages made from the code, so that they cannot go stale: CLI reference, log schema, presets, the reference's
experiments, one page per check, the reports of the gallery."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File, Files

import yaml

from analysis.readers import aliases
from ragen_diag import checks, metric_names, rollout_log

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs puts neither the repository nor its tests on the path
from scripts.make_gallery import write_gallery


def on_files(files: Files, *, config) -> Files:
    pages = {
        "reference/cli.md": cli_reference(),
        "reference/log-schema.md": log_schema(),
        "reference/metric-names.md": metric_table(),
        "reference/metrics-across-frameworks.md": metrics_across_frameworks(),
        "reference/configuration.md": configuration(),
        "reference/presets.md": presets(),
        "guides/reproducing.md": reproducing(),
        "checks/index.md": check_index(),
        **{f"checks/{code}.md": checks.page(code) for code in checks.codes()},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    with tempfile.TemporaryDirectory() as folder:
        for name, report in write_gallery(Path(folder)).items():
            files.append(File.generated(config, f"gallery/{name}.html", content=report.read_text(encoding="utf-8")))
    return files


COMMANDS = ("", "demo", "train", "eval", "analyze", "tune", "compare", "watch", "show", "convert", "plan", "explain", "doctor", "envs",
            "envs list", "envs show", "envs play", "envs random", "envs audit")  # fmt: skip


def cli_reference() -> str:
    lines = ["# Command line", "", "Exit codes: 0 nothing at or above the gate · 1 findings at or above `--fail-on` · 2 wrong usage or",
             "config · 3 our own error · 4 nothing readable found · 130 interrupted.", ""]  # fmt: skip
    for command in COMMANDS:
        shown = subprocess.run(
            [sys.executable, "-m", "ragen_diag", *command.split(), "--help"], capture_output=True, text=True, check=True
        )
        lines += [f"## ragen-diag {command}".rstrip(), "", "```text", shown.stdout.strip(), "```", ""]
    return "\n".join(lines)


def log_schema() -> str:
    lines = ["# Rollout log", "", f"Schema version {rollout_log.SCHEMA_VERSION}. One row per turn; trajectory columns repeat on its turns.",
             "", "| column | type | unit | may be missing | meaning |", "|---|---|---|---|---|"]  # fmt: skip
    for field in rollout_log.SCHEMA:
        doc, unit = field.metadata[b"doc"].decode(), field.metadata[b"unit"].decode()
        lines.append(f"| `{field.name}` | {field.type} | {unit} | {'yes' if field.nullable else 'no'} | {doc} |")
    return "\n".join(lines)


def metric_table() -> str:
    lines = ["# Metric names", "", "The one vocabulary for per-step series.", "", "| name | unit | definition |", "|---|---|---|"]
    lines += [f"| `{name}` | {metric.unit} | {metric.definition} |" for name, metric in sorted(metric_names.METRICS.items())]
    return "\n".join(lines)


def metrics_across_frameworks() -> str:
    names = list(dict.fromkeys(alias.framework for alias in aliases.ALIASES if alias.framework != "reports"))
    lines = ["# Metrics across frameworks", "",
             "What frameworks call the same thing, from the table the readers use. In brackets: the version since when the name has this",
             "meaning, as far back as was checked. Two names stand in one row only when their definitions agree; a name that is not here is",
             "kept as `other:<name>` and never pooled with another one. A validation prefix (`eval_`, `val/`, `test/`) makes a reward or success",
             "rate a validation metric. Names of [the vocabulary](metric-names.md) itself are taken as they are.", ""]  # fmt: skip
    by_metric: dict[str, dict[str, list[str]]] = {}
    for alias in aliases.ALIASES:
        since = f" (≥ {alias.since})" if alias.since else ""
        by_metric.setdefault(alias.canonical, {}).setdefault(alias.framework, []).append(f"`{alias.foreign}`{since}")
    for metric in sorted(by_metric):
        definition = metric_names.METRICS[metric]
        lines += [f"## {metric}", "", f"{definition.definition.capitalize()}. Unit: {definition.unit}.", "",
                  "| framework | name |", "|---|---|"]  # fmt: skip
        for framework in [*names, "reports"]:
            if found := by_metric[metric].get(framework):
                title = "tables in public reports" if framework == "reports" else framework
                lines.append(f"| {title} | {', '.join(found)} |")
        lines.append("")
    return "\n".join([*lines, *_NAMES_THAT_CHANGED])


_NAMES_THAT_CHANGED = [
    "## One name, several meanings", "",
    "| name | meaning | read as |", "|---|---|---|",
    "| TRL `reward_std` to 0.21 | mean of the groups' standard deviations | `reward_std_in_group` (told by `completion_length` beside it) |",
    "| TRL `reward_std` 0.22–0.26 | of groups or of the batch, by `scale_rewards` | `reward_std` |",
    "| TRL `reward_std` from 0.27 | of the whole batch | `reward_std` |",
    "| TRL `clip_ratio` before 2025-03 | averaged over sequences, later over tokens | `clip_fraction` |",
    "| verl `critic/score`, `critic/rewards` | before and after the KL penalty inside the reward | `reward_mean`, `reward_after_kl_mean` |",
    "| verl `actor/entropy_loss` to 0.3, `actor/entropy` from 0.4 | the same entropy, renamed | `entropy_nats` |",
]  # fmt: skip


def configuration() -> str:
    """Every key with type, default and the text under its field."""
    lines = ["# Configuration", "", "The keys of a training run's YAML file; on the command line `section.key=value`.", ""]
    tree = ast.parse((ROOT / "ragen_diag" / "config_sections.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        title = node.name.removesuffix("Config")
        section = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in title).lstrip("_")
        heading = "The run itself" if node.name == "TrainConfig" else section
        lines += [f"## {heading}", "", ast.get_docstring(node) or "", "", "| key | type | default | what it does |", "|---|---|---|---|"]
        for entry, text in zip(node.body, node.body[1:], strict=False):
            if isinstance(entry, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                default = "–" if entry.value is None else ast.unparse(entry.value).replace("field(default_factory=dict)", "{}")
                cells = [f"`{ast.unparse(entry.target)}`", f"`{ast.unparse(entry.annotation)}`", f"`{default}`", str(text.value.value)]
                lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def presets() -> str:
    lines = ["# Presets", "", "`ragen-diag train NAME key=value ...` starts from one of these; what a preset leaves out has the default of the",
             "[configuration](configuration.md); `run.yaml` in the run folder holds all of it.", ""]  # fmt: skip
    for path in sorted((ROOT / "ragen_diag" / "presets").glob("*.yaml")):
        text = path.read_text(encoding="utf-8").splitlines()
        comment = [line.removeprefix("#").strip() for line in text if line.startswith("#")]
        body = [line for line in text if not line.startswith("#")]
        lines += [f"## {path.stem}", "", *comment, "", "```yaml", *body, "```", ""]
    return "\n".join(lines)


def reproducing() -> str:
    """The README of examples/reproduce, with the experiments it holds."""
    folder = ROOT / "examples" / "reproduce"
    title, _, text = (folder / "README.md").read_text(encoding="utf-8").partition("\n")
    lines = [title.replace("# ", "# Guide: reproducing ").replace("The", "the"), text, "## The experiments", "",
             "| experiment | question | published as | reported | needs |", "|---|---|---|---|---|"]  # fmt: skip
    for path in sorted(folder.glob("*.yaml")):
        entry = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "question" in entry:  # base.yaml is what they share
            cells = (str(entry.get(key, "")).replace("|", "/") for key in ("question", "source", "expect", "needs"))
            lines.append(f"| `{path.stem}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def check_index() -> str:
    lines = ["# Checks", "", "`ragen-diag explain CODE` prints the same pages.", ""]
    lines += [f"- [{code}]({code}.md): {checks.title(code)}" for code in checks.codes()]
    return "\n".join(lines)
