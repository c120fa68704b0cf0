"""The index in RocksDB: its rows, queries by key and tags, and a comparison with the log.

RocketMQ puts rows for messages with a unique key only (``IndexRocksDBStore.buildIndex``).
"""

from __future__ import annotations

import hashlib
import heapq
import warnings
from typing import TYPE_CHECKING, NamedTuple

from mqstore import _native
from mqstore.errors import StoreError
from mqstore.rocksdb.reading import has_rows, is_database, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mqstore import Store, StoredMessage

DATABASE = "rocksdbstore"
# Bytes of log that a query reads sooner than rows: the log is sure to have every message.
FROM_LOG = 1 << 30
_PLACE = b"lastOffsetPy"
_TIME = b"lastStoreTimeStamp"
_OFFSET = 8
# Candidates of one query that are kept, the newest.
_MOST = 100_000
_LATEST = 2**63 - 1
_HOUR_MS = 3_600_000


class Sum(NamedTuple):
    """Number of rows, and a sum of their hashes: equal for equal rows in any order."""

    rows: int = 0
    hashes: int = 0

    def plus(self, key: bytes, value: bytes) -> Sum:
        """The sum with one row more."""
        digest = hashlib.blake2b(key + b"=" + value, digest_size=16).digest()
        return Sum(self.rows + 1, (self.hashes + int.from_bytes(digest, "big")) % (1 << 128))


def rows_of(message: StoredMessage) -> dict[bytes, bytes]:
    """The rows that RocketMQ puts for a message."""
    return dict(_native._index_rows(message))  # noqa: SLF001 - our own


def index_rows(store: Store, old: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """The rows for all messages of a log, and the timers and transactions of the old database."""
    if is_database(old) and has_rows(old):
        yield from read_rows(old, ["timer", "trans"])
    last = None
    for message in store.scan():
        for key, value in rows_of(message).items():
            yield "default", key, value
            last = message
    if last is not None:
        yield "default", _PLACE, last.physical_offset.to_bytes(8, "big")
        yield "default", _TIME, last.store_timestamp_ms.to_bytes(8, "big")


def sum_of_log(store: Store, until: int) -> Sum:
    """The sum of the rows for the messages of a log that begin at `until` or before."""
    total = Sum()
    for message in store.scan():
        if message.physical_offset > until:
            break
        for row in rows_of(message).items():
            total = total.plus(*row)
    return total


def count_index_rows(folder: Path, start: int) -> tuple[Sum, int]:
    """The sum of a database's rows to messages from `start` on, and the last message with one."""
    total, last = Sum(), -1
    for _, key, value in read_rows(folder, ["default"]):
        if key == _PLACE:
            last = int.from_bytes(value, "big")
        elif key != _TIME and int.from_bytes(key[-_OFFSET:], "big") >= start:
            total = total.plus(key, value)
    return total, last


def check_index(
    folder: Path, store: Store, add: Callable[[str, str, Path, str, str], None]
) -> None:
    """Holds the rows of an index against the log; `add` takes what is wrong.

    Rows that a truncation of the log left, and messages without rows from before the index was
    switched on, are no damage, and RocketMQ lives with both.
    """
    start = store.min_physical_offset
    total, last = count_index_rows(folder, start)
    expected = sum_of_log(store, last)
    if total == expected:
        return
    held = 0
    for _, key, value in read_rows(folder, ["default"]):
        place = int.from_bytes(key[-_OFFSET:], "big")
        if key in (_PLACE, _TIME) or place < start:
            continue
        try:
            known = rows_of(store.get(place))
        except StoreError:
            known = {}
        if known.get(key) == value:
            held += 1
        else:
            add("MQ-RDB-02", "warning", folder, f"a row of the message at {place}", repr(key[:200]))
    if held < expected.rows:
        what = f"{expected.rows} rows for messages up to physical offset {last}"
        add("MQ-RDB-03", "info", folder, what, str(held))


class KeyIndex:
    """Answers queries by key and tags with the rows of a database, one process each."""

    def __init__(self, root: Path, warn: type[Warning]) -> None:
        self._folder = root / DATABASE
        self._warn = warn

    def __call__(
        self,
        topic: bytes,
        text: bytes,
        by_tags: bool,  # noqa: FBT001 - the extension passes it by position
        times: tuple[int, int],
        log: tuple[int, int],
    ) -> tuple[list[int], int] | None:
        """Physical offsets, and the place behind which no message has a row.

        ``None`` where the log is to be read: it is short, or the database is damaged.
        """
        if log[1] - log[0] <= FROM_LOG or not has_rows(self._folder):
            return None
        begin, end = max(0, times[0]), min(times[1], _LATEST)
        hours = (begin - begin % _HOUR_MS, end)
        kinds = (b"T",) if by_tags else (b"K", b"U")
        prefixes = [b"@%b@%b@%b@" % (topic, kind, text) for kind in kinds]
        until = None

        def places(rows: Iterable[tuple[str, bytes, bytes]]) -> Iterator[int]:
            nonlocal until
            for _, key, value in rows:
                if key == _PLACE:
                    until = int.from_bytes(value, "big")
                elif key != _TIME:
                    yield int.from_bytes(key[-_OFFSET:], "big")

        try:
            rows = read_rows(self._folder, ["default"], prefix=_PLACE, hourly=(prefixes, hours))
            found = heapq.nlargest(_MOST, places(rows))
        except StoreError as error:
            warnings.warn(str(error), self._warn, stacklevel=2)
            return None
        return None if until is None or until >= 2**63 else (found, until)
