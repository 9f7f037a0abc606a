"""Reading a training run's configuration, checked before anything starts. Loads no torch.

A configuration is a YAML file over the defaults of `config_sections.py`, plus `section.key=value` overrides. Every problem
is found and reported at once. The resolved configuration is saved as the run's `run.yaml`, which is itself a valid
configuration. Not for command-line options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ragen_diag.config_checks import build, cross_checks
from ragen_diag.config_sections import (
    AlgorithmConfig,
    DiagnosticsConfig,
    EarlyStopConfig,
    EnvConfig,
    FilterConfig,
    ModelConfig,
    OfflineConfig,
    OptimConfig,
    ReplayConfig,
    RolloutConfig,
    RuntimeConfig,
    TrainConfig,
    ValidationConfig,
)
from ragen_diag.errors import ConfigError, did_you_mean

__all__ = [
    "AlgorithmConfig", "DiagnosticsConfig", "EarlyStopConfig", "EnvConfig", "FilterConfig", "ModelConfig", "OfflineConfig",
    "OptimConfig", "ReplayConfig", "RolloutConfig", "RuntimeConfig", "TrainConfig", "ValidationConfig",
    "from_dict", "load_config", "presets", "to_dict", "with_overrides",
]  # fmt: skip

PRESETS_DIR = Path(__file__).parent / "presets"
RECORD_KEYS = ("versions", "git", "started_at", "command")
"""What `run.yaml` holds besides the configuration; ignored when it is read as one."""
AUTO_EVERY = 10
"""Steps between two decisions of `filter: auto`."""


def presets() -> list[str]:
    """Names of the shipped presets."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def load_config(
    source: str | Path | None = None, overrides: Sequence[str] = (), *, filter_file: str | Path | None = None
) -> TrainConfig:
    """Read a preset name, YAML file, run folder or run.yaml (None: defaults), apply `key=value` overrides, and check everything.

    filter_file: a filter.yaml that replaces the `filter` section, as `filter.file` does. Raises ConfigError that lists
    every problem.
    """
    data, problems = _overridden(_read_source(source) if source is not None else {}, overrides)
    config = from_dict(data, problems)
    chosen = filter_file or config.filter.file
    if not chosen:
        return config
    # Budgets of the loop are not part of what `tune` recommends, so a file that is silent on them keeps the preset's.
    section = {**dataclasses.asdict(config.filter), **_read_filter(Path(chosen)), "file": ""}
    return from_dict({**to_dict(config), "filter": section})


def from_dict(data: Mapping[str, Any], problems: Sequence[str] = ()) -> TrainConfig:
    """Build and check a configuration from nested mappings; `problems` are reported together with what is found here."""
    found, data = list(problems), _spell_out(data)
    config: TrainConfig = build(TrainConfig, {k: v for k, v in data.items() if k not in RECORD_KEYS}, "", found)
    if not found:
        found += cross_checks(config)
    if found:
        listing = "\n".join(f"  - {problem}" for problem in found)
        raise ConfigError(f"{len(found)} problem{'s' if len(found) > 1 else ''} in the configuration:\n{listing}")
    return config


def with_overrides(config: TrainConfig, overrides: Sequence[str]) -> TrainConfig:
    """A configuration with `section.key=value` changes. Raises ConfigError that lists every problem."""
    data, problems = _overridden(to_dict(config), overrides)
    return from_dict(data, problems)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Nested plain dictionaries, in the order of the fields; `from_dict` takes them back."""
    return dataclasses.asdict(config)


def _overridden(data: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Data with `section.key=value` changes, and what is wrong with their form."""
    problems: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            problems.append(f"'{override}' is not of the form section.key=value")
            continue
        _set(data, key.strip(), _parse_yaml_value(value), problems)
        data = _spell_out(data)
    return data, problems


def _spell_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """`filter: auto` as the section it stands for."""
    return {**data, "filter": {"auto_every": AUTO_EVERY}} if data.get("filter") == "auto" else dict(data)


def _read_source(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if path.is_dir() and (path / "run.yaml").is_file():
        path = path / "run.yaml"
    if not path.is_file():
        preset = PRESETS_DIR / f"{source}.yaml"
        if not preset.is_file():
            known = presets()
            raise ConfigError(
                f"'{source}' is neither a preset nor a file.{did_you_mean(str(source), known)} Presets: {', '.join(known)}"
            )
        path = preset
    return _spell_out(_read_yaml(path))


def _read_filter(path: Path) -> dict[str, Any]:
    """Keys of a filter.yaml: the filter section, bare or under `filter:`."""
    data = _read_yaml(path)
    section = data.get("filter", data)
    unknown = set(section) - {f.name for f in dataclasses.fields(FilterConfig)} if isinstance(section, dict) else {"?"}
    if unknown:
        raise ConfigError(f"{path} is not a filter file: unknown keys {', '.join(map(str, sorted(unknown)))}")
    return dict(section)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({error})") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected sections and keys, found {type(data).__name__}")
    return data


def _parse_yaml_value(text: str) -> Any:
    try:
        return yaml.safe_load(text) if text.strip() else ""
    except yaml.YAMLError:
        return text


def _set(data: dict[str, Any], dotted: str, value: Any, problems: list[str]) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        below = data.setdefault(section, {})
        if not isinstance(below, dict):
            problems.append(f"{dotted}: '{section}' is a value, not a section")
            return
        data = below
    data[key] = value
