"""Spark on backups: the rows of a moment, and streams that follow a backup."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import cut_behind
from helpers.stores import TINY
from mqstore.spark.options import ReadOptions

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


def test_a_damaged_queue_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    with mqstore.open(root, "a", config={**TINY, "mapped_file_size_consume_queue": 2000}) as store:
        store.append_many([("a", b"%d" % number, 0) for number in range(50)] + [("b", b"", 0)])
        store.append("b", b"", queue_id=0, keys="k")
    queue = root / "consumequeue/a/0" / f"{0:020}"
    content = queue.read_bytes()
    queue.write_bytes(content[:600] + bytes(100) + content[700:])
    mqstore.sync(root, backup)
    options = {"topics": "a", "accessPath": "consumequeue"}
    for path in (root, backup, root.as_uri()):
        frame = spark.read.format("mqstore").options(**options).load(str(path))
        assert sorted(int(row.body) for row in frame.select("body").collect()) == list(range(50))
    with pytest.raises(mqstore.NotAStoreError, match="restore it to a folder"):
        mqstore.spark.rebuild(spark, backup, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sync_between_planning_and_reading_mixes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, backup = tmp_path / "broker-a" / "store", tmp_path / "kept" / "backup"
    grow(root, backup, 60)
    plans = [
        mqstore.spark.read(spark, str(backup)),
        mqstore.spark.read(spark, str(backup), accessPath="consumequeue", topics=["orders"]),
        mqstore.spark.read(spark, backup.as_uri()),
        mqstore.spark.read(spark, tmp_path / "kept" / "*"),
    ]
    cut_behind(root, 40)
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(("orders", b"other %d" % number) for number in range(50))
    mqstore.sync(root, backup)
    for frame in plans:
        bodies = sorted(int(row.body) for row in frame.select("body").collect())
        assert bodies == list(range(60))
    # A frame of the format is planned when it is asked.
    assert spark.read.format("mqstore").load(str(backup)).count() == 90


def test_a_backup_that_is_begun_or_empty_stops_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    grow(tmp_path / "broker-a" / "store", kept / "a", 20)
    mqstore.open(tmp_path / "broker-b" / "store", "a", config=TINY).close()
    mqstore.sync(tmp_path / "broker-b" / "store", kept / "b")
    (kept / "c").mkdir()
    shutil.copy(kept / "a" / "mqstore-backup.json", kept / "c")
    reader = spark.read.format("mqstore")
    assert reader.option("missingStores", "drop").load(f"{kept}/*").count() == 20
    with pytest.raises(Exception, match="has none yet: mqstore sync STORE TARGET"):
        reader.option("missingStores", "fail").load(f"{kept}/*").count()
    files = [row.path for row in reader.option("table", "files").load(f"{kept}/a").collect()]
    assert "config/topics.json" in files
    assert not [path for path in files if path.startswith(("objects", "snapshots"))]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"at": "-1h", "snapshot": "x"}, "option snapshot: expected none beside at, got both"),
        (
            {"storageOptions": '{"at": 1}'},
            "option storageOptions: .* got 'at', which is an option",
        ),
    ],
)
def test_a_moment_is_named_once(options: dict[str, str], text: str) -> None:
    with pytest.raises(mqstore.ConfigError, match=text):
        ReadOptions.parse({"path": "/kept", **options})


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
