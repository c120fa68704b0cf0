"""``store.topic``, queries without a topic, times as ``datetime``, documents, appending again."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
CONFIG = {"mapped_file_size_commit_log": 65_536}


@pytest.fixture
def store(tmp_path: Path):
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as opened:
        opened.append_many(
            mqstore.Message(
                ("orders", "pay")[n % 2],
                str(n).encode(),
                queue_id=n % 3,
                tags=("paid", "refunded")[n % 5 == 0],
                keys=["all", f"k{n}"],
                unique_key=f"7F0000010BA84B4E{n:016X}",
                store_timestamp_ms=START_MS + 1000 * n,
            )
            for n in range(60)
        )
        yield opened


def numbers(messages) -> list[int]:
    return [int(message.body) for message in messages]


def test_a_topic_is_read_from_any_place(store) -> None:
    orders = store.topic("orders")
    even = list(range(0, 60, 2))
    assert len(orders) == 30
    assert numbers(orders) == even
    assert numbers(orders.latest(5)) == even[:-6:-1]
    assert numbers(orders.latest(2, tags="refunded")) == [50, 40]
    assert numbers(orders.latest(100)) == even[::-1]
    assert orders.latest(0) == []
    assert numbers(orders.since(START + timedelta(seconds=41))) == list(range(42, 60, 2))
    assert numbers(orders.since(START_MS + 50_000, tags="refunded")) == [50]
    middle = orders.latest(3)[-1]
    assert numbers(orders.from_offset(middle.physical_offset)) == [54, 56, 58]
    nothing = store.topic("nothing")
    assert (len(nothing), list(nothing), nothing.latest(3)) == (0, [], [])
    assert bool(nothing)
    with pytest.raises(ValueError, match="n: expected 0 or more, got -1"):
        orders.latest(-1)


def test_a_query_without_a_topic_looks_in_all(store) -> None:
    assert numbers(store.query(key="k7")) == [7]
    newest = store.query(key="all", max_messages=5)
    assert numbers(newest) == [59, 58, 57, 56, 55]
    assert newest.truncated
    assert len(store.query(tags="refunded")) == 12
    with pytest.raises(TypeError, match="topic: expected str beside exact=False, got None"):
        store.query(key="k7", exact=False)
    with pytest.raises(TypeError, match="key, tags: expected one of them"):
        store.query()


def test_a_query_without_a_topic_finds_those_whose_queues_are_lost(tmp_path) -> None:
    with mqstore.open(tmp_path, "a", config=CONFIG) as store:
        for number in range(50):
            store.append(f"t{number % 5}", b"%d" % number, keys="k")
    shutil.rmtree(tmp_path / "consumequeue/t1")
    with mqstore.open(tmp_path) as store:
        found = store.query(key="k", max_messages=100)
        assert (sorted(numbers(found)), found.complete) == (list(range(50)), True)
    # Nothing tells that topic any more.
    topics = tmp_path / "config/topics.json"
    topics.write_text("{")
    topics.with_name("topics.json.bak").unlink(missing_ok=True)
    with mqstore.open(tmp_path) as store:
        found = store.query(key="k", max_messages=100)
        assert (len(found), found.complete) == (40, False)


def test_a_time_is_milliseconds_or_a_datetime(store) -> None:
    begin, end = START + timedelta(seconds=10), START + timedelta(seconds=12)
    plus_two = begin.astimezone(datetime.strptime("+0200", "%z").tzinfo)
    for first in (begin, plus_two, START_MS + 10_000):
        assert numbers(store.scan(begin_ms=first, end_ms=end)) == [10, 11, 12]
        assert store.scan_arrow(begin_ms=first, end_ms=end).read_all().num_rows == 3
        assert numbers(reversed(store.query(key="all", begin_ms=first, end_ms=end))) == [10, 11, 12]
        assert store.offset_at("orders", 1, first) == 1
    at = datetime(2026, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)
    assert mqstore.Message("t", b"", born_timestamp_ms=at).born_timestamp_ms == START_MS + 1
    before = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert mqstore.Message("t", b"", born_timestamp_ms=before).born_timestamp_ms == -1
    assert store.wait(0, timeout_s=timedelta(seconds=1))


def test_a_time_of_another_unit_is_refused_with_a_hint(store) -> None:
    with pytest.raises(ValueError, match="begin_ms: expected milliseconds since 1970, got 17672"):
        store.query(key="all", begin_ms=START_MS // 1000)
    with pytest.raises(TypeError, match=r"end_ms: expected int \(milliseconds; .*got float"):
        store.scan(end_ms=START.timestamp())
    with pytest.raises(ValueError, match="timestamp_ms: expected a datetime with a time zone"):
        store.offset_at("orders", 0, datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="timeout_s: expected a number of seconds or timedelta"):
        store.wait(0, timeout_s="1")
    with pytest.raises(ValueError, match="born_timestamp_ms: expected milliseconds since 1970"):
        mqstore.Message("t", b"", born_timestamp_ms=1_700_000_000)


def test_ids_that_clients_print_are_found_or_explained(store) -> None:
    (message,) = store.query(key="k7")
    assert store.get_by_id(message.message_id) == message
    assert store.get_by_id(message.unique_key) == message
    # Others have it as a key.
    store.append_many(mqstore.Message("pay", b"", keys=message.unique_key) for _ in range(100))
    assert store.get_by_id(message.unique_key) == message
    with pytest.raises(mqstore.MessageNotFoundError, match="nor has one this unique key"):
        store.get_by_id("7F0000010BA84B4EFFFFFFFFFFFFFFFF")
    with pytest.raises(mqstore.MessageNotFoundError, match="is no message id: it has 32 or 56"):
        store.get_by_id("all")


def test_a_time_is_a_datetime_by_the_name_of_its_column(store, tmp_path) -> None:
    given = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    times = {"born_timestamp_ms": given, "store_timestamp_ms": given + timedelta(seconds=1)}
    with mqstore.open(tmp_path / "times", "a", config=CONFIG) as other:
        other.append_many([mqstore.Message("t", b"", **times)])
        other.append_many([mqstore.Message("t", b"", born_timestamp_ms=2**62)])
        found, odd = other.scan()
        assert (found.born_timestamp, found.store_timestamp) == (*times.values(),)
        assert odd.born_timestamp is None
        rows = other.scan_arrow(columns=["store_timestamp"]).read_all().to_pylist()
        assert rows[0]["store_timestamp"] == found.store_timestamp
        with pytest.raises(ValueError, match=r"store_timestamp_ms.*its name is store_timestamp"):
            other.scan_arrow(columns=["store_timestamp_ms"])


def test_a_message_is_a_mapping_and_a_document(store) -> None:
    (message,) = store.query(key="k7")
    found = message.to_dict()
    assert (found["topic"], found["body"], found["keys"]) == ("pay", b"7", ("all", "k7"))
    assert found["store_timestamp_ms"] == START_MS + 7000
    document = json.loads(message.json())
    assert (document["body"], document["tags"], document["batch"]) == ("7", "paid", None)
    store.append("raw", b"\xff")
    assert json.loads(store.topic("raw").latest()[0].json())["body_base64"] == "/w=="


def test_a_stored_message_is_appended_again(store, tmp_path) -> None:
    messages = list(store.topic("orders"))
    with mqstore.open(tmp_path / "other", "a", config=CONFIG) as other:
        summary = other.append_many(messages, summary=True)
        assert (summary.count, summary.first_physical_offset) == (30, 0)
        assert summary.end_physical_offset == other.max_physical_offset
        again = list(other.topic("orders"))
        for old, new in zip(messages, again, strict=True):
            for name in ("queue_id", "body", "properties", "born_timestamp_ms", "born_host"):
                assert getattr(old, name) == getattr(new, name)
            assert new.store_timestamp_ms > old.store_timestamp_ms
        other.append_many([messages[0].to_message(topic="copy", queue_id=2)])
        assert [(m.topic, m.queue_id) for m in other.topic("copy")] == [("copy", 2)]
        assert other.append_many([], summary=True).count == 0
