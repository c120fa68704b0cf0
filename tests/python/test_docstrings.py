"""Docstrings: their examples are true, and those of the stub are there at run time."""

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import mqstore
import mqstore._native as native

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


def stub_docstrings():
    """Dotted name and docstring of everything that the stub declares and the extension has."""
    for path in sorted(Path(mqstore.__file__).parent.rglob("*.pyi")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and hasattr(native, node.name):
                yield node.name, ast.get_docstring(node)
                for member in node.body:
                    if isinstance(node, ast.ClassDef) and isinstance(member, ast.FunctionDef):
                        yield f"{node.name}.{member.name}", ast.get_docstring(member)


def runtime_docstring(name):
    first, *rest = name.split(".")
    found = getattr(native, first)
    for member in rest:
        found = inspect.getattr_static(found, member)
    return inspect.getdoc(found)


def test_help_shows_the_docstrings_of_the_stub():
    # The language documents `__len__` and the like; the stub says nothing of them.
    expected = {name: text for name, text in stub_docstrings() if text is not None}
    found = {name: runtime_docstring(name) for name in expected}
    differing = [name for name in expected if found[name] != expected[name]]
    assert not differing, (
        f"{len(differing)} of {len(expected)} differ; copy each docstring from "
        f"python/mqstore/_native/ to the item in src/py: {', '.join(differing)}"
    )
    assert {"Store", "Store.append", "Store.path", "decode"} <= expected.keys()
