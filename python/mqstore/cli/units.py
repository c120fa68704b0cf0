"""Click types of what options take: times, sizes, counts, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mqstore.text import parse_size, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    # Newer releases have it generic, older ones cannot be subscripted.
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType


class Parsed(_ParamType):
    """A parameter that a function reads; what it raises as ``ValueError`` is the complaint."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(  # noqa: D102 - click's own
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = Parsed("time", parse_time)
"""A click type: ``parse_time``."""
SIZE = Parsed("size", parse_size)
"""A click type: ``parse_size``."""
DURATION = Parsed("duration", lambda text: -parse_time(f"-{text}", lambda: 0) // 1000)
"""A click type: ``60s``, ``2h``, ``7d``, in seconds."""
RATE = Parsed("rate", lambda text: parse_size(text.removesuffix("/s")))
"""A click type: ``50m/s``, in bytes a second."""
COUNT_RATE = Parsed("rate", lambda text: float(text.removesuffix("/s")))
"""A click type: ``200/s``."""
COUNT = click.IntRange(min=1)
"""A click type: at least one."""
OFFSET = click.IntRange(min=0)
"""A click type: a physical offset, or one in a queue."""
QUEUE = click.IntRange(0, 2**31 - 1)
"""A click type: a queue's number."""
FILE = click.Path(dir_okay=False)
"""A click type: a file, whether it is there or not."""
TYPES = {
    "COUNT": COUNT,
    "DURATION": DURATION,
    "FILE": FILE,
    "OFFSET": OFFSET,
    "QUEUE": QUEUE,
    "RATE": RATE,
    "SIZE": SIZE,
    "TIME": TIME,
}
"""Types of what options take, by the names that the help has for it."""
