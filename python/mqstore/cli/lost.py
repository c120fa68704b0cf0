"""Names the messages that a damaged store's queues know and that its log no longer holds whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import mqstore
from mqstore.files.log_files import LogFiles, log_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FOLDERS = ("consumequeue", "batchconsumequeue")


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


def lost_messages(
    source: str, advance: Callable[[int, int], None], config: str | None = None
) -> Iterator[Lost]:
    """Compares each queue entry of a store with the log, without opening the store.

    Entries that lead to before the first log file are not lost: retention deleted their messages.
    A queue whose files cannot be read is left out.

    Args:
        source: The store's root folder; nothing is lost in what has no queues.
        advance: Called with how many queues were compared and how many there are.
        config: Path of the ``broker.conf`` that says where the log is.
    """
    folders = _queue_folders(Path(source))
    with closing(LogFiles(log_folders(source, config))) as log:
        for done, folder in enumerate(folders):
            advance(done, len(folders))
            try:
                yield from _lost_of_queue(folder, log)
            except (mqstore.StoreError, OSError):
                continue


def _lost_of_queue(folder: Path, log: LogFiles) -> Iterator[Lost]:
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
