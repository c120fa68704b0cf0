"""Batch reads: ``read`` and ``count``, and the way that every Spark from 3.5 on has, Connect too.

For ``mapInArrow`` the driver plans the partitions; task N of a range of numbers reads partition N.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING
from unittest import mock

from pyspark import cloudpickle

from mqstore.errors import UnsupportedError, wrong_setting
from mqstore.spark import compat
from mqstore.spark.options import ReadOptions, as_texts, given_values, in_zone_of
from mqstore.spark.plan import plan_name, size_of, summaries
from mqstore.spark.reader import log_selection
from mqstore.spark.schema import read_schema
from mqstore.spark.tables import make_table_reader

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def map_parts(
    spark: SparkSession,
    reader: object,
    parts: Sequence[object],
    schema: StructType,
    name: str = "mqstore",
    size: int = 0,
) -> DataFrame:
    """A frame of the rows of some partitions, a task each.

    Args:
        spark: The session.
        reader: It is ``Shipped``, and its ``read`` gives the record batches of a partition.
        parts: The partitions.
        schema: The columns.
        name: What Spark's plan calls the work.
        size: Bytes of the rows, about, so that Spark does not broadcast what is large.
    """
    payload: bytes = cloudpickle.dumps(reader)  # type: ignore[no-untyped-call]
    count = len(parts)
    # To Spark the rows have the size of the numbers, 8 bytes each; a task gets its first one.
    each = max(size // (8 * max(count, 1)), 1)
    read = _reading(payload, [pickle.dumps(part) for part in parts], each)
    read.__name__ = name
    numbers = spark.range(0, count * each, 1, max(count, 1))
    if each > 1:
        numbers = numbers.where(f"id % {each} = 0")
    try:
        return numbers.mapInArrow(read, schema)
    except ImportError as error:
        if "pandas" not in str(error).lower():
            raise
    # A classic session asks for pandas, which functions over Arrow do not use.
    with mock.patch("pyspark.sql.pandas.functions.require_minimum_pandas_version"):
        return numbers.mapInArrow(read, schema)


def _reading(
    payload: bytes, parts: list[bytes], each: int = 1
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # A nested function travels by its code: it can tell a worker without the package.
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = pickle.loads(payload)  # noqa: S301 - our own
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(pickle.loads(parts[number // each]))  # noqa: S301 - our own

    return read


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
    texts = in_zone_of(spark, as_texts(paths, options))
    # Here the user's own call is in the traceback; the source would check in a worker of Spark's.
    parsed = ReadOptions.parse(texts)
    if engine not in ("auto", "source", "arrow"):
        raise wrong_setting("engine", "auto, source or arrow", repr(engine))
    if engine == "source" and not compat.HAS_SOURCES:
        raise UnsupportedError(
            "engine='source' needs Spark 4.0 or newer", "engine", parsed.paths[0]
        )
    if engine == "auto" and compat.HAS_SOURCES and (parsed.pushdown or compat.is_connect(spark)):
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
    options = given_values(options)
    parsed = ReadOptions.parse(in_zone_of(spark, as_texts(paths, options)))
    is_by_queue = {"topics", "queues"} >= set(parsed.narrowing) > set()
    if parsed.table != "messages" or parsed.shows_undelivered or not is_by_queue:
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
