from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, final, type_check_only

from mqstore._native._stored import StoredMessage
from mqstore._native._types import _Path
from mqstore.errors import CorruptionError

_End: TypeAlias = tuple[str, int, int, int]
_FindingRow: TypeAlias = tuple[
    str, Literal["error", "warning", "info"], str, int | None, str, str, str, str
]

@type_check_only
class _Databases(Protocol):
    def is_installed(self) -> bool:
        """Whether the package that reads databases is there."""

    def is_wanted(self) -> bool:
        """Whether databases are to be read."""

    def scratch(self) -> str:
        """A new folder outside of the store."""

    def rows(self, folder: str, families: Sequence[str], /) -> Iterable[tuple[str, bytes, bytes]]:
        """Rows of column families: family, key, value."""

@final
class _LogQueues:
    """Queues of a store, made from its log in a folder of their own.

    Args:
        path: The store's root folder.
        databases: Reader of databases, which has the folder.
        settings: As for ``Store``.
        has_lights: Whether light queues are made too.
    """

    def __new__(
        cls,
        path: _Path,
        databases: _Databases,
        /,
        *,
        settings: Mapping[str, object],
        has_lights: bool,
    ) -> _LogQueues: ...
    @property
    def bounds(self) -> list[_End]:
        """``(topic, queue_id, first, end)`` of each plain queue."""

    @property
    def folder(self) -> Path:
        """Their folder."""

    @property
    def batches(self) -> list[str]:
        """Topics with queues of batches."""

    @property
    def log_start(self) -> int:
        """Physical offset at which the log begins."""

    def check(self, database: _Path, databases: _Databases) -> list[_FindingRow]:
        """The findings of a database whose rows are compared with the log."""

    def rows(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, list[tuple[bytes, bytes, int, int, int]]]:
        """The next queue offset; up to it rows of key, value, queue offset, begin and end."""

def _count_rows(path: _Path, databases: _Databases, /) -> list[tuple[str, list[tuple[str, int]]]]:
    """Number of rows in each database of a store, by their kind."""

def _queue_ends(
    database: _Path, databases: _Databases, /
) -> tuple[list[_End], int, CorruptionError | None]:
    """Last entries of the queues in a database.

    Returns:
        ``(topic, queue_id, physical_offset, queue_offset)`` of each queue, the end of the last
        message with a row, and the error after which no more could be read.
    """

def _queue_files(
    database: _Path,
    databases: _Databases,
    /,
    *,
    folder: _Path,
    file_size: int,
    ends: Sequence[_End],
    with_rows: bool,
) -> bool:
    """Writes files of queues from rows of a database.

    Args:
        database: The database.
        databases: Reader of databases.
        folder: The folder of the queues.
        file_size: Bytes of one file.
        ends: Queues to write, as from ``_queue_ends``.
        with_rows: Whether their rows are written, or only the last entry of each.

    Returns:
        Whether any was written.

    Raises:
        CorruptionError: Damage in the database, or no folder can have a queue's name.
        StoreIOError: The operating system refused something.
    """

def _offset_row(
    topic: str, queue_id: int, physical_offset: int, queue_offset: int, /
) -> tuple[bytes, bytes]:
    """Key and value of a queue's greatest offset in a database."""

def _index_rows(message: StoredMessage, /) -> list[tuple[bytes, bytes]]:
    """Keys and values of the rows that RocketMQ's index in RocksDB has for a message."""
