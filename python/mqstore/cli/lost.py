"""Names the messages that a damaged store's queues know and that its log no longer holds whole."""

from __future__ import annotations

import bisect
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from mqstore import QueueEntry, StoredMessage

__all__ = ["Lost", "lost_messages"]

_FOLDERS = ("consumequeue", "batchconsumequeue")
_NAME_DIGITS = 20


class Lost(NamedTuple):
    """A message that is lost."""

    topic: str
    """Its topic."""
    queue_id: int
    """Its queue."""
    queue_offset: int
    """Its number there."""
    physical_offset: int
    """Where its record was."""
    store_timestamp_ms: int | None
    """Its store time, where the record's head can still be read."""
    keys: tuple[str, ...] | None
    """Its keys, where they can still be read."""
    unique_key: str | None
    """Its unique key, where it can still be read."""


def lost_messages(source: str, tell: Callable[[int, int], None]) -> Iterator[Lost]:
    """Compares each queue entry of a store with the log, without opening the store.

    Entries that lead to before the first log file are not lost: retention deleted their messages.
    A queue whose files cannot be read is left out.

    Args:
        source: The store's root folder; nothing is lost in what has no queues.
        tell: Called with how many queues were compared and how many there are.
    """
    folders = _queue_folders(Path(source))
    with closing(_Log(Path(source, "commitlog"))) as log:
        for done, folder in enumerate(folders):
            tell(done, len(folders))
            try:
                yield from _lost_of_queue(folder, log)
            except (mqstore.StoreError, OSError):
                continue


def _lost_of_queue(folder: Path, log: _Log) -> Iterator[Lost]:
    queue = mqstore.ConsumeQueue(folder)
    for entry in queue.entries(queue.min_offset, queue.max_offset):
        if entry.physical_offset < log.begin or log.has(entry):
            continue
        found = log.damaged(entry)
        yield Lost(
            folder.parent.name,
            int(folder.name),
            entry.queue_offset,
            entry.physical_offset,
            None if found is None else found.store_timestamp_ms,
            None if found is None else found.keys,
            None if found is None else found.unique_key,
        )


def _queue_folders(root: Path) -> list[Path]:
    return sorted(
        queue
        for kind in _FOLDERS
        for topic in _folders(root / kind)
        for queue in _folders(topic)
        if queue.name.isdecimal() and queue.name.isascii()
    )


def _folders(path: Path) -> list[Path]:
    if not path.is_dir() or path.is_symlink():
        return []
    return [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]


class _Log:
    """The files of a log, read by physical offset."""

    def __init__(self, folder: Path) -> None:
        names = [
            path
            for path in (folder.iterdir() if folder.is_dir() else ())
            if len(path.name) == _NAME_DIGITS and path.name.isdecimal() and path.is_file()
            # A link is not followed, as everywhere below a store.
            if not path.is_symlink()
        ]
        self._files = sorted(names)
        self._begins = [int(path.name) for path in self._files]
        self._reading: tuple[int, BinaryIO] | None = None
        self.begin = self._begins[0] if self._begins else 0

    def has(self, entry: QueueEntry) -> bool:
        """Whether an entry leads to a whole record of its size."""
        try:
            message = mqstore.decode(self._read(entry))
        except (mqstore.StoreError, ValueError):
            return False
        return (message.store_size, message.physical_offset) == (
            entry.store_size,
            entry.physical_offset,
        )

    def damaged(self, entry: QueueEntry) -> StoredMessage | None:
        """The record that an entry leads to where only its body is damaged."""
        try:
            message = mqstore.decode(self._read(entry), verify_crc=False)
        except (mqstore.StoreError, ValueError):
            return None
        return message if message.physical_offset == entry.physical_offset else None

    def _read(self, entry: QueueEntry) -> bytes:
        at = bisect.bisect_right(self._begins, entry.physical_offset) - 1
        if at < 0 or not 0 < entry.store_size < 2**31 - 1:
            return b""
        file = self._file(at)
        place = entry.physical_offset - self._begins[at]
        left = os.fstat(file.fileno()).st_size - place
        return os.pread(file.fileno(), min(entry.store_size, left), place) if left > 0 else b""

    def _file(self, at: int) -> BinaryIO:
        """The file of that number; the one before is closed, as entries mostly go upward."""
        if self._reading is not None:
            if self._reading[0] == at:
                return self._reading[1]
            self._reading[1].close()
        self._reading = at, self._files[at].open("rb")
        return self._reading[1]

    def close(self) -> None:
        """Closes the file that was read last."""
        if self._reading is not None:
            self._reading[1].close()
