from typing import Final, Self, final

@final
class MessageId:
    """The parts of a message id; ``str`` gives the id itself, in upper-case hex.

    Args:
        host: The store's IP address, without the port.
        port: The store's port, as stored (a signed 32-bit number).
        physical_offset: Where the record begins in that store's commit log.
    """

    __match_args__: Final = ("host", "port", "physical_offset")
    def __new__(cls, host: str, port: int, physical_offset: int) -> Self: ...
    @property
    def host(self) -> str:
        """The store's IP address."""
    @property
    def port(self) -> int:
        """The store's port."""
    @property
    def physical_offset(self) -> int:
        """Where the record begins in that store's commit log."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class AppendResult:
    """Result of an append: where the message is, its size, id and time."""

    __match_args__: Final = (
        "physical_offset",
        "store_size",
        "queue_offset",
        "message_id",
        "store_timestamp_ms",
        "topic",
        "queue_id",
    )
    def __new__(
        cls,
        physical_offset: int,
        store_size: int,
        queue_offset: int,
        message_id: str,
        store_timestamp_ms: int,
        topic: str = "",
        queue_id: int = 0,
    ) -> Self: ...
    @property
    def physical_offset(self) -> int:
        """Physical offset of its record."""
    @property
    def store_size(self) -> int:
        """Length of its record in bytes."""
    @property
    def queue_offset(self) -> int:
        """Its entry number in its queue."""
    @property
    def message_id(self) -> str:
        """Its id: the store's address and the physical offset in hex."""
    @property
    def store_timestamp_ms(self) -> int:
        """Its store time."""
    @property
    def topic(self) -> str:
        """Name of its topic."""
    @property
    def queue_id(self) -> int:
        """Number of its queue."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class AppendSummary:
    """Result of ``Store.append_arrow``, and of ``Store.append_many`` with ``summary=True``."""

    __match_args__: Final = ("count", "first_physical_offset", "end_physical_offset")
    def __new__(cls, count: int, first_physical_offset: int, end_physical_offset: int) -> Self: ...
    @property
    def count(self) -> int:
        """Number of messages."""
    @property
    def first_physical_offset(self) -> int:
        """Physical offset of the first message; the end of the log if there is none."""
    @property
    def end_physical_offset(self) -> int:
        """End of the last message."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class QueueInfo:
    """One consume queue."""

    __match_args__: Final = (
        "topic",
        "queue_id",
        "min_offset",
        "max_offset",
        "kind",
        "first_store_timestamp_ms",
        "last_store_timestamp_ms",
    )
    def __new__(
        cls,
        topic: str,
        queue_id: int,
        min_offset: int,
        max_offset: int,
        kind: str,
        first_store_timestamp_ms: int | None,
        last_store_timestamp_ms: int | None,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def queue_id(self) -> int:
        """Number of the queue in its topic."""
    @property
    def min_offset(self) -> int:
        """First entry whose message the log still has."""
    @property
    def max_offset(self) -> int:
        """One past the last entry."""
    @property
    def kind(self) -> str:
        """``"SimpleCQ"`` or ``"BatchCQ"``, RocketMQ's own names (``CQType``)."""
    @property
    def first_store_timestamp_ms(self) -> int | None:
        """Store time of the message at ``min_offset``; ``None`` in an empty queue."""
    @property
    def last_store_timestamp_ms(self) -> int | None:
        """Store time of the message before ``max_offset``; ``None`` in an empty queue."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class GroupOffset:
    """Offset and lag of a consumer group in one queue (``config/consumerOffset.json``)."""

    __match_args__: Final = ("topic", "queue_id", "queue_offset", "max_offset", "lag")
    def __new__(
        cls, topic: str, queue_id: int, queue_offset: int, max_offset: int, lag: int
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def queue_id(self) -> int:
        """Number of the queue in its topic."""
    @property
    def queue_offset(self) -> int:
        """Next queue offset that the group reads."""
    @property
    def max_offset(self) -> int:
        """One past the queue's last entry; 0 where the store has no such queue."""
    @property
    def lag(self) -> int:
        """The group's lag: ``max_offset - queue_offset``, at least 0."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class _Pattern:
    """A regular expression of bytes, in whatever form searched in time in proportion to the bytes.

    Args:
        pattern: In the syntax of Rust's crate regex, without lookaround and backreferences.
            ``(?u)`` in front makes it one of characters.

    Raises:
        ValueError: It is none.
    """

    def __new__(cls, pattern: str, /) -> Self: ...
    @property
    def pattern(self) -> str:
        """The expression."""
    def is_in(self, data: bytes, /) -> bool:
        """Whether it is found in the bytes."""
    def spans(self, data: bytes, stop: int, /) -> list[tuple[int, int]]:
        """Begin and end of each match in the bytes that begins before ``stop``."""
