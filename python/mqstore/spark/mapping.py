"""Reads through ``mapInArrow``, which every Spark from 3.5 on has, classic and Connect.

The driver plans the partitions; task N of a range of numbers reads partition N.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING
from unittest import mock

from pyspark import cloudpickle

if TYPE_CHECKING:
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
