"""Work of ours as tasks of Spark's: a function, and the items that it is called with."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from mqstore.spark.mapping import map_parts
from mqstore.spark.worker_check import Shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(
    spark: SparkSession, work: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Runs a function on each item, a task each; results in order.

    What the function holds on to travels once to each executor, an item only to its task. A task
    may run twice, so that the function must be one that can.
    """
    if not items:
        return []
    schema = StructType([StructField("result", BinaryType())])
    done = map_parts(spark, _Work(work), list(enumerate(items)), schema).collect()
    results: dict[int, _Result] = dict(pickle.loads(row["result"]) for row in done)  # noqa: S301 - our own
    return [results[number] for number in range(len(items))]


@dataclass(frozen=True)
class _Work(Shipped):
    work: Callable[[Any], object]

    def read(self, part: tuple[int, object]) -> Iterator[pa.RecordBatch]:
        number, item = part
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps((number, self.work(item)))]})
