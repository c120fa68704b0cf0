"""Makes files of queues out of rows, for the store's own reader.

The rows of a queue in RocksDB hold what the entries of a queue file do. In files of a folder aside
the reader takes them for what they are, holds them against the log and completes them from it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from mqstore import _native
from mqstore.files.layout import log_folders, log_paths
from mqstore.rocksdb.reading import Databases, has_rows, is_database
from mqstore.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mqstore.errors import CorruptionError


class End(NamedTuple):
    """The last entry of a queue."""

    physical_offset: int
    queue_offset: int


Name = tuple[str, int]
Ends = dict[Name, End]
FOLDERS = ("consumequeue", "consumequeue_rocksdb")
# Bytes of log that the reader walks sooner than rows are read.
NO_LOG = 2**63 - 1
"""The beginning of a log without files, behind every message."""
FROM_LOG = 64 << 20
# The reader expects files of this size aside (`queue_table.rs`).
FILE_SIZE = 80_000


def database_of(root: Path) -> Path | None:
    """The database with a store's queues; ``None`` if they lie in files only."""
    return next((root / name for name in FOLDERS if is_database(root / name)), None)


def database_with_rows(root: Path) -> Path | None:
    """The folder of the database of queues, if it has rows."""
    folder = database_of(root)
    return folder if folder is not None and has_rows(folder) else None


def ends_of(folder: Path) -> tuple[Ends, int, CorruptionError | None]:
    """Reads the last entry of each queue.

    Returns:
        The entries, the end of the last message with a row, and the error after which no more could
        be read.
    """
    rows, checkpoint, error = _native._queue_ends(folder, Databases())  # noqa: SLF001 - our own
    ends = {(topic, queue_id): End(place, at) for topic, queue_id, place, at in rows}
    return ends, checkpoint, error


def sound_ends(folder: Path) -> Ends:
    """Reads the last entry of each queue; raises what `ends_of` returns."""
    ends, _, error = ends_of(folder)
    if error is not None:
        raise error
    return ends


def write_files(
    database: Path, folder: Path, ends: Ends, *, file_size: int, with_rows: bool
) -> bool:
    """Writes files of queues: their rows, and the last entry of those without one.

    Raises:
        CorruptionError: Damage in the database, or no folder can have a queue's name.
        StoreIOError: The operating system refused something.
    """
    return _native._queue_files(  # noqa: SLF001 - our own
        database,
        Databases(),
        folder=folder,
        file_size=file_size,
        ends=[(*name, *end) for name, end in ends.items()],
        with_rows=with_rows,
    )


def write_queues(root: Path, files: Path, settings: Mapping[str, object]) -> bool:
    """Writes files of the queues that a store has in RocksDB only; says whether there are any.

    None of a short log from its beginning on: the reader gets all from the log sooner.

    Raises:
        CorruptionError: Damage in a file of the database.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    folder = database_with_rows(root)
    if folder is None:
        return False
    start, length = log_of(root, settings)
    folders = root / "consumequeue"
    has_files = folders.is_dir() and any(path.is_dir() for path in folders.iterdir())
    if start == 0 and length <= FROM_LOG and not has_files:
        return False
    ends = _without_files(root, folder)
    return write_files(folder, files, ends, file_size=FILE_SIZE, with_rows=True)


def needed_database(root: Path, settings: Mapping[str, object]) -> Path | None:
    """The database of a store whose log is too long to be read instead; else ``None``."""
    folder = database_with_rows(root)
    return folder if folder is not None and log_of(root, settings)[1] > FROM_LOG else None


def lost_ends(root: Path, folder: Path, start: int, settings: Mapping[str, object]) -> Ends:
    """The ends of queues that neither the log, which begins at `start`, nor files tell."""
    ends = {
        name: end for name, end in _before(start, sound_ends(folder)).items() if names_folders(name)
    }
    if not ends:
        return {}
    with Store(root, "r", settings) as store:
        known = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    return {name: end for name, end in ends.items() if known.get(name, 0) <= end.queue_offset}


def _before(start: int, ends: Ends) -> Ends:
    return {name: end for name, end in ends.items() if end.physical_offset < start}


def _without_files(root: Path, folder: Path) -> Ends:
    return {
        (topic, queue_id): end
        for (topic, queue_id), end in sound_ends(folder).items()
        if names_folders((topic, queue_id))
        and not os.path.isdir(root / "consumequeue" / topic / str(queue_id))  # noqa: PTH112 - no name is too long for it
    }


def log_of(root: Path, settings: Mapping[str, object]) -> tuple[int, int]:
    """Where the log begins and its length; one without files begins behind every message."""
    with contextlib.suppress(OSError, ValueError):
        files = log_paths(log_folders(root, settings))
        # All files have the length of the first.
        first = min(files)
        return first, max(files) - first + files[first].stat().st_size
    return NO_LOG, FROM_LOG + 1


def names_folders(queue: Name) -> bool:
    """Whether a queue's name and number may be those of folders."""
    topic = queue[0].encode("utf-8", "surrogateescape")
    return queue[1] >= 0 and _native._names_a_folder(topic)  # noqa: SLF001 - our own
