"""The recipes of docs/spark.md give what they promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import mqstore
from helpers.stores import TINY, message
from mqstore.spark import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_recipes_give_what_they_promise(spark: SparkSession, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "broker-a" / "store", "a", config=TINY) as store:
        store.append_many(
            [
                message(
                    "orders",
                    body=b'{"id": %d, "total": %d}' % (n, n % 3),
                    keys=f"order-{n}",
                    unique_key=f"U{n // 2}",
                )
                for n in range(12)
            ]
        )
        store.append("%DLQ%billing", b"dead")
    root = tmp_path / "*" / "store"
    orders = read(spark, root, topics=["orders"], columns=["broker", "store_timestamp", "body"])
    program = re.search(r"```python\n(parsed = .*?)```", PAGE, flags=re.DOTALL)
    assert program is not None
    names = {"orders": orders}
    exec(program[1].replace(".show()", ""), names)
    counted = names["parsed"].groupBy("total").count().collect()
    assert sorted((row["total"], row["count"]) for row in counted) == [(0, 4), (1, 4), (2, 4)]
    keyed = read(spark, root, topics=["orders"], columns=["topic", "unique_key"])
    assert keyed.dropDuplicates(["topic", "unique_key"]).count() == 6
    assert read(spark, root, topics=["orders"], keys=["order-7"]).count() == 1
    assert read(spark, root, topicPattern="%DLQ%.*").count() == 1
