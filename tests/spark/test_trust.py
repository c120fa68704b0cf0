"""Streams that lose nothing in silence: starts in time, restarts, the last message of a broker."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import mqstore
from helpers.stores import TINY, message
from mqstore.spark import flushed_offsets, read, stream
from mqstore.spark.failures import PySparkException, sentence
from mqstore.spark.ingest import pipeline
from mqstore.spark.options import ReadOptions
from mqstore.spark.plan import plan, ranges_of
from mqstore.spark.progress import Progress
from mqstore.spark.source import MqStoreDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

START_MS = 1_700_000_000_000
COLUMNS = ["broker", "queue_offset", "body"]


def reader(root: Path, **options: str) -> Any:
    texts = {"paths": json.dumps([str(root)]), "until": "end", **options}
    return stream.make_stream_reader(ReadOptions.parse(texts, streaming=True), COLUMNS)


def latest(of: Any, start: dict[str, Any]) -> dict[str, Any]:
    """What Spark asks for before each batch, in every version of it."""
    offset = of.latestOffset(start, of.getDefaultReadLimit()) if stream.HAS_LIMITS else None
    return json.loads(json.dumps(of.latestOffset() if offset is None else offset))


def rows(of: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for part in of.partitions(start, end) for batch in of.read(part)]
    return [int(body) for batch in batches for body in batch.column("body").to_pylist()]


def fill(root: Path, numbers: range) -> None:
    """A message a second, each with its number."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [message(body=b"%d" % n, store_timestamp_ms=START_MS + 1000 * n) for n in numbers]
        )


