"""Where the output goes: a terminal or a program; and notes beside it."""

from __future__ import annotations

import os
import sys

from mqstore.text import escape


def on_terminal(*, standard_error: bool = False) -> bool:
    """Whether people look at what is printed, and not a program."""
    stream = sys.stderr if standard_error else sys.stdout
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_colour() -> bool:
    """Whether text may be coloured (https://no-color.org)."""
    return on_terminal() and not os.environ.get("NO_COLOR")


def note(text: str) -> None:
    """One line that is not data, on standard error."""
    print(escape(text), file=sys.stderr)  # noqa: T201 - this is the door out
