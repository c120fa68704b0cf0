"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import mqstore

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(mqstore.__path__, "mqstore.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["mqstore", *MODULES])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    if name in {"mqstore", "mqstore.store"}:
        assert result.attempted > 0
