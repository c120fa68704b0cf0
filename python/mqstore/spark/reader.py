"""Reading a batch: partitions in the driver, record batches in the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

import mqstore
from mqstore.spark.plan import LogRange, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from mqstore.spark.options import ReadOptions

__all__ = ["MessageReader", "make_reader", "read_range"]


def make_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceReader:
    """The reader for some options and columns."""
    return MessageReader(options, tuple(columns))


class MessageReader(DataSourceReader):
    """Reads messages.

    Args:
        options: The options.
        columns: The columns, in their order.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """What the tasks are to read."""
        return plan(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        # Where there is nothing to read Spark makes a partition of its own.
        if isinstance(partition, LogRange):
            yield from read_range(partition, self.options, self.columns)


def read_range(
    part: LogRange, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The messages of a byte range of a store as record batches."""
    with mqstore.open(part.store, config=options.config) as store:
        scan = store.scan_arrow(
            columns=columns, start_physical_offset=part.begin, stop_physical_offset=part.end
        )
        yield from pa.RecordBatchReader.from_stream(scan)