def test_a_start_in_time_is_a_place_from_the_first_batch_on(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    first = reader(root, startingTimestamp=str(START_MS + 40_000))
    begin = first.initialOffset()
    end = latest(first, begin)
    assert rows(first, begin, end) == list(range(40, 100))
    fill(root, range(100, 150))
    # After an outage a relative time, such as -2h, means a later one.
    later = reader(root, startingTimestamp=str(START_MS + 120_000))
    assert rows(later, end, latest(later, end)) == list(range(100, 150))


def test_a_first_batch_that_runs_again_begins_where_it_began(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    first = reader(root, startingTimestamp=str(START_MS + 40_000))
    end = latest(first, first.initialOffset())
    # The driver dies before the batch is committed; Spark asks for the start again.
    later = reader(root, startingTimestamp=str(START_MS + 90_000))
    begin = later.initialOffset()
    assert begin["a"] > first.initialOffset()["a"]
    assert rows(later, begin, end) == list(range(40, 100))
    fill(root, range(100, 110))
    assert rows(later, end, after := latest(later, end)) == list(range(100, 110))
    assert latest(later, after) == after


@pytest.mark.parametrize(
    ("at", "wanted"),
    [(-1, 0), (0, 0), (1, 1), (39_001, 40), (99_000, 99), (99_001, 100), (10**9, 100)],
)
def test_a_start_in_time_is_its_first_message(tmp_path: Path, at: int, wanted: int) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    begin = Progress(
        ReadOptions.parse(
            {"path": str(root), "until": "end", "startingTimestamp": str(START_MS + at)},
            streaming=True,
        )
    ).first()
    fill(root, range(100, 110))
    plain = reader(root)
    assert rows(plain, begin, latest(plain, begin)) == list(range(wanted, 110))


def test_an_end_in_time_is_not_for_a_stream(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1))
    with pytest.raises(mqstore.UnsupportedError, match="endingTimestamp"):
        reader(tmp_path / "a", endingTimestamp="-2h")


def progress(path: Path, **options: str) -> Progress:
    texts = {"path": str(path), "until": "end", **options}
    return Progress(ReadOptions.parse(texts, streaming=True))


def test_the_last_message_of_a_broker_that_idles_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is open, nothing was flushed, and no later message moves its mark."""
    now: list[float] = [100.0]
    flushed: list[Path] = []
    sync = flushed_offsets.sync
    monkeypatch.setattr(flushed_offsets, "sync", lambda path: (sync(path), flushed.append(path)))
    monkeypatch.setattr(flushed_offsets.time, "monotonic", lambda: now[0])
    root = tmp_path / "a"
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(60)])
        idle = progress(root, until="flushed")
        with mqstore.open(root, config=TINY) as seen:
            assert seen.flushed_offset < seen.max_physical_offset
        assert idle.last() == {"a": store.max_physical_offset}
        # The bytes are on the disk, and so are the names of their files.
        names = {path.name for path in flushed}
        assert names == {"commitlog", *(file.name for file in (root / "commitlog").iterdir())}
        # A broker that is busy is not made to flush more often than it does by itself.
        flushed.clear()
        before = idle.last()
        store.append("T", b"60")
        assert idle.last() == before
        now[0] += flushed_offsets.SYNC_EVERY_S
        assert idle.last() == {"a": store.max_physical_offset}
        assert len(flushed) == 2


def test_a_disk_that_refuses_to_flush_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(flushed_offsets, "sync", refuse)
    with mqstore.open(tmp_path / "a", "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(9)])
        with mqstore.open(tmp_path / "a", config=TINY) as seen:
            assert progress(tmp_path / "a", until="flushed").last() == {"a": seen.flushed_offset}


def test_a_disk_that_refused_once_is_not_believed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux reports an error of writing once: a second flush succeeds without the lost pages."""
    now: list[float] = [100.0]
    errors = iter([OSError(errno.EIO, "Input/output error")])

    def refuse_once(_: Path) -> None:
        for error in errors:
            raise error

    monkeypatch.setattr(flushed_offsets, "sync", refuse_once)
    monkeypatch.setattr(flushed_offsets.time, "monotonic", lambda: now[0])
    with mqstore.open(tmp_path / "a", "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(9)])
        stream_of = progress(tmp_path / "a", until="flushed", flushedAfter="30s")
        known = stream_of.last()
        assert known["a"] < store.max_physical_offset
        now[0] += 10 * flushed_offsets.SYNC_EVERY_S
        assert stream_of.last() == known
        # The writer's own flush is noted in its mark.
        store.flush()
        assert stream_of.last()["a"] > known["a"]


def test_a_mount_point_of_any_name_tells_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "donn\u00e9es de \u65e5"
    name = os.fsencode(shared).replace(b" ", rb"\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(
        b"1 0 8:1 / / rw - ext4 /dev/sda rw\n" + b"2 1 0:9 / " + name + b" rw - nfs4 server:/ rw\n"
    )
    monkeypatch.setattr(flushed_offsets, "_MOUNTS", mounts)
    assert flushed_offsets._file_system(shared / "store") == "nfs4"
    assert flushed_offsets._file_system(tmp_path) == "ext4"


def test_a_log_on_a_shared_file_system_counts_as_flushed_once_it_idles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list[float] = [100.0]
    monkeypatch.setattr(flushed_offsets, "_LOCAL", frozenset[str]())
    monkeypatch.setattr(flushed_offsets.time, "monotonic", lambda: now[0])
    with mqstore.open(tmp_path / "a", "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(9)])
        plain = progress(tmp_path / "a", until="flushed")
        waits = progress(tmp_path / "a", until="flushed", flushedAfter="30s")
        known = plain.last()
        assert waits.last() == known
        now[0] += 29
        assert waits.last() == known
        # The time begins anew with each message.
        store.append("T", b"9")
        now[0] += 29
        assert waits.last() == known
        now[0] += 29
        assert waits.last() == known
        now[0] += 1
        idle = {"a": store.max_physical_offset}
        assert waits.last() == idle
        store.append("T", b"10")
        assert waits.last() == idle
        assert plain.last() == known


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"flushedAfter": "30"},
            "option flushedAfter: expected a duration such as 30s, 2h or 7d, got '30'",
        ),
        ({"flushedAfter": "5s"}, "expected 30s or more, got '5s'; a broker flushes its whole log"),
        ({"flushedAfter": "1m", "until": "end"}, "flushedAfter: expected none with until=end"),
    ],
)
def test_a_time_that_no_broker_can_keep_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(mqstore.ConfigError, match=says):
        ReadOptions.parse({"path": "/a", **options}, streaming=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "T,ordrs"}, "no store has topic 'ordrs'; did you mean 'orders'?"),
        ({"topicPattern": "paid-.*"}, "no topic of a store matches 'paid-.*'"),
    ],
)
def test_a_topic_that_no_store_has_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], says: str
) -> None:
    for name, topic in (("x-a", "orders"), ("x-b", "T")):
        with mqstore.open(tmp_path / name, "a", config=TINY) as store:
            store.append(topic, b"1")
    texts = {"path": str(tmp_path / "x-*"), **options}
    plan(ReadOptions.parse(texts))
    progress(tmp_path / "x-*", **options).first()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert all(says in one and "strict=true" in one for one in told)
    with pytest.raises(mqstore.ConfigError) as batch:
        plan(ReadOptions.parse({**texts, "strict": "true"}))
    with pytest.raises(mqstore.ConfigError) as started:
        progress(tmp_path / "x-*", strict="true", **options).first()
    assert says in str(batch.value) == str(started.value)


