"""Delayed messages: kept until due, delivered by a writer that asks for it."""

from __future__ import annotations

import errno
import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest

import mqstore
from helpers.stores import TINY
from helpers.waiting import wait_for_notes, wait_until
from mqstore.groups import failed
from mqstore.groups.delays import Delivery
from mqstore.groups.failed import SCHEDULE_TOPIC, Failed, send_back, take_mail

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Long enough for no thread to deliver anything: the tests take the steps.
SLOW: dict[str, Any] = {**TINY, "delivery": True, "message_delay_level": "1h 2h"}
HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        yield store


def bodies(store: mqstore.Store, topic: str = "orders") -> list[bytes]:
    return [message.body for message in store.topic(topic)]


def delay_offsets(store: mqstore.Store) -> dict[str, int]:
    text = mqstore.read_config_json(f"{store.path}/config/delayOffset.json")
    table: dict[str, int] = json.loads(text)["offsetTable"]
    return table


def test_a_delayed_message_waits_and_is_delivered_whole(store: mqstore.Store) -> None:
    sent = store.append(
        "orders", b"later", queue_id=2, tags="t", keys="k", properties={"a": "b"}, delay=3600
    )
    waiting = store.get(sent.physical_offset)
    assert (waiting.topic, waiting.queue_id, waiting.delay_level) == (SCHEDULE_TOPIC, 0, 1)
    assert (waiting.real_topic, waiting.real_queue_id) == ("orders", 2)
    due_ms = waiting.store_timestamp_ms + HOUR_MS
    delivery = Delivery(store)
    assert delivery.step(store, due_ms - 1) == 0
    assert bodies(store) == []
    assert delivery.step(store, due_ms) == 1
    (message,) = store.topic("orders")
    assert (message.body, message.queue_id, message.tags, message.keys) == (
        b"later",
        2,
        "t",
        ("k",),
    )
    assert message.delay_level == 0
    assert message.properties["a"] == "b"
    assert message.born_timestamp_ms == waiting.born_timestamp_ms
    assert delay_offsets(store) == {"1": 1}
    assert delivery.step(store, due_ms + HOUR_MS) == 0


def test_levels_are_delivered_each_in_order_and_go_on_after_a_restart(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        for number in range(200):
            delay = timedelta(hours=1 + number % 2)
            last = store.append("orders", b"%d" % number, delay=delay)
        due_ms = last.store_timestamp_ms + HOUR_MS
        assert Delivery(store).step(store, due_ms) == 100
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        delivery = Delivery(store)
        assert delivery.step(store, due_ms) == 0
        assert delivery.step(store, due_ms + HOUR_MS) == 100
        numbers = [int(body) for body in bodies(store)]
        assert numbers == [*range(0, 200, 2), *range(1, 200, 2)]
        assert delay_offsets(store) == {"1": 100, "2": 100}


def test_the_writer_delivers_by_itself(tmp_path: Path) -> None:
    quick = {**TINY, "delivery": True, "message_delay_level": "1s"}
    with mqstore.open(tmp_path, "a", config=quick) as store, store.group("g") as group:
        store.append("orders", b"later", delay=1)
        (message,) = group.poll("orders", timeout_s=60)
        waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
        assert waited_ms >= 1000
    with mqstore.open(tmp_path) as reader:
        assert bodies(reader) == [b"later"]
    assert mqstore.verify(tmp_path).ok


class AppendsBeforeItReads:
    """A store in which another thread appends a delayed message before the first read."""

    def __init__(self, store: mqstore.Store) -> None:
        self._store = store
        self._appended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, *args: Any, **more: Any) -> mqstore.ReadResult:
        if not self._appended:
            threading.Event().wait(0.01)
            self._store.append("orders", b"1", delay=3600)
            self._appended = True
        return self._store.read(*args, **more)


def test_a_message_that_is_stored_during_a_step_waits_its_time(store: mqstore.Store) -> None:
    assert Delivery(store).step(AppendsBeforeItReads(store)) == 0  # type: ignore[arg-type]


