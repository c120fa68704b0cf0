"""The native extension: what Rust gives to Python.

Names without an underscore are re-exported by ``mqstore``, which adds what is better said in
Python: ``mqstore.open``, ``mqstore.StoreConfig``, the exceptions and the reports.

Conventions: ``_ms`` is Unix time in milliseconds and bounds of it are inclusive;
``physical_offset`` is a byte position in the whole commit log, and ranges of it are half-open;
``queue_offset`` is an entry number in one consume queue. Integers are as wide as on disk: a
number that its field cannot hold raises ``InvalidMessageError`` before anything is done, and so
does text that UTF-8 cannot hold (a lone surrogate). Bounds and offsets that are only asked for may
be any number.

Every value class here is frozen, compares by value, hashes, pickles, and has a ``repr`` that shows
at most 64 bytes of a body. Everything that touches a file or waits does so without the interpreter
lock. Python classes that the extension makes itself (it imports them by name): the exceptions of
``mqstore.errors``, ``GetStatus`` and ``PutStatus`` of ``mqstore.status``, ``StoreConfig`` of
``mqstore.config``, ``QueryResult`` and ``RecoveryReport`` of ``mqstore.results``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, TypedDict, final

from typing_extensions import Buffer

from mqstore.config import StoreConfig
from mqstore.results import QueryResult, RecoveryReport
from mqstore.status import GetStatus

__all__ = [
    "ARROW_SCHEMA",
    "AppendResult",
    "AppendSummary",
    "ArrowScan",
    "ArrowSchema",
    "Checkpoint",
    "CommitLog",
    "ConsumeQueue",
    "ConsumerGroup",
    "GroupOffset",
    "IndexEntry",
    "IndexFile",
    "IndexHeader",
    "Message",
    "MessageId",
    "MessageScan",
    "OffsetLists",
    "QueueEntry",
    "QueueInfo",
    "ReadResult",
    "Store",
    "StoredMessage",
    "clean",
    "copy_store",
    "decode",
    "diff_stores",
    "doctor",
    "encode",
    "import_messages",
    "inventory",
    "java_hash",
    "key_hash",
    "lock_state",
    "open_store",
    "parse_message_id",
    "read_config_json",
    "rebuild",
    "recover",
    "salvage",
    "scan_log",
    "scan_queue",
    "stats",
    "tags_code",
    "verify",
]

__version__: Final[str]
"""The version of the project."""

_Path: TypeAlias = str | PathLike[str]
_Tags: TypeAlias = str | None
_Keys: TypeAlias = str | Iterable[str]
_Properties: TypeAlias = Mapping[str, str] | bytes

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...

class _Copied(TypedDict):
    messages: int
    bytes: int
    left_out: int
    stand_ins: int
    redacted: int
    renumbered: bool
    in_place: bool
    deleted_topics: list[str]
    config_files: list[str]

class _Salvaged(TypedDict):
    files: list[tuple[str, int, int, int, int, int, int, int]]
    messages: int
    bytes: int
    duplicates: int
    conflict_count: int
    conflicts: list[tuple[int, str, int, str, int]]
    overlapping: int
    queues: int
    renumbered: list[tuple[str, int]]
    missing: int
    passed_over: list[tuple[str, int, int, int, str]]
    problems: list[tuple[str, str]]
    in_place: bool | None
    config_files: list[str]

class _Differing(TypedDict):
    queues: int
    messages: int
    differing: list[tuple[str, int, int, int, int, int]]
    differences: list[tuple[Literal["missing", "extra", "different"], str, int, int, list[str]]]

# --- messages -----------------------------------------------------------------------------------

@final
class Message:
    """A message to be written, with everything that a record can hold.

    ``Store.append`` takes the same fields one by one and is enough for new messages; a
    ``Message`` is for many at once, for import and for migration, where the store's time and host
    come from elsewhere.

    Args:
        topic: Name of the topic; see ``validate_topic_names`` of ``mqstore.StoreConfig``.
        body: What is sent; any object with the buffer protocol. Stored as it is given.
        queue_id: Number of the queue in its topic, from 0.
        tags: The one tag of the message, stored as property ``TAGS``.
        keys: One key, or an iterable of keys, stored joined by spaces as property ``KEYS``. An
            empty key or one with a space in it is refused.
        unique_key: The client's id of the message, stored as property ``UNIQ_KEY``.
        properties: A mapping, written in its own order behind ``TAGS``, ``KEYS``, ``UNIQ_KEY`` and
            ``DELAY``; or ``bytes``, the property block as it is to be stored, and then ``tags``,
            ``keys``, ``unique_key`` and ``delay_level`` must be left out.
        flag: A number of the user's own, 32 bits, never interpreted.
        born_timestamp_ms: The producer's time; ``None`` is the time of the append.
        born_host: The producer's address, ``"ip:port"`` or ``"[v6]:port"``; ``None`` is the store's
            own.
        delay_level: Written as property ``DELAY`` where it is not 0, and no more: this library
            has no delivery service. Below 0 is written too, and a broker takes it for none.
        sys_flag: RocketMQ's bits, such as compression or transaction type. The two bits that say
            whether a host is IPv6 are set from the hosts.
        store_timestamp_ms: The store's time; ``None`` is the time of the append. Any number is
            kept by ``encode``; an append refuses one below 0. It moves no later message.
        store_host: The store's address; ``None`` is the store's own.
        reconsume_times: How often consumption was tried again.
        prepared_transaction_offset: Physical offset of the half message that a commit belongs to.

    Raises:
        InvalidMessageError: A field that no record can hold, or that contradicts another.
        TypeError: A value of the wrong type.
    """

    def __new__(
        cls,
        topic: str,
        body: Buffer,
        *,
        queue_id: int = 0,
        tags: _Tags = None,
        keys: _Keys = (),
        unique_key: str | None = None,
        properties: _Properties | None = None,
        flag: int = 0,
        born_timestamp_ms: int | None = None,
        born_host: str | None = None,
        delay_level: int = 0,
        sys_flag: int = 0,
        store_timestamp_ms: int | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def body(self) -> bytes:
        """What is stored as the body."""
    @property
    def queue_id(self) -> int:
        """Number of the queue in its topic."""
    @property
    def tags(self) -> str | None:
        """The one tag, or ``None``."""
    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order given."""
    @property
    def unique_key(self) -> str | None:
        """The client's id of the message, or ``None``."""
    @property
    def properties(self) -> dict[str, str] | bytes:
        """The further properties as they were given; an empty ``dict`` where there are none."""
    @property
    def flag(self) -> int:
        """The user's own number."""
    @property
    def born_timestamp_ms(self) -> int | None:
        """The producer's time, or ``None`` for the time of the append."""
    @property
    def born_host(self) -> str | None:
        """The producer's address, or ``None`` for the store's own."""
    @property
    def delay_level(self) -> int:
        """The delay level, 0 for none."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits, as given."""
    @property
    def store_timestamp_ms(self) -> int | None:
        """The store's time, or ``None`` for the time of the append."""
    @property
    def store_host(self) -> str | None:
        """The store's address, or ``None`` for the store's own."""
    @property
    def reconsume_times(self) -> int:
        """How often consumption was tried again."""
    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that a commit belongs to."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class StoredMessage:
    """A message as the commit log holds it.

    It owns a copy of its record and reads a field when it is asked for, so listing a million
    messages decodes only what is looked at. Two are equal when their records are equal byte for
    byte. Made by the store and by ``decode``; it pickles as its record.

    Text that is not UTF-8 is shown with U+FFFD where a byte cannot be read; ``raw_properties`` has
    the bytes.
    """

    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def queue_id(self) -> int:
        """Number of the queue in its topic."""
    @property
    def queue_offset(self) -> int:
        """Entry number in its queue."""
    @property
    def physical_offset(self) -> int:
        """Where the record begins in the whole commit log, as the record itself says."""
    @property
    def store_size(self) -> int:
        """Length of the whole record in bytes."""
    @property
    def flag(self) -> int:
        """The user's own number."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits (``MessageSysFlag``)."""
    @property
    def born_timestamp_ms(self) -> int:
        """The producer's time."""
    @property
    def born_host(self) -> str:
        """The producer's address, ``"ip:port"`` or ``"[v6]:port"``."""
    @property
    def store_timestamp_ms(self) -> int:
        """The store's time."""
    @property
    def store_host(self) -> str:
        """The store's address, ``"ip:port"`` or ``"[v6]:port"``."""
    @property
    def reconsume_times(self) -> int:
        """How often consumption was tried again."""
    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that a commit belongs to, else 0."""
    @property
    def body_crc(self) -> int:
        """CRC-32 of ``raw_body`` as stored, with the top bit clear."""
    @property
    def raw_body(self) -> bytes:
        """The body as it is stored."""
    @property
    def body(self) -> bytes:
        """The body as the producer sent it: decompressed where ``sys_flag`` says so.

        Raises:
            CorruptionError: The stored bytes cannot be decompressed, or give more than 64 MiB;
                ``raw_body`` is still there.
        """
    @property
    def properties(self) -> dict[str, str]:
        """All properties, in the order stored; of a name given twice the later value.

        At most 1,024 pairs are read (``MessageDecoder#string2messageProperties``).
        """
    @property
    def raw_properties(self) -> bytes:
        """The property block as it is stored."""
    @property
    def tags(self) -> str | None:
        """Property ``TAGS``, or ``None``."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Property ``KEYS``, split at single spaces, empty pieces left out."""
    @property
    def unique_key(self) -> str | None:
        """Property ``UNIQ_KEY``, or ``None``."""
    @property
    def message_id(self) -> str:
        """The store's id: its address and the physical offset in upper-case hex.

        ``MessageDecoder#createMessageId``.
        """
    @property
    def transaction(self) -> Literal["none", "prepared", "commit", "rollback"]:
        """The transaction type in ``sys_flag``."""
    @property
    def delay_level(self) -> int:
        """Property ``DELAY`` as a number, 0 where it is missing or not a number."""
    @property
    def purpose(
        self,
    ) -> Literal["normal", "half", "transaction-op", "delayed", "timer", "retry", "dead-letter"]:
        """What the topic is there for, as its name tells.

        ``half``: hidden until its transaction is committed (``RMQ_SYS_TRANS_HALF_TOPIC``);
        ``transaction-op``: names half messages whose transactions have ended
        (``RMQ_SYS_TRANS_OP_HALF_TOPIC``); ``delayed``: waits for the time of its delay level
        (``SCHEDULE_TOPIC_XXXX``); ``timer``: waits for the timer (``rmq_sys_wheel_timer``);
        ``retry`` and ``dead-letter``: a group failed to consume it (``%RETRY%...``, ``%DLQ%...``).
        """
    @property
    def half(self) -> bool:
        """Whether it is a half message: sent, and hidden until its transaction is committed."""
    @property
    def real_topic(self) -> str | None:
        """The topic it is bound for, where it waits in another one (property ``REAL_TOPIC``)."""
    @property
    def real_queue_id(self) -> int | None:
        """The queue there (property ``REAL_QID``); ``None`` where that is no number."""
    @property
    def deliver_timestamp_ms(self) -> int | None:
        """When a delayed or a timer message is given out, Unix milliseconds.

        By RocketMQ's own delay levels: a message does not know what ``message_delay_level`` is set
        to; its queue entry does, which holds the time as its tags code. ``None`` for a message that
        waits for no time.
        """
    @property
    def multi_dispatch(self) -> tuple[tuple[str, int], ...]:
        """The ``%LMQ%`` queues beside its own that it is in, each with its queue offset there."""
    @property
    def batch(self) -> tuple[StoredMessage, ...] | None:
        """The messages of a batch that is kept together; ``None`` for any other message.

        Each is a message of its own: with the batch's place, times and hosts, its own body and
        properties, and queue offsets counting from the batch's.

        Raises:
            CorruptionError: ``kind`` is ``batch``: the lengths in the body do not add up, or it
                holds another number of messages than its properties say; or ``body``: it cannot be
                decompressed. ``raw_body`` has the bytes.
        """
    @property
    def record(self) -> bytes:
        """The whole record as it is stored, ``store_size`` bytes long."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

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

# --- answers of the store -----------------------------------------------------------------------

@final
class AppendResult:
    """Where an appended message lies."""

    __match_args__: Final = (
        "physical_offset",
        "store_size",
        "queue_offset",
        "message_id",
        "store_timestamp_ms",
    )
    def __new__(
        cls,
        physical_offset: int,
        store_size: int,
        queue_offset: int,
        message_id: str,
        store_timestamp_ms: int,
    ) -> Self: ...
    @property
    def physical_offset(self) -> int:
        """Where its record begins in the whole commit log."""
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
        """The store's time of it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class AppendSummary:
    """What ``Store.append_arrow`` wrote."""

    __match_args__: Final = ("count", "first_physical_offset", "end_physical_offset")
    def __new__(cls, count: int, first_physical_offset: int, end_physical_offset: int) -> Self: ...
    @property
    def count(self) -> int:
        """How many messages."""
    @property
    def first_physical_offset(self) -> int:
        """Where the first of them begins; the end of the log where there were none."""
    @property
    def end_physical_offset(self) -> int:
        """Where the last of them ends."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ReadResult:
    """What a read of one queue answered (``GetMessageResult``)."""

    __match_args__: Final = (
        "status",
        "messages",
        "next_queue_offset",
        "min_queue_offset",
        "max_queue_offset",
    )
    def __new__(
        cls,
        status: GetStatus,
        messages: Iterable[StoredMessage],
        next_queue_offset: int,
        min_queue_offset: int,
        max_queue_offset: int,
    ) -> Self: ...
    @property
    def status(self) -> GetStatus:
        """RocketMQ's status, such as ``GetStatus.FOUND``."""
    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """The messages, oldest first."""
    @property
    def next_queue_offset(self) -> int:
        """Where the next read should begin."""
    @property
    def min_queue_offset(self) -> int:
        """First entry that the queue still has."""
    @property
    def max_queue_offset(self) -> int:
        """One past the queue's last entry."""
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
    """How far a consumer group has come in one queue (``config/consumerOffset.json``)."""

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
        """The entry that the group takes next."""
    @property
    def max_offset(self) -> int:
        """One past the queue's last entry; 0 where the store has no such queue."""
    @property
    def lag(self) -> int:
        """Entries still to be taken: ``max_offset - queue_offset``, at least 0."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

# --- the store ----------------------------------------------------------------------------------

def open_store(path: _Path, mode: str, settings: Mapping[str, object], /) -> Store:
    """Opens a store; ``mqstore.open`` is the public door to this.

    Args:
        path: The store's root folder.
        mode: ``"r"``, ``"r+"`` or ``"a"``.
        settings: What was given, by the field names of ``mqstore.StoreConfig``, each ``bool``,
            ``int`` or ``str``. What is left out is taken from the files there, else from what
            the store was made with, else from RocketMQ's defaults. A name that the store has no use
            for does nothing.

    Raises:
        NotAStoreError: No such folder, or no store in it (modes ``"r"`` and ``"r+"``).
        ConfigError: A setting that cannot be, or that contradicts the files there.
        StoreLockedError: Another process, or another handle of this one, writes to it.
        CorruptionError: Damage in the flushed part of the log (modes ``"r+"`` and ``"a"``).
        StoreIOError: The operating system refused something.
        ValueError: No such mode.
    """

@final
class Store:
    """A message store; made by ``mqstore.open``.

    Any number of threads may use one store. It is a context manager, and leaving the block closes
    it, with an exception too: what was appended is kept. After ``close`` every method raises
    ``StoreClosedError``; the properties ``path``, ``mode``, ``config`` and ``recovery`` stay
    readable. A scan ends where the log ended when it was asked for, whatever is appended meanwhile.

    A handle that crossed a ``fork`` still reads in the child, and raises ``StoreClosedError`` where
    it would write. It does not pickle: hand on the path, and open the store there.
    """

    # Writing

    def append(
        self,
        topic: str,
        body: Buffer,
        *,
        queue_id: int = 0,
        tags: _Tags = None,
        keys: _Keys = (),
        unique_key: str | None = None,
        properties: _Properties | None = None,
        flag: int = 0,
        born_timestamp_ms: int | None = None,
        born_host: str | None = None,
        delay_level: int = 0,
    ) -> AppendResult:
        """Writes one message.

        Returns when the message is durable under ``SYNC_FLUSH``, and when it is in the log under
        ``ASYNC_FLUSH``. A read that follows in the same process sees it. The first append to a
        topic also enters it in ``config/topics.json``.

        Args:
            topic: Name of the topic.
            body: What is sent, stored as it is.
            queue_id: Number of the queue in its topic, from 0.
            tags: The one tag of the message.
            keys: One key, or an iterable of keys.
            unique_key: The client's id of the message.
            properties: Further properties; see ``Message``.
            flag: A number of the user's own.
            born_timestamp_ms: The producer's time; ``None`` is now.
            born_host: The producer's address; ``None`` is the store's own.
            delay_level: Written as property ``DELAY`` where it is not 0.

        Raises:
            InvalidMessageError: The message cannot be stored; ``.status`` is RocketMQ's name for
                why. Nothing was written.
            FlushTimeoutError: It is stored, but was not flushed in ``sync_flush_timeout``;
                ``.result`` says where.
            StorePoisonedError: A flush failed, now or before; the store is read-only until opened
                again.
            StoreReadOnlyError: The store was opened with mode ``"r"``.
            StoreIOError: The disk is full, or another refusal of the operating system.
        """

    def append_many(
        self, messages: Iterable[Message | Mapping[str, object]], /
    ) -> list[AppendResult]:
        """Writes many messages, sharing flushes.

        Args:
            messages: Messages, or mappings by the argument names of ``Message``. They are
                taken in chunks of at most 1,024 messages or 4 MiB of bodies, and a chunk is
                checked before any of it is written; a crash may keep a part of a chunk.

        Returns:
            One result for each message, in order.

        Raises:
            StoreError: The culprit's own error, as ``append`` raises it, with ``.index``, its
                place among ``messages``, and ``.results``, what was written before.
            TypeError: Something that is no message; with the same two attributes, as is what
                ``messages`` itself raises. Of its chunk nothing was written.
            KeyboardInterrupt: Ctrl-C, between two chunks; ``.results`` is what was written, and
                ``.index`` the place of the first message that was not.
        """

    def append_batch(
        self, messages: Iterable[Message | Mapping[str, object]], /
    ) -> list[AppendResult]:
        """Writes the messages of one queue as a producer's batch: all of them or none.

        They get consecutive queue offsets and one store time, and lie one behind the other in one
        file of the commit log. Each is a message of its own afterwards.

        Args:
            messages: Messages, or mappings by the argument names of ``Message``, all of one
                topic and queue, without a delay level and outside of transactions.

        Returns:
            One result for each message, in order.

        Raises:
            InvalidMessageError: A message may not be, they are not of one queue, or together they
                fit into no file or exceed ``max_message_size``; nothing was written.
            StoreError: As ``append`` raises it.
        """

    def append_arrow(self, data: _ArrowStream, /) -> AppendSummary:
        """Writes the rows of an Arrow stream.

        Args:
            data: Anything with ``__arrow_c_stream__``. Columns are those of ``ARROW_SCHEMA`` by
                name, in any order; ``topic`` and ``body`` are needed, null means left out, and what
                only a stored message has (offsets, sizes, ids, checksums) is not read. Columns of
                other names are refused.

        Raises:
            InvalidMessageError: As ``append_many``.
            TypeError: ``data`` gives no Arrow stream, or a column has another type.
            ValueError: A column is missing, or has a name that no column of a message has.
            KeyboardInterrupt: Ctrl-C, between two chunks of rows; ``.summary`` is an
                ``AppendSummary`` of what was written.
        """

    def flush(self) -> None:
        """Makes everything appended so far durable: log, queues, index, checkpoint."""

    def wait_dispatched(self) -> None:
        """Waits until the queues and the index hold everything appended so far."""

    def close(self) -> None:
        """Flushes, stops the services and gives the lock back; closing twice does nothing.

        Raises:
            StorePoisonedError: A flush failed: ``abort`` stays, and the next open recovers.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    # Reading

    def get(self, physical_offset: int, /) -> StoredMessage:
        """The message whose record begins at a place of the commit log.

        Raises:
            OffsetOutOfRangeError: The log does not reach there, or no longer.
            MessageNotFoundError: No record begins there.
            CorruptionError: One begins there, and is damaged.
        """

    def get_by_id(self, message_id: str, /) -> StoredMessage:
        """The message with an id.

        Args:
            message_id: A store's id (32 or 56 hex digits). Its address must be the record's own.

        Raises:
            MessageNotFoundError: Not an id, or no message of this store has it.
            CorruptionError: The record is there, and damaged.
        """

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int | None = None,
        tags: _Tags = None,
    ) -> ReadResult:
        """Reads one queue from an entry on (``DefaultMessageStore#getMessage``).

        An unknown topic or queue, an empty queue, an offset outside of it are answers and not
        errors: ``status`` says which.

        Args:
            topic: Name of the topic.
            queue_id: Number of the queue in its topic.
            queue_offset: The entry to begin at.
            max_messages: At most this many messages; at least one is given where there is one, for
                0 too, as RocketMQ does.
            max_bytes: At most this many bytes of records; the first is given whatever its size.
            tags: A tag expression, ``"paid || refunded"``; ``None``, ``""`` and ``"*"`` are all.
                The hash in the queue chooses, the text in the message decides. A hash is held
                against its message once for each opened store, and again when the entry changed.

        What an entry leads to is held against the record's own topic, queue and queue offset. A
        message whose entry leads elsewhere is taken from the log.

        Raises:
            NotDispatchedError: More of the log than a reader keeps is in no queue yet.
            CorruptionError: The body of the first message to be given is not the one that was
                stored, or its entry is damaged and so is the log where it should lie. Where others
                come before it they are given, and the next read raises; a read from the next queue
                offset on goes on behind it.
            InvalidMessageError: A topic that is no text in UTF-8, a queue beyond 32 bits.
            ValueError: ``max_messages`` or ``max_bytes`` below 0.
        """

    def offset_at(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        *,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """The queue offset at a time (``ConsumeQueue#getOffsetInQueueByTime``).

        Args:
            topic: Name of the topic.
            queue_id: Number of the queue in its topic.
            timestamp_ms: Store time.
            boundary: ``"lower"``: the first entry whose store time is not below ``timestamp_ms``,
                the end of the queue where there is none. ``"upper"``: the last entry whose store
                time is not above it, the beginning of the queue where there is none. Store times
                rise along a queue; one more than an hour outside of both neighbours' leads nowhere.

        Returns:
            The entry number; 0 for an unknown or empty queue.

        Raises:
            NotDispatchedError: More of the log than a reader keeps is in no queue yet.
        """

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        max_messages: int = 32,
        exact: bool = True,
    ) -> QueryResult:
        """Messages by key or unique key, through the index (``DefaultMessageStore#queryMessage``).

        Args:
            topic: Name of the topic.
            key: The key, as one piece of ``KEYS`` or as ``UNIQ_KEY``.
            begin_ms: First store time that counts; ``None`` is no bound.
            end_ms: Last store time that counts; ``None`` is no bound.
            max_messages: At most this many.
            exact: ``True``: newest first, each message once, topic, key and store time checked
                against the message itself, and what the index does not hold found too. ``False``:
                what RocketMQ's own ``queryMessage`` answers (at most 64, by the hash alone), in its
                order.

        Entries are held against their messages, and slots and links against the entries around
        them. Where something is not as it must be, that file's part of the log is read instead;
        ``complete`` of the answer says whether all of it could be.

        Raises:
            CorruptionError: The body of a message of the key is not the one that was stored, or an
                index file was cut short.
        """

    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        topics: Iterable[str] | None = None,
        tags: _Tags = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> MessageScan:
        """Every message of the log in order, those of system topics too.

        Args:
            start_physical_offset: Messages that begin here or behind; ``None`` is the log's
                beginning. A place inside of a record moves on to the next one.
            stop_physical_offset: Messages that begin before here; ``None`` is the end as of now.
            topics: Only these topics.
            tags: Only messages that match this tag expression.
            begin_ms: Only store times from here on.
            end_ms: Only store times up to here.
            on_error: At damage ``"raise"`` it, or ``"skip"`` to the next whole record; the scan
                counts what it skipped.

        Raises:
            CorruptionError: When iterated, at damage, with ``on_error="raise"``.
        """

    def scan_arrow(
        self,
        *,
        columns: Iterable[str] | None = None,
        batch_rows: int = 8192,
        batch_bytes: int = 8388608,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        topics: Iterable[str] | None = None,
        tags: _Tags = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        verify_crc: bool = True,
    ) -> ArrowScan:
        """The same messages as Arrow record batches.

        A requested schema may ask for view types: bodies then stay where they were read, and are
        copied only where a batch would hold many times their size.

        Of 16 MiB and more the log is read by up to four threads, as there are processors, each with
        parts of its own; they end when nobody holds the stream any more. Rows keep their order.

        Args:
            columns: Names out of ``ARROW_SCHEMA``, in the order wanted; ``None`` is all but
                ``raw_body`` and ``error``.
            batch_rows: At most this many rows in a batch.
            batch_bytes: At most this many bytes of bodies in a batch, unless one alone has more. Of
                a long log those with bodies are of about 2 MiB, made by several threads.
            start_physical_offset: As in ``scan``, and so are the rest.
            stop_physical_offset: As in ``scan``.
            topics: As in ``scan``.
            tags: As in ``scan``.
            begin_ms: As in ``scan``.
            end_ms: As in ``scan``.
            on_error: As in ``scan``.
            verify_crc: Whether each body is held against its checksum, also where no column shows
                it. Places and lengths are checked in any case.

        Raises:
            ValueError: No such column.
        """

    def topics(self) -> list[str]:
        """Names of all topics that have a queue or a message, sorted."""

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """The queues of one topic or of all, sorted by topic and number."""

    def groups(self) -> dict[str, list[GroupOffset]]:
        """What each consumer group has still to take, by its name.

        ``config/consumerOffset.json`` says where each is.
        """

    def group(self, name: str, /) -> ConsumerGroup:
        """A consumer group of this store, to read and to keep its place.

        Raises:
            StoreLockedError: This group is in use already; one live group of a name.
            InvalidMessageError: Not a name that RocketMQ takes for a group.
        """

    def refresh(self) -> None:
        """Moves a read-only view forward to what is in the files now; nothing to do in other modes.

        Raises:
            StoreIOError: The files can no longer be read.
        """

    def wait(self, physical_offset: int, /, *, timeout_s: float) -> bool:
        """Waits until the log holds bytes behind a place.

        Args:
            physical_offset: Waits for ``max_physical_offset`` to be greater than this. A read-only
                store is refreshed meanwhile.
            timeout_s: Gives up after so many seconds.

        Returns:
            Whether the log got there in time.
        """

    @property
    def path(self) -> str:
        """The store's root folder, absolute."""
    @property
    def mode(self) -> Literal["r", "r+", "a"]:
        """How it was opened."""
    @property
    def config(self) -> StoreConfig:
        """The settings in force: what was given, what the files told, and defaults for the rest."""
    @property
    def min_physical_offset(self) -> int:
        """Where the first commit log file begins; 0 in an empty store."""
    @property
    def max_physical_offset(self) -> int:
        """Where the next record will be written; of a read-only store the end of its view."""
    @property
    def flushed_offset(self) -> int:
        """Up to where the log is known to be durable.

        Of a read-only store: the end of the log where no ``abort`` lies, else the durable mark.
        Where RocketMQ has written since, the end of the last record whose store time is below
        the checkpoint's.
        """
    @property
    def dispatched_offset(self) -> int:
        """Up to where the queues and the index hold the log."""
    @property
    def _leaves_out_last(self) -> bool: ...
    @property
    def index_usable(self) -> bool:
        """Whether the index files fit the settings and can be used for key queries."""
    @property
    def recovery(self) -> RecoveryReport | None:
        """What opening for writing found and did; ``None`` in mode ``"r"``."""
    @property
    def warnings(self) -> list[str]:
        """What was met at open that is no damage but worth knowing, and what happened since.

        A line each; the last 1,000 of what happened since. That is which files retention deleted,
        and how many of their messages each consumer group had not read. These lines are logged as
        warnings of the logger ``mqstore`` too, by the next call on the store or by ``close``.

        Also which of the broker's JSON files are gone, empty or unreadable now, so that their
        backups (``.bak``) count.
        """

