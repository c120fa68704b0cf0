from collections.abc import Iterable, Iterator
from typing import Final, Literal, Self, final, overload

from mqstore._native._message_scan import Damage, MessageScan
from mqstore._native._stored import StoredMessage
from mqstore._native._types import _Path

@final
class QueueEntry:
    """One entry of a consume queue: 20 bytes, or 46 in a batch queue."""

    __match_args__: Final = (
        "queue_offset",
        "physical_offset",
        "store_size",
        "tags_code",
        "message_count",
        "store_timestamp_ms",
    )
    def __new__(
        cls,
        queue_offset: int,
        physical_offset: int,
        store_size: int,
        tags_code: int,
        message_count: int = 1,
        store_timestamp_ms: int | None = None,
    ) -> Self: ...
    @property
    def queue_offset(self) -> int:
        """Entry number in the queue; of a batch that of its first message."""
    @property
    def physical_offset(self) -> int:
        """Where the record begins in the commit log."""
    @property
    def store_size(self) -> int:
        """Length of the record in bytes."""
    @property
    def tags_code(self) -> int:
        """Hash of the tags, a delivery time, or an address of the queue extension."""
    @property
    def message_count(self) -> int:
        """Messages behind the entry: 1, or the size of a batch."""
    @property
    def store_timestamp_ms(self) -> int | None:
        """Store time, which only a batch queue keeps."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ConsumeQueue(Iterable[QueueEntry]):
    """A read-only view of one consume queue, as of its opening; no commit log is needed.

    ``len(queue)`` is the number of entries, ``queue[i]`` the i-th of them (negative from the end),
    iteration gives them in order. An entry before the first valid one, such as RocketMQ's filler at
    the head of a queue that begins late, is not counted; the first invalid entry ends the queue.

    Args:
        path: The queue's folder, ``<store>/consumequeue/<topic>/<queue id>``, or one under
            ``batchconsumequeue``, whose entries are 46 bytes long.
        file_size: Bytes of one file; ``None`` takes it from the files there.

    Raises:
        NotAStoreError: No such folder.
        CorruptionError: A file name or length that cannot be, or files that leave a gap.
    """

    def __new__(cls, path: _Path, *, file_size: int | None = None) -> Self: ...
    @property
    def path(self) -> str:
        """The queue's folder."""
    @property
    def topic(self) -> str:
        """The topic, as the folder above is named."""
    @property
    def queue_id(self) -> int:
        """The queue's number, as its folder is named."""
    @property
    def kind(self) -> Literal["SimpleCQ", "BatchCQ"]:
        """Which kind of queue it is (``CQType``)."""
    @property
    def file_size(self) -> int:
        """Bytes of one file."""
    @property
    def min_offset(self) -> int:
        """Queue offset of the first entry."""
    @property
    def max_offset(self) -> int:
        """One past the queue offset of the last entry."""
    @property
    def max_physical_offset(self) -> int:
        """Where the last entry's record ends in the commit log; -1 in an empty queue."""
    def entries(self, start: int | None = None, stop: int | None = None) -> Iterator[QueueEntry]:
        """The entries in a half-open range of queue offsets; ``None`` is the queue's bound."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> QueueEntry: ...
    def __iter__(self) -> Iterator[QueueEntry]: ...

@final
class CommitLog(Iterable[StoredMessage]):
    """A read-only view of a commit log, as of its opening; nothing else of the store is needed.

    Iteration gives every message in order and raises at damage.

    Args:
        path: The folder, ``<store>/commitlog``.
        file_size: Bytes of one file; ``None`` takes it from the files there.

    Raises:
        NotAStoreError: No such folder, or no commit log file in it.
        CorruptionError: A file name or length that cannot be, or files that leave a gap.
    """

    def __new__(cls, path: _Path, *, file_size: int | None = None) -> Self: ...
    @property
    def path(self) -> str:
        """The folder."""
    @property
    def file_size(self) -> int:
        """Bytes of one file."""
    @property
    def files(self) -> list[str]:
        """Names of the files in order; a name is the physical offset of the file's first byte."""
    @property
    def min_physical_offset(self) -> int:
        """Where the first file begins."""
    @property
    def max_physical_offset(self) -> int:
        """Where the last whole record ends."""
    def get(self, physical_offset: int, /) -> StoredMessage:
        """The message whose record begins there; errors as ``Store.get``."""
    @overload
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> MessageScan:
        """The messages of a range, as ``Store.scan``."""
    @overload
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        on_error: Literal["report"],
    ) -> MessageScan[StoredMessage | Damage]: ...
    def __iter__(self) -> MessageScan: ...

@final
class Checkpoint:
    """The checkpoint file's fields, as they were when it was read (``StoreCheckpoint``).

    What is missing from a short or empty file reads as 0.

    Args:
        path: The file, ``<store>/checkpoint``.

    Raises:
        StoreIOError: The file cannot be read.
    """

    def __new__(cls, path: _Path) -> Self: ...
    @property
    def physic_msg_timestamp_ms(self) -> int:
        """Store time of the newest record known to be flushed."""
    @property
    def logics_msg_timestamp_ms(self) -> int:
        """Store time of the last queue entry written."""
    @property
    def index_msg_timestamp_ms(self) -> int:
        """End time of the last full index file flushed."""
    @property
    def master_flushed_offset(self) -> int:
        """Flushed offset of the master, as a replica knows it."""
    @property
    def confirm_physical_offset(self) -> int:
        """Start of the last valid record, as the last recovery found it."""
    @property
    def logics_physical_offset(self) -> int:
        """Start of the last record whose queue entries are flushed; 0 where that is not known."""
    @property
    def min_timestamp_ms(self) -> int:
        """The lesser of the first two times less 3,000 ms, never below 0 (``getMinTimestamp``)."""
    @property
    def min_timestamp_index_ms(self) -> int:
        """The lesser of that and the index's time (``getMinTimestampIndex``)."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
