from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from mqstore._native._scan import ArrowScan
from mqstore._native._types import _Path

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
    delivered_only: bool = False,
    business_only: bool = False,
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
        settings: As for ``Store``.
        columns: Names of columns, in order; beside those of a message ``record`` (the bytes as they
            are stored) and ``tags_code``.
        batch_rows: Most rows of a batch.
        batch_bytes: Most bytes of bodies in a batch, unless one alone has more.
        broker: Value of the column ``broker``.
        topics: Only these topics.
        topic_test: Called once for each topic; those that it answers with ``False`` are left out.
        queues: Bounds of queue offsets, each ``(topic, queue_id, begin, end)``, half-open.
        only_these_queues: Whether queues that have no bounds are left out.
        tags: A tag expression.
        keys: Only messages with one of these as key or unique key.
        delivered_only: Whether messages that no queue names are left out: prepared, rolled back.
        business_only: Whether a broker's own topics, retries and dead letters are left out.
        begin_ms: First store time that counts.
        end_ms: Last store time that counts.
        on_error: At damage: ``"fail"`` ends with an error, ``"skip"`` goes on, ``"rows"`` gives a
            row for each damaged range with ``error`` set.
        verify_crc: Whether each body is compared with its checksum.
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

def tag_places(
    path: _Path,
    begin: int,
    end: int,
    /,
    *,
    log_end: int,
    settings: Mapping[str, object],
    tags: str,
) -> tuple[list[int], list[tuple[int, int]]]:
    """Records of a part of a log that a tag expression may match, by the tags codes in the queues.

    Args:
        path: The store's root folder.
        begin: First physical offset.
        end: One past the last.
        log_end: How far the log may be read.
        settings: As for ``Store``.
        tags: A tag expression.

    Returns:
        Physical offsets of records, and half-open ranges that no queue entry covers: what is in
        them is unknown. Together they hold every message that matches.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: Files and settings differ.
        StoreIOError: The operating system refused something.
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
