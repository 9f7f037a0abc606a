"""The package's own namespace: every verb of the command line is a function, however often it was called."""

import subprocess
import sys

import ragen_diag
from ragen_diag.cli import app


def test_every_verb_has_its_function():
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    verbs = {"evaluate" if verb == "eval" else verb for verb in verbs}
    assert verbs | {"load"} == set(ragen_diag.__all__)
    assert all(callable(getattr(ragen_diag, name)) for name in ragen_diag.__all__)


def test_a_submodule_never_takes_a_verbs_name():
    # In a fresh process, because importing a submodule of that name would replace the function for good.
    code = (
        "import ragen_diag\nfor _ in range(2):\n    assert '95 %' in ragen_diag.plan(prompts=32, rollouts=4)\n"
        "    assert 'Thresholds' in ragen_diag.explain('zs01')\n    ragen_diag.doctor()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
