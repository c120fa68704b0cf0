"""The tables of a pipeline: their layout, and what becomes of them without the checkpoint."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import mqstore
from helpers.stores import TINY, message
from mqstore.spark import books, compacting
from mqstore.spark.books import Books, Entry, query_id
from mqstore.spark.compacting import compact
from mqstore.spark.failures import PySparkException, sentence
from mqstore.spark.ingest import pipeline, preview
from mqstore.spark.stream import HAS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


def fill(root: Path, numbers: range) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message(
                    f"T{n % 2}", body=b"%d" % n, store_timestamp_ms=START_MS + DAY_MS * (n // 30)
                )
                for n in numbers
            ]
        )


class Lake:
    """Stores ``a`` and ``b`` in a folder, and the pipeline that reads them."""

    def __init__(self, spark: SparkSession, root: Path, **sink: object) -> None:
        self.spark = spark
        self.root = root
        self.config: dict[str, dict[str, Any]] = {
            "source": {"paths": [str(root / "x-*")], "until": "end"},
            "sink": {"path": str(root / "lake" / "messages"), **sink},
            "trigger": {"available_now": True},
        }

    def run(self, fail_after: str = "") -> None:
        def progress(event: Mapping[str, object]) -> None:
            if event["state"] == fail_after:
                raise RuntimeError("the driver ends here")

        pipeline(self.spark, self.config, progress=progress).awaitTermination()

    def bodies(self) -> Counter[int]:
        rows = ds.dataset(self.root / "lake" / "messages", partitioning="hive").to_table()
        return Counter(int(body) for body in rows["body"].to_pylist())

    def counted(self) -> int:
        table = ds.dataset(self.root / "lake" / "messages_metrics", partitioning="hive").to_table()
        return sum(table["messages"].to_pylist())


def test_a_lost_checkpoint_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    checkpoint = tmp_path / "lake" / "messages" / "_checkpoint"
    fill(tmp_path / "x-a", range(60))
    assert preview(lake.config)["begins"] == "beginning"
    assert not (tmp_path / "lake").exists()
    lake.run()
    (store,) = (shown := preview(lake.config))["stores"]
    assert shown["begins"] == "checkpoint"
    assert shown["tables"]["metrics"] == str(tmp_path / "lake" / "messages_metrics")
    assert store["from"] == store["to"] > 0
    folders = {str(path.parent.relative_to(tmp_path / "lake" / "messages")) for path in files(lake)}
    days = ("2023-11-14", "2023-11-15")
    assert folders == {
        f"date={day}/topic=T{n}/broker=x-a/batch=00000000" for day in days for n in (0, 1)
    }
    assert len(files(lake)) == 4
    shutil.copytree(checkpoint, tmp_path / "older")
    # The checkpoint is lost in the middle of a batch, and there are new messages meanwhile.
    fill(tmp_path / "x-b", range(100, 110))
    with pytest.raises(PySparkException):
        lake.run(fail_after="messages")
    shutil.rmtree(checkpoint)
    fill(tmp_path / "x-a", range(60, 70))
    shown = preview(lake.config)
    assert (shown["begins"], shown["gone"]) == ("books", [])
    assert [store["from"] for store in shown["stores"]] == [store["to"], 0]
    lake.run()
    lake.run()
    wanted = Counter([*range(70), *range(100, 110)])
    assert lake.bodies() == wanted
    assert lake.counted() == wanted.total()
    # A checkpoint out of a backup is behind the tables.
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    with pytest.raises(PySparkException) as caught:
        lake.run()
    assert "is of another pipeline" in (told := sentence(caught.value))
    assert "Remove the checkpoint's folder" in told
    assert lake.bodies() == wanted
    shutil.rmtree(checkpoint)
    shutil.rmtree(tmp_path / "lake" / "messages_books")
    with pytest.raises(mqstore.ConfigError, match="each message would come again"):
        lake.run()


@pytest.mark.parametrize("start", ["latest", {"T0": "latest"}])
def test_a_lost_checkpoint_keeps_where_queues_and_idle_brokers_began(
    spark: SparkSession, tmp_path: Path, start: object
) -> None:
    if isinstance(start, dict) and not HAS_LIMITS:
        pytest.skip("[spark] 4.2 and newer have it")
    lake = Lake(spark, tmp_path)
    lake.config["source"]["startingOffsets"] = start
    checkpoint = tmp_path / "lake" / "messages" / "_checkpoint"
    fill(tmp_path / "x-a", range(4))
    fill(tmp_path / "x-b", range(100, 104))
    first = [] if start == "latest" else [1, 3, 101, 103]
    lake.run()
    # With ``latest`` the first batch has no rows, and its start counts all the same.
    fill(tmp_path / "x-a", range(4, 8))
    shutil.rmtree(checkpoint)
    lake.run()
    lake.run()
    assert lake.bodies() == Counter([*first, *range(4, 8)])
    fill(tmp_path / "x-a", range(8, 12))
    fill(tmp_path / "x-b", range(104, 106))
    shutil.rmtree(checkpoint)
    lake.run()
    lake.run()
    assert lake.bodies() == Counter([*first, *range(4, 12), 104, 105])


def test_a_kill_while_the_books_are_written_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path)
    for numbers in (range(5), range(5, 10)):
        fill(tmp_path / "x-a", numbers)
        lake.run()
    older = tmp_path / "lake" / "messages" / "_checkpoint"
    shutil.rmtree(older)

    def die(_: SparkSession, folder: str, __: str) -> None:
        # Spark's overwrite begins so.
        shutil.rmtree(folder)
        raise RuntimeError("the driver ends here")

    with monkeypatch.context() as patch:
        patch.setattr(books, "write_line", die)
        with pytest.raises(PySparkException):
            lake.run()
    lake.run()
    assert lake.bodies() == Counter(range(10))


def test_a_checkpoint_of_one_batch_ago_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    checkpoint = tmp_path / "lake" / "messages" / "_checkpoint"
    fill(tmp_path / "x-a", range(5))
    lake.run()
    shutil.copytree(checkpoint, tmp_path / "older")
    fill(tmp_path / "x-a", range(5, 10))
    lake.run()
    fill(tmp_path / "x-a", range(10, 15))
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    with pytest.raises(PySparkException) as caught:
        lake.run()
    assert "has another batch 1; the tables have batch 1" in sentence(caught.value)
    assert lake.bodies() == Counter(range(10))
    shutil.rmtree(checkpoint)
    lake.run()
    lake.run()
    assert lake.bodies() == Counter(range(15))


def test_books_of_an_earlier_version_go_on(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    fill(tmp_path / "x-a", range(5))
    lake.run()
    fill(tmp_path / "x-a", range(5, 10))
    with pytest.raises(PySparkException):
        lake.run(fail_after="messages")
    for page in (tmp_path / "lake" / "messages_books").glob("slot=*/part-*"):
        entry = json.loads(page.read_text(encoding="utf-8"))
        del entry["queues"], entry["written"]
        page.write_text(json.dumps(entry) + "\n", encoding="utf-8")
        page.with_name(f".{page.name}.crc").unlink()
    lake.run()
    fill(tmp_path / "x-a", range(10, 15))
    shutil.rmtree(tmp_path / "lake" / "messages" / "_checkpoint")
    lake.run()
    lake.run()
    assert lake.bodies() == Counter(range(15))


def test_rows_of_a_log_that_was_replaced_come_again_without_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    lake.config["source"]["failOnDataLoss"] = False
    fill(tmp_path / "x-a", range(10))
    lake.run()
    shutil.rmtree(tmp_path / "x-a")
    fill(tmp_path / "x-a", range(100, 112))
    lake.run()
    shutil.rmtree(tmp_path / "lake" / "messages" / "_checkpoint")
    lake.run()
    assert lake.bodies() == Counter([*range(10), *range(100, 112)])


def test_each_batch_tells_bytes_damage_and_the_backlog_of_every_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    events: list[Mapping[str, Any]] = []

    def run() -> Any:
        query = pipeline(spark, lake.config, progress=events.append)
        query.awaitTermination()
        return query.recentProgress[0].observedMetrics["mqstore"].asDict()

    for name in ("x-a", "x-b"):
        fill(tmp_path / name, range(30))
    with mqstore.open(tmp_path / "x-a", config=TINY) as store:
        spoilt = list(store.scan())[10]
    with (tmp_path / "x-a" / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(spoilt.physical_offset + 4)
        log.write(b"\xff" * 4)
    first = run()
    assert (first["messages"], first["damaged_ranges"]) == (59, 1)
    fill(tmp_path / "x-b", range(30, 40))
    second = run()
    a, b = sorted(events[-1]["brokers"], key=lambda row: str(row["broker"]))
    with mqstore.open(tmp_path / "x-b", config=TINY) as store:
        sizes = [one.store_size for one in store.scan()]
    counted = {"messages": 10, "bytes": sum(sizes[30:]), "damaged_ranges": 0}
    assert second == {**counted, "previous_end": None}
    assert {name: b[name] for name in second} == second
    assert first["bytes"] == 2 * sum(sizes[:30]) - spoilt.store_size
    # Nothing new in this store, and nothing to be read.
    assert (a["broker"], a["messages"], a["bytes"], a["damaged_ranges"]) == ("x-a", 0, 0, 0)
    assert (a["lag_bytes"], b["lag_bytes"]) == (0, 0)
    assert lake.counted() == 69


def files(lake: Lake) -> list[Path]:
    table = lake.root / "lake" / "messages"
    return [path for path in table.rglob("*.parquet") if "_checkpoint" not in path.parts]


def test_compaction_joins_days_that_are_over(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "lake" / "messages"
    wanted = []
    for day, batches in (("2023-11-14", range(5)), ("2023-11-15", range(3, 6))):
        for number in batches:
            folder = table / f"date={day}" / "topic=T" / "broker=a" / f"batch={number:08}"
            folder.mkdir(parents=True)
            rows = {"physical_offset": [number * 10, number * 10 + 1], "body": [b"x", b"y"]}
            # A column that ``--migrate`` brought.
            keys = {"keys": ["k", "k"]} if number > 1 else {}
            pq.write_table(pa.table(rows | keys), folder / "part-0.parquet")
            wanted += rows["physical_offset"]
    config = {"source": {"paths": ["x"]}, "sink": {"path": str(table)}}
    last = Entry("p", 4, "q", 4, {"a": 0}, {"a": 1})
    (slot := tmp_path / "lake" / "messages_books" / "slot=0").mkdir(parents=True)
    (slot / "part-0").write_text(json.dumps(asdict(last)), encoding="utf-8")

    def found() -> list[int]:
        return sorted(
            ds.dataset(table, partitioning="hive").to_table()["physical_offset"].to_pylist()
        )

    leaf = table / "date=2023-11-14" / "topic=T" / "broker=a"
    kept = shutil.copytree(leaf, tmp_path / "before")
    assert compact(spark, config, before=dt.date(2023, 11, 15)) == 4
    # The newest batch may come again, and the second day is not over.
    assert sorted(path.name for path in leaf.iterdir()) == [
        "batch=00000000-00000003",
        "batch=00000004",
    ]
    assert found() == sorted(wanted)
    joined = pq.read_table(leaf / "batch=00000000-00000003", partitioning=None)
    assert joined["keys"].to_pylist() == [None] * 4 + ["k"] * 4
    assert compact(spark, config, before=dt.date(2023, 11, 15)) == 0
    # Killed while it removes what it has joined.
    (leaf / "batch=00000000-00000003").rename(leaf / "_compacted")
    for number in (1, 3):
        shutil.copytree(kept / f"batch={number:08}", leaf / f"batch={number:08}")
    compact(spark, config, before=dt.date(2023, 11, 15))
    assert found() == sorted(wanted)
    # Another type of a column.
    shutil.copytree(kept / "batch=00000001", leaf / "batch=00000002")
    pq.write_table(pa.table({"body": [1, 2]}), leaf / "batch=00000002" / "part-0.parquet")
    with pytest.raises(mqstore.StoreError, match="different types"):
        compact(spark, config, before=dt.date(2023, 11, 15))
    assert (leaf / "batch=00000000-00000003").exists()
    for sink in ({"path": "s3://lake/t"}, {"path": str(table), "format": "delta"}):
        with pytest.raises(mqstore.UnsupportedError, match="Delta has OPTIMIZE"):
            compact(spark, {"source": {"paths": ["x"]}, "sink": sink})


def test_a_batch_that_cannot_be_removed_is_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["batch=00000000", "batch=00000001"]
    for name in (*names, "_compacted"):
        (tmp_path / name).mkdir()
    (tmp_path / "_compacted" / "_replaces.json").write_text(json.dumps(names))

    def refuse(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(mqstore.StoreIOError, match=r"remove .*batch=00000000"):
            compacting._finish(tmp_path)
    assert (tmp_path / "_compacted").is_dir()
    compacting._finish(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["batch=00000000-00000001"]


def test_a_compaction_that_was_killed_before_its_last_rename_is_finished(tmp_path: Path) -> None:
    day = tmp_path / "lake" / "date=2023-11-14"
    (day / "_compacted").mkdir(parents=True)
    (day / "_compacted" / "_replaces.json").write_text('["batch=00000000", "batch=00000001"]')
    none: Any = None
    sink = {"path": str(tmp_path / "lake")}
    assert compact(none, {"source": {"paths": ["x"]}, "sink": sink}) == 0
    assert [path.name for path in day.iterdir()] == ["batch=00000000-00000001"]
    # Two at once, before there was a lock, left it.
    (day / "_compacted").mkdir()
    (day / "_compacted" / "_replaces.json").write_text('["batch=00000000", "batch=00000001"]')
    (day / "batch=00000000-00000001" / "part-0").write_text("")
    (day / "_compacted" / "part-1").write_text("")
    with (tmp_path / "lake_compact_lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(mqstore.StoreLockedError, match="another compaction"):
            compact(none, {"source": {"paths": ["x"]}, "sink": sink})
    assert compact(none, {"source": {"paths": ["x"]}, "sink": sink}) == 0
    assert [path.name for path in day.iterdir()] == ["batch=00000000-00000001"]
    shutil.rmtree(tmp_path / "lake")
    with pytest.raises(FileNotFoundError, match="lake"):
        compact(none, {"source": {"paths": ["x"]}, "sink": sink})


def test_a_compaction_passes_over_what_a_pipeline_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = tmp_path / "lake" / "date=2023-11-14"
    removed = tmp_path / "lake" / "date=2023-11-13"
    for path in (day / "batch=00000000", removed):
        path.mkdir(parents=True)
    listed = os.scandir

    def scan(path: Any) -> Any:
        if Path(path) == removed:
            removed.rmdir()
        assert Path(path).name != "batch=00000000", "a batch has no folders of batches"
        return listed(path)

    monkeypatch.setattr(os, "scandir", scan)
    none: Any = None
    sink = {"path": str(tmp_path / "lake")}
    assert compact(none, {"source": {"paths": ["x"]}, "sink": sink}) == 0
    assert not removed.exists()


def test_metadata_of_a_checkpoint_that_are_no_query_s_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert query_id(spark, str(tmp_path)) is None
    for text in ("{", "{}", "[1]"):
        (tmp_path / "metadata").write_text(text + "\n", encoding="utf-8")
        with pytest.raises(mqstore.ConfigError, match="checkpoint: expected the id of a query"):
            query_id(spark, str(tmp_path))
    (tmp_path / "metadata").write_text('{"id":"a-b"}', encoding="utf-8")
    assert query_id(spark, str(tmp_path)) == "a-b"


def test_tables_of_the_catalog_take_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    names = ("lake_messages", "lake_messages_quarantine", "lake_messages_metrics")
    sink: dict[str, Any] = {"table": names[0], "checkpoint": str(tmp_path / "checkpoint")}
    lake = Lake(spark, tmp_path, partition_by=["topic"], **sink)
    del lake.config["sink"]["path"]
    try:
        fill(tmp_path / "x-a", range(30))
        with pytest.raises(PySparkException):
            lake.run(fail_after="messages")
        lake.run()
        shutil.rmtree(tmp_path / "checkpoint")
        fill(tmp_path / "x-a", range(30, 40))
        lake.run()
        rows = spark.table(names[0]).select("body", "topic", "date").collect()
        assert Counter(int(row["body"]) for row in rows) == Counter(range(40))
        assert {row["topic"] for row in rows} == {"T0", "T1"}
        assert spark.table(names[2]).groupBy().sum("messages").first()[0] == 40
        entry = Books(f"{tmp_path}/checkpoint_books").last()
        assert entry is not None
        assert entry.number == 1
    finally:
        for name in names:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