@final
class ConsumerGroup:
    """A consumer group: reads the queues of topics and keeps its place in them.

    Made by ``Store.group``; the place is kept in ``config/consumerOffset.json``, with
    ``enable_lmq`` in ``config/lmqConsumerOffset.json``, as a broker does; without that setting in
    the one of them that was changed last. A topic never taken
    before begins at the first entry of each queue. Several processes may commit, also with a
    store in mode ``"r"``, but not beside a broker. Leaving a ``with`` block or ``close`` gives the
    name free, without a commit.
    """

    @property
    def name(self) -> str:
        """Name of the group."""

    def poll(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        tags: _Tags = None,
        timeout_s: float = 0,
    ) -> list[StoredMessage]:
        """The next messages of a topic, its queues in turn; the group's place moves on behind them.

        Args:
            topic: Name of the topic.
            max_messages: At most this many.
            tags: A tag expression; what does not match is passed over.
            timeout_s: Waits up to so many seconds for the first message.

        Returns:
            The messages; empty where there was none in time.

        Raises:
            ValueError: ``max_messages`` below 0.
        """

    def messages(self, topic: str, *, tags: _Tags = None) -> Iterator[StoredMessage]:
        """The messages of a topic one by one; waits at the end, until the store is closed.

        The group's place is behind the message given last. Where ``seek`` or ``poll`` moves it, the
        next message is the one there.
        """

    def commit(self) -> None:
        """Writes the group's place; durable on return, and so are the messages before it.

        Raises:
            InvalidMessageError: ``seek`` led beyond the end of a queue; nothing was committed.
            UnsupportedError: A broker has the store open, and would write its own offsets over
                these; nothing was committed.
        """

    def seek(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Moves the group's place in one queue."""

    def lag(self) -> list[GroupOffset]:
        """What the group has still to take, from where it is now, committed or not."""

    def close(self) -> None:
        """Gives the name free; closing twice does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

# --- scans --------------------------------------------------------------------------------------

@final
class MessageScan(Iterator[StoredMessage]):
    """An iterator over messages; made by ``Store.scan`` and ``CommitLog.scan``."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> StoredMessage: ...
    @property
    def physical_offset(self) -> int:
        """How far the scan has come: behind what it gave or passed over last."""
    @property
    def stop_physical_offset(self) -> int:
        """Where the scan ends."""
    @property
    def skipped_ranges(self) -> int:
        """How many damaged ranges were passed over so far (``on_error="skip"``)."""
    @property
    def skipped_bytes(self) -> int:
        """How many bytes these had."""

@final
class ArrowSchema:
    """An Arrow schema, for anything that takes ``__arrow_c_schema__``."""

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow PyCapsule interface."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class ArrowScan:
    """Rows of a store as an Arrow stream, read anew by each consumer.

    polars, DuckDB, pandas and pyarrow take it as it is. No file is open between two consumers.
    """

    @property
    def schema(self) -> ArrowSchema:
        """The columns that the stream has."""
    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow PyCapsule interface."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A new stream over all rows, as a capsule.

        Args:
            requested_schema: A schema capsule; where it asks for view types (``string_view``,
                ``binary_view``) the stream has them.
        """
    def read_all(self) -> object:
        """All rows at once: a ``pyarrow.Table``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """

ARROW_SCHEMA: Final[ArrowSchema]
"""The columns of a message, all of them, in the order in which a scan gives them."""

# --- one structure at a time --------------------------------------------------------------------

@final
class IndexHeader:
    """The first 40 bytes of an index file (``IndexHeader``)."""

    __match_args__: Final = (
        "begin_timestamp_ms",
        "end_timestamp_ms",
        "begin_physical_offset",
        "end_physical_offset",
        "hash_slot_count",
        "index_count",
    )
    def __new__(
        cls,
        begin_timestamp_ms: int,
        end_timestamp_ms: int,
        begin_physical_offset: int,
        end_physical_offset: int,
        hash_slot_count: int,
        index_count: int,
    ) -> Self: ...
    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first message in the file."""
    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last message in the file."""
    @property
    def begin_physical_offset(self) -> int:
        """Where the first message begins in the commit log."""
    @property
    def end_physical_offset(self) -> int:
        """Where the last message begins in the commit log."""
    @property
    def hash_slot_count(self) -> int:
        """Slots in use, not the slots that the file has."""
    @property
    def index_count(self) -> int:
        """Number of the next entry: entries held plus one."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class IndexEntry:
    """One 20-byte entry of an index file, with its number."""

    __match_args__: Final = ("number", "key_hash", "physical_offset", "seconds", "prev_entry")
    def __new__(
        cls, number: int, key_hash: int, physical_offset: int, seconds: int, prev_entry: int
    ) -> Self: ...
    @property
    def number(self) -> int:
        """Number of the entry in its file, from 1."""
    @property
    def key_hash(self) -> int:
        """Hash of ``topic#key``."""
    @property
    def physical_offset(self) -> int:
        """Where the message begins in the commit log."""
    @property
    def seconds(self) -> int:
        """Whole seconds from the header's begin time to the message's store time."""
    @property
    def prev_entry(self) -> int:
        """Number of the next older entry of the same slot; 0 at the end of the chain."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class IndexFile:
    """One index file: a hash table of keys in a file of fixed size (``IndexFile``).

    ``len(index_file)`` is the number of entries that it holds.

    Args:
        path: The file.
        mode: ``"r"``: read. ``"r+"``: read and write, must exist. ``"a"``: as ``"r+"``, created
            when missing.
        slots: Hash slots of the file; neither number is recorded in it, so they must be the right
            ones.
        entries: Room for entries, of which number 0 is never used.

    Raises:
        ConfigError: Slots or entries of 0, or a size of 2 GiB and more.
        CorruptionError: The file's length is not 40 + 4 * slots + 20 * entries; both are named.
        StoreLockedError: Another process, or another handle of this one, writes to the file.
        StoreIOError: The file cannot be opened.
    """

    def __new__(
        cls, path: _Path, mode: str = "r", *, slots: int = 5000000, entries: int = 20000000
    ) -> Self: ...
    @property
    def path(self) -> str:
        """The file."""
    @property
    def mode(self) -> Literal["r", "r+", "a"]:
        """How it was opened."""
    @property
    def slots(self) -> int:
        """Hash slots that the file has."""
    @property
    def capacity(self) -> int:
        """How many entries fit: one less than the room for them."""
    @property
    def header(self) -> IndexHeader:
        """The header as of now."""
    def __len__(self) -> int: ...
    def put(self, key: str, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Adds one key (``IndexFile#putKey``).

        Args:
            key: ``"topic#key"``.
            physical_offset: Where the message begins in the commit log.
            store_timestamp_ms: Its store time, kept in whole seconds.

        Returns:
            ``False`` when the file is full, and then nothing was done.

        Raises:
            StoreReadOnlyError: The file was opened with mode ``"r"``.
            InvalidMessageError: A number does not fit 64 bits, or the key is no text in UTF-8.
        """
    def put_many(
        self,
        keys: Sequence[str] | _ArrowArray,
        physical_offsets: Sequence[int] | _ArrowArray,
        store_timestamps_ms: Sequence[int] | _ArrowArray,
    ) -> int:
        """Adds many keys in order.

        Args:
            keys: ``"topic#key"`` each: strings, or an Arrow array of a string type.
            physical_offsets: As many integers, or an Arrow array or a buffer of ``int64``.
            store_timestamps_ms: As many integers, or an Arrow array or a buffer of ``int64``.

        Returns:
            How many of them fitted.

        Raises:
            ValueError: The three differ in length, or an Arrow array has a null.
            InvalidMessageError: A number does not fit 64 bits, or a key is no text in UTF-8.
                Nothing was put then.
        """
    def select(
        self,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,  # noqa: PYI054
        max_entries: int = 32,
    ) -> list[int]:
        """Physical offsets under a key, newest first: exactly RocketMQ's ``selectPhyOffset``.

        Only hashes are compared, so another key's offsets may be among them.

        Args:
            key: ``"topic#key"``.
            begin_ms: First time that counts; the chain is left at the first entry before it.
            end_ms: Last time that counts.
            max_entries: At most this many.
        """
    def select_many(
        self,
        keys: Sequence[str] | _ArrowArray,
        *,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,  # noqa: PYI054
        max_entries: int = 32,
    ) -> OffsetLists:
        """The same for many keys: one list of offsets for each."""
    def entries(self) -> ArrowScan:
        """All entries in order, as columns named like the fields of ``IndexEntry``."""
    def entry(self, number: int, /) -> IndexEntry:
        """One entry by its number, 1 to ``len(index_file)``.

        Raises:
            IndexError: The file holds no entry of that number.
        """
    def chain(self, key: str) -> list[IndexEntry]:
        """The entries of a key's slot from the newest on, those of other keys in it too.

        It ends where a link does not lead to an older entry.
        """
    def chain_lengths(self) -> dict[int, int]:
        """How many slots have a chain of each length that occurs, empty slots left out.

        It reads every entry, and counts a chain that leads astray as whole.
        """
    def flush(self) -> None:
        """Makes everything put so far durable."""
    def close(self) -> None:
        """Flushes what was put and closes the file; closing twice does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class OffsetLists:
    """A list of physical offsets for each key asked for; an Arrow array of ``list<int64>``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> list[int]: ...
    def to_pylist(self) -> list[list[int]]:
        """All lists as Python integers."""
    def __arrow_c_schema__(self) -> object:
        """The type as a capsule of the Arrow PyCapsule interface."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Type and data as capsules of the Arrow PyCapsule interface."""
    def __eq__(self, other: object, /) -> bool: ...

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
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> MessageScan:
        """The messages of a range, as ``Store.scan``."""
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
        """What a replica knows of its master."""
    @property
    def confirm_physical_offset(self) -> int:
        """Start of the last valid record, as the last recovery found it."""
    @property
    def min_timestamp_ms(self) -> int:
        """The lesser of the first two times less 3,000 ms, never below 0 (``getMinTimestamp``)."""
    @property
    def min_timestamp_index_ms(self) -> int:
        """The lesser of that and the index's time (``getMinTimestampIndex``)."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

# --- functions over bytes and text ----------------------------------------------------------------

def decode(buffer: Buffer, /, *, verify_crc: bool = True) -> StoredMessage:
    """Reads one record.

    Args:
        buffer: Bytes that begin with a record; what follows it is not looked at.
        verify_crc: Checks the body's checksum too.

    Raises:
        CorruptionError: Not a record, or a damaged one; ``path`` is ``None`` and ``offset`` counts
            from the first byte given.
    """

def encode(
    message: Message,
    /,
    *,
    physical_offset: int,
    queue_offset: int,
    store_timestamp_ms: int | None = None,
    store_host: str | None = None,
    append_property_crc: bool = False,
) -> bytes:
    """Writes one record, as the commit log would hold it.

    Args:
        message: The message. A time or host that it leaves out is taken from the arguments.
        physical_offset: Where the record is to begin in the commit log.
        queue_offset: Its entry number in its queue.
        store_timestamp_ms: The store's time where the message has none, and so the producer's.
        store_host: The store's address where the message has none, and so the producer's.
        append_property_crc: Ends the properties with their checksum (``enabledAppendPropCRC``).

    Raises:
        InvalidMessageError: The record cannot be: a field too long, a time or host that neither
            gives.
    """

def java_hash(text: str, /) -> int:
    """``String.hashCode`` of a text: over UTF-16 units, 32 bits, signed."""

def key_hash(key: str, /) -> int:
    """The index's hash of ``"topic#key"``: never negative, and -2**31 counts as 0.

    ``IndexFile#indexKeyHashMethod``.
    """

def tags_code(tags: str | None, /) -> int:
    """The consume queue's code of a tag: its Java hash, 0 for none (``tagsString2tagsCode``)."""

def parse_message_id(text: str, /) -> MessageId:
    """Takes a store's message id apart (``MessageDecoder#decodeMessageId``).

    Raises:
        ValueError: Not 32 or 56 hex digits.
    """

# --- care for a store -----------------------------------------------------------------------------

def lock_state(path: _Path, /) -> tuple[bool, int | None]:
    """Whether a process writes to a store, and which, where the system tells.

    Asks for the state of the record lock on ``<path>/lock`` without taking it; a store without that
    file is not locked. The calling process's own stores count.
    """

def inventory(path: _Path, /) -> list[dict[str, object]]:
    """What lies below a store's root and is not read as messages, queues or keys.

    Timer wheel and timer log, queues and logs of compacted topics, RocksDB databases, DLedger logs,
    epoch files. Nothing is changed, and no link followed.

    Returns:
        A mapping for each, by path: ``structure`` (``timer-wheel``, ``timer-log``,
        ``sparse-queue``, ``compaction-log``, ``rocksdb``, ``dledger``, ``epoch-file``,
        ``broker-identity``), ``what`` it is, its ``path`` below the root, how many ``files`` and
        ``bytes`` it has, and ``counts``: by name what is counted in it (slots, units, entries,
        messages, epochs), empty where the format is not known.

    Raises:
        StoreIOError: A file or folder cannot be read.
    """

def read_config_json(path: _Path, /) -> str:
    """One of the broker's own JSON files as strict JSON, such as ``config/consumerOffset.json``.

    RocketMQ writes maps of numbers with bare keys (``{0:128}``); here they are quoted. Nothing else
    is changed, not the order of members either. Where the file cannot be read as JSON, RocketMQ's
    copy beside it (``.bak``) is not looked at.

    Raises:
        CorruptionError: Not JSON even so, nested deeper than 64, or larger than 64 MiB.
        StoreIOError: The file cannot be read.
    """

def scan_log(
    path: _Path,
    begin: int,
    end: int,
    /,
    *,
    log_end: int,
    settings: Mapping[str, object],
    columns: Iterable[str] | None = None,
    batch_rows: int = 8192,
    batch_bytes: int = 8388608,
    broker: str | None = None,
    topics: Iterable[str] | None = None,
    topic_test: Callable[[str], bool] | None = None,
    queues: Sequence[tuple[str, int, int, int]] = ...,
    only_these_queues: bool = False,
    tags: str | None = None,
    keys: Iterable[str] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    on_error: Literal["fail", "skip", "rows"] = "fail",
    verify_crc: bool = True,
    decompress: bool = True,
    fail_on_data_loss: bool = True,
    places: Sequence[int] | None = None,
    queue_parts: Sequence[tuple[str, int, int, int]] | None = None,
    threads: int | None = None,
) -> ArrowScan:
    """A part of a store's log as rows, for many readers that share one log.

    The log's files are listed and no more: neither queues nor index are looked at, and where the
    log ends is said by the caller. Ranges that meet give each record once and each damaged range
    once, wherever they are cut.

    Args:
        path: The store's root folder.
        begin: First physical offset: the records that begin from there on are meant.
        end: One past the last.
        log_end: How far the log may be read.
        settings: As for ``open_store``.
        columns: Names of columns, in order; beside those of a message ``record`` (the bytes as they
            are stored) and ``tags_code``.
        batch_rows: Most rows of a batch.
        batch_bytes: Most bytes of bodies in a batch, unless one alone has more.
        broker: What the column ``broker`` says.
        topics: Only these topics.
        topic_test: Called once for each topic; those that it answers with ``False`` are left out.
        queues: Bounds of queue offsets, each ``(topic, queue_id, begin, end)``, half-open.
        only_these_queues: Whether queues that have no bounds are left out.
        tags: A tag expression.
        keys: Only messages with one of these as key or unique key.
        begin_ms: First store time that counts.
        end_ms: Last store time that counts.
        on_error: At damage: ``"fail"`` ends with an error, ``"skip"`` goes on, ``"rows"`` gives a
            row for each damaged range with ``error`` set.
        verify_crc: Whether each body is held against its checksum.
        decompress: Whether ``body`` is what the producer sent, and not what is stored.
        fail_on_data_loss: Whether it is an error when files of the range are gone.
        places: Only the records that begin at these physical offsets.
        queue_parts: Only the records that these parts of queues name, each
            ``(topic, queue_id, begin, end)``.
        threads: How many threads a long range may have, unless there is a `topic_test`; ``None`` is
            as many as there are processors.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: Files and settings differ.
        CorruptionError: A queue's folder that cannot be.
        StoreIOError: The operating system refused something.
        ValueError: An unknown column, or a number out of bounds.
    """

def scan_queue(path: _Path, begin: int, end: int, /) -> ArrowScan:
    """The entries of one consume queue as rows.

    Args:
        path: The queue's folder, as for ``ConsumeQueue``.
        begin: First queue offset.
        end: One past the last.

    Returns:
        ``queue_offset``, ``physical_offset``, ``store_size``, ``tags_code``, ``message_count`` and
        ``store_timestamp_ms`` (null but in a batch queue).

    Raises:
        NotAStoreError: No such folder.
        CorruptionError: A file name or length that cannot be, or files that leave a gap.
    """

def import_messages(
    path: _Path,
    batches: Iterable[Sequence[tuple[Message | bytes, int | None, int | None]]],
    /,
    *,
    settings: Mapping[str, object],
    files: Sequence[tuple[str, bytes]],
    base_offset: int,
    renumber: bool,
) -> tuple[int, int, int, bool]:
    """Makes a store of messages; ``mqstore.import_store`` is the public door to this.

    Args:
        path: The store to make; nothing, or an empty folder, may be there.
        batches: Messages, or whole records as bytes, each with its queue offset or ``None`` for the
            next one of its queue, and the physical offset that it had or ``None``. A message that
            names no time or host gets the present ones.
        settings: As for ``open_store``.
        files: Names and bytes of the files that are to lie in ``config``; tables of offsets are
            changed with the numbers of the messages.
        base_offset: Where the log begins.
        renumber: Whether each queue is numbered from 0 on.

    Returns:
        How many messages were written, the bytes of their records, how many others stand in for
        queue offsets that no message has, and whether each lies where its record said.

    Raises:
        InvalidMessageError: Bytes that are no record, or a record that fits into no file.
        StoreIOError: Something is at ``path`` already, or the system refused something.
    """

def copy_store(
    path: _Path,
    out: _Path,
    /,
    *,
    topics: Iterable[str] | None,
    tags: str | None,
    keys: Sequence[str] | None,
    begin_ms: int | None,
    end_ms: int | None,
    renumber: bool,
    rules: Sequence[
        tuple[
            Sequence[str],
            tuple[str, bytes | None] | None,
            Sequence[tuple[str, tuple[str, bytes | None]]],
        ]
    ],
    salt: bytes,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Copied:
    """Copies a store or a part of it; ``mqstore.copy`` is the public door to this.

    Args:
        path: The store.
        out: The store to make; nothing, or an empty folder, may be there.
        topics: Only these topics.
        tags: A tag expression.
        keys: Only messages with one of these keys.
        begin_ms: First store time.
        end_ms: Last store time.
        renumber: Whether each queue is numbered from 0 on.
        rules: Patterns of topics, what takes the place of bodies, and of properties by their
            names: ``("zeros", None)``, ``("hash", None)``, ``("remove", None)``, or
            ``("constant", bytes)``.
        salt: What is hashed with each value.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        settings: As for ``open_store``.

    Returns:
        The fields of ``mqstore.CopyReport`` but the two paths.

    Raises:
        CorruptionError: Damage in the source.
        ConfigError: A property that may not be replaced.
        StoreIOError: Something is at ``out`` already, or the system refused something.
    """

def diff_stores(
    a: _Path,
    b: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Differing:
    """Holds two stores against each other; ``mqstore.diff`` is the public door to this.

    Args:
        a: The first store.
        b: The second.
        progress: Called with ``(done_queues, total_queues)`` now and then.
        settings: As for ``open_store``.

    Returns:
        ``queues`` and ``messages`` as in ``mqstore.DiffReport``; ``differing``, each ``(topic,
        queue_id, same, missing, extra, different)``; ``differences``, each ``(kind, topic,
        queue_id, queue_offset, fields)``.

    Raises:
        NotDispatchedError: Too much of a log is in no queue.
        StoreIOError: The system refused something.
    """

def salvage(
    source: _Path,
    out: _Path | None,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Salvaged:
    """Carves messages out of damaged files; ``mqstore.salvage`` is the public door to this.

    Args:
        source: A store, a folder of files, or a file.
        out: The store to make, or ``None`` to look only.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        settings: As for ``open_store``.

    Returns:
        The fields of ``mqstore.SalvageReport`` but the two paths, with plain tuples in them.

    Raises:
        NotAStoreError: No file is there to read.
        ConfigError: ``out`` lies inside of ``source``.
        UnsupportedError: More loose pieces than can be put in order.
        StoreIOError: Something is at ``out`` already, or the system refused something.
    """

def verify(
    path: _Path,
    /,
    *,
    level: Literal["quick", "full"],
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, Literal["error", "warning", "info"], str, int | None, str, str, str, str]],
    dict[str, int],
]:
    """Checks a store; ``mqstore.verify`` is the public door to this. Never writes.

    Args:
        path: The store's root folder.
        level: ``"quick"`` follows the frames of the log and looks at lengths, names and headers;
            ``"full"`` also computes every checksum and holds each queue entry, index entry and the
            checkpoint against the log.
        threads: How many threads; ``None`` is as many as there are processors.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the check.
        settings: As for ``open_store``.

    Returns:
        The findings, each ``(code, severity, path, offset, expected, found, message, fix)`` with
        severity ``"error"``, ``"warning"`` or ``"info"`` and ``path`` relative to the store, sorted
        by path and offset; and counts by name: ``messages``, ``log_bytes``, ``log_files``,
        ``queues``, ``queue_entries``, ``index_files``, ``index_entries``, and behind it how many
        findings there are of each code, listed or not.
    """

def doctor(
    path: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> list[tuple[str, Literal["error", "warning", "info"], str, list[str], str | None, str]]:
    """Examines a store; ``mqstore.doctor`` is the public door to this. Never writes.

    Args:
        path: The store's root folder.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the examination.
        settings: As for ``open_store``.

    Returns:
        The diagnoses, each ``(code, severity, title, evidence, cure, fix)``, sorted by code.
    """

def stats(
    path: _Path,
    /,
    *,
    by: Sequence[str],
    topics: Iterable[str] | None,
    tags: _Tags,
    begin_ms: int | None,
    end_ms: int | None,
    on_error: str,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[
    ArrowScan,
    list[tuple[object, ...]],
    tuple[int, int, int, int],
    tuple[int, int],
    tuple[int, int],
]:
    """Counts messages; ``mqstore.stats`` is the public door to this.

    Args:
        path: The store's root folder.
        by: Names out of ``topic``, ``queue_id``, ``hour``, ``day``, ``tags``.
        topics: As for ``Store.scan``, and so are the next four.
        tags: As for ``Store.scan``.
        begin_ms: As for ``Store.scan``.
        end_ms: As for ``Store.scan``.
        on_error: As for ``Store.scan``.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the count.
        settings: As for ``open_store``.

    Returns:
        The counts as an Arrow stream; the same as rows; messages, bytes, first and last store time
        of what had no room; how many damaged ranges were passed over, and their bytes; how many
        messages and bytes of the whole store were deleted.
    """

def _verify_structures(
    path: _Path,
    /,
    *,
    part: int,
    parts: int,
    level: Literal["quick", "full"],
    threads: int | None,
    settings: Mapping[str, object],
) -> bytes:
    """Checks a share of a store's queues and index files by themselves.

    Together, ``_verify_structures``, ``_verify_log`` and ``_verify_join`` find what ``verify``
    does, and each may run on another machine.

    Args:
        path: The store's root folder.
        part: The share's number, from 0.
        parts: How many shares there are.
        level: As for ``verify``, as are the others.
        threads: How many threads.
        settings: As for ``open_store``.

    Returns:
        What ``_verify_log`` and ``_verify_join`` need of it.
    """

def _verify_log(
    path: _Path,
    /,
    *,
    structures: Sequence[bytes],
    begin: int,
    end: int,
    level: Literal["quick", "full"],
    threads: int | None,
    settings: Mapping[str, object],
) -> bytes:
    """Walks the files of a store's log that begin in a range of physical offsets.

    Args:
        path: The store's root folder.
        structures: What ``_verify_structures`` gave for all shares, in order.
        begin: First physical offset.
        end: One past the last.
        level: As for ``verify``, as are the others.
        threads: How many threads.
        settings: As for ``open_store``.

    Returns:
        What ``_verify_join`` needs of it.
    """

def _verify_join(
    path: _Path,
    /,
    *,
    structures: Sequence[bytes],
    walks: Sequence[bytes],
    level: Literal["quick", "full"],
    threads: int | None,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, Literal["error", "warning", "info"], str, int | None, str, str, str, str]],
    dict[str, int],
]:
    """Puts together what the parts of a check found; it gives what ``verify`` gives."""

def _rebuild_scan(
    path: _Path,
    /,
    *,
    begin: int,
    end: int,
    groups: int,
    spill: _Path,
    what: Sequence[str],
    settings: Mapping[str, object],
) -> bytes:
    """Reads a range of a store's log and puts down what queues and index need of it.

    Together, ``_rebuild_scan``, ``_rebuild_settle``, ``_rebuild_queues`` and ``_rebuild_index``
    make what ``rebuild`` does, and each may run on another machine.

    Args:
        path: The store's root folder.
        begin: First physical offset.
        end: One past the last.
        groups: How many groups of queues there are.
        spill: The file that is written, which must not be there.
        what: As for ``rebuild``.
        settings: As for ``open_store``.

    Returns:
        What ``_rebuild_settle`` needs of it.
    """

def _rebuild_settle(
    path: _Path,
    /,
    *,
    scans: Sequence[bytes],
    end: int,
    groups: int,
    spill: _Path,
    what: Sequence[str],
    settings: Mapping[str, object],
) -> tuple[bytes, _Settled]:
    """Decides what of the ranges that were read belongs to the log.

    Args:
        path: The store's root folder.
        scans: What ``_rebuild_scan`` gave, in the order of the ranges.
        end: Where the last of them ends.
        groups: As for ``_rebuild_scan``.
        spill: A file beside theirs that is written, which must not be there.
        what: As for ``rebuild``.
        settings: As for ``open_store``.

    Returns:
        The plan that the other two need, and what was learned of the log.
    """

def _rebuild_queues(
    path: _Path,
    /,
    *,
    plan: bytes,
    group: int,
    groups: int,
    spills: _Path,
    out: _Path,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, int, Literal["SimpleCQ", "BatchCQ"], int, int, int, tuple[int, int] | None]],
    list[tuple[str, int]],
    int,
]:
    """Makes a group of a store's queues of what was put down.

    Args:
        path: The store's root folder.
        plan: What ``_rebuild_settle`` gave.
        group: The group's number, from 0.
        groups: As for ``_rebuild_scan``.
        spills: The folder of the files that were written.
        out: An empty folder.
        settings: As for ``open_store``.

    Returns:
        The queues as ``rebuild`` gives them, those that were kept, and how many entries no queue
        takes.
    """

