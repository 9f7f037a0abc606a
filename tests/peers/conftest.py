"""Logs written by other frameworks' own code (extra `peers`). A framework that is not installed skips its file.

Warnings raised inside these packages are theirs, not ours: here they are not errors.
"""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/peers/" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
