"""The format through Spark itself."""

from __future__ import annotations

import mqstore


def test_spark_finds_the_format_by_itself(spark, tmp_path) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        store.append_many({"topic": "orders", "body": b"%d" % n} for n in range(10))
    frame = spark.read.format("mqstore").load(str(tmp_path / "store"))
    assert sorted(row.body for row in frame.collect()) == [b"%d" % n for n in range(10)]
