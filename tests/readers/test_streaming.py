"""A large dump is streamed: memory does not grow with the file."""

import json
import tracemalloc

import pytest

from analysis.readers.discover import discover


def write_dump(folder, n_bytes: int) -> int:
    """A verl-style dump of about 2.6 kB per row; returns the number of rows."""
    words = " ".join(f"word{index}" for index in range(300))
    folder.mkdir()
    n_rows = 0
    with (folder / "1.jsonl").open("w") as handle:
        while handle.tell() < n_bytes:
            row = {
                "input": f"user\nquestion {n_rows % 512}\nassistant\n",
                "output": f"<think>{words} {n_rows}</think>x",
            }
            handle.write(json.dumps({**row, "gts": "x", "score": n_rows % 2, "step": 1}) + "\n")
            n_rows += 1
    return n_rows


def peak_bytes(folder, n_rows: int) -> int:
    tracemalloc.start()
    (source,) = discover([folder])
    assert sum(table.num_rows for table in source.tables()) == n_rows
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_a_30_mb_dump_is_read_in_15_mb(tmp_path):
    peak_bytes(
        tmp_path / "warm-up", write_dump(tmp_path / "warm-up", 100_000)
    )  # lazy imports are not the dump's memory
    assert peak_bytes(tmp_path / "large", write_dump(tmp_path / "large", 30_000_000)) < 15_000_000
