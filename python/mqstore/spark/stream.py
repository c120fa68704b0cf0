"""Reading a store that a broker is writing, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mqstore.errors import UnsupportedError
from mqstore.spark.books import check_purpose, purpose_of
from mqstore.spark.compat import DataSourceStreamReader
from mqstore.spark.failures import in_one_sentence
from mqstore.spark.plan import pack, ranges_of
from mqstore.spark.progress import Count, Progress, checked_mark
from mqstore.spark.reader import read_range
from mqstore.spark.worker_check import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from mqstore.errors import StoreError
    from mqstore.spark.options import ReadOptions
    from mqstore.spark.progress import Offset, QueueStarts

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:  # before Spark 4.2
    HAS_LIMITS = False
    if not TYPE_CHECKING:
        SupportsTriggerAvailableNow = type("SupportsTriggerAvailableNow", (), {})
else:
    HAS_LIMITS = True

Mark = dict[str, Any]
"""An offset as Spark's checkpoint has it: ``Offset``, and beside it the names below."""
FROM = "/from"
"""The first batch's beginning; no directory is called so."""
ID = "/id"
"""``Marks`` of the stores."""
OF = "/of"
"""``Purpose`` of the checkpoint."""
QUEUES = "/queues"
"""``QueueStarts``."""


def make_stream_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceStreamReader:
    """The stream reader for some options and columns.

    Raises:
        UnsupportedError: A limit of a batch's size where Spark is older than 4.2, or an option that
            a stream does not have.
    """
    check_limits(options)
    return StreamReader(options, columns)


def check_limits(options: ReadOptions) -> None:
    """Whether this Spark can bound the batches of a stream, where that is asked for.

    Raises:
        UnsupportedError: It is older than 4.2.
    """
    for name, given in (
        ("maxBytesPerTrigger", options.max_bytes_per_trigger),
        ("maxRowsPerTrigger", options.max_rows_per_trigger),
        ("startingOffsets by queue", options.starts or None),
    ):
        if given is not None and not HAS_LIMITS:
            raise UnsupportedError(
                f"option {name} needs Spark 4.2 or newer; mqstore.spark.micro_batch has it on "
                "every Spark",
                name,
                options.paths[0],
            )


def places(mark: object) -> Offset:
    """The physical offsets of an offset of Spark's."""
    if isinstance(mark, dict):
        return {name: at for name, at in mark.items() if name not in (FROM, ID, OF, QUEUES)}
    return cast("Offset", mark)  # `Progress` refuses it


def _beside(mark: object, name: str) -> Any:  # noqa: ANN401 - as in the checkpoint
    return mark.get(name) if isinstance(mark, dict) else None


class StreamParts(Shipped):
    """Reads partitions of a batch, whose stores may have changed since it was planned.

    Args:
        progress: Progress of the stores.
        columns: The columns, in their order.
    """

    def __init__(self, progress: Progress, columns: Sequence[str]) -> None:
        self.progress = progress
        self.columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        for part in ranges_of(partition):
            self.progress.check_range(part)
            yield from read_range(part, self.progress.options, self.columns)


class StreamReader(StreamParts, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Stream reader for every version of Spark; limits of a batch's size come with Spark 4.2.

    Args:
        options: The options.
        columns: The columns, in their order.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(Progress(options), columns)
        self.initial: Offset | None = None
        self.planned: Mark | None = None
        self.purpose = purpose_of(options)
        self.queues: QueueStarts = {}
        self.final: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Where a stream without a checkpoint begins."""
        self.initial = self.progress.first()
        if not self._take_queues({QUEUES: (self.progress.options.kept or {}).get("queues")}):
            self.queues = self.progress.queue_starts()
        return self.initial

    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:
        """Partitions for the tasks of a batch."""
        self.initial = None
        self._check_batch(start, end)
        self._take_queues(start)
        if (first := _beside(end, FROM)) is not None:
            start = first
            self._take_queues(end)
        if self.progress.options.fail_on_data_loss:
            self._same(end)  # a batch that runs again has the rows that it had
        ranges = self.progress.ranges(self._same(start), places(end), self.queues)
        self.planned = cast("Mark", end)
        return pack(ranges, self.progress.options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """How much a batch may have; where both limits are given, both count."""
        options = self.progress.options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mark | None = None, limit: ReadLimit | None = None) -> Mark:  # noqa: N802 - Spark's
        """Up to where the next batch reads; Spark before 4.2 names neither start nor limit.

        The end of the first batch names the beginning too: Spark logs only ends, and asks for the
        beginning again if the driver dies in that batch.
        """
        if (repeated := self._repeated()) is not None:
            return repeated
        start = self.planned if start is None else start
        if start is None:
            return self._ending(self.progress.last())
        same, options = self.behind(start), self.progress.options
        unlimited = limit is not None and isinstance(limit, ReadAllAvailable)
        end = self.progress.next(
            same,
            most_bytes=None if unlimited else options.max_bytes_per_trigger,
            most_rows=None if unlimited else options.max_rows_per_trigger,
            final=self.final,
        )
        if self.initial is None and same == end == places(start):
            return start
        return self._ending(end)

    def behind(self, mark: Mark) -> Offset:
        """Where a stream goes on behind a batch, as far as the stores are those that were read."""
        self._check(_beside(mark, OF))
        self._take_queues(mark)
        return self._same(mark)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Takes what there is now as the stream's end."""
        self.final = self.progress.last()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's
        """How far the logs have come, for the progress of the query."""
        return self.progress.last()

    def _check_batch(self, start: object, end: object) -> None:
        """Refuses a batch that was planned for another purpose."""
        before, planned = _beside(start, OF), _beside(end, OF)
        if before is None:
            self._check(planned)
            return
        self._check(before)
        # A batch of another purpose that was refused has written nothing.
        if before != self.purpose:
            check_purpose(
                planned, self.purpose, "a batch that is not done", "and run once without the change"
            )

    def _check(self, kept: object) -> None:
        if kept != (self.progress.options.kept or {}).get("earlier"):
            check_purpose(kept, self.purpose, "the checkpoint")

    def _take_queues(self, mark: object) -> bool:
        if (found := _beside(mark, QUEUES)) is not None:
            self.queues = checked_mark(found, dict[str, list[tuple[str, int, Count]]], "queues")
        return found is not None

    def _repeated(self) -> Mark | None:
        """The end of the batch that ``resume`` repeats, while that is the next one."""
        resume = self.progress.options.resume
        if resume is None or self.initial is None:
            return None
        _, end, marks = resume
        if marks is not None:
            return {**self._ending(end), ID: marks}
        self.progress.warn_of_old_marks()
        return self._ending(end)

    def _ending(self, end: Offset) -> Mark:
        first = {} if self.initial is None else {FROM: self.initial}
        queues = {QUEUES: self.queues} if self.queues else {}
        return {**end, ID: self.progress.marks(end), OF: self.purpose, **queues, **first}

    def _same(self, mark: object) -> Offset:
        """An offset as far as the stores are those that were read."""
        marks = _beside(mark, ID)
        return self.progress.same_stores(places(mark), marks) if marks else places(mark)


class RefusingReader(DataSourceStreamReader):
    """Raises an error when the query begins.

    Args:
        error: The error.
    """

    def __init__(self, error: StoreError) -> None:
        self.error = error

    @in_one_sentence()
    def _refuse(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - any of Spark's methods
        raise self.error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's
