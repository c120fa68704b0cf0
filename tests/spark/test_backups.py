"""Spark on backups: the rows of a moment, and streams that follow a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import cut_behind
from helpers.stores import TINY

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def grow(root: Path, backup: Path, count: int) -> mqstore.SyncReport:
    """Appends messages, and brings the backup up to date."""
    with mqstore.open(root, "a", config=TINY) as store:
        for _ in range(count):
            number = sum(queue.max_offset for queue in store.queues())
            store.append("orders", b"%d" % number, queue_id=number % 2, keys=f"k{number}")
    return mqstore.sync(root, backup)


@pytest.mark.parametrize(
    "more",
    [
        {"splitBytes": "4k"},
        {"keys": "k17,k30"},
        {"queues": '{"orders": [1]}'},
        {"topics": "orders", "accessPath": "consumequeue"},
        {"table": "consumequeue"},
        {"table": "index"},
    ],
    ids=lambda more: " ".join(more.values()),
)
def test_reads_are_equal(spark: SparkSession, tmp_path: Path, more: dict[str, str]) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    first = grow(root, backup, 40)

    def read(path: Path, **given: str) -> list[Any]:
        frame = spark.read.format("mqstore").options(**more, **given).load(str(path))
        names = [name for name in frame.columns if name not in {"broker", "path"}]
        return sorted(map(tuple, frame.select(*names).collect()), key=str)

    before = read(root)
    assert before
    assert read(backup) == before
    grow(root, backup, 40)
    assert read(backup) == read(root)
    assert read(backup, snapshot=first.snapshot) == before


def test_streams_and_micro_batches_follow_a_backup(spark: SparkSession, tmp_path: Path) -> None:
    root, backup, target = tmp_path / "store", tmp_path / "backup", tmp_path / "out"
    seen: list[int] = []

    def write(frame: Any, *_: object) -> None:
        seen.extend(int(row.body) for row in frame.select("body").collect())

    for total in (30, 75, 75, 90):
        grow(root, backup, total - len(seen))
        stream = spark.readStream.format("mqstore").load(str(backup)).select("body")
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start(str(target)).awaitTermination()
        rows = spark.read.parquet(str(target)).collect()
        assert sorted(int(row.body) for row in rows) == list(range(total))
        mqstore.spark.micro_batch(spark, backup, tmp_path / "books", write)
        assert sorted(seen) == list(range(total))


def test_a_log_that_was_cut_before_what_was_read_is_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, backup, books = tmp_path / "store", tmp_path / "backup", tmp_path / "books"
    seen: list[int] = []

    def write(frame: Any, *_: object) -> None:
        seen.extend(int(row.body) for row in frame.select("body").collect())

    grow(root, backup, 60)
    mqstore.spark.micro_batch(spark, backup, books, write)
    cut_behind(root, 40)
    grow(root, backup, 50)
    with pytest.raises(mqstore.StoreError, match="both agree to"):
        mqstore.spark.micro_batch(spark, backup, books, write)
    assert sorted(seen) == list(range(60))
    mqstore.spark.micro_batch(spark, backup, books, write, failOnDataLoss=False)
    assert set(seen) == set(range(90))
