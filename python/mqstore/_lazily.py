"""Names of a package that are loaded on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def lazily(
    package: str, names: Mapping[str, str], modules: Iterable[str] = ()
) -> Callable[[str], object]:
    """Returns a package's ``__getattr__``.

    Args:
        package: The package.
        names: Modules below it, each with the names that the package has from there.
        modules: Modules below it that are names of the package themselves.
    """
    homes = {name: module for module, several in names.items() for name in several.split()}
    homes |= dict.fromkeys(modules, "")

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not homes[name]:
            return import_module(f"{package}.{name}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