def _rebuild_index(
    path: _Path,
    /,
    *,
    plan: bytes,
    number: int,
    now_ms: int,
    spills: _Path,
    out: _Path,
    settings: Mapping[str, object],
) -> None:
    """Makes one of a store's index files of what was put down.

    Args:
        path: The store's root folder.
        plan: What ``_rebuild_settle`` gave.
        number: Which of the files, from 0.
        now_ms: The time that the file is named after.
        spills: The folder of the files that were written.
        out: An empty folder.
        settings: As for ``open_store``.
    """

def _array_function(name: str, /, *arguments: _ArrowArray) -> _ArrowArray:
    """A function of ``mqstore.spark.functions`` on whole columns; it gives a ``pyarrow.Array``.

    Raises:
        InvalidMessageError: A message that no record can hold; a note names its row.
        TypeError: Columns of another kind or number.
        ValueError: No such function, a struct that is no message's, more than 1 GiB of a column.
    """

class _Settled(TypedDict):
    messages: int
    log_start: int
    log_end: int
    damaged: list[tuple[int, int]]
    index_files: int
    index_keys: int
    left_out: int

class _Rebuilt(TypedDict):
    messages: int
    log_start: int
    log_end: int
    damaged: list[tuple[int, int]]
    kept: list[tuple[str, int]]
    index_files: int
    index_keys: int
    refused: int
    left_out: int
    quarantine: str | None

