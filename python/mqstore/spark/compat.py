"""Differences between Sparks: data sources, with stand-ins before Spark 4.0, and Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "HAS_SOURCES",
    "DataSourceReader",
    "DataSourceStreamReader",
    "InputPartition",
    "is_connect",
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
except ModuleNotFoundError as error:
    if error.name != "pyspark.sql.datasource":
        raise
    HAS_SOURCES = False
    if not TYPE_CHECKING:
        InputPartition = DataSourceReader = DataSourceStreamReader = object
else:
    HAS_SOURCES = True


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client's, whose machine may not see the stores."""
    return ".connect." in type(spark).__module__
