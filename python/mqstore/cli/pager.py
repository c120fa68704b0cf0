"""A pager for output that is longer than the terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from mqstore.cli.output import note, on_terminal

if TYPE_CHECKING:
    import click

_META = "mqstore.no_pager"
_off = False


def set_paging(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Takes what ``--no-pager`` says, before the command or behind it."""
    global _off
    _off = value or bool(ctx.meta.get(_META))
    ctx.meta[_META] = _off


class Pager:
    """Standard output on a terminal; once the screen is full a pager shows all of it.

    Lines before that are printed as they come, so that a slow command shows its first ones. There
    is no pager where standard input or output is no terminal.
    """

    def __init__(self) -> None:
        self._command = _command()
        self._size = shutil.get_terminal_size()
        self._held: list[str] = []
        self._rows = 0
        self._process: subprocess.Popen[bytes] | None = None

    def fits(self, rows: int) -> bool:
        """Whether so many rows are shown without the pager."""
        return self._command is None or self._rows + rows < self._size.lines

    def write(self, text: str) -> None:
        """Writes text.

        Raises:
            BrokenPipeError: The reader has left the pager, or closed standard output.
        """
        if self._command is not None and self._process is None:
            self._held.append(text)
            width = max(self._size.columns, 1)
            self._rows += sum(1 + max(len(line) - 1, 0) // width for line in text.splitlines())
            if self._rows >= self._size.lines:
                self._start(self._command)
                return
        if self._process is None:
            sys.stdout.write(text)
        else:
            self._send(text)

    def flush(self) -> None:
        """Sends out what is held back."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.flush()
        sys.stdout.flush()

    def close(self) -> None:
        """Waits until the reader has left the pager."""
        if self._process is None:
            return
        with suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        while True:
            # Ctrl-C belongs to the pager.
            with suppress(KeyboardInterrupt):
                self._process.wait()
                break
        self._process = self._command = None

    def _start(self, command: list[str]) -> None:
        sys.stdout.flush()
        environment = {"LESS": "R", "LV": "-c"} | os.environ
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own pager
                command, stdin=subprocess.PIPE, env=environment
            )
        except OSError:
            self._command = None
            sys.stdout.write(self._held[-1])
        else:
            self._send("".join(self._held))
        self._held.clear()

    def _send(self, text: str) -> None:
        assert self._process is not None  # noqa: S101 - the caller has looked
        assert self._process.stdin is not None  # noqa: S101 - made with a pipe
        self._process.stdin.write(text.encode(sys.stdout.encoding, "backslashreplace"))


def _command() -> list[str] | None:
    """The pager's command; ``None`` where there is to be none."""
    if _off or not on_terminal() or not sys.stdin.isatty():
        return None
    name = "MQSTORE_PAGER" if "MQSTORE_PAGER" in os.environ else "PAGER"
    try:
        command = shlex.split(os.environ.get(name, "less"))
    except ValueError as error:
        note(f"mqstore: {name} is no command: {error}; no pager is used")
        return None
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return None
    return command
