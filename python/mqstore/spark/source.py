"""The data source that Spark sees: name, schema, and who reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource

from mqstore.errors import StoreError
from mqstore.spark.failures import in_one_sentence
from mqstore.spark.options import ReadOptions
from mqstore.spark.schema import check_read_schema, read_schema
from mqstore.spark.worker_check import Shipped, checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


def register_format(spark: SparkSession) -> None:
    """Makes the format known to a session, once or again."""
    try:
        spark.dataSource.register(checked_source())
    except PySparkException as error:
        # Spark 4.0 refuses a format that it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def checked_source() -> type[DataSource]:
    """The format as a class that compares the package of the Python in which Spark plans."""
    arrive = checked(MqStoreDataSource)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "mqstore"

        def __new__(cls, options: dict[str, str]) -> MqStoreDataSource:  # type: ignore[misc]
            return arrive()(options)

    return Source


class MqStoreDataSource(Shipped, DataSource):
    """Directories of RocketMQ stores as a table; see the module ``mqstore.spark``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "mqstore"

    @in_one_sentence()
    def schema(self) -> StructType:
        """The columns that were asked for by ``columns``, or the usual ones.

        Raises:
            ConfigError: An option or column that is none.
        """
        # Whether it is a batch or a stream is not known here.
        options = ReadOptions.parse(self.options, streaming=True)
        return read_schema(options)

    @in_one_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader that plans a batch.

        Args:
            schema: The columns, which is how Spark hands over a projection.

        Raises:
            ConfigError: An option or column that is none.
        """
        from mqstore.spark.tables import make_table_reader

        options = ReadOptions.parse(self.options)
        return make_table_reader(options, check_read_schema(schema, options))

    @in_one_sentence()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Returns the reader that plans a stream's batches.

        Args:
            schema: The columns.

        Returns:
            The reader; one whose methods raise where an option or column is none.
        """
        from mqstore.spark.stream import RefusingReader, make_stream_reader

        try:
            options = ReadOptions.parse(self.options, streaming=True)
            options.check_stream()
            return make_stream_reader(options, check_read_schema(schema, options))
        except StoreError as error:
            # Spark loses an error of this method behind an `UnboundLocalError` of its own.
            return RefusingReader(error)

    @in_one_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Returns the writer of new stores.

        Args:
            schema: The columns of the frame.
            overwrite: Whether the mode is ``overwrite`` and not ``append``.

        Raises:
            ConfigError: An option or column that is none.
        """
        from mqstore.spark.writer import make_writer

        return make_writer(self.options, schema, overwrite=overwrite)

    @in_one_sentence()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Returns the writer of new stores for each batch of a stream.

        Args:
            schema: The columns of the frame.
            overwrite: Whether the stream's output mode is ``complete``.

        Raises:
            ConfigError: An option or column that is none.
        """
        from mqstore.spark.stream_writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite=overwrite)
