"""Write the gallery's four reports from planted runs whose truth is known: `python -m scripts.make_gallery FOLDER`.

The documentation build calls `write_gallery`; nothing here is committed, so that the gallery cannot go stale.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from ragen_diag import api
from tests.planted.runs import draw
from tests.planted.simulate import write_native

REPORTS = {
    # file name -> (planted kind, seed)
    "healthy": ("learning", 5),
    "template-collapse": ("template_collapse", 4),
    "echo-trap": ("echo_trap", 3),
    "broken-pipeline": ("env_text", 2),
}


def write_gallery(folder: Path) -> dict[str, Path]:
    """One report per entry of REPORTS under `folder`; returns name -> path."""
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _write(name, kind, seed, folder / f"{name}.html") for name, (kind, seed) in REPORTS.items()}


def _write(name: str, kind: str, seed: int, path: Path) -> Path:
    planted = draw(kind, seed)
    path = path.resolve()
    with tempfile.TemporaryDirectory() as parent, contextlib.chdir(parent):  # the report shows the path it was given
        write_native(planted.run, planted.texts, Path(name))
        return api.write_html(api.analyze(name), path)


if __name__ == "__main__":
    for written in write_gallery(Path(sys.argv[1])).values():
        print(written)
