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
from mqstore.errors import UnsupportedError, needs, wrong_setting

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from mqstore.spark.ingest import pipeline
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


@_extra()
def read(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    engine: str = "auto",
    **options: object,
) -> DataFrame:
    """The messages of stores, or one of their structures, as a data frame.

    Args:
        spark: The session; Spark 3.5 or newer, classic or Connect.
        paths: Directories of stores or globs of them, one or several.
        engine: ``"source"`` is the format ``mqstore``, which Spark 4.0 and newer have; ``"arrow"``
            plans here, at once, and reads by ``mapInArrow``, which also Spark 3.5 has. Both give
            the same rows. ``"auto"`` takes ``"arrow"``, which is faster; with ``pushdown``, and in
            a Connect session, it takes ``"source"`` where that exists.
        **options: The options of the format by their names, as Python values: a list for
            ``topics``, ``keys`` and ``columns``, a mapping for ``queues`` and the offsets, a number
            or a ``datetime`` for times. ``None`` is an option that is not given.

    Returns:
        The data frame; nothing but the plan is read until Spark is asked for rows.

    Raises:
        ConfigError: No such option, or a value that it cannot have; the nearest names are offered.
        NotAStoreError: A path that is no store, or a glob that no store matches.
        UnsupportedError: ``engine="source"`` where Spark is older than 4.0.

    Examples:
        >>> frame = read(spark, "/data/*/store", topics=["orders"])  # doctest: +SKIP
    """
    from mqstore.spark.compat import HAS_SOURCES, is_connect
    from mqstore.spark.mapping import map_parts
    from mqstore.spark.options import ReadOptions, as_texts
    from mqstore.spark.plan import plan_name, size_of
    from mqstore.spark.reader import log_selection
    from mqstore.spark.schema import read_schema
    from mqstore.spark.tables import make_table_reader
    from mqstore.spark.values import session_zone

    texts = as_texts(paths, {"timeZone": session_zone(spark), **options})
    # Here the user's own call is in the traceback; the source would check in a worker of Spark's.
    parsed = ReadOptions.parse(texts)
    if engine not in ("auto", "source", "arrow"):
        raise wrong_setting("engine", "auto, source or arrow", repr(engine))
    if engine == "source" and not HAS_SOURCES:
        raise UnsupportedError(
            "engine='source' needs Spark 4.0 or newer", "engine", parsed.paths[0]
        )
    if engine == "auto" and HAS_SOURCES and (parsed.pushdown or is_connect(spark)):
        engine = "source"
    if engine == "source":
        from mqstore.spark.source import register_format

        register_format(spark)
        return spark.read.format("mqstore").options(**texts).load()
    schema = read_schema(parsed)
    reader = make_table_reader(parsed, schema.fieldNames())
    parts = list(reader.partitions())
    size = size_of(parts, parsed)
    frame = map_parts(spark, reader, parts, schema, plan_name(parts, parsed), size)
    return log_selection(frame) if parsed.columns is None and parsed.table == "messages" else frame


@_extra()
def count(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    **options: object,
) -> int:
    """How many messages a read has, without decoding any.

    With no narrowing option but ``topics`` and ``queues`` the queues of these are asked in the
    driver, which then must see the stores; otherwise tasks count records.

    Args:
        spark: The session.
        paths: As for ``read``.
        **options: As for ``read``.

    Returns:
        The number of messages; by topic or queue the number that its queues hold, whether or not
        each record is whole.

    Raises:
        ConfigError, NotAStoreError: As for ``read``.

    Examples:
        >>> count(spark, "/data/*/store", topics=["orders"])  # doctest: +SKIP
    """
    from mqstore.spark.options import ReadOptions, as_texts
    from mqstore.spark.plan import summaries

    parsed = ReadOptions.parse(as_texts(paths, options))
    if parsed.table != "messages" or not {"topics", "queues"} >= set(parsed.narrowing) > set():
        few = {"columns": ["physical_offset"], "verifyCrc": False, "decompress": False}
        if parsed.table != "messages" or parsed.on_error == "rows":
            few = {}
        return read(spark, paths, **{**options, **few}).count()  # type: ignore[arg-type]
    chosen = None if parsed.queues is None else dict(parsed.queues)
    return sum(
        queue.max_offset - queue.min_offset
        for store in summaries(parsed)
        for queue in store.queues or ()
        if chosen is None or queue.queue_id in chosen.get(queue.topic, ())
    )


# Names that need pyspark.
_get = lazily(
    __name__,
    {
        "micro": "micro_batch",
        "ingest": "pipeline",
        "tasks": "rebuild verify",
        "writer": "write_store",
    },
)


def __getattr__(name: str) -> object:
    with _extra():
        return _get(name)
