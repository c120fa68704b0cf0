"""Reading a batch: partitions in the driver, record batches in the workers."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from mqstore import _native
from mqstore._names import is_system_topic
from mqstore.errors import StoreError
from mqstore.spark.compat import DataSourceReader
from mqstore.spark.failures import in_one_sentence
from mqstore.spark.plan import pack, plan, ranges_of
from mqstore.spark.stores import log_once
from mqstore.spark.values import topics_matching
from mqstore.spark.worker_check import Shipped
from mqstore.store import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import Filter, InputPartition

    from mqstore.spark.options import ReadOptions
    from mqstore.spark.plan import LogRange

_HALF_TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")

BATCH_ROWS = 8192
"""Most rows of a record batch."""
BATCH_BYTES = 2 << 20
"""A record batch has at most so many bytes of bodies, unless one alone has more."""


def log_selection(frame: DataFrame) -> DataFrame:
    """A frame that logs once in a process if ``select`` alone names a query's columns."""
    select, count = frame.select, len(frame.columns)

    def selecting(*columns: Any) -> DataFrame:  # noqa: ANN401 - Spark's
        found = select(*columns)
        if 0 < len(found.columns) <= count // 2:
            log_once(
                logging.WARNING,
                f"select names {len(found.columns)} of {count} columns, and all are decoded: with "
                "columns= of the read this is up to 3 times as fast",
            )
        return found

    frame.select = selecting  # type: ignore[method-assign]
    return frame


class Reader(Shipped, DataSourceReader):
    """Base of every batch reader.

    Args:
        options: The options.
        columns: The columns, in their order.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.asked = options.topics


class MessageReader(Reader):
    """Reads messages, or another view of the log."""

    @in_one_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        """Partitions for the tasks."""
        return pack(plan(self.options, asked=self.asked), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        # Where there is nothing to read Spark makes a partition of its own.
        for part in ranges_of(partition):
            yield from read_range(part, self.options, self.columns)


class PushdownReader(MessageReader):
    """A `MessageReader` that reads what Spark's filters may choose; Spark checks each row.

    Spark refuses a reader that takes filters unless its own setting is on, so that only
    ``pushdown=true`` has one.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Keeps what planning can use, and yields every filter back."""
        from mqstore.spark.filters import narrow  # Spark 4.1 and newer

        self.options = narrow(self.options, filters)
        yield from filters


def read_range(
    part: LogRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The messages of a part of a store as record batches.

    Args:
        part: The part.
        options: Which messages of it, and what to do at damage.
        columns: Names of columns; beside those of a message ``record`` and ``tags_code``.

    Raises:
        StoreError: The part cannot be read; the message names directory, file and byte, and topic,
            queue and offset where they are known.
    """
    for piece in _pieces(part, options):
        yield from _read_piece(piece, options, columns)


def _pieces(part: LogRange, options: ReadOptions) -> list[LogRange]:
    """The records that queues or tags choose, and the ranges that the queues say nothing of."""
    if not part.with_gaps:
        return [part]
    with _named(str(part)):
        places, gaps = _native.tag_places(
            options.root(part.store),
            part.begin,
            part.end,
            log_end=part.log_end,
            settings=settings_of(options.config),
            tags=options.tags or "*",
        )
    pieces = [
        dataclasses.replace(part, begin=begin, end=end, queue_parts=None) for begin, end in gaps
    ]
    if part.queue_parts is not None:
        # Entries that contradict each other cover nothing: then all is scanned.
        is_all = not part.queue_parts or gaps == [(part.begin, part.end)]
        return pieces if is_all else [part, *pieces]
    return [dataclasses.replace(part, places=tuple(places)), *pieces] if places else pieces


def _read_piece(
    part: LogRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with _named(str(part)):
        scan = _native.scan_log(
            options.root(part.store),
            part.begin,
            part.end,
            log_end=part.log_end,
            settings=settings_of(options.config),
            columns=columns,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            broker=part.broker,
            topics=options.topics,
            topic_test=_topic_test(options),
            queues=part.bounds,
            only_these_queues=options.queues is not None,
            tags=options.tags,
            keys=options.keys,
            delivered_only=not options.shows_undelivered,
            business_only=options.hides_system and "half" not in options.include,
            begin_ms=options.starting_timestamp_ms,
            end_ms=options.ending_timestamp_ms,
            on_error=options.on_error,
            verify_crc=options.verify_crc,
            decompress=options.decompress,
            fail_on_data_loss=options.fail_on_data_loss,
            places=part.places,
            queue_parts=part.queue_parts,
            threads=task_cpus(),
        )
    yield from batches_of(scan, str(part))


def batches_of(scan: _native.ArrowScan, what: str) -> Iterator[pa.RecordBatch]:
    """The batches of a scan; an error on the way names what was read."""
    batches = iter(pa.RecordBatchReader.from_stream(scan))
    while True:
        with _named(what):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def task_cpus() -> int | None:
    """How many processors Spark gives to this task; ``None`` outside of a task, where all count."""
    task = TaskContext.get()
    return None if task is None else task.cpus()


def _topic_test(options: ReadOptions) -> Callable[[str], bool] | None:
    tests: list[Callable[[str], bool]] = []
    if options.topic_pattern is not None:
        pattern = options.topic_pattern
        tests.append(lambda topic: bool(topics_matching(pattern, [topic])))
    if options.hides_system and "half" in options.include:
        tests.append(lambda topic: topic in _HALF_TOPICS or not is_system_topic(topic))
    return (lambda topic: all(test(topic) for test in tests)) if tests else None


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, StoreError) as error:
        text = str(error).removeprefix("External error: ")
        raise StoreError(f"{text} [{what}]") from None
