"""``pending``: half messages, overdue ones, dead letters and redeliveries."""

import json
import shutil
import struct
from datetime import UTC, datetime, timedelta

import pytest

import mqstore
from helpers.golden import Case
from helpers.stores import TINY

SCHEDULED, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
NOW_MS = 2_000_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    return Case("broker").unpack(tmp_path_factory.mktemp("broker"))


def put(store, topic, queue_id=0, **given):
    given = {"store_timestamp_ms": NOW_MS - 60_000, "born_timestamp_ms": NOW_MS - 90_000} | given
    properties = {"REAL_TOPIC": "orders", "REAL_QID": "0"} | given.pop("properties", {})
    body = given.pop("body", b"x")
    message = mqstore.Message(topic, body, queue_id=queue_id, properties=properties, **given)
    return store.append_many([message])


def table(path, file, name, rows):
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / file).write_text(json.dumps({name: rows}))


def report(path):
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOW_MS)
    return mqstore.pending(path, now_ms=now, config=TINY)


def test_half_messages_of_a_real_broker(broker):
    found = mqstore.pending(broker)
    # Three of nine transactions were never ended; the broker asked for each four times.
    assert [row.keys for row in found.half] == [(f"tx-unknown-{number}",) for number in range(3)]
    assert {(row.topic, row.checks) for row in found.half} == {("OrderTopic", 4)}
    assert {row.producer_group for row in found.half} == {"oracle-producer-tx"}
    with mqstore.open(broker) as store:
        for row in found.half:
            half = store.get(row.physical_offset)
            assert (half.half, half.unique_key) == (True, row.unique_key)
            assert row.born_timestamp_ms == half.born_timestamp_ms
    assert found.half_messages == 3
    assert min(row.age_ms for row in found.half) > 0


def test_redeliveries_and_dead_letters_of_a_real_broker(broker, tmp_path):
    found = mqstore.pending(broker)
    assert found.unread == found.overdue == found.retries == ()
    path = tmp_path / "store"
    shutil.copytree(broker, path)
    table(path, "consumerOffset.json", "offsetTable", {})
    (row,) = mqstore.pending(path).retries
    assert (row.group, row.origin_topic) == ("group-push-retry", "Topic_s-x")
    with mqstore.open(path) as store:
        there = list(store.topic("%RETRY%group-push-retry"))
    assert (row.messages, row.scheduled) == (len(there), 0)
    assert row.oldest_timestamp_ms == there[0].store_timestamp_ms


def test_half_message_that_was_put_again_counts_once_with_its_checks(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        for number, checks in enumerate([None, None, None, 1, 7]):
            properties = {"PGROUP": "producers"}
            if checks is not None:
                properties["TRANSACTION_CHECK_TIMES"] = str(checks)
            key = f"U{number % 3}"
            put(store, HALF, keys=key, unique_key=key, properties=properties)
        # U0 was put again as number 3; number 2 was ended.
        put(store, OP, body=b"2,", tags="d")
        put(store, OP, body=b"9,x,,", tags="d")
    found = report(path).half
    assert [(row.unique_key, row.checks, row.age_ms) for row in found] == [
        ("U0", 1, 90_000),
        ("U1", 7, 90_000),
    ]
    assert {row.producer_group for row in found} == {"producers"}
    offsets = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 4}, f"{OP}@CID_RMQ_SYS_TRANS": {"0": 2}}
    table(path, "consumerOffset.json", "offsetTable", offsets)
    assert [row.unique_key for row in report(path).half] == ["U1"]