def test_a_clock_that_was_set_back_holds_nothing_longer(store: mqstore.Store) -> None:
    sent = store.append("orders", b"1", delay=3600)
    assert Delivery(store).step(store, sent.store_timestamp_ms - 1) == 1


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (1800, "got 0:30:00; the next longer one is 1:00:00, and message_delay_level sets others"),
        (timedelta(days=1), "got 1 day, 0:00:00; message_delay_level sets others"),
        (-1, "expected 0 s or more, got -1.0 s"),
    ],
)
def test_a_delay_that_is_no_level_is_refused(
    store: mqstore.Store, delay: float, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"^delay: .*{expected}"):
        store.append("orders", b"", delay=delay)
    with pytest.raises(TypeError, match=r"^delay: expected a timedelta or a number of seconds"):
        store.append("orders", b"", delay="1h")  # type: ignore[arg-type]
    assert store.topics() == []


@pytest.mark.parametrize(
    ("topic", "more", "expected"),
    [
        ("a b", {}, "^topic: expected a name that a broker accepts, got 'a b'"),
        ("t", {"delay_level": 1}, "^delay_level: expected none beside delay, got 1"),
        ("t", {"properties": b""}, "^properties: expected a mapping beside delay, got bytes"),
        ("t", {"queue_id": -1}, "^queue_id: expected 0 or more, got -1"),
    ],
)
def test_a_delay_that_cannot_be_delivered_is_refused_at_once(
    store: mqstore.Store, topic: str, more: dict[str, Any], expected: str
) -> None:
    with pytest.raises(mqstore.InvalidMessageError, match=expected):
        store.append(topic, b"", delay=3600, **more)
    assert store.topics() == []


def test_a_writer_that_delivers_nothing_refuses_delays(tmp_path: Path) -> None:
    with (
        mqstore.open(tmp_path, "a", config={**TINY, "delivery": False}) as store,
        pytest.raises(mqstore.ConfigError, match=r"StoreConfig\(delivery=True\)"),
    ):
        store.append("orders", b"", delay=1)


def test_a_message_that_says_no_topic_is_told_and_skipped(
    store: mqstore.Store,
) -> None:
    sent = store.append(SCHEDULE_TOPIC, b"lost", delay_level=1)
    store.append("orders", b"kept", delay=3600)
    assert Delivery(store).step(store, sent.store_timestamp_ms + 2 * HOUR_MS) == 1
    assert "expected REAL_TOPIC and REAL_QID of another topic, got none" in store.warnings[0]
    assert bodies(store) == [b"kept"]


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"x":0}}',
        '{"dataVersion":{"counter":"x"}}',
        '{"dataVersion":[]}',
        "[]",
    ],
)
def test_offsets_that_cannot_be_read_stop_the_opening(tmp_path: Path, text: str) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW):
        pass
    path = tmp_path / "config" / "delayOffset.json"
    path.write_text(text)
    with pytest.raises(mqstore.CorruptionError, match="expected an offsetTable of levels"):
        mqstore.open(tmp_path, "a", config=SLOW)
    with mqstore.open(tmp_path, "a", config=TINY):
        pass


def test_a_message_that_its_topic_refuses_holds_no_other(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={**TINY, "delivery": True}) as store:
        store.append("mail", b"far", queue_id=5000, delay=1)
        store.append("mail", b"ok", delay=1)
        store.append("mail", b"later", delay=5)
        newest = max(message.store_timestamp_ms for message in store.scan())
        Delivery(store).step(store, newest + 5000)
        assert sorted(message.body for message in store.read("mail", 0, 0).messages) == [
            b"later",
            b"ok",
        ]
        assert any("refuses it" in warning for warning in store.warnings)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_message_of_the_broker_s_own_topics_is_not_delayed(tmp_path: Path, topic: str) -> None:
    with mqstore.open(tmp_path, "a", config={**TINY, "delivery": True}) as store:
        with pytest.raises(
            mqstore.InvalidMessageError, match="expected a topic whose messages can be delayed, got"
        ):
            store.append(topic, b"", delay=1)
        assert store.max_physical_offset == 0


def test_the_delay_levels_are_the_store_s(tmp_path: Path) -> None:
    """A reader sends failures back, and a later writer delivers them, by the same levels."""
    config = {**SLOW, "message_delay_level": "1h 90m 1d"}
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append("orders", b"tomorrow", delay=timedelta(days=1))
        store.append("jobs", b"fails")
        with mqstore.open(tmp_path) as reader, reader.group("g") as group:
            assert reader.config.message_delay_level == "1h 90m 1d"
            (message,) = group.poll("jobs")
            assert group.nack(message, delay_s=80 * 60)
        wait_for_notes(store)
    with mqstore.open(tmp_path, "r+", config={"delivery": True}) as store:
        assert store.warnings == []
        levels = sorted(message.delay_level for message in store.topic(SCHEDULE_TOPIC))
        assert levels == [2, 3]
        (tomorrow,) = [
            message for message in store.topic(SCHEDULE_TOPIC) if message.body == b"tomorrow"
        ]
        delivery = Delivery(store)
        assert delivery.step(store, tomorrow.store_timestamp_ms + 23 * HOUR_MS) == 1
        assert bodies(store) == []
        assert delivery.step(store, tomorrow.store_timestamp_ms + 24 * HOUR_MS) == 1
        assert bodies(store) == [b"tomorrow"]


