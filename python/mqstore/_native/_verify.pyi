from collections.abc import Callable, Mapping
from typing import Literal

from mqstore._native._rocksdb import _Databases, _FindingRow
from mqstore._native._types import _Path

def verify(
    path: _Path,
    /,
    *,
    level: Literal["quick", "full"],
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
    databases: _Databases | None,
) -> tuple[list[_FindingRow], dict[str, int]]:
    """Checks a store; ``mqstore.verify`` is the public door to this. Never writes.

    Args:
        path: The store's root folder.
        level: ``"quick"`` follows the frames of the log and looks at lengths, names and headers;
            ``"full"`` also computes every checksum and holds each queue entry, index entry and the
            checkpoint against the log.
        threads: How many threads; ``None`` is as many as there are processors.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the check.
        settings: As for ``Store``.
        databases: Reader of databases in RocksDB; ``None`` without any.

    Returns:
        The findings, each ``(code, severity, path, offset, expected, found, message, fix)`` with
        severity ``"error"``, ``"warning"`` or ``"info"`` and ``path`` relative to the store, sorted
        by path and offset, those of databases last; and counts by name: ``messages``,
        ``log_bytes``, ``log_files``, ``queues``, ``queue_entries``, ``index_files``,
        ``index_entries``, with databases ``rocksdb_rows``, and behind it how many findings there
        are of each code, listed or not.
    """

def _code_text(code: str) -> tuple[str, str] | None:
    """Title and fix of a code of a finding."""
