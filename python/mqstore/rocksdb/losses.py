"""Counts lost messages where queues lie in RocksDB: rows that lead to no whole message."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.errors import CorruptionError, UnsupportedError
from mqstore.files.log_files import LogFiles, log_folders
from mqstore.results import Diagnosis, LostInQueue
from mqstore.rocksdb.queue_files import database_of, ends_of, rows_of
from mqstore.rocksdb.reading import has_rows, is_installed
from mqstore.rocksdb.rows import QueueRow

if TYPE_CHECKING:
    import os

    from mqstore.config import ConfigLike

_MOST_QUEUES = 5


def lost_rows(
    path: str | os.PathLike[str], config: ConfigLike, *, damaged: bool
) -> tuple[list[LostInQueue], bool]:
    """Returns the lost messages of each queue, and whether all of them lie behind the others.

    Args:
        path: The store's root folder.
        config: As for ``open``.
        damaged: Whether the store is known to be damaged; if not, the last rows tell.
    """
    folder = database_of(Path(path))
    if folder is None or not is_installed():
        return [], False
    lost: dict[tuple[str, int], LostInQueue] = {}
    first_lost: int | None = None
    last_whole = -1
    with closing(LogFiles(log_folders(path, config))) as log:
        try:
            if not has_rows(folder):
                return [], False
            ends, reach = ends_of(folder)
            if not damaged and reach <= log.end:
                return [], False
            for name, number, value in rows_of(folder, ends):
                row = QueueRow.of(name, number, value)
                at = row.physical_offset
                if at < log.begin:
                    continue
                if log.has(row):
                    last_whole = max(last_whole, at)
                    continue
                first_lost = at if first_lost is None else min(first_lost, at)
                before = lost.get(name, LostInQueue(*name, 0, number, number))
                lost[name] = before._replace(messages=before.messages + 1, last=number)
        except (CorruptionError, UnsupportedError):
            # The check of the database tells it.
            return [], False
    return sorted(lost.values()), first_lost is not None and first_lost > last_whole


def end_missing(rows: list[LostInQueue]) -> Diagnosis:
    """The diagnosis where files of the log's end are missing, by the rows of the queues."""
    code = "MQ-DOC-13"
    title, fix = _native._code_text(code) or ("", "")  # noqa: SLF001 - our own
    count = sum(row.messages for row in rows)
    evidence = [f"missing: the log's end; queues in RocksDB know {count} messages beyond it"]
    evidence += [f"queue {row[1]} of {row[0]}: {row[3]} to {row[4]}" for row in rows[:_MOST_QUEUES]]
    if len(rows) > _MOST_QUEUES:
        evidence.append(f"and {len(rows) - _MOST_QUEUES} more queues")
    return Diagnosis(code, "error", title, tuple(evidence), None, fix)
