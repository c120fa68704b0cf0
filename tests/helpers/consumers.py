"""Consumers to be killed, forked off one process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FORKS = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while os.read(0, 1):
    if os.fork() == 0:
        consume()
        os._exit(0)
"""


class Consumers:
    """Consumers that are forked off one process, so that a new one starts at once.

    `script` defines ``consume``, which writes its process id to standard output once it has begun.
    Its arguments are the paths of the store and of a log, and the mode.
    """

    def __init__(self, script: str, root: Path, log: Path, mode: str) -> None:
        log.touch()
        self._log = log
        command = [sys.executable, "-c", script + _FORKS, str(root), str(log), mode]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def start(self) -> int:
        """The process id of a consumer that has begun."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b".")
        return int(self._process.stdout.readline())

    def lines(self) -> list[bytes]:
        return self._log.read_bytes().splitlines()

    def close(self) -> None:
        self._process.communicate()
