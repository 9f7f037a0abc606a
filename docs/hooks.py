"""MkDocs hook: pages made from the code, so that they cannot go stale: CLI reference, log schema, one page per check,
the reports of the gallery."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File, Files

from ragen_diag import checks, metric_names, rollout_log

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs puts neither the repository nor its tests on the path
from scripts.make_gallery import write_gallery


def on_files(files: Files, *, config) -> Files:
    pages = {
        "reference/cli.md": cli_reference(),
        "reference/log-schema.md": log_schema(),
        "reference/metric-names.md": metric_table(),
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


def check_index() -> str:
    lines = ["# Checks", "", "`ragen-diag explain CODE` prints the same pages.", ""]
    lines += [f"- [{code}]({code}.md): {checks.title(code)}" for code in checks.codes()]
    return "\n".join(lines)
