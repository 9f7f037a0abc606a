"""The documentation builds without a warning, with its generated pages and the gallery in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    for page in ("checks/TC01", "reference/cli", "reference/log-schema", "reference/presets",
                 "guides/reproducing", "guides/rollout-filtering", "adding-a-check"):  # fmt: skip
        assert (site / page / "index.html").is_file(), page
    for report, word in {"healthy": "Healthy", "template-collapse": "Collapsed", "echo-trap": "Collapsed",
                         "broken-pipeline": "Broken pipeline"}.items():  # fmt: skip
        assert f">{word}<" in (site / "gallery" / f"{report}.html").read_text(encoding="utf-8"), report
