"""Makes files of queues out of rows, for the store's own reader.

The rows of a queue in RocksDB hold what the entries of a queue file do. In files of a folder aside
the reader takes them for what they are, holds them against the log and completes them from it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeVar

from mqstore import _native
from mqstore.errors import damaged
from mqstore.rocksdb.reading import has_rows, is_database, read_rows
from mqstore.rocksdb.rows import CHECKPOINT_TOPIC, OffsetRow, QueueRow
from mqstore.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_Row = TypeVar("_Row", QueueRow, OffsetRow)
Name = tuple[str, int]
Ends = dict[Name, OffsetRow]
FOLDERS = ("consumequeue", "consumequeue_rocksdb")
_ENTRY = 20
_LOG_NAME = 20
_VALUE = 28
# Bytes of log that the reader walks sooner than rows are read.
NO_LOG = 2**63 - 1
"""The beginning of a log without files, behind every message."""
FROM_LOG = 64 << 20
# The reader expects files of this size aside (`queue_table.rs`).
FILE_SIZE = 80_000
_PRE_BLANK = bytes(8) + (2**31 - 1).to_bytes(4, "big") + bytes(8)


def database_of(root: Path) -> Path | None:
    """The database with a store's queues; ``None`` if they lie in files only."""
    return next((root / name for name in FOLDERS if is_database(root / name)), None)


def ends_of(folder: Path, into: Ends | None = None) -> tuple[Ends, int]:
    """The greatest offset of each queue, and the end of the last message with a row.

    `into` has those that were read where the database is damaged.
    """
    ends: Ends = {} if into is None else into
    checkpoint = 0
    for _, key, value in read_rows(folder, ["offset"]):
        row = _decoded(OffsetRow, folder, key, value)
        if row.topic == CHECKPOINT_TOPIC:
            checkpoint = row.physical_offset
        elif row.is_max:
            ends[row.topic, row.queue_id] = row
    return ends, checkpoint


def rows_of(folder: Path, ends: Ends) -> Iterator[tuple[Name, int, bytes]]:
    """The rows of the queues: queue, queue offset, value.

    Those behind a queue's end, which a truncation leaves, are skipped.
    """
    prefix, name, last = b"", ("", 0), -1
    for _, key, value in read_rows(folder, ["default"]):
        if key[:-8] != prefix:
            row = _decoded(QueueRow, folder, key, value)
            prefix, name = key[:-8], (row.topic, row.queue_id)
            last = ends[name].queue_offset if name in ends else -1
        elif len(value) != _VALUE:
            _decoded(QueueRow, folder, key, value)
        number = int.from_bytes(key[-8:], "big", signed=True)
        if number <= last:
            yield name, number, value


