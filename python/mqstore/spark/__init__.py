"""RocketMQ stores as a Spark table: the format ``mqstore``.

After ``pip install 'mqstore[spark]'`` Spark finds the format by itself::

    spark.read.format("mqstore").option("topics", "orders").load("/data/*/store")

``register`` does that by hand, for a Spark whose driver cannot look for packages, and
``read`` is the typed door to the same options.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

from mqstore._lazily import lazily
from mqstore.errors import UnsupportedError, needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mqstore.spark.ingest import pipeline
    from mqstore.spark.mapping import count, read
    from mqstore.spark.micro import micro_batch
    from mqstore.spark.tasks import rebuild, verify
    from mqstore.spark.writer import write_store

__all__ = [
    "count",
    "micro_batch",
    "pipeline",
    "read",
    "rebuild",
    "register",
    "verify",
    "write_store",
]


_SINCE_4 = (
    "the format, streams, the pipeline and write_store need Spark 4.0 or newer, the SQL functions "
    "4.1; mqstore.spark.read(spark, path) and mqstore.spark.micro_batch work from 3.5 on"
)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Says in plain words which of the packages is missing that only this part needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == "pyspark.sql.datasource":
            raise UnsupportedError(_SINCE_4, "pipeline", "") from None
        if (error.name or "").partition(".")[0] not in ("pyarrow", "pyspark"):
            raise
        with needs("spark", "mqstore.spark", f" for {sys.executable}"):
            raise


@_extra()
def register(spark: SparkSession) -> None:
    """Makes the format ``mqstore`` known to a session, and the functions ``mq_*`` to its SQL.

    Args:
        spark: The session.
    """
    from mqstore.spark.compat import HAS_SOURCES

    if not HAS_SOURCES:
        raise UnsupportedError(_SINCE_4, "register", "")
    from mqstore.spark.source import register_format

    register_format(spark)
    try:
        from mqstore.spark.functions import register_functions
    except UnsupportedError as error:
        logging.getLogger("mqstore.spark").warning("%s", error)
        return
    register_functions(spark)


# Names that need pyspark.
_get = lazily(
    __name__,
    {
        "mapping": "count read",
        "micro": "micro_batch",
        "ingest": "pipeline",
        "tasks": "rebuild verify",
        "writer": "write_store",
    },
)


def __getattr__(name: str) -> object:
    with _extra():
        return _get(name)
