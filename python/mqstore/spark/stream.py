"""Reading a store that a broker is writing, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader

from mqstore.errors import UnsupportedError
from mqstore.spark.plan import LogRange
from mqstore.spark.progress import Progress
from mqstore.spark.reader import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from mqstore.spark.options import ReadOptions
    from mqstore.spark.progress import Offset

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

__all__ = ["make_stream_reader"]


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
    ):
        if given is not None and not HAS_LIMITS:
            raise UnsupportedError(
                f"option {name} needs Spark 4.2 or newer", name, options.paths[0]
            )


class _Reader(DataSourceStreamReader):
    """Stream reader for every version of Spark.

    Args:
        options: The options.
        columns: The columns, in their order.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.progress = Progress(options)
        self.columns = columns

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Where a stream without a checkpoint begins."""
        return self.progress.first()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Partitions for the tasks of a batch."""
        return self.progress.ranges(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        if isinstance(partition, LogRange):
            self.progress.check_range(partition)
            yield from read_range(partition, self.progress.options, self.columns)


class StreamReader(_Reader):
    """For Spark before 4.2: a batch is all that there is."""

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 - Spark's
        """Up to where the next batch reads."""
        return self.progress.last()


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

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's
            """Up to where the next batch reads."""
            options = self.progress.options
            unlimited = isinstance(limit, ReadAllAvailable)
            return self.progress.next(
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
