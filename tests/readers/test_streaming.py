"""A large dump is streamed: memory does not grow with the file."""

import json
import tracemalloc

import pytest

from analysis.readers.discover import discover


@pytest.mark.slow
def test_a_30_mb_verl_dump_is_read_in_bounded_memory(tmp_path):
    words = " ".join(f"word{index}" for index in range(300))
    n_rows = 0
    with (tmp_path / "1.jsonl").open("w") as handle:
        while handle.tell() < 30_000_000:
            row = {
                "input": f"user\nquestion {n_rows % 512}\nassistant\n",
                "output": f"<think>{words} {n_rows}</think>x",
            }
            handle.write(json.dumps({**row, "gts": "x", "score": n_rows % 2, "step": 1}) + "\n")
            n_rows += 1
    tracemalloc.start()
    (source,) = discover([tmp_path])
    assert sum(table.num_rows for table in source.tables()) == n_rows
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25_000_000