def test_missing_stores_fail_wait_or_are_dropped(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        fill(root, range(10))
    paths = json.dumps([str(root) for root in roots])

    def of(**options: str) -> Progress:
        texts = {"paths": paths, "until": "end", **options}
        return Progress(ReadOptions.parse(texts, streaming=True))

    at = of().next(of().first())
    shutil.move(roots[1], tmp_path / "away")
    with pytest.raises(mqstore.NotAStoreError, match="no such path"):
        of().next(at)
    assert of(missingStores="wait").next(at) == at
    assert of(missingStores="drop").next(at) == {"a": at["a"]}
    # Rows that a batch was planned with are not passed over while the store may come back.
    with pytest.raises(mqstore.OffsetOutOfRangeError, match="broker b: its store is gone"):
        of(missingStores="wait").ranges({"a": 0, "b": 0}, at)
    assert [part.broker for part in of(missingStores="drop").ranges({"a": 0, "b": 0}, at)] == ["a"]
    shutil.move(tmp_path / "away", roots[1])
    assert of(missingStores="wait").next(at) == at
    shutil.rmtree(roots[1])
    batch = {"paths": paths, "missingStores": "drop"}
    assert {part.broker for part in plan(ReadOptions.parse(batch))} == {"a"}
    shutil.rmtree(roots[0])
    with pytest.raises(mqstore.NotAStoreError):
        plan(ReadOptions.parse(batch))
    for starts in ({}, {"startingOffsets": '{"t": "latest"}'}):
        assert of(missingStores="wait", **starts).queue_starts() == {}
    with pytest.raises(
        mqstore.ConfigError, match="missingStores: expected fail or drop in a batch, got wait"
    ):
        ReadOptions.parse(batch | {"missingStores": "wait"})


def test_a_retired_broker_is_taken_out_of_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("x-a", "x-b"):
        fill(tmp_path / name, range(10))
    config = {
        "source": {"paths": [str(tmp_path / "x-*")], "until": "end"},
        "sink": {"path": str(tmp_path / "lake")},
        "trigger": {"available_now": True},
    }

    def run(**given: Any) -> None:
        pipeline(spark, config, **given).awaitTermination()

    run()
    with pytest.raises(mqstore.ConfigError, match="the store of broker x-b is still there"):
        run(retire=["x-b"])
    shutil.rmtree(tmp_path / "x-b")
    fill(tmp_path / "x-a", range(10, 20))
    if stream.HAS_LIMITS:
        with pytest.raises(PySparkException) as caught:
            run()
        told = sentence(caught.value)
        assert told.startswith("broker x-b: its store is gone; it was read up to ")
        assert "\n" not in told
    run(retire=["x-b"])
    fill(tmp_path / "x-a", range(20, 30))
    run()
    table = ds.dataset(tmp_path / "lake", format="parquet", partitioning="hive").to_table()
    found = [(row["broker"], int(row["body"])) for row in table.to_pylist()]
    assert sorted(found) == [
        *(("x-a", n) for n in range(30)),
        *(("x-b", n) for n in range(10)),
    ]


def test_small_stores_share_a_task(tmp_path: Path) -> None:
    for n in range(50):
        fill(tmp_path / f"s{n}", range(3))
    source = MqStoreDataSource({"path": str(tmp_path / "s*"), "columns": "broker,body"})
    reader: Any = source.reader(source.schema())
    parts = reader.partitions()
    assert len(parts) == 1
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    wanted = [(f"s{n}", b"%d" % m) for n in range(50) for m in range(3)]
    assert sorted((row["broker"], row["body"]) for row in rows) == sorted(wanted)
    many = MqStoreDataSource({"path": str(tmp_path / "s*"), "minPartitions": "20"})
    assert 20 <= len(many.reader(many.schema()).partitions()) <= 50
    texts = {"path": str(tmp_path / "s*"), "until": "end"}
    streamed: Any = MqStoreDataSource(texts).streamReader(source.schema())
    batch = streamed.partitions({}, streamed.progress.last())
    assert len(batch) == 1
    assert sum(len(list(ranges_of(part))) for part in batch) == 50


def test_a_thousand_small_stores_are_a_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "one", range(20))
    for n in range(1_000):
        shutil.copytree(tmp_path / "one", tmp_path / f"s{n:03}", copy_function=os.link)
    frame = read(spark, tmp_path / "s*", columns=["broker"])
    assert 2 <= frame.rdd.getNumPartitions() <= 40
    counts = {row["broker"]: row["count"] for row in frame.groupBy("broker").count().collect()}
    assert counts == {f"s{n:03}": 20 for n in range(1_000)}


def test_a_missing_end_of_a_log_ends_a_read_or_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    sizes = {"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 2_000}
    with mqstore.open(path, "a", config=sizes) as store:
        store.append_many([("t", b"x" * 100)] * 1500)
    for name in ("mqstore.mark", "mqstore.seal"):
        (path / name).unlink()
    max((path / "commitlog").iterdir()).unlink()
    given = {"path": str(path), "topics": "t"}
    for access in ("scan", "consumequeue"):
        with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
            plan(ReadOptions.parse({**given, "accessPath": access}))
    assert caplog.records == []
    assert plan(ReadOptions.parse({**given, "onError": "skip"}))
    assert "put the missing files back" in caplog.text
