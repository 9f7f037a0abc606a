"""Logs that are not quite as their framework writes them: the same counts, or a change that can be told in advance.

Every mutation acts on whole sample layouts, so that a fault in one reader or in the shared code shows up under its name.
"""

import functools
import gzip
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from analysis.readers.base import ReadOptions
from analysis.readers.discover import discover
from ragen_diag.errors import BadLog, NothingReadable
from tests.readers.conftest import counts
from tests.readers.test_layouts import LAYOUTS

HEALTHY = [row for row in LAYOUTS if "/healthy" in row[0]]
REWARD_FIELDS = ("score", "reward", "rewards", "total_reward", "accuracy_reward")
STEP_FIELDS = ("step", "global_step", "gen_step", "training_step", "iteration")
OPENRLHF_TABLES = "openrlhf/healthy"  # its W&B tables are a run of their own: asked for by format


# --- how files are changed


def json_files(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".jsonl", ".json"):
            try:
                rows = [json.loads(line) for line in read(path).split("\n") if line.strip()]
            except ValueError:
                continue  # an indented object: rLLM, inspect_ai
            if rows and all(isinstance(row, dict) for row in rows):
                yield path, rows


def read(path):
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", errors="surrogateescape")


def rows_changed(change):
    """A mutation that applies `change` to every record of JSON lines and Parquet files; 0 = nothing to change."""

    def mutate(folder):
        n_changed = 0
        for path, rows in list(json_files(folder)):
            write(path, [change(row) for row in rows])
            n_changed += sum(change(row) != row or list(change(row)) != list(row) for row in rows)
        for path in sorted(folder.rglob("*.parquet")):
            rows = pq.read_table(path).to_pylist()
            pq.write_table(pa.Table.from_pylist([change(row) for row in rows]), path)
            n_changed += len(rows)
        return n_changed

    return mutate


def bytes_changed(change, suffix=""):
    """A mutation of the bytes of every JSON lines file."""

    def mutate(folder):
        paths = [path for path, _ in json_files(folder)]
        for path in paths:
            content = change(path.read_bytes())
            path.unlink()
            path.with_name(path.name + suffix).write_bytes(content)
        return len(paths)

    return mutate


def with_unknown_columns(row):
    return {"zz_first": "x", **row, "zz_note": "text", "zz_number": 3, "zz_object": {"a": [1]}}


def with_shuffled_keys(row):
    return dict(random.Random(1).sample(list(row.items()), len(row)))


def with_reward(shape):
    def change(row):
        return {
            name: shape(value) if name in REWARD_FIELDS and type(value) in (int, float) else value
            for name, value in row.items()
        }

    return change


def without_step(row):
    return {name: value for name, value in row.items() if name not in STEP_FIELDS}


def nested(folder):
    inner = folder.parent / "inner"
    shutil.move(folder, inner)
    (folder / "my run" / "some logs").mkdir(parents=True)
    shutil.move(inner, folder / "my run" / "some logs" / "here")
    return 1


