"""Which readers exist: the built-in ones in order of the format table, and third-party ones from entry points."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from analysis.readers.metrics_binary import TensorBoard, WandbOffline
from analysis.readers.metrics_console import Console
from analysis.readers.metrics_tables import CsvMetrics, JsonlMetrics, MetricsReader, ParquetMetrics, TrainerState
from analysis.readers.record_reader import RecordReader
from ragen_diag.errors import UsageError, did_you_mean

ENTRY_POINT_GROUP = "ragen_diag.readers"
_BUILT_IN = (
    "native:RagenDiag",
    "verl:Verl",
    "trl:Trl",
    "ragen:Ragen",
    "verifiers:Verifiers",
    "verifiers_v1:VerifiersV1",
    "inspect_ai:InspectAi",
    "wandb_table:WandbTable",
    "ms_swift:MsSwift",
    "nemo_rl:NemoRl",
    "chat:OpenAiChat",
    "chat:ShareGpt",
    "slime:Slime",
    "skyrl:SkyRl",
    "rllm:Rllm",
    "lm_eval:LmEval",
    "art:ArtParquet",
    "art:ArtJsonl",
    "art:ArtYaml",
    "areal:Areal",
    "roll:Roll",
    "atropos:Atropos",
    "openrlhf:OpenRlhf",
    "lighteval:LightEval",
    "open_instruct:OpenInstruct",
    "xtuner:Xtuner",
    "tinker_cookbook:TinkerCookbook",
    "easyr1:EasyR1",
    "agent_lightning:AgentLightning",
    "agent_lightning:AgentLightningSpans",
    "gen_ai:OtelGenAi",
    "langsmith:LangSmith",
    "langfuse:Langfuse",
    "mapping:Mapping",
)
_METRICS: tuple[type[MetricsReader], ...] = (
    TrainerState, TensorBoard, WandbOffline, CsvMetrics, JsonlMetrics, ParquetMetrics, Console,
)  # fmt: skip


@lru_cache(maxsize=1)
def rollout_readers() -> dict[str, type[Any]]:
    """Reader classes by format name. Raises UsageError when a third-party reader cannot be imported or takes a taken name."""
    classes: dict[str, type[Any]] = {}
    for spec in _BUILT_IN:
        module, name = spec.split(":")
        cls = getattr(import_module(f"analysis.readers.{module}"), name)
        classes[cls.name] = cls
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            cls = entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(f"reader plug-in '{entry.name}' ({entry.value}) cannot be loaded: {error}") from error
        if cls.name in classes:
            raise UsageError(
                f"reader plug-in '{entry.name}' ({entry.value}) takes the name of a built-in format, '{cls.name}'"
            )
        classes[cls.name] = cls
    return classes


def metrics_readers() -> dict[str, type[MetricsReader]]:
    """Metrics-only reader classes by format name."""
    return {cls.name: cls for cls in _METRICS}


def check_format(name: str) -> None:
    """Raise UsageError when no reader has this name."""
    known = [*rollout_readers(), *metrics_readers()]
    if name not in known:
        raise UsageError(f"--format {name}: no such format.{did_you_mean(name, known)} Known: {', '.join(known)}")


def record_readers() -> list[type[RecordReader]]:
    """Readers that declare the keys they need, for naming the nearest formats."""
    return [cls for cls in rollout_readers().values() if getattr(cls, "needs", None)]
