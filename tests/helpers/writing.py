"""A writer in another process, and what it said."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import mqstore
from helpers import environment
from helpers.writer import SETTINGS, body

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def number(name: str, otherwise: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(name, otherwise))


class Writer:
    """The running writer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        #: Number and physical offset of each message that was acknowledged.
        self.told: dict[int, int] = {}
        #: The error that ended it, if one did.
        self.refused: str | None = None

    def _note(self, line: bytes) -> bool:
        words = line.split()
        if not line.endswith(b"\n") or not words:
            return False
        if words[0] == b"refused":
            self.refused = words[1].decode()
            return False
        if words[0] != b"open":
            self.told[int(words[0])] = int(words[1])
        return True

    def listen(self, lines: int) -> bool:
        """Waits for so many lines; whether they all came."""
        assert self.process.stdout is not None
        return all(self._note(self.process.stdout.readline()) for _ in range(lines))

    def end(self) -> None:
        """Hears the rest, once nothing more will come."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._note(line)


@contextmanager
def writer(
    root: Path,
    flush: str,
    *,
    first: int = 0,
    count: int = 10**9,
    length: int = 0,
    flush_every: int = 0,
    under: tuple[str, ...] = (),
) -> Iterator[Writer]:
    """A writer, perhaps run by another command; killed at the end if it still runs."""
    numbers = [first, count, length, flush_every]
    arguments = [sys.executable, "-m", "helpers.writer", str(root), flush, *map(str, numbers)]
    with subprocess.Popen(
        [*under, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if under else None,
        env=environment(),
    ) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


def lost(root: Path, told: dict[int, int], length: int = 0) -> list[int]:
    """The messages that were acknowledged and are not there when the store is opened again.

    What is there must be whole: found by ``verify``, in the queues and by key.
    """
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        there = {int(m.body.split(b":")[0]): m for m in store.scan()}
        for name, message in there.items():
            assert message.body == body(name, length)
        assert sum(queue.max_offset for queue in store.queues()) == len(there)
        for name in sorted(told)[:: max(1, len(told) // 10)]:
            if name in there:
                found = store.query(f"topic{name % 3}", f"k{name}")
                assert [m.physical_offset for m in found] == [there[name].physical_offset]
    report = mqstore.verify(root, config=SETTINGS)
    assert report.ok, report.findings
    return [
        name
        for name, offset in told.items()
        if name not in there or there[name].physical_offset != offset
    ]
