"""Names of Spark's API for Python data sources, with stand-ins before Spark 4.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["HAS_SOURCES", "DataSourceReader", "DataSourceStreamReader", "InputPartition"]

if TYPE_CHECKING:
    HAS_SOURCES = True
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
else:
    try:
        from pyspark.sql.datasource import (
            DataSourceReader,
            DataSourceStreamReader,
            InputPartition,
        )
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        HAS_SOURCES = False

        class InputPartition:
            """Stands in for Spark's class."""

        class DataSourceReader:
            """Stands in for Spark's class."""

        class DataSourceStreamReader:
            """Stands in for Spark's class."""
    else:
        HAS_SOURCES = True