def renamed(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for index, path in enumerate(paths):
        path.rename(path.with_name(f"blob-{chr(97 + index % 26)}{chr(97 + index // 26)}{path.suffix}"))
    return len(paths)


def shuffled_rows(folder):
    files = [(path, rows) for path, rows in json_files(folder) if len(rows) > 1]
    for path, rows in files:
        write(path, random.Random(0).sample(rows, len(rows)))
    return len(files)


def as_one_array(folder):
    files = [(path, rows) for path, rows in json_files(folder) if len(rows) > 1]
    for path, rows in files:
        path.unlink()
        path.with_suffix(".json").write_text(json.dumps(rows, indent=2))
    return len(files)


def torn(folder):
    """Cut the last file inside its last record."""
    files = [path for path, rows in json_files(folder) if len(rows) > 3]
    # prime-rl's `effective` is passed over.
    files = [path for path in files if path.parent.name != "effective"]
    if files:
        files[-1].write_bytes(files[-1].read_bytes().rstrip(b"\n")[:-7])
    return len(files)


def read_mutated(layouts, tmp_path, layout, mutate, options=None):
    """The rollout logs found in a mutated copy of a layout; skips when the mutation has nothing to act on."""
    folder = tmp_path / "run"
    shutil.copytree(layouts / layout, folder)
    if not mutate(folder):
        pytest.skip("nothing to mutate in this layout")
    sources = [source for source in discover([folder], options) if source.kind == "rollouts"]
    if layout == OPENRLHF_TABLES:
        sources = [source for source in sources if source.format == "openrlhf"]
    (source,) = sources
    return source


each_layout = functools.partial(pytest.mark.parametrize, ("layout", "format_", "expected"))
ids = {"ids": [row[0] for row in HEALTHY]}


# --- nothing may change


def everything_harmless(folder):
    """Unknown columns, shuffled keys, BOM, CRLF, blank lines, compression and a deeper folder, all at once."""
    n_changed = rows_changed(with_unknown_columns)(folder)
    n_changed += bytes_changed(lambda data: b"\xef\xbb\xbf\n" + data.replace(b"\n", b"\r\n\r\n"))(folder)
    paths = [path for path, _ in json_files(folder)]
    for index, path in enumerate(paths):
        packed = (
            gzip.compress(path.read_bytes()) if index % 2 else zstandard.ZstdCompressor().compress(path.read_bytes())
        )
        path.unlink()
        path.with_name(path.name + (".gz" if index % 2 else ".zst")).write_bytes(packed)
    return n_changed + nested(folder)


@each_layout(HEALTHY, **ids)
def test_harmless_differences_change_nothing(layouts, tmp_path, layout, format_, expected):
    source = read_mutated(layouts, tmp_path, layout, everything_harmless)
    assert (source.format, counts(source)) == (format_, expected)


@pytest.mark.parametrize(
    "mutate",
    [
        rows_changed(with_shuffled_keys),
        shuffled_rows,
        as_one_array,
        bytes_changed(lambda data: data.decode().encode("utf-16")),
    ],
    ids=["shuffled keys", "shuffled rows", "one array", "utf-16"],
)
@pytest.mark.parametrize(
    "layout", ["verl/healthy", "verifiers/healthy", "openai_chat/healthy", "nemo_rl/healthy", "ragen/healthy"]
)
def test_order_and_container_change_nothing(layouts, tmp_path, layout, mutate):
    _, format_, expected = next(row for row in LAYOUTS if row[0] == layout)
    if layout == "ragen/healthy" and mutate is as_one_array:
        pytest.skip("the pickles beside it no longer have the same name")
    source = read_mutated(layouts, tmp_path, layout, mutate)
    assert (source.format, counts(source)) == (format_, expected)


@pytest.mark.parametrize(
    "shape", [str, lambda value: [value], lambda value: {"score": value}], ids=["text", "list", "object"]
)
@pytest.mark.parametrize(
    "layout", ["verl/healthy", "openai_chat/healthy", "areal/healthy", "skyrl/healthy", "openrlhf/healthy"]
)
def test_a_reward_in_another_shape_is_the_same_reward(layouts, tmp_path, layout, shape):
    _, format_, expected = next(row for row in LAYOUTS if row[0] == layout)
    source = read_mutated(layouts, tmp_path, layout, rows_changed(with_reward(shape)))
    assert (source.format, counts(source)) == (format_, expected)


# --- changes that can be told in advance


@each_layout(HEALTHY, **ids)
def test_after_renaming_only_the_step_may_be_lost(layouts, tmp_path, layout, format_, expected):
    if layout == "ragen/healthy":
        pytest.skip("its pickles repeat its JSON lines, which only the names tell")
    source = read_mutated(layouts, tmp_path, layout, renamed)
    n_rollouts, n_steps, _, n_thinking, mean_reward, n_missing, n_bad = counts(source)
    assert source.format == format_
    assert (n_rollouts, n_thinking, n_missing, n_bad) == (expected[0], expected[3], *expected[5:])
    assert mean_reward == pytest.approx(expected[4], abs=1e-4)  # summed in another order
    assert n_steps in (0, expected[1])


@pytest.mark.parametrize("missing", [None, float("nan")], ids=["null", "NaN"])
@pytest.mark.parametrize(
    "layout", ["verl/healthy", "openai_chat/healthy", "areal/healthy", "skyrl/healthy", "art_jsonl/healthy"]
)
def test_a_missing_reward_is_never_zero(layouts, tmp_path, layout, missing):
    def change(row):
        row = {**row, "trajectories": [change(each) for each in row["trajectories"]]} if "trajectories" in row else row
        return with_reward(lambda value: missing)(row)

    _, _, expected = next(row for row in LAYOUTS if row[0] == layout)
    source = read_mutated(layouts, tmp_path, layout, rows_changed(change))
    assert counts(source) == (*expected[:4], None, expected[0], 0)


@each_layout(HEALTHY, **ids)
def test_a_torn_last_record_costs_that_record(layouts, tmp_path, layout, format_, expected):
    source = read_mutated(layouts, tmp_path, layout, torn)
    n_rollouts, n_steps, *_, n_bad = counts(source)
    assert (source.format, n_steps, n_bad) == (format_, expected[1], 1)
    assert expected[0] - 4 <= n_rollouts <= expected[0]
    assert source.notes.skipped[0].line >= 1
    with pytest.raises(BadLog, match=rf"{source.notes.skipped[0].path}:\d+: .*--strict"):
        list(discover([tmp_path / "run"], ReadOptions(strict=True, format=format_))[0].tables())


@each_layout(HEALTHY, **ids)
def test_without_a_step_the_log_is_read_or_refused_by_name(layouts, tmp_path, layout, format_, expected):
    try:
        source = read_mutated(layouts, tmp_path, layout, rows_changed(without_step))
    except NothingReadable as error:
        assert f"{format_} (lacks " in str(error)
        assert "step" in str(error)
        return
    n_rollouts, n_steps, _, n_thinking, mean_reward, n_missing, n_bad = counts(source)
    assert source.format == format_
    assert (n_rollouts, n_thinking, mean_reward, n_missing, n_bad) == (expected[0], *expected[3:])
    assert n_steps in (0, expected[1])


@pytest.mark.parametrize("layout", ["verl/healthy", "openai_chat/healthy", "trl/healthy_text", "areal/healthy"])
def test_other_thinking_tags_are_named_and_read_when_told(layouts, tmp_path, layout):
    def change(value):
        if isinstance(value, str):
            return value.replace("<think>", "<reasoning>").replace("</think>", "</reasoning>")
        if isinstance(value, dict):
            return {name: change(item) for name, item in value.items()}
        return [change(item) for item in value] if isinstance(value, list) else value

    _, _, expected = next(row for row in LAYOUTS if row[0] == layout)
    source = read_mutated(layouts, tmp_path, layout, rows_changed(change))
    assert counts(source)[3] == 0
    assert any("<reasoning>" in line and "--thinking-tags" in line for line in source.notes.assumptions)
    (told,) = discover([tmp_path / "run"], ReadOptions(thinking_tags=("<reasoning>", "</reasoning>")))
    assert counts(told) == expected


@pytest.mark.parametrize("layout", ["verl/healthy", "openai_chat/healthy", "skyrl/healthy", "xtuner/healthy"])
def test_groups_of_one(layouts, tmp_path, layout):
    def first_of_each_prompt(folder):
        files = list(json_files(folder))
        for path, rows in files:
            seen = {}
            for row in rows:
                prompt = (
                    row.get("input") or row.get("input_prompt") or row.get("prompt") or (row.get("messages") or [])[:2]
                )
                seen.setdefault(json.dumps([row.get("step"), prompt]), row)
            write(path, seen.values())
        return len(files)

    _, format_, expected = next(row for row in LAYOUTS if row[0] == layout)
    source = read_mutated(layouts, tmp_path, layout, first_of_each_prompt)
    assert source.format == format_
    assert counts(source)[:3] == (expected[2], expected[1], expected[2])