def test_other_delay_levels_are_told_and_kept(tmp_path: Path) -> None:
    mqstore.open(tmp_path, "a", config=SLOW).close()
    with mqstore.open(tmp_path, "r+", config={**SLOW, "message_delay_level": "5s"}) as store:
        (warning,) = store.warnings
        assert 'message_delay_level was "1h 2h" and is "5s" now' in warning
    with mqstore.open(tmp_path, "r+") as store:
        assert (store.config.message_delay_level, store.warnings) == ("5s", [])


def test_a_note_with_a_level_that_the_writer_lacks_takes_its_longest(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        store.append("jobs", b"fails")
        levels = {"message_delay_level": "1s 2s 3s 4s 5s"}
        with mqstore.open(tmp_path, config=levels) as reader, reader.group("g") as group:
            (message,) = group.poll("jobs")
            group.nack(message)
        wait_for_notes(store)
        (waiting,) = store.topic(SCHEDULE_TOPIC)
        assert (waiting.delay_level, waiting.queue_id) == (2, 1)


@pytest.mark.parametrize(
    ("times", "topic"), [(2**31 - 1, "%DLQ%g"), (-5, SCHEDULE_TOPIC)], ids=["most", "negative"]
)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_message_with_any_count_is_sent_back(
    tmp_path: Path, mode: Literal["r", "r+"], times: int, topic: str
) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        store.append_many([mqstore.Message("jobs", b"fails", reconsume_times=times)])
        with mqstore.open(tmp_path) as reader:
            group = (reader if mode == "r" else store).group("g")
            (message,) = group.poll("jobs")
            assert group.nack(message)
            wait_for_notes(store)
            assert bodies(store, topic) == [b"fails"]
        assert store.warnings == []


def test_messages_that_cannot_be_delivered_hold_no_other(store: mqstore.Store) -> None:
    for topic, queue_id in [("orders", "-1"), (SCHEDULE_TOPIC, "0"), ("a b", "0")]:
        properties = {"REAL_TOPIC": topic, "REAL_QID": queue_id}
        store.append(SCHEDULE_TOPIC, b"never", delay_level=1, properties=properties)
    store.append("orders", b"same level", delay=3600)
    sent = store.append("orders", b"other level", delay=7200)
    assert Delivery(store).step(store, sent.store_timestamp_ms + 2 * HOUR_MS) == 2
    assert sorted(bodies(store)) == [b"other level", b"same level"]


def test_notes_that_cannot_be_taken_hold_no_other(
    tmp_path: Path, store: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mqstore.failed" / "0.json").mkdir(parents=True)
    (tmp_path / "mqstore.failed" / "1.json").write_text("[" * 99_999)
    store.append("jobs", b"fails")
    with mqstore.open(tmp_path) as reader, reader.group("g") as group:
        (message,) = group.poll("jobs")
        assert group.nack(message)
    wait_until(lambda: any("0.json" in warning for warning in store.warnings))
    wait_for_notes(store)
    assert bodies(store, SCHEDULE_TOPIC) == [b"fails"]
    assert "1.json: no note of failed messages" in caplog.text


class IsLate(AppendsBeforeItReads):
    """A store on a disk so slow that each append ends before it is durable."""

    def read(self, *args: Any, **more: Any) -> mqstore.ReadResult:
        return self._store.read(*args, **more)

    def append_many(self, messages: list[mqstore.Message]) -> None:
        results = self._store.append_many(messages[:1])
        error = mqstore.FlushTimeoutError("stored, not durable yet", results[0], 1)
        vars(error)["results"] = results
        raise error


def test_messages_that_are_late_to_become_durable_are_delivered_once(
    tmp_path: Path, store: mqstore.Store
) -> None:
    for number in range(3):
        sent = store.append("orders", b"%d" % number, delay=3600)
    late: Any = IsLate(store)
    delivery = Delivery(store)
    for _ in range(2):
        delivery.step(late, sent.store_timestamp_ms + HOUR_MS)
    assert bodies(store) == [b"0", b"1", b"2"]
    store.append_many([mqstore.Message("jobs", b"fails")] * 2)
    messages = list(store.topic("jobs"))
    assert send_back(late, "g", [Failed(message, 0) for message in messages]) == 2
    assert bodies(store, "%DLQ%g") == [b"fails", b"fails"]


def test_messages_of_levels_that_are_gone_are_delivered(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        sent = store.append("orders", b"two hours", delay=7200)
    with mqstore.open(tmp_path, "a", config={**SLOW, "message_delay_level": "1h"}) as store:
        delivery = Delivery(store)
        assert delivery.step(store, sent.store_timestamp_ms + HOUR_MS - 1) == 0
        assert delivery.step(store, sent.store_timestamp_ms + HOUR_MS) == 1
        assert bodies(store) == [b"two hours"]


def test_a_topic_that_fails_delivers_nothing_twice(tmp_path: Path, store: mqstore.Store) -> None:
    (tmp_path / "consumequeue" / "bad").write_bytes(b"")
    for topic, body in [("orders", b"1"), ("bad", b"2"), ("orders", b"3")]:
        sent = store.append(topic, body, delay=3600)
    delivery = Delivery(store)
    for _ in range(3):
        with pytest.raises(mqstore.StoreIOError, match="bad"):
            delivery.step(store, sent.store_timestamp_ms + HOUR_MS)
        assert bodies(store) == [b"1"]
    (tmp_path / "consumequeue" / "bad").unlink()
    assert delivery.step(store, sent.store_timestamp_ms + HOUR_MS) == 2
    assert (bodies(store), bodies(store, "bad")) == ([b"1", b"3"], [b"2"])


class TakesTwo(AppendsBeforeItReads):
    """A store that has room for two messages."""

    def append_many(self, messages: list[mqstore.Message]) -> None:
        results = self._store.append_many(messages[:2])
        error = mqstore.StoreIOError("append: no space left", None, "commitlog", "write")
        vars(error)["results"] = results
        raise error


def test_a_note_that_fails_in_its_middle_is_taken_on_from_there(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store, mqstore.open(tmp_path) as reader:
        store.append("jobs", b"fails")
        (message,) = store.topic("jobs")
        send_back(reader, "g", [Failed(message, level) for level in (1, 2, 0)])
        errors: list[Exception] = []
        full: Any = TakesTwo(store)
        assert take_mail(full, errors) == 0
        assert [str(error) for error in errors] == ["append: no space left"]
        assert take_mail(store, errors) == 1
        assert len(bodies(store, SCHEDULE_TOPIC)) == 2
        assert len(bodies(store, "%DLQ%g")) == 1
        assert list((tmp_path / "mqstore.failed").iterdir()) == []


def test_a_note_that_may_not_be_durable_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    write = failed._write_note

    def write_and_fail(note: Path, content: Any) -> None:
        write(note, content)
        calls.append(note)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(failed, "_write_note", write_and_fail)
    with mqstore.open(tmp_path, "a", config=TINY) as store, mqstore.open(tmp_path) as reader:
        store.append("jobs", b"fails")
        with reader.group("g") as group:
            (message,) = group.poll("jobs")
            with pytest.raises(mqstore.StoreIOError, match="the message stays in flight"):
                group.nack(message)
            assert list((tmp_path / "mqstore.failed").iterdir()) == []
            assert group.ack(message)
    assert len(calls) == 1


def test_a_note_of_no_group_is_set_aside(tmp_path: Path, store: mqstore.Store) -> None:
    folder = tmp_path / "mqstore.failed"
    folder.mkdir()
    (folder / "1-1.json").write_text('{"group":"\\ud800","messages":[]}')
    wait_until((folder / "1-1.bad").exists)
    assert store.warnings == []


def test_a_place_outside_of_its_queue_is_told(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        store.append("orders", b"skipped", delay=3600)
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{"1":999}}')
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        wait_until(lambda: delay_offsets(store) == {"1": 1})
        (warning,) = store.warnings
        assert "has entry 999, the queue has 0 to 1: nothing outside of it" in warning


def test_delivery_that_ends_by_a_defect_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr("mqstore.groups.delays.take_mail", fail)
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        wait_until(lambda: bool(store.warnings))
        (warning,) = store.warnings
        assert "ended until the store is opened again: RuntimeError('a defect')" in warning
