"""Click types of times and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqstore.text import parse_size, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    # Newer releases have it generic, older ones cannot be subscripted.
    _NumberType = click.ParamType[float]
else:
    _NumberType = click.ParamType


class _Parsed(_NumberType):
    """A parameter that one of the functions above reads."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return value
        try:
            return self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = _Parsed("time", parse_time)
"""A click type: ``parse_time``."""
SIZE = _Parsed("size", parse_size)
"""A click type: ``parse_size``."""
DURATION = _Parsed("duration", lambda text: -parse_time(f"-{text}", lambda: 0) // 1000)
"""A click type: ``60s``, ``2h``, ``7d``, in seconds."""
RATE = _Parsed("rate", lambda text: parse_size(text.removesuffix("/s")))
"""A click type: ``50m/s``, in bytes a second."""
COUNT_RATE = _Parsed("rate", lambda text: float(text.removesuffix("/s")))
"""A click type: ``200/s``."""