def rebuild(
    path: _Path,
    /,
    *,
    what: Sequence[str],
    topics: Sequence[str] | None,
    out: _Path | None,
    dry_run: bool,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, int, Literal["SimpleCQ", "BatchCQ"], int, int, int, tuple[int, int] | None]],
    _Rebuilt,
]:
    """Makes queues and index again; ``mqstore.rebuild`` is the public door to this.

    Args:
        path: The store's root folder.
        what: ``"consumequeue"``, ``"index"``.
        topics: The topics whose queues are made; ``None`` for all.
        out: The folder to make them in; ``None`` is the store itself.
        dry_run: Makes nothing.
        threads: How many threads; ``None`` is as many as there are processors.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the work.
        settings: As for ``open_store``.

    Returns:
        The queues, each ``(topic, queue_id, kind, entries, min_offset, max_offset, was)``; and the
        other fields of ``mqstore.RebuildReport`` by name.
    """

class _Latency(TypedDict):
    ranges: list[tuple[int, int, int]]
    quantiles_ms: dict[float, int]
    negative: int
    unknown: int

class _Survey(TypedDict):
    topics: list[tuple[str, int, int, int, int]]
    others: tuple[int, int, int, int]
    step_ms: int
    cells: list[tuple[int, int, int, int]]
    latency: _Latency
    skipped_ranges: int
    skipped_bytes: int

