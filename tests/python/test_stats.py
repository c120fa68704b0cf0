"""``mqstore.stats``: counts by what messages have in common, as rows and as an Arrow stream."""

import random
import shutil
from collections import defaultdict
from datetime import UTC, datetime

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import mqstore

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def counted_here(store, by):
    """The same counts, made of the messages themselves."""
    groups = defaultdict(list)
    values = {
        "topic": lambda m: m.topic,
        "queue_id": lambda m: m.queue_id,
        "hour": lambda m: m.store_timestamp_ms // HOUR_MS * HOUR_MS,
        "day": lambda m: m.store_timestamp_ms // DAY_MS * DAY_MS,
        "tags": lambda m: m.tags,
    }
    for message in store.scan():
        groups[tuple(values[name](message) for name in by)].append(message)
    return {
        key: (
            len(found),
            sum(m.store_size for m in found),
            min(m.store_timestamp_ms for m in found),
            max(m.store_timestamp_ms for m in found),
        )
        for key, found in groups.items()
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Five hundred messages of some topics, queues and tags, over a few days, out of order too."""
    random_ = random.Random(20240229)
    path = tmp_path_factory.mktemp("stats") / "store"
    with mqstore.open(
        path, "a", config={"mapped_file_size_commit_log": 8192, "message_index_enable": False}
    ) as opened:
        opened.append_many(
            mqstore.Message(
                random_.choice(["orders", "audit", "%RETRY%g", "a"]),
                random_.randbytes(random_.randrange(80)),
                queue_id=random_.randrange(3),
                tags=random_.choice([None, "paid", "cafe\u0301"]),
                store_timestamp_ms=1_700_000_000_000 + random_.randrange(3 * DAY_MS),
            )
            for _ in range(500)
        )
    return path


@pytest.mark.parametrize(
    "by",
    [
        (),
        ("topic",),
        ("hour", "topic"),
        ("tags", "day"),
        ("topic", "queue_id", "hour", "day", "tags"),
    ],
)
def test_counts_are_those_of_the_messages(store, by):
    with mqstore.open(store) as opened:
        expected = counted_here(opened, by)
    counted = mqstore.stats(store, by=by)
    rows = [tuple(row.values()) for row in counted]
    assert {row[: len(by)]: row[len(by) :] for row in rows} == expected
    assert len(rows) == len(counted) == len(expected)
    assert (counted.others.messages, counted.skipped_ranges) == (0, 0)
    assert counted.by == by


def test_one_name_need_not_be_a_list(store):
    assert list(mqstore.stats(store, by="topic")) == list(mqstore.stats(store, by=["topic"]))


def test_rows_are_sorted_and_named(store):
    counted = mqstore.stats(store)
    rows = list(counted)
    assert rows == sorted(rows, key=lambda row: (row["topic"].encode(), row["hour_ms"]))
    totals = ["messages", "bytes", "first_store_timestamp_ms", "last_store_timestamp_ms"]
    assert list(rows[0]) == ["topic", "hour_ms", *totals]
    assert repr(counted) == f"<StoreStats of {len(rows)} rows by topic, hour>"


def test_the_same_as_an_arrow_stream(store):
    counted = mqstore.stats(store, by=["topic", "queue_id", "day", "tags"])
    table = pa.table(counted)
    assert table.schema == pa.schema(counted.schema)
    instant = pa.timestamp("us", "UTC")
    assert table.schema.types == [
        *(pa.string(), pa.int32(), instant, pa.string(), pa.int64(), pa.int64(), instant, instant)
    ]
    rows = list(counted)
    for name in ("topic", "queue_id", "tags", "messages", "bytes"):
        assert table[name].to_pylist() == [row[name] for row in rows]
    for column, name in [("day", "day_ms"), ("last_store_timestamp", "last_store_timestamp_ms")]:
        times = [datetime.fromtimestamp(row[name] / 1000, UTC) for row in rows]
        assert table[column].to_pylist() == times
    # Each consumer begins anew.
    assert counted.read_all() == table
    assert pl.DataFrame(counted)["messages"].sum() == 500
    assert duckdb.sql("select sum(bytes)::bigint from counted").fetchall() == [
        (sum(row["bytes"] for row in rows),)
    ]


def test_only_what_is_chosen(store):
    with mqstore.open(store) as opened:
        times = sorted(m.store_timestamp_ms for m in opened.scan())
        wanted = [
            m
            for m in opened.scan(topics=["orders", "audit"], tags="paid", begin_ms=times[100])
            if m.store_timestamp_ms <= times[400]
        ]
    counted = mqstore.stats(
        store,
        by=[],
        topics=["orders", "audit"],
        tags="paid",
        begin_ms=times[100],
        end_ms=times[400],
    )
    (row,) = counted
    assert row["messages"] == len(wanted) > 10
    assert len(mqstore.stats(store, topics=["none"])) == 0
    assert pa.table(mqstore.stats(store, topics=["none"])).num_rows == 0


def test_damage_is_raised_or_passed_over_and_counted(store, tmp_path):
    with mqstore.open(store) as opened:
        bodies = [m for m in opened.scan() if len(m.body) > 20]
    message = bodies[7]
    broken = tmp_path / "store"
    shutil.copytree(store / "commitlog", broken / "commitlog")
    file_begins = message.physical_offset // 8192 * 8192
    with (broken / "commitlog" / f"{file_begins:020}").open("r+b") as file:
        # In the body, so that only its checksum tells.
        file.seek(message.physical_offset - file_begins + 100)
        file.write(b"\0" if message.body[12] else b"\1")
    with pytest.raises(mqstore.CorruptionError):
        mqstore.stats(broken)
    counted = mqstore.stats(broken, by=[], on_error="skip")
    assert [row["messages"] for row in counted] == [499]
    assert (counted.skipped_ranges, counted.skipped_bytes) == (1, message.store_size)


def test_an_impossible_question_is_refused(store, tmp_path):
    with pytest.raises(ValueError, match="topic, queue_id, minute, quarter_hour, hour, day, tags"):
        mqstore.stats(store, by=["topics"])
    with pytest.raises(ValueError, match="hour twice"):
        mqstore.stats(store, by=["hour", "hour"])
    with pytest.raises(ValueError, match="raise, skip"):
        mqstore.stats(store, on_error="stop")
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.stats(tmp_path)


def test_progress_is_told_and_can_end_it(store):
    told = []
    mqstore.stats(store, progress=lambda *done: told.append(done))
    with mqstore.open(store) as opened:
        size = opened.max_physical_offset
    assert told[-1] == (size, size)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mqstore.stats(store, progress=stop)
