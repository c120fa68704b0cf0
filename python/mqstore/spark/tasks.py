"""Work of ours as tasks of Spark's: a function, and the items that it is called with."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

__all__ = ["TASKS_PER_SLOT", "each"]

TASKS_PER_SLOT = 4
"""So many tasks for each slot: one that takes long does not keep the others waiting."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(
    spark: SparkSession, work: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Runs a function on each item, a task each; results in order.

    What the function holds on to travels once to each executor, an item only to its task. A task
    may run twice, so that the function must be one that can.
    """

    def run(numbers: pa.Array, given: pa.Array) -> pa.Array:
        return pa.array(
            [
                pickle.dumps((number.as_py(), work(pickle.loads(one.as_py()))))  # noqa: S301 - our own
                for number, one in zip(numbers, given, strict=True)
            ]
        )

    if not items:
        return []
    run.__annotations__ = {"numbers": pa.Array, "given": pa.Array, "return": pa.Array}
    # Spark's stub wants the kind of function that it finds out from the hints.
    udf = arrow_udf(run, BinaryType())  # type: ignore[call-overload]
    rows = [(number, pickle.dumps(item)) for number, item in enumerate(items)]
    frame = spark.createDataFrame(rows, "number int, item binary")
    # A number a partition: rows of one hash would share a task.
    spread = frame.repartitionByRange(len(items), "number")
    done = spread.select(udf("number", "item").alias("result")).collect()
    results: dict[int, _Result] = dict(pickle.loads(row["result"]) for row in done)  # noqa: S301 - our own
    return [results[number] for number in range(len(items))]