def _survey(
    path: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Survey:
    """What a report shows of the messages; damage is passed over.

    ``topics`` are ``(name, messages, bytes, first_ms, last_ms)``, the largest first, at
    most 4,096, and ``others`` the rest. ``cells`` are ``(begin_ms, topic, messages, bytes)`` by
    time, each ``step_ms`` long, the topic by its place in ``topics`` or one behind the last.
    """

def recover(
    path: _Path,
    /,
    *,
    dry_run: bool,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> RecoveryReport:
    """Says what recovery would do, or does it; ``mqstore.recover`` is the public door to this.

    Args:
        path: The store's root folder.
        dry_run: Changes nothing.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the call before anything was changed.
        settings: As for ``open_store``.
    """

class _Cleaned(TypedDict):
    log_start: int
    new_log_start: int
    freed_bytes: int
    log_disk_percent: int
    queue_disk_percent: int
    disk_full: bool
    unread: list[tuple[str, str, int, int]]

def clean(
    path: _Path, /, *, now_ms: int | None, dry_run: bool, settings: Mapping[str, object]
) -> tuple[list[tuple[str, int, bool, str]], _Cleaned]:
    """Says what retention would delete, or deletes it; ``mqstore.clean`` is the public door.

    Args:
        path: The store's root folder.
        now_ms: The time that counts, Unix milliseconds; ``None`` is now.
        dry_run: Changes nothing.
        settings: As for ``open_store``.

    Returns:
        The files, each ``(path, bytes, delete, reason)``, and the other fields of
        ``mqstore.CleanReport`` by name.
    """
