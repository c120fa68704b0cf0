from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, Self, overload

from typing_extensions import Buffer, disjoint_base

from mqstore._native._group import _GroupPlaces
from mqstore._native._message_scan import Damage, MessageScan
from mqstore._native._reading import ReadResult
from mqstore._native._scan import ArrowScan
from mqstore._native._stored import StoredMessage
from mqstore._native._types import _ArrowStream, _Given, _Keys, _Path, _Properties, _Tags, _Time
from mqstore._native._values import AppendResult, AppendSummary, GroupOffset, QueueInfo
from mqstore.files.remote_path import RemotePath
from mqstore.groups.delays import Delivery
from mqstore.groups.group import ConsumerGroup
from mqstore.results import QueryResult

@disjoint_base
class Store:
    """A store without the classes of Python: ``mqstore.Store`` adds them.

    Args:
        path: The store's root folder, or a `mqstore.files.remote.RemotePath` for mode ``"r"``.
        mode: ``"r"``, ``"r+"`` or ``"a"``.
        settings: Explicit settings, by the field names of ``mqstore.StoreConfig``, each ``bool``,
            ``int`` or ``str``. Missing ones come from the existing files, else from the settings
            that the store was created with, else from RocketMQ's defaults. Unknown names are
            ignored.
        aside: For mode ``"r"``: a folder with ``consumequeue`` and ``config``, made from a
            database. Its queues are read where the store has no files of them, its tables instead
            of the store's.
        other_index: Called for a query where the store has no index files, with topic, key or
            tags, whether it is tags, the first and last store time, and the begin and end of the
            log; gives physical offsets and the offset from which on it has none, or ``None`` where
            the log is to be read.

    Raises:
        NotAStoreError: No such folder, or no store in it (modes ``"r"`` and ``"r+"``).
        ConfigError: An invalid setting, or one that contradicts the files.
        StoreLockedError: Another process, or another handle of this one, writes to it.
        CorruptionError: Damage in the flushed part of the log (modes ``"r+"`` and ``"a"``).
        StoreIOError: The operating system refused something.
        ValueError: No such mode.
    """

    def __new__(
        cls,
        path: _Path,
        mode: str,
        settings: Mapping[str, object],
        /,
        aside: _Path | None = None,
        other_index: Callable[
            [bytes, bytes, bool, tuple[int, int], tuple[int, int]], tuple[list[int], int] | None
        ]
        | None = None,
    ) -> Self: ...

    # store/append.rs

    def append(
        self,
        topic: str,
        body: Buffer,
        *,
        queue_id: int | None = 0,
        tags: _Tags = None,
        keys: _Keys = (),
        unique_key: str | None = None,
        properties: _Properties | None = None,
        flag: int = 0,
        born_timestamp_ms: _Time | None = None,
        born_host: str | None = None,
        delay_level: int = 0,
        delay: timedelta | float | None = None,
    ) -> AppendResult:
        """Writes one message.

        Returns when the message is durable under ``SYNC_FLUSH``, and when it is in the log under
        ``ASYNC_FLUSH``. A read that follows in the same process sees it. The first append to a
        topic also enters it in ``config/topics.json``.

        Args:
            topic: Name of the topic.
            body: The body, stored unchanged.
            queue_id: Number of the queue in its topic, from 0. ``None``: chosen by the first key as
                RocketMQ's ``SelectMessageQueueByHash`` does it; without keys the queues in turn.
            tags: The one tag of the message.
            keys: One key, or an iterable of keys.
            unique_key: The client's id of the message.
            properties: Further properties; see ``Message``.
            flag: An application-defined number.
            born_timestamp_ms: The producer's time; ``None`` is now.
            born_host: The producer's address; ``None`` is the store's own.
            delay_level: Stored as property ``DELAY`` unless 0; the message is not delayed.
            delay: Keeps the message back for so long: a ``timedelta``, or seconds, of the store's
                delay levels (``message_delay_level``). It waits in ``SCHEDULE_TOPIC_XXXX``, where
                the result leads, until a broker or a writer that delivers appends it. 0 is a plain
                append.

        Raises:
            InvalidMessageError: The message cannot be stored; ``.status`` is RocketMQ's status
                for the reason. Nothing was written.
            ConfigError: ``delay`` with ``delivery=False``, or in a broker's store without
                ``delivery=True``; nothing was written.
            ValueError: ``delay`` is none of the delay levels; nothing was written.
            FlushTimeoutError: It is stored, but was not flushed in ``sync_flush_timeout``;
                ``.result`` says where.
            StorePoisonedError: A flush failed, now or before; the store is read-only until opened
                again.
            StoreReadOnlyError: The store was opened with mode ``"r"``.
            StoreIOError: The disk is full, or a system call failed.
        """

    @overload
    def append_many(
        self,
        messages: Iterable[_Given],
        /,
        *,
        summary: Literal[False] = False,
    ) -> list[AppendResult]:
        """Writes many messages, sharing flushes.

        Args:
            messages: Messages; mappings by the argument names of ``Message``; or tuples of its
                first arguments: topic, body, and perhaps queue_id, tags, keys, unique_key,
                properties. They are taken in chunks of at most 1,024 messages or 4 MiB of bodies,
                and a chunk is checked before any of it is written; a crash may keep a part of it.
            summary: Return an ``AppendSummary`` instead of an object for each message.

        Returns:
            One result for each message, in order.

        Raises:
            StoreError: As for ``append``; ``.index`` is the index of the failed message, and
                ``.results`` has the results of the messages written before it.
            TypeError: An item is not a message. This error, and any that ``messages`` raises, has
                ``.index`` and ``.results`` too. Nothing of its chunk was written.
            KeyboardInterrupt: Ctrl-C, between two chunks; ``.results`` has the results so far, and
                ``.index`` is the index of the first message not written.
        """

    @overload
    def append_many(
        self,
        messages: Iterable[_Given],
        /,
        *,
        summary: Literal[True],
    ) -> AppendSummary: ...
    def append_batch(self, messages: Iterable[_Given], /) -> list[AppendResult]:
        """Writes the messages of one queue as a producer's batch, or none if one is refused.

        They get consecutive queue offsets and one store time, and are adjacent in one file of the
        commit log. Each is stored as a separate message. A crash before the return may keep the
        first of them.

        Args:
            messages: As for ``append_many``, all of one topic and queue, without a delay level and
                outside of transactions.

        Returns:
            One result for each message, in order.

        Raises:
            InvalidMessageError: An invalid message, different queues, or a batch larger than a file
                or ``max_message_size``; nothing was written.
            StoreError: As ``append`` raises it.
        """

    # store/mod.rs

    def flush(self) -> None:
        """Makes everything appended so far durable: log, queues, index, checkpoint."""

    def wait_dispatched(self) -> None:
        """Waits until the queues and the index hold everything appended so far."""

    def close(self) -> None:
        """Flushes, stops the threads and releases the lock; a second call does nothing.

        Raises:
            StorePoisonedError: A flush failed: ``abort`` stays, and the next open recovers.
        """

    def _keep_delivery(self, delivery: Delivery) -> None: ...
    @property
    def _delivers(self) -> bool:
        """Whether delayed messages are delivered."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...
    @property
    def path(self) -> str:
        """The store's root folder, absolute."""
    @property
    def mode(self) -> Literal["r", "r+", "a"]:
        """How it was opened."""
    @property
    def _root(self) -> str | RemotePath:
        """The root as functions of the package take it."""
    @property
    def _settings(self) -> dict[str, Any]:
        """The settings in use that are no defaults."""
    @property
    def _leaves_out_last(self) -> bool: ...
    @property
    def _is_sealed(self) -> bool: ...
    @property
    def _losses(self) -> list[tuple[int, int]]: ...
    def _check_end(
        self, topics: Iterable[str] | None = None, queue_id: int | None = None
    ) -> None: ...
    @property
    def _is_closed(self) -> bool: ...
    def _warn(self, text: str) -> None: ...
    @property
    def _recovery(self) -> dict[str, Any] | None: ...
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

    def append_arrow(
        self,
        data: _ArrowStream,
        /,
        *,
        atomic: bool = False,
        resume_from: int = 0,
        assume_timezone: str | None = None,
    ) -> AppendSummary:
        """Writes the rows of an Arrow stream.

        Args:
            data: Anything with ``__arrow_c_stream__``. Columns are those of ``ARROW_SCHEMA`` by
                name, in any order; ``topic`` and ``body`` are needed, null means left out, and what
                only a stored message has (offsets, sizes, ids, checksums) is not read. Columns of
                other names are refused.
                String bodies are stored as UTF-8; ``born_timestamp_ms`` and ``store_timestamp_ms``
                are taken too, as integers.
            atomic: Checks every row before the first is written, so that a row that is refused
                leaves nothing behind. The whole stream is held in memory. A crash or a full disk
                may keep a part.
            resume_from: Skips so many rows: those that an error said were written.
            assume_timezone: Zone of timestamps without one, such as ``"UTC"`` or
                ``"Europe/Berlin"``. ``None``: they are refused.

        Raises:
            InvalidMessageError: As ``append_many``. The message says how many rows were written.
            TypeError: ``data`` gives no Arrow stream, or a column has another type.
            ValueError: A column is missing, or has a name that no column of a message has.
            KeyboardInterrupt: Ctrl-C, between two chunks of rows; ``.summary`` is an
                ``AppendSummary`` of what was written.
        """

    # reading.rs

    def get(self, physical_offset: int, /) -> StoredMessage:
        """Returns the message that begins at a physical offset.

        Raises:
            OffsetOutOfRangeError: The log ends before it, or begins after it.
            MessageNotFoundError: No record begins there.
            CorruptionError: The record there is damaged.
        """

    def get_by_id(self, message_id: str, /) -> StoredMessage:
        """The message with an id.

        Args:
            message_id: A store's id (32 or 56 hex digits), whose address must be the record's own
                (clients call it ``offsetMsgId``), or a client's (``msgId``), which is the unique
                key. The newest message of a unique key is returned.

        Raises:
            MessageNotFoundError: No message of this store has the id as either.
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

        An unknown topic or queue, an empty queue, and an offset out of range are no errors: see
        ``status``.

        Args:
            topic: Name of the topic.
            queue_id: Number of the queue in its topic.
            queue_offset: The entry to begin at.
            max_messages: Maximum number of messages. The first one is always returned, even for 0,
                as in RocketMQ.
            max_bytes: Maximum bytes of records; the first record is always returned.
            tags: A tag expression, ``"paid || refunded"``; ``None``, ``""`` and ``"*"`` are all.
                The queue entry's hash selects candidates, the message's text decides. Each
                entry's hash is verified once per opened store, and again if the entry changes.

        Each entry is compared with its record's topic, queue and queue offset. A
        message whose entry leads elsewhere is taken from the log.

        Raises:
            NotDispatchedError: Too much of the log is not dispatched yet.
            CorruptionError: The first message's body does not match its checksum, or its entry is
                damaged and the log is damaged where the message should be. If valid messages
                precede it, they are returned and the next read raises. To skip the message, read
                from the next queue offset.
            InvalidMessageError: A topic that is no text in UTF-8, a queue beyond 32 bits.
            ValueError: ``max_messages`` or ``max_bytes`` below 0.
        """

    def offset_at(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: _Time,
        *,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """The queue offset at a time (``ConsumeQueue#getOffsetInQueueByTime``).

        Args:
            topic: Name of the topic.
            queue_id: Number of the queue in its topic.
            timestamp_ms: Store time, in milliseconds or as a ``datetime`` with a time zone.
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
        topic: str | None = None,
        key: str | None = None,
        *,
        tags: str | None = None,
        begin_ms: _Time | None = None,
        end_ms: _Time | None = None,
        max_messages: int = 32,
        exact: bool = True,
    ) -> QueryResult:
        """Messages by key or tags, through the index (``DefaultMessageStore#queryMessage``).

        Args:
            topic: Name of the topic; ``None`` is every topic that has a queue or
                is in ``topics.json``.
            key: One key of ``KEYS``, or ``UNIQ_KEY``. Give either this or ``tags``.
            tags: The whole text of ``TAGS``, as RocketMQ 5.4 and later index it: ``"a"`` does not
                find ``"a || b"``.
            begin_ms: First store time that counts, in milliseconds or as a ``datetime`` with a time
                zone; ``None`` is no bound.
            end_ms: Last store time that counts; ``None`` is no bound.
            max_messages: Maximum number of messages.
            exact: ``True``: newest first, each message once; topic, key and store time are checked,
                and messages that the index lacks are found too. ``False``: the answer of RocketMQ's
                ``queryMessage`` (at most 64, by hash alone), in its order.

        Index entries are compared with their messages, slots and links with neighbouring entries.
        If one is wrong, that file's part of the log is read instead; ``complete`` is ``False`` if
        it could not all be read. A query by tags always reads
        the log, up to 1 GiB: no index file proves that it has all entries for tags. If ``complete``
        is ``False``, ``scan(topics=..., on_error="skip")`` reads the whole log; compare ``tags``.

        Raises:
            TypeError: Neither a key nor tags, or both; ``exact=False`` without a topic.
            ValueError: A time in seconds.
            CorruptionError: The body of a message of the key is not the one that was stored, or an
                index file was cut short.
        """

    def topics(self) -> list[str]:
        """Names of all topics that have a queue or a message, sorted."""

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """The queues of one topic or of all, sorted by topic and number."""

    def refresh(self) -> None:
        """Updates a read-only view to the current files; no effect in other modes.

        Raises:
            StoreIOError: The files can no longer be read.
            OffsetOutOfRangeError: Another log lies there now, such as a restored copy that has
                grown past the view's end. The view stays; open the store again.
        """

    def _refresh_if_grown(self) -> None: ...
    def _forget_log(self) -> None: ...
    @property
    def _readable_end(self) -> int: ...
    def wait(self, physical_offset: int, /, *, timeout_s: float | timedelta) -> bool:
        """Waits until the log is longer than a physical offset.

        Args:
            physical_offset: Waits for ``max_physical_offset`` to be greater than this. A read-only
                store is refreshed meanwhile; it sets ``mqstore.wait`` for the writer to wake it.
            timeout_s: Timeout in seconds, or a ``timedelta``.

        Returns:
            Whether the log got there in time; ``False`` at once where it was cut meanwhile.

        Raises:
            OffsetOutOfRangeError: As for ``refresh``.
        """
    @property
    def min_physical_offset(self) -> int:
        """First physical offset of the log; 0 in an empty store."""
    @property
    def max_physical_offset(self) -> int:
        """End of the log; for a read-only store, of its view."""
    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is known to be durable.

        For a read-only store: the end of the log if the file ``abort`` does not exist, else the
        durable mark. If RocketMQ has written since, the end of the last record older than the
        checkpoint's time.
        """
    @property
    def dispatched_offset(self) -> int:
        """Physical offset up to which the log is dispatched to queues and index."""
    @property
    def index_usable(self) -> bool:
        """Whether the index files fit the settings and can be used for key queries."""

    # message_scan.rs

    @overload
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        topics: Iterable[str] | None = None,
        tags: _Tags = None,
        begin_ms: _Time | None = None,
        end_ms: _Time | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        decompress: bool = True,
    ) -> MessageScan:
        """Every message of the log in order, those of system topics too.

        Args:
            start_physical_offset: First physical offset; ``None`` is the log's beginning. Inside a
                record, the scan begins at the next one.
            stop_physical_offset: Messages that begin before here; ``None`` is the end as of now.
            topics: Only these topics.
            tags: Only messages that match this tag expression.
            begin_ms: Only store times from here on.
            end_ms: Only store times up to here.
            on_error: At damage ``"raise"`` it, ``"skip"`` to the next whole record, or ``"report"``
                it: a ``Damage`` comes in its place. The scan counts what it skipped or reported.
                Topics, tags and times leave out no damage, since it may have held any message.
            decompress: Whether a body that cannot be decompressed counts as damage. With
                ``on_error="raise"`` it does not: the message comes, and its ``body`` raises. Each
                compressed body is decompressed for that.

        Raises:
            CorruptionError: When iterated, at damage, with ``on_error="raise"``.
        """

    @overload
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        topics: Iterable[str] | None = None,
        tags: _Tags = None,
        begin_ms: _Time | None = None,
        end_ms: _Time | None = None,
        on_error: Literal["report"],
        decompress: bool = True,
    ) -> MessageScan[StoredMessage | Damage]: ...
    @overload
    def scan(
        self,
        *,
        start_physical_offset: int | None = None,
        stop_physical_offset: int | None = None,
        topics: Iterable[str] | None = None,
        tags: _Tags = None,
        begin_ms: _Time | None = None,
        end_ms: _Time | None = None,
        on_error: Literal["raise", "skip", "report"],
        decompress: bool = True,
    ) -> MessageScan | MessageScan[StoredMessage | Damage]: ...

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
        begin_ms: _Time | None = None,
        end_ms: _Time | None = None,
        on_error: Literal["raise", "skip", "report"] = "raise",
        verify_crc: bool = True,
        decompress: bool = True,
    ) -> ArrowScan:
        """Returns the messages of ``scan`` as Arrow record batches.

        A requested schema may ask for view types: bodies then stay where they were read, and are
        copied only where a batch would hold many times their size.

        A log of 16 MiB or more is read by up to four threads. They end when the stream is released.
        Rows keep the order of the log.

        Args:
            columns: Names out of ``ARROW_SCHEMA``, in the order wanted, and ``record``, the stored
                bytes, and ``tags_code``; ``None`` is all but ``raw_body``, ``error`` and these two.
            batch_rows: At most this many rows in a batch.
            batch_bytes: At most this many bytes of bodies in a batch, unless one alone has more. Of
                a long log those with bodies are of about 2 MiB, made by several threads.
            start_physical_offset: As in ``scan``.
            stop_physical_offset: As in ``scan``.
            topics: As in ``scan``.
            tags: As in ``scan``.
            begin_ms: As in ``scan``.
            end_ms: As in ``scan``.
            on_error: As in ``scan``. With ``"report"`` each damaged range is a row: ``error`` has
                the reason, ``physical_offset`` and ``store_size`` the range (its length is null
                past 2 GiB), all else is null. A column ``error`` comes last unless asked for.
            verify_crc: Whether each body is compared with its checksum, also where no column shows
                it. Places and lengths are checked in any case.
            decompress: Whether ``body`` is what the producer sent, and not what is stored. One that
                cannot be decompressed is damage where ``body`` is among the columns.

        Raises:
            ValueError: No such column.
        """

    # group.rs

    def groups(self) -> dict[str, list[GroupOffset]]:
        """Returns each consumer group's committed offsets and lag, by group name.

        The offsets are those of ``config/consumerOffset.json``.
        """

    def _group_places(
        self,
        name: str,
        begin_ms: _Time | None,
        from_end: bool,
        /,
    ) -> _GroupPlaces:
        """A group's places, for this handle alone.

        A new topic begins at the time ``begin_ms``, without it behind what is there if
        ``from_end``.
        """

    def _keep_group(self, group: ConsumerGroup) -> None: ...
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
