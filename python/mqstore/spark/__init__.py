"""RocketMQ stores as a Spark table: the format ``mqstore``.

After ``pip install 'mqstore[spark]'`` Spark finds the format by itself::

    spark.read.format("mqstore").option("topics", "orders").load("/data/*/store")

``register`` does that by hand, for a Spark whose driver cannot look for packages, and
``read`` is the typed door to the same options.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from mqstore.spark.ingest import pipeline
    from mqstore.spark.rebuilding import rebuild
    from mqstore.spark.verifying import verify
    from mqstore.spark.writer import write_store

__all__ = ["pipeline", "read", "rebuild", "register", "verify", "write_store"]


def register(spark: SparkSession) -> None:
    """Makes the format ``mqstore`` known to a session, and the functions ``mq_*`` to its SQL.

    Args:
        spark: The session.
    """
    with _extra():
        from mqstore.spark.functions import register_functions

    _register_format(spark)
    register_functions(spark)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Says in plain words which of the packages is missing that only this part needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in ("pyarrow", "pyspark"):
            raise
        raise ModuleNotFoundError(
            f"mqstore.spark needs {name}, which is not installed for {sys.executable}: "
            "pip install 'mqstore[spark]'",
            name=name,
        ) from None


def _register_format(spark: SparkSession) -> None:
    with _extra():
        from mqstore.spark.source import MqStoreDataSource

    spark.dataSource.register(MqStoreDataSource)


def read(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    **options: object,
) -> DataFrame:
    """The messages of stores, or one of their structures, as a data frame.

    Args:
        spark: The session.
        paths: Directories of stores or globs of them, one or several.
        **options: The options of the format by their names, as Python values: a list for
            ``topics``, ``keys`` and ``columns``, a mapping for ``queues`` and the offsets, a number
            or a ``datetime`` for times. ``None`` is an option that is not given.

    Returns:
        The data frame; nothing but the plan is read until Spark is asked for rows.

    Raises:
        ConfigError: No such option, or a value that it cannot have; the nearest names are offered.
        NotAStoreError: A path that is no store, or a glob that no store matches.

    Examples:
        >>> frame = read(spark, "/data/*/store", topics=["orders"])  # doctest: +SKIP
    """
    from mqstore.spark.options import ReadOptions, as_texts

    texts = as_texts(paths, options)
    # Here the user's own call is in the traceback; the source would check in a worker of Spark's.
    ReadOptions.parse(texts)
    _register_format(spark)
    return spark.read.format("mqstore").options(**texts).load()


_LATER = {
    "pipeline": "mqstore.spark.ingest",
    "rebuild": "mqstore.spark.rebuilding",
    "verify": "mqstore.spark.verifying",
    "write_store": "mqstore.spark.writer",
}
"""Imports names that need pyspark on first use."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with _extra():
        return getattr(import_module(_LATER[name]), name)