def test_delayed_messages_are_overdue_from_the_next_offset_of_their_level_on(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        for number in range(4):
            put(store, SCHEDULED, 4, keys=f"k{number}")  # level 5: a minute
        put(store, SCHEDULED, 5, keys="two-minutes")
    assert [row.keys[0] for row in report(path).overdue] == ["k0", "k1", "k2", "k3"]
    table(path, "delayOffset.json", "offsetTable", {"5": 3})
    (row,) = report(path).overdue
    assert (row.kind, row.topic, row.keys, row.late_ms) == ("delayed", "orders", ("k3",), 0)
    levels = TINY | {"message_delay_level": "1s 2s 3s 4s 5m 6s"}
    found = mqstore.pending(path, now_ms=NOW_MS, config=levels)
    assert [row.keys for row in found.overdue] == [("two-minutes",)]


def test_delay_level_that_the_settings_lack_is_named(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        put(store, SCHEDULED, 1)
        put(store, SCHEDULED, 2)
    found = mqstore.pending(path, now_ms=NOW_MS, config=TINY | {"message_delay_level": "1s 2s"})
    assert (found.overdue_messages, len(found.overdue)) == (1, 1)
    (text,) = found.unread
    assert text == (
        f"{SCHEDULED}/2: 1 messages wait for delay level 3; messageDelayLevel of this config has 2"
    )
    table(path, "delayOffset.json", "offsetTable", {"3": 1})
    delivered = mqstore.pending(path, now_ms=NOW_MS, config=TINY | {"message_delay_level": "1s 2s"})
    assert delivered.unread == ()
    with mqstore.open(path, "a", config=TINY) as store:
        put(store, SCHEDULED, 18)
    (text,) = mqstore.pending(path, now_ms=NOW_MS, config=TINY).unread
    assert text.endswith("level 19; messageDelayLevel of this config has 18")


def test_redeliveries_that_wait_for_their_time_are_of_their_group(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        retry = {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "orders"}
        put(store, SCHEDULED, 9, properties=retry)
        for _ in range(3):
            put(store, "%RETRY%g", properties={"RETRY_TOPIC": "orders"})
        put(store, "%RETRY%g", properties={"RETRY_TOPIC": "other"})
        put(store, "%DLQ%g", store_timestamp_ms=NOW_MS - 5)
    table(path, "consumerOffset.json", "offsetTable", {"%RETRY%g@g": {"0": 1}})
    found = report(path)
    assert [(row.origin_topic, row.messages, row.scheduled) for row in found.retries] == [
        ("orders", 2, 1),
        ("other", 1, 0),
    ]
    (dead,) = found.dead_letters
    assert (dead.group, dead.origin_topic, dead.messages) == ("g", None, 1)
    assert (dead.oldest_timestamp_ms, dead.newest_timestamp_ms) == (NOW_MS - 5, NOW_MS - 5)


def test_timers_are_overdue_by_the_file_that_says_what_was_delivered(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        for key, due_ms in (("a", -9000), ("b", -5000), ("c", -100), ("d", 100), ("e", -7000)):
            properties = {"TIMER_OUT_MS": str(NOW_MS + due_ms)}
            put(store, TIMER, unique_key=key, keys=key, properties=properties)
        # Put again for the rest of its time, and one that is taken back.
        put(store, TIMER, unique_key="c", properties={"TIMER_OUT_MS": str(NOW_MS - 90)})
        drop = {"TIMER_DEL_UNIQKEY": "e", "TIMER_OUT_MS": str(NOW_MS - 7000)}
        put(store, TIMER, unique_key="x", properties=drop)
    assert {row.unique_key for row in report(path).overdue} == {"a", "b", "c"}
    check = path / "config" / "timercheck"
    check.parent.mkdir(exist_ok=True)
    check.write_bytes(struct.pack(">7q", NOW_MS - 5000, 0, 3, 0, 0, 0, 0).ljust(4096, b"\0"))
    (row,) = report(path).overdue
    assert (row.kind, row.unique_key, row.late_ms) == ("timer", "c", 90)
    check.write_bytes(b"")
    assert len(report(path).overdue) == 3


def test_damage_hides_no_other_message_and_is_named(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        for number in range(6):
            put(store, "%DLQ%g", properties={"RETRY_TOPIC": f"t{number}"})
        damaged = list(store.topic("%DLQ%g"))[2].physical_offset
    files = sorted((path / "commitlog").iterdir())
    size = files[0].stat().st_size
    with files[damaged // size].open("r+b") as file:
        file.seek(damaged % size + 4)
        file.write(b"\xff" * 60)
    found = report(path)
    assert {row.origin_topic for row in found.dead_letters} == {"t0", "t1", "t3", "t4", "t5"}
    (text,) = found.unread
    assert text.startswith("%DLQ%g/0: 1 damaged")


def test_store_without_anything_pending(tmp_path):
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append("orders", b"x")
    found = mqstore.pending(tmp_path / "store")
    assert (found.half_messages, found.overdue_messages) == (0, 0)
    assert found.dead_letters == found.retries == found.unread == ()
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.pending(tmp_path / "none")
