"""Queues, index and tables that RocketMQ keeps in RocksDB (``storeType=defaultRocksDB``).

Needs ``rocksdict`` (``pip install 'mqstore[rocksdb]'``). ``mqstore.open`` calls it by itself.

Open this file first; `reading.py` reads a database and changes nothing in its folder,
`queue_files.py`, `tables.py` and `index.py` give the rows to the store, and `converting.py` moves
queues and index between files and RocksDB. The layout of rows, and their comparison with the log,
are the extension's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.errors import CorruptionError, UnsupportedError
from mqstore.rocksdb.index import DATABASE, KeyIndex
from mqstore.rocksdb.queue_files import (
    NO_LOG,
    database_with_rows,
    log_of,
    lost_ends,
    needed_database,
    write_queues,
)
from mqstore.rocksdb.reading import INSTALL, Databases, is_database, is_installed
from mqstore.rocksdb.tables import databases_of, read_tables, write_tables
from mqstore.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Writer = Callable[[Path, Path, Mapping[str, object]], bool]

__all__ = ["RocksDBWarning", "count_rows", "open_beside", "read_tables", "refuse_lost_numbers"]


class RocksDBWarning(UserWarning):
    """A part of a store in RocksDB is not read."""


def open_beside(path: str | os.PathLike[str], settings: Mapping[str, object]) -> Store:
    """Opens a store to read, with what RocksDB shows of its queues and tables.

    That is written as files to a folder of its own, which goes with the store object. Damage and a
    missing package are told as a ``RocksDBWarning``: messages are read from the log then.
    """
    root = Path(path)
    if not is_installed():
        unread = [(folder, "topics, groups and offsets") for folder in databases_of(root)]
        if (queues := needed_database(root, settings)) is not None:
            unread.append((queues, "queues"))
        for folder, what in unread:
            text = f"{folder}: {what} there are not read, only the log: {INSTALL}"
            warnings.warn(text, RocksDBWarning, stacklevel=3)
        return Store(path, "r", settings)
    aside = tempfile.mkdtemp(prefix="mqstore-")
    try:
        writers = {"consumequeue": write_queues, "config": write_tables}
        written = [
            _is_written(write, root, Path(aside, name), settings) for name, write in writers.items()
        ]
        other = KeyIndex(root.absolute(), RocksDBWarning) if is_database(root / DATABASE) else None
        more = aside if any(written) else None
        store = Store(path, "r", settings, aside=more, other_index=other)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if any(written):
        weakref.finalize(store, _remove, aside, os.getpid())
    else:
        shutil.rmtree(aside, ignore_errors=True)
    return store


def refuse_lost_numbers(
    path: str | os.PathLike[str], settings: Mapping[str, object], given: str = ""
) -> None:
    """Refuses to write where only RocksDB knows, or may know, the next number of a queue.

    `given` is the option that names the configuration in a printed command.

    Raises:
        UnsupportedError: A queue in RocksDB has no message in the log any more, or the database
            that would tell cannot be read.
    """
    root = Path(path)
    cure = f"mqstore convert {shlex.quote(str(root.absolute()))} --queues file --apply{given}"
    folder = database_with_rows(root)
    # A writer that is there is told by its lock.
    if folder is None or _native.lock_state(path)[0]:
        return
    start, _ = log_of(root, settings)
    if start == 0:
        return
    try:
        lost = lost_ends(root, folder, start, settings)
    except (CorruptionError, UnsupportedError) as error:
        why = error.found if isinstance(error, CorruptionError) else INSTALL
        what = (
            f"the log begins at physical offset {start}, and the next numbers of queues without"
            f" messages lie in {folder}, which cannot be read: {why}; nothing was changed"
        )
        if isinstance(error, CorruptionError):
            what += f"; to go on without them: {cure}"
        raise UnsupportedError(f"{root}: {what}", what, str(root)) from error
    if lost:
        (topic, queue_id), end = min(lost.items())
        advice = (
            "put the files of the log back, or give their folder (store_path_commit_log)"
            if start == NO_LOG
            else f"move the queues to files: {cure}"
        )
        what = (
            f"queue {queue_id} of {topic} lies in RocksDB and goes on at {end.queue_offset + 1},"
            f" which no message in the log tells; nothing was changed; {advice}"
        )
        raise UnsupportedError(f"{root}: {what}", what, str(root))


def count_rows(root: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Counts the rows of each database of a store by what they are.

    Raises:
        CorruptionError: Damage in a file of a database.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    rows = _native._count_rows(root, Databases())  # noqa: SLF001 - our own
    return {name: dict(counts) for name, counts in rows}


def _is_written(write: _Writer, root: Path, folder: Path, settings: Mapping[str, object]) -> bool:
    try:
        return write(root, folder, settings)
    except (CorruptionError, UnsupportedError, OSError) as error:
        # A part of the rows says less than none.
        warnings.warn(str(error), RocksDBWarning, stacklevel=4)
        if folder.exists():
            shutil.rmtree(folder)
        return False


def _remove(folder: str, pid: int) -> None:
    # A forked child leaves the folder to its parent.
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
