"""Checks that a worker has the driver's package before anything of it is unpickled there.

Nested functions travel by their code, and so can tell a worker without the package, or with another
version of it. Names of a module do not: unpickling them imports it.
"""

from __future__ import annotations

import pickle
import platform
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import cloudpickle

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


def checked(thing: _T) -> Callable[[], _T]:
    """A function that gives a thing back in a worker that has the driver's package.

    Elsewhere it raises a ``RuntimeError`` that names both packages and both Pythons. Spark itself
    refuses a worker with another minor version of Python.
    """
    payload: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    version, python = mqstore.__version__, platform.python_version()

    def arrive() -> _T:
        import platform
        import socket
        import sys

        try:
            import mqstore
        except ImportError as error:
            found = f"no mqstore ({error})"
        else:
            found = f"mqstore {mqstore.__version__}"
        if found != f"mqstore {version}":
            raise RuntimeError(
                f"worker {socket.gethostname()}, {sys.executable} (Python "
                f"{platform.python_version()}) has {found}; the driver has mqstore {version} with "
                f"Python {python}: give every worker the driver's package; docs/spark.md, Shipping "
                "the wheel, shows how"
            ) from None
        arrived: _T = pickle.loads(payload)  # noqa: S301 - our own
        return arrived

    return arrive


class Shipped:
    """Base of objects that go to workers: each is checked before it is made."""

    def __reduce__(self) -> tuple[Callable[[], Shipped], tuple[()], dict[str, Any]]:
        arrive = checked(type(self))

        def make() -> Shipped:
            kind = arrive()
            return kind.__new__(kind)

        return make, (), vars(self)