def write_queues(root: Path, aside: Path, settings: Mapping[str, object]) -> bool:
    """Writes files of the queues that a store has in RocksDB only; says whether there are any.

    Of a short log only the ends of queues without messages are written: the reader gets the rest
    from the log sooner.

    Raises:
        CorruptionError: Damage in a file of the database.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    folder = database_of(root)
    if folder is None or not has_rows(folder):
        return False
    missing = _without_files(root, folder)
    files = QueueFiles(aside / "consumequeue", FILE_SIZE, folder)
    start, length = log_of(root, settings)
    if length > FROM_LOG or _has_files(root / "consumequeue"):
        for name, number, value in rows_of(folder, missing):
            files.put(name, number, value)
    else:
        missing = _before(start, missing)
    files.close()
    # Where retention took every message, the end alone tells the next offset.
    for name in missing.keys() - files.queues:
        files.put_end(name, missing[name])
    return bool(files.queues)


def needed_database(root: Path, settings: Mapping[str, object]) -> Path | None:
    """The database of a store whose log is too long to be read instead; else ``None``."""
    folder = database_of(root)
    if folder is None or not has_rows(folder) or log_of(root, settings)[1] <= FROM_LOG:
        return None
    return folder


def lost_ends(root: Path, folder: Path, start: int, settings: Mapping[str, object]) -> Ends:
    """The ends of queues that neither the log, which begins at `start`, nor files tell."""
    ends = {
        name: end for name, end in _before(start, ends_of(folder)[0]).items() if names_folders(name)
    }
    if not ends:
        return {}
    with Store(root, "r", settings) as store:
        known = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    return {name: end for name, end in ends.items() if known.get(name, 0) <= end.queue_offset}


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_dir() for path in folder.iterdir())


def _before(start: int, ends: Ends) -> Ends:
    return {name: end for name, end in ends.items() if end.physical_offset < start}


def _without_files(root: Path, folder: Path) -> Ends:
    return {
        (topic, queue_id): end
        for (topic, queue_id), end in ends_of(folder)[0].items()
        if names_folders((topic, queue_id))
        and not os.path.isdir(root / "consumequeue" / topic / str(queue_id))  # noqa: PTH112 - no name is too long for it
    }


def log_of(root: Path, settings: Mapping[str, object]) -> tuple[int, int]:
    """Where the log begins and its length; one without files begins behind every message."""
    names = ("store_path_commit_log", "read_only_commit_log_store_paths")
    texts = [str(settings.get(name, "")) for name in names]
    folders = [folder.strip() for text in texts for folder in text.split(",") if folder.strip()]
    if not texts[0].strip():
        folders.append("commitlog")
    begins: dict[int, Path] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            begins |= {
                int(path.name): path
                for path in (root / folder).iterdir()
                if len(path.name) == _LOG_NAME and path.name.isdecimal()
            }
    with contextlib.suppress(OSError, ValueError):
        # All files have the length of the first.
        first = min(begins)
        return first, max(begins) - first + begins[first].stat().st_size
    return NO_LOG, FROM_LOG + 1


class QueueFiles:
    """Writes rows of a database, sorted by queue and offset, as files of queues."""

    def __init__(self, folder: Path, file_size: int, database: Path) -> None:
        self.queues: set[Name] = set()
        self._folder = folder
        self._database = database
        self._size = file_size
        self._queue: Name | None = None
        self._begin = 0
        self._bytes = bytearray()

    def put(self, queue: Name, queue_offset: int, value: bytes) -> None:
        """Adds an entry; a gap before it stays zero, and the reader fills it from the log.

        Raises:
            CorruptionError: No folder can have the queue's name.
        """
        position = queue_offset * _ENTRY
        # No number beyond that names a file.
        if not 0 <= position < 2**62:
            return
        if queue != self._queue or position >= self._begin + self._size:
            self.check(queue)
            self.close()
            self._begin = position - position % self._size
            if queue not in self.queues:
                self._bytes += _PRE_BLANK * ((position - self._begin) // _ENTRY)
            self._queue = queue
            self.queues.add(queue)
        self._bytes += bytes(position - self._begin - len(self._bytes))
        self._bytes += value[:_ENTRY]

    def put_end(self, queue: Name, end: OffsetRow) -> None:
        """Adds the last entry of a queue without messages and ends its file."""
        row = QueueRow(*queue, end.queue_offset, end.physical_offset, 1, 0, 0)
        self.put(queue, end.queue_offset, row.encode()[1])
        self.close()

    def check(self, queue: Name) -> None:
        """Refuses a queue whose name no folder can have."""
        if not names_folders(queue):
            wanted = "a queue whose name can be a folder's"
            found = f"queue {queue[1]} of {queue[0]!r}"[:300]
            advice = "nothing was written for it"
            raise damaged(self._database, "rocksdb", wanted, found, advice)

    def close(self) -> None:
        """Writes the file in work."""
        if self._queue is None:
            return
        topic, queue_id = self._queue
        path = self._folder / topic / str(queue_id) / f"{self._begin:020}"
        # Far rows leave holes, no zeros on the disk.
        entries = self._bytes.lstrip(b"\0")
        position = len(self._bytes) - len(entries)
        _native._make_file(path, bytes(entries), position=position, size=self._size)  # noqa: SLF001 - our own
        self._bytes.clear()
        self._queue = None


def names_folders(queue: Name) -> bool:
    """Whether a queue's name and number may be those of folders."""
    topic = queue[0].encode("utf-8", "surrogateescape")
    return queue[1] >= 0 and _native._names_a_folder(topic)  # noqa: SLF001 - our own


def _decoded(kind: type[_Row], folder: Path, key: bytes, value: bytes) -> _Row:
    try:
        return kind.decode(key, value)
    except ValueError as error:
        wanted = f"a row as RocketMQ writes a {kind.__name__}"
        raise damaged(folder, "rocksdb", wanted, error) from error
