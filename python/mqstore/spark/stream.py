"""Reading a store that a broker is writing, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from mqstore.errors import ConfigError, UnsupportedError
from mqstore.spark.books import check_purpose, purpose_of
from mqstore.spark.compat import DataSourceStreamReader
from mqstore.spark.failures import in_one_sentence
from mqstore.spark.plan import pack, ranges_of
from mqstore.spark.progress import Count, Progress
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
    reader = LimitedStreamReader if HAS_LIMITS else StreamReader
    return reader(options, tuple(columns))


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


class _Reader(StreamParts, DataSourceStreamReader):
    """Stream reader for every version of Spark.

    Args:
        options: The options.
        columns: The columns, in their order.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        super().__init__(Progress(options), columns)
        self.initial: Offset | None = None
        self.planned: Mark | None = None
        self.purpose = purpose_of(options)
        self.queues: QueueStarts = {}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Where a stream without a checkpoint begins."""
        self.initial = self.progress.first()
        self.queues = self.progress.queue_starts()
        return self.initial

    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:
        """Partitions for the tasks of a batch."""
        self.initial = None
        self._check_batch(start, end)
        self._take_queues(start)
        if isinstance(end, dict) and FROM in end:
            start = end[FROM]
            self._take_queues(end)
        if self.progress.options.fail_on_data_loss:
            self._same(end)  # a batch that runs again has the rows that it had
        ranges = self.progress.ranges(self._same(start), places(end), self.queues)
        self.planned = cast("Mark", end)
        return pack(ranges, self.progress.options)

    def _check_batch(self, start: object, end: object) -> None:
        """Refuses a batch that was planned for another purpose."""
        before, planned = (one.get(OF) if isinstance(one, dict) else None for one in (start, end))
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

    def _take_queues(self, mark: object) -> None:
        found = mark.get(QUEUES) if isinstance(mark, dict) else None
        if found is not None:
            self.queues = _queue_starts(found)

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

    def _next(self, start: Mark, **limits: Any) -> Mark:  # noqa: ANN401 - those of `Progress.next`
        """The end of the next batch; that of the first one names the beginning too.

        Spark logs only ends, and asks for the beginning again if the driver dies in that batch.
        """
        if isinstance(start, dict):
            self._check(start.get(OF))
            self._take_queues(start)
        same = self._same(start)
        end = self.progress.next(same, **limits)
        if self.initial is None and same == end == places(start):
            return start
        return self._ending(end)

    def _ending(self, end: Offset) -> Mark:
        first = {} if self.initial is None else {FROM: self.initial}
        queues = {QUEUES: self.queues} if self.queues else {}
        return {**end, ID: self.progress.marks(end), OF: self.purpose, **queues, **first}

    def _same(self, mark: object) -> Offset:
        """An offset as far as the stores are those that were read."""
        marks = mark.get(ID) if isinstance(mark, dict) else None
        return self.progress.same_stores(places(mark), marks) if marks else places(mark)


def _queue_starts(given: object) -> QueueStarts:
    """Parses those of a checkpoint, which is untrusted."""
    try:
        return msgspec.convert(given, dict[str, list[tuple[str, int, Count]]])
    except msgspec.ValidationError:
        text = f"the checkpoint's queues {str(given)[:200]} are not of this source"
        raise ConfigError(text, "path") from None


class RefusingReader(DataSourceStreamReader):
    """Raises an error when the query begins.

    Args:
        error: The error.
    """

    def __init__(self, error: StoreError) -> None:
        self.error = error

    @in_one_sentence()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Raises the error."""
        raise self.error

    @in_one_sentence()
    def latestOffset(self) -> Mark:  # type: ignore[override]  # noqa: N802 - Spark's
        """Raises the error."""
        raise self.error

    @in_one_sentence()
    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:  # noqa: ARG002
        """Raises the error."""
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raises the error."""
        raise self.error


class StreamReader(_Reader):
    """For Spark before 4.2: a batch is all that there is."""

    def latestOffset(self) -> Mark:  # type: ignore[override]  # noqa: N802 - Spark's
        """Up to where the next batch reads."""
        if (repeated := self._repeated()) is not None:
            return repeated
        if self.planned is None:
            return self._ending(self.progress.last())
        return self._next(self.planned)


if HAS_LIMITS:

    class LimitedStreamReader(_Reader, SupportsTriggerAvailableNow):
        """From Spark 4.2 on: batches of a bounded size, and a last one.

        Args:
            options: The options.
            columns: The columns, in their order.
        """

        def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
            super().__init__(options, columns)
            self.final: Offset | None = None

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
            """How much a batch may have; where both limits are given, both count."""
            options = self.progress.options
            if options.max_bytes_per_trigger is not None:
                return ReadMaxBytes(options.max_bytes_per_trigger)
            if options.max_rows_per_trigger is not None:
                return ReadMaxRows(options.max_rows_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: Mark, limit: ReadLimit) -> Mark:  # noqa: N802 - Spark's
            """Up to where the next batch reads."""
            if (repeated := self._repeated()) is not None:
                return repeated
            options = self.progress.options
            unlimited = isinstance(limit, ReadAllAvailable)
            return self._next(
                start,
                most_bytes=None if unlimited else options.max_bytes_per_trigger,
                most_rows=None if unlimited else options.max_rows_per_trigger,
                final=self.final,
            )

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
            """Takes what there is now as the stream's end."""
            self.final = self.progress.last()

        def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's
            """How far the logs have come, for the progress of the query."""
            return self.progress.last()
