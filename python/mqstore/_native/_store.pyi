from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, final

from typing_extensions import Buffer

from mqstore._native._group import ConsumerGroup
from mqstore._native._message import Message
from mqstore._native._message_scan import MessageScan
from mqstore._native._reading import ReadResult
from mqstore._native._scan import ArrowScan
from mqstore._native._stored import StoredMessage
from mqstore._native._types import _ArrowStream, _Keys, _Path, _Properties, _Tags
from mqstore._native._values import AppendResult, AppendSummary, GroupOffset, QueueInfo
from mqstore.config import StoreConfig
from mqstore.results import QueryResult, RecoveryReport

def open_store(
    path: _Path, mode: str, settings: Mapping[str, object], /, aside: _Path | None = None
) -> Store:
    """Opens a store; ``mqstore.open`` is the public door to this.

    Args:
        path: The store's root folder.
        mode: ``"r"``, ``"r+"`` or ``"a"``.
        settings: What was given, by the field names of ``mqstore.StoreConfig``, each ``bool``,
            ``int`` or ``str``. What is left out is taken from the files there, else from what
            the store was made with, else from RocketMQ's defaults. A name that the store has no use
            for does nothing.
        aside: For mode ``"r"``: a folder with ``consumequeue`` and ``config``, made from a
            database. Its queues are read where the store has no files of them, its tables instead
            of the store's.

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

    # store.rs

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
    def _leaves_out_last(self) -> bool: ...
    def versions(self) -> dict[str, Any]:
        """Which releases of RocketMQ can have written the store, and what shows it.

        No file carries a version of RocketMQ, and a store may have been written by several.

        Returns:
            ``can_be``: the releases, of ``"5.3"``, ``"5.4"`` and ``"5.5"``; ``writes``: whose files
            this store writes, ``None`` in mode ``"r"``; ``marks``: a mapping for each mark, with
            the oldest and the newest release that leave it (``since``, ``until``), its ``path``
            below the root, and ``what`` it is.

        Raises:
            StoreIOError: A file cannot be read.
        """

    @property
    def recovery(self) -> RecoveryReport | None:
        """Result of opening for writing; ``None`` in mode ``"r"``."""
    @property
    def warnings(self) -> list[str]:
        """Warnings of the open, which are no damage, and events since.

        A line each; the last 1,000 of what happened since. That is which files retention deleted,
        and how many of their messages each consumer group had not read. These lines are logged as
        warnings of the logger ``mqstore`` too, by the next call on the store or by ``close``.

        Also which of the broker's JSON files are gone, empty or unreadable now, so that their
        backups (``.bak``) count.
        """

    # append_arrow.rs

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

    # reading.rs

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

        Each entry is compared with its record's topic, queue and queue offset. A
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
        key: str | None = None,
        *,
        tags: str | None = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        max_messages: int = 32,
        exact: bool = True,
    ) -> QueryResult:
        """Messages by key or tags, through the index (``DefaultMessageStore#queryMessage``).

        Args:
            topic: Name of the topic.
            key: The key, as one piece of ``KEYS`` or as ``UNIQ_KEY``. Either this or ``tags``.
            tags: The whole text of ``TAGS``, as RocketMQ 5.4 and later index it: ``"a"`` does not
                find ``"a || b"``.
            begin_ms: First store time that counts; ``None`` is no bound.
            end_ms: Last store time that counts; ``None`` is no bound.
            max_messages: At most this many.
            exact: ``True``: newest first, each message once, topic, key and store time checked
                against the message itself, and what the index does not hold found too. ``False``:
                what RocketMQ's own ``queryMessage`` answers (at most 64, by the hash alone), in its
                order.

        Entries are compared with their messages, and slots and links with the entries around
        them. Where something is not as it must be, that file's part of the log is read instead;
        ``complete`` of the answer says whether all of it could be. A query by tags always reads
        the log, up to 1 GiB: no index file proves that it has all entries for tags.

        Raises:
            TypeError: Neither a key nor tags, or both.
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

    def topics(self) -> list[str]:
        """Names of all topics that have a queue or a message, sorted."""

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """The queues of one topic or of all, sorted by topic and number."""

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
    def index_usable(self) -> bool:
        """Whether the index files fit the settings and can be used for key queries."""

    # scan.rs

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
            verify_crc: Whether each body is compared with its checksum, also where no column shows
                it. Places and lengths are checked in any case.

        Raises:
            ValueError: No such column.
        """

    # group.rs

    def groups(self) -> dict[str, list[GroupOffset]]:
        """Each consumer group's lag, by its name.

        ``config/consumerOffset.json`` says where each is.
        """

    def group(self, name: str, /) -> ConsumerGroup:
        """A consumer group of this store, to read and to keep its place.

        Raises:
            StoreLockedError: This group is in use already; one live group of a name.
            InvalidMessageError: Not a name that RocketMQ takes for a group.
        """
