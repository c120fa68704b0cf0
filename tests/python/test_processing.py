"""Consumer groups that share queues: acknowledgement, retries, dead letters, killed consumers."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.consumers import Consumers
from helpers.stores import TINY
from helpers.waiting import wait_for_notes, wait_until
from mqstore.groups.delays import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOW: dict[str, Any] = {**TINY, "delivery": True, "message_delay_level": "1h 2h 3h 4h"}
HOUR_MS = 3_600_000
FAR_MS = 2**42
SEED = int(os.environ.get("MQSTORE_SEED", "23"))
KILLS = int(os.environ.get("MQSTORE_CONSUMER_KILLS", "15"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        for number in range(6):
            store.append("orders", b"%d" % number, queue_id=number % 2, tags="t", keys=f"k{number}")
        yield store


def bodies(messages: list[mqstore.StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def committed(store: mqstore.Store, group: str = "g") -> dict[tuple[str, int], int]:
    offsets = store.groups().get(group, [])
    return {(at.topic, at.queue_id): at.queue_offset for at in offsets}


def deliver(store: mqstore.Store) -> None:
    """As if a long time had passed, once the writer's thread has taken what readers left."""
    wait_for_notes(store)
    newest = max(message.store_timestamp_ms for message in store.scan())
    Delivery(store).step(store, newest + 4 * HOUR_MS)


def test_an_offset_moves_when_the_last_message_is_acknowledged(
    store: mqstore.Store,
) -> None:
    with store.group("g") as group:
        first, second, third = group.poll("orders", max_messages=3)
        assert group.ack(second)
        assert group.ack(first)
        assert not group.ack(first)
        assert group.ack(third)
        assert not group.ack([first, third])
        wait_until(lambda: committed(store) == {("orders", 0): 3})


def test_a_crash_brings_back_what_was_in_flight(store: mqstore.Store) -> None:
    with store.group("g") as group:
        first, *_ = group.poll("orders", max_messages=2)
        group.ack(first)
    with store.group("g") as group:
        assert bodies(group.poll("orders", max_messages=2)) == [b"2", b"4"]


def test_two_handles_share_queues(tmp_path: Path, store: mqstore.Store) -> None:
    store.wait_dispatched()
    with (
        mqstore.open(tmp_path, config=TINY) as reader,
        store.group("g") as one,
        reader.group("g") as other,
    ):
        mine = one.poll("orders", max_messages=1)
        theirs = other.poll("orders")
        assert (bodies(mine), bodies(theirs)) == ([b"0"], [b"1", b"3", b"5"])
        with pytest.raises(mqstore.StoreLockedError, match="another consumer has queue 0"):
            other.seek("orders", 0, 0)
        for message in (*mine, *theirs):
            assert (one if message in mine else other).ack(message)
        assert bodies(other.poll("orders")) == [b"2", b"4"]
        wait_until(lambda: committed(store) == {("orders", 0): 1, ("orders", 1): 3})


def test_a_message_not_acknowledged_in_time_comes_again_elsewhere(
    tmp_path: Path, store: mqstore.Store
) -> None:
    store.wait_dispatched()
    with (
        mqstore.open(tmp_path, config=TINY) as reader,
        store.group("g") as slow,
        reader.group("g") as other,
    ):
        late, *_ = slow.poll("orders", max_messages=3, visibility_s=0.02)
        found: list[bytes] = []
        while len(found) < 6:
            found += bodies(other.poll("orders", timeout_s=60))
        assert sorted(found) == [b"%d" % number for number in range(6)]
        assert not slow.ack(late)
        assert not slow.nack(late)


def test_an_iterator_s_message_can_be_acknowledged(store: mqstore.Store) -> None:
    with store.group("g") as group:
        messages = group.messages("orders")
        for _ in range(4):
            assert group.ack(next(messages))
    assert sum(committed(store).values()) == 4


def test_bounds_of_seek(store: mqstore.Store) -> None:
    with store.group("g") as group:
        group.seek("orders", 0, 3)
        for queue_id, offset, bounds in ((0, 4, "0 to 3"), (7, 1, "0 to 0")):
            with pytest.raises(
                mqstore.InvalidMessageError, match=f"expected {bounds}, got {offset}"
            ):
                group.seek("orders", queue_id, offset)
        group.commit()
    assert committed(store) == {("orders", 0): 3}


def test_a_failed_message_goes_the_way_of_a_broker(store: mqstore.Store) -> None:
    """``AbstractSendMessageProcessor#consumerSendMsgBack``, field by field."""
    with store.group("g") as group:
        message, *_ = group.poll("orders", max_messages=1)
        assert group.nack(message)
        assert not group.nack(message)
        (waiting,) = store.topic("SCHEDULE_TOPIC_XXXX")
        assert (waiting.queue_id, waiting.delay_level, waiting.reconsume_times) == (2, 3, 1)
        deliver(store)
        (retry,) = group.poll(group.retry_topic)
    assert (retry.topic, retry.queue_id, retry.body) == ("%RETRY%g", 0, message.body)
    assert (retry.reconsume_times, retry.tags, retry.keys) == (1, "t", ("k0",))
    expected = {
        **message.properties,
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": message.message_id,
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert retry.properties == expected
    with store.group("g") as group:
        (again,) = group.poll(group.retry_topic)
        assert group.nack(again, delay_s=HOUR_MS / 1000 + 1)
        *_, waiting = store.topic("SCHEDULE_TOPIC_XXXX")
        assert (waiting.delay_level, waiting.reconsume_times) == (2, 2)
        assert waiting.properties["ORIGIN_MESSAGE_ID"] == message.message_id


def test_process_retries_and_gives_up(store: mqstore.Store) -> None:
    seen: list[tuple[str, bytes, int]] = []

    def handle(message: mqstore.StoredMessage) -> None:
        seen.append((message.topic, message.body, message.reconsume_times))
        if message.body == b"3":
            raise RuntimeError("cannot")

    with store.group("g") as group:
        done = group.process("orders", handle, max_attempts=2, idle_s=0)
        assert (done.handled, done.retried, done.dead) == (5, 1, 0)
        assert committed(store) == {("orders", 0): 3, ("orders", 1): 3}
        assert [body for _, body, _ in seen] == [b"0", b"2", b"4", b"1", b"3", b"5"]
        deliver(store)
        done = group.process("orders", handle, max_attempts=2, idle_s=0)
        assert (done.handled, done.retried, done.dead) == (0, 0, 1)
        assert seen[-1] == ("%RETRY%g", b"3", 1)
        (dead,) = store.topic(group.dead_letter_topic)
        assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"3", 2, 0)
        assert dead.properties["RETRY_TOPIC"] == "orders"
        assert group.process("orders", handle, idle_s=0) == mqstore.Processed()


def test_backoff_names_the_delay(store: mqstore.Store) -> None:
    def fail(_: mqstore.StoredMessage) -> None:
        raise RuntimeError

    with store.group("g") as group:
        group.process("orders", fail, backoff=lambda failures: failures * 3600.0, idle_s=0)
        assert {message.delay_level for message in store.topic("SCHEDULE_TOPIC_XXXX")} == {1}


@pytest.mark.parametrize("name", ["max_attempts", "concurrency", "max_messages"])
def test_numbers_below_1_are_refused(store: mqstore.Store, name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with store.group("g") as group, pytest.raises(ValueError, match=f"{name}: expected 1 or more"):
        group.process("orders", print, **options)
    with store.group("g") as group, pytest.raises(TypeError, match=f"{name}: expected an int"):
        group.process("orders", print, **{name: "4"})


def test_a_writer_that_delivers_nothing_is_told_at_once(tmp_path: Path) -> None:
    config = {**TINY, "delivery": False}
    with mqstore.open(tmp_path, "a", config=config) as store, store.group("g") as group:
        store.append("orders", b"")
        with pytest.raises(mqstore.ConfigError, match=r"StoreConfig\(delivery=True\)"):
            group.process("orders", print)
        (message,) = group.poll("orders")
        with pytest.raises(mqstore.ConfigError, match=r"StoreConfig\(delivery=True\)"):
            group.nack(message)
        assert group.ack(message)


def test_an_interrupt_keeps_what_was_done(store: mqstore.Store) -> None:
    seen: list[bytes] = []

    def handle(message: mqstore.StoredMessage) -> None:
        if message.body == b"4":
            raise KeyboardInterrupt
        seen.append(message.body)

    with store.group("g") as group:
        with pytest.raises(KeyboardInterrupt):
            group.process("orders", handle)
        assert (seen, committed(store)) == ([b"0", b"2"], {("orders", 0): 2})
        with pytest.raises(KeyboardInterrupt):
            group.process("orders", handle, concurrency=2)


def test_threads_keep_each_queue_in_order(tmp_path: Path) -> None:
    config = {
        **SLOW,
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 2000,
    }
    seen: dict[int, list[int]] = {}
    stop = threading.Event()
    count = 2000

    def handle(message: mqstore.StoredMessage) -> None:
        seen.setdefault(message.queue_id, []).append(message.queue_offset)
        if sum(map(len, seen.values())) == count:
            stop.set()

    with mqstore.open(tmp_path, "a", config=config) as store, store.group("g") as group:
        appending = threading.Thread(
            target=lambda: [store.append("orders", b"", queue_id=n % 8) for n in range(count)]
        )
        appending.start()
        done = group.process("orders", handle, concurrency=4, stop=stop)
        appending.join()
        assert done.handled == count
        assert seen == {queue_id: list(range(count // 8)) for queue_id in range(8)}
        assert sum(at.lag for at in group.lag()) == 0


def test_a_reader_hands_its_failures_to_the_writer(tmp_path: Path, store: mqstore.Store) -> None:
    def fail(_: mqstore.StoredMessage) -> None:
        raise RuntimeError

    store.wait_dispatched()
    with mqstore.open(tmp_path, config=TINY) as reader, reader.group("g") as group:
        done = group.process("orders", fail, idle_s=0)
        assert done.retried == 6
    deliver(store)
    retries = list(store.topic("%RETRY%g"))
    assert sorted(bodies(retries)) == [b"%d" % number for number in range(6)]
    assert list((tmp_path / "mqstore.failed").iterdir()) == []


def test_a_note_that_leads_nowhere_is_kept_and_told(
    tmp_path: Path, store: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "mqstore.failed"
    folder.mkdir()
    good = next(iter(store.topic("orders")))
    place = [good.physical_offset, good.topic, good.queue_id, good.queue_offset]
    rows = [{"place": [1 << 40, "orders", 0, 0], "level": 1}, {"place": place, "level": 0}]
    note = folder / "1.json"
    draft = folder / "1.tmp"
    draft.write_text(json.dumps({"version": 1, "group": "g", "messages": rows}))
    draft.rename(note)
    (folder / "2.tmp").write_text("[")
    (folder / "2.tmp").rename(folder / "2.json")
    wait_until(lambda: not note.exists() and not (folder / "2.json").exists())
    assert sorted(path.name for path in folder.iterdir()) == ["1.bad", "2.bad"]
    assert bodies(list(store.topic("%DLQ%g"))) == [good.body]
    assert "no note of failed messages" in caplog.text


CONSUMERS = """
import os, sys, mqstore
path, log, mode = sys.argv[1:4]
config = {"delivery": True, "message_delay_level": "0s 0s 0s 0s 0s"} if mode != "r" else None
log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def handle(message):
    number = int(message.body)
    failing = number % 5 == 0 and message.reconsume_times == 0
    os.write(log, b"%s%d\\n" % (b"f" if failing else b"d", number))
    if failing:
        raise RuntimeError("the first attempt fails")

def consume():
    while True:
        try:
            store = mqstore.open(path, mode, config=config)
            break
        except mqstore.StoreLockedError:
            continue  # the one that was killed is not gone yet
    with store, store.group("g") as group:
        os.write(1, b"%d\\n" % os.getpid())
        group.process("orders", handle, max_messages=4, concurrency=2)
"""
BATCH, THREADS = 4, 2
KILLED: dict[str, Any] = {
    **TINY,
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "delivery": True,
    "message_delay_level": "0s 0s 0s 0s 0s",
}


def check_counts(lines: list[bytes], appended: int, kills: int, delivered: int = 0) -> None:
    """Nothing is lost, and a kill repeats little.

    Each thread repeats its batch, a repeated failure is a retry more, and a writer delivers at most
    ``delivered`` messages again.
    """
    counts = Counter(lines)
    assert {b"d%d" % number for number in range(appended)} <= counts.keys()
    assert {b"f%d" % number for number in range(0, appended, 5)} <= counts.keys()
    repeats = sum(counts.values()) - len(counts)
    bound = (2 * BATCH * THREADS + delivered) * kills
    assert repeats <= bound, f"{appended} messages, {kills} kills, {repeats} repeats"


@pytest.mark.parametrize("seed", [SEED])
def test_killed_consumers_lose_nothing_and_repeat_little(tmp_path: Path, seed: int) -> None:
    """Consumers beside a writer are killed at random moments, counted against what was appended.

    ``MQSTORE_CONSUMER_KILLS`` sets how many kills.
    """
    choose = random.Random(seed)
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=KILLED) as store:
        store.append("orders", b"0")
        appended = 1
        consumers = Consumers(CONSUMERS, root, tmp_path / "log", "r")
        running = [consumers.start(), consumers.start()]
        for _ in range(KILLS):
            for _ in range(choose.randrange(1, 40)):
                store.append("orders", b"%d" % appended, queue_id=appended % 4)
                appended += 1
            threading.Event().wait(choose.random() * 0.05)
            os.kill(running.pop(choose.randrange(2)), signal.SIGKILL)
            running.append(consumers.start())
        expected = {b"d%d" % number for number in range(appended)}
        wait_until(lambda: expected <= set(consumers.lines()))
        for pid in running:
            os.kill(pid, signal.SIGKILL)
        consumers.close()
        check_counts(consumers.lines(), appended, KILLS + 2)
        assert list(store.topic("%DLQ%g")) == []
    assert mqstore.verify(root).ok


@pytest.mark.parametrize("seed", [SEED])
def test_a_killed_writer_that_consumes_and_delivers_loses_nothing(
    tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    root = tmp_path / "store"
    kills, appended = KILLS // 5, 40 * (KILLS // 5)
    with mqstore.open(root, "a", config=KILLED) as store:
        store.append_many(
            mqstore.Message("orders", b"%d" % number, queue_id=number % 4)
            for number in range(appended)
        )
    consumers = Consumers(CONSUMERS, root, tmp_path / "log", "r+")
    for _ in range(kills):
        pid = consumers.start()
        threading.Event().wait(choose.random() * 0.2)
        os.kill(pid, signal.SIGKILL)
    pid = consumers.start()
    expected = {b"d%d" % number for number in range(appended)}
    wait_until(lambda: expected <= set(consumers.lines()))
    os.kill(pid, signal.SIGKILL)
    consumers.close()
    check_counts(consumers.lines(), appended, kills + 1, delivered=64)
    assert mqstore.verify(root).ok


def fail(message: mqstore.StoredMessage) -> None:
    raise RuntimeError(message.message_id)


def test_a_retry_is_handled_whatever_tags_are_asked_for(store: mqstore.Store) -> None:
    store.append("mail", b"letter", tags="letter")
    with store.group("g") as group:
        assert group.process("orders", fail, tags="t", idle_s=0, max_messages=1).retried == 6
        deliver(store)
        handled: list[mqstore.StoredMessage] = []
        group.process("mail", handled.append, tags="letter", idle_s=0)
    assert sorted(bodies(handled)) == [b"0", b"1", b"2", b"3", b"4", b"5", b"letter"]


@pytest.mark.parametrize("mode", ["r+", "r"])
def test_a_message_without_room_for_a_retry_is_a_dead_letter(tmp_path: Path, mode: str) -> None:
    config: dict[str, Any] = {**SLOW, "mapped_file_size_commit_log": 1 << 20}
    with mqstore.open(tmp_path, "a", config=config) as writer:
        writer.append("t", b"big", properties={"a": "y" * 32_700})
        writer.append("t", b"next")
        reader = writer if mode == "r+" else mqstore.open(tmp_path, "r")
        with reader.group("g") as group:
            group.process("t", fail, idle_s=0)
            assert committed(reader) == {("t", 0): 2}
        wait_until(lambda: bool(writer.queues("%DLQ%g")))
        assert bodies(writer.read("%DLQ%g", 0, 0).messages) == [b"big"]
        assert bodies(writer.read("SCHEDULE_TOPIC_XXXX", 2, 0).messages) == [b"next"]
        if reader is not writer:
            reader.close()


def test_a_note_holds_its_messages_when_the_log_no_longer_does(tmp_path: Path) -> None:
    path, other = tmp_path / "store", tmp_path / "other"
    with mqstore.open(path, "a", config=TINY) as writer, mqstore.open(path, "r") as reader:
        writer.append("t", b"kept")
        with reader.group("g") as group:
            assert group.process("t", fail, idle_s=0).retried == 1
    mqstore.open(other, "a", config=SLOW).close()
    (path / "mqstore.failed").rename(other / "mqstore.failed")
    with mqstore.open(other, "a", config=SLOW) as store:
        deliver(store)
        assert bodies(store.read("%RETRY%g", 0, 0).messages) == [b"kept"]
    assert not list((other / "mqstore.failed").iterdir())


def test_each_message_in_flight_has_its_own_deadline(store: mqstore.Store) -> None:
    with store.group("g") as group:
        (first,) = group.poll("orders", max_messages=1, visibility_s=0.05)
        (second,) = group.poll("orders", max_messages=1, visibility_s=3600)
        again: list[mqstore.StoredMessage] = []

        def poll_again() -> bool:
            again.extend(group.poll("orders", max_messages=1, visibility_s=3600))
            return first in again

        wait_until(poll_again)
        assert second not in again
        assert group.ack(second)
        assert group.ack(again[-1])


def test_a_queue_is_not_held_for_a_late_message(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for body in (b"a", b"b"):
            store.append("t", body)
        reader = mqstore.open(tmp_path, "r")
        with store.group("g") as group, reader.group("g") as other:
            late, held = group.poll("t")
            group._hide([late], None, 0)
            assert other.poll("t") == []
            assert not group.ack(late)
            assert other.poll("t") == []
            assert group.ack(held)
            assert bodies(other.poll("t")) == [b"a"]
        reader.close()


def test_deadlines_of_many_polls_take_one_thread(store: mqstore.Store) -> None:
    with store.group("g") as group:
        before = threading.active_count()
        for number in range(200):
            (message,) = group.poll("orders", max_messages=1, visibility_s=3600 - number)
            assert group.nack(message) if number % 50 == 49 else True
            group.give_back([message])
        wait_until(lambda: threading.active_count() <= before + 1)


def test_process_goes_on_from_a_place_that_was_sought(store: mqstore.Store) -> None:
    with store.group("g") as group:
        handled: list[mqstore.StoredMessage] = []
        group.process("orders", handled.append, idle_s=0)
        group.seek("orders", 0, 1)
        handled.clear()
        assert group.process("orders", handled.append, idle_s=0).handled == 2
        assert bodies(handled) == [b"2", b"4"]


def test_a_refused_seek_leaves_the_queue_to_others(store: mqstore.Store) -> None:
    with store.group("g") as group, mqstore.open(store.path, "r") as reader:
        with pytest.raises(mqstore.InvalidMessageError):
            group.seek("orders", 0, -1)
        with reader.group("g") as other:
            assert len(other.poll("orders")) == 6


def test_a_store_that_is_closed_ends_the_batch_in_hand(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=SLOW)
    for _ in range(10):
        store.append("t", b"x")
    handled: list[mqstore.StoredMessage] = []

    def handle(message: mqstore.StoredMessage) -> None:
        handled.append(message)
        store.close()

    assert store.group("g").process("t", handle, idle_s=0).handled == 0
    assert len(handled) == 1
    assert mqstore.verify(tmp_path).ok


def test_a_commit_that_fails_sends_nothing_back_twice(
    store: mqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError("nothing was committed")

    with store.group("g") as group:
        monkeypatch.setattr("mqstore.groups.processing._COMMIT_S", 0)
        places = type(
            "Places", (), {"commit": refuse, "__getattr__": lambda _, name: getattr(real, name)}
        )
        real, group._places = group._places, places()
        with pytest.raises(OSError, match="nothing was committed"):
            group.process("orders", fail, idle_s=0, max_messages=1)
        group._places = real
    assert len(store.read("SCHEDULE_TOPIC_XXXX", 2, 0).messages) == 6


def test_a_note_of_which_one_message_is_refused_sends_the_others(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as writer:
        for body in (b"1", b"2", b"3"):
            writer.append("t", body)
        with mqstore.open(tmp_path, "r") as reader, reader.group("g") as group:
            group.process("t", fail, idle_s=0)
    (note,) = (tmp_path / "mqstore.failed").iterdir()
    told = json.loads(note.read_text())
    told["messages"][1]["level"] = 2**31 - 1
    told["messages"].append([])
    note.write_text(json.dumps(told))
    with mqstore.open(tmp_path, "a", config=SLOW) as store:
        wait_until(lambda: note.with_suffix(".bad").exists())
        assert bodies(store.read("SCHEDULE_TOPIC_XXXX", 2, 0).messages) == [b"1", b"3"]


def test_a_wait_may_last_for_ever(store: mqstore.Store) -> None:
    with store.group("g") as group:
        assert len(group.poll("orders", timeout_s=float("inf"))) == 6
        for wrong in (None, "1"):
            with pytest.raises(TypeError, match="timeout_s: expected"):
                group.poll("orders", timeout_s=wrong)  # type: ignore[arg-type]


def test_threads_that_cannot_start_end_the_others(
    store: mqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = threading.Thread.start, []

    def start_two(thread: threading.Thread) -> None:
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with store.group("g") as group, pytest.raises(RuntimeError, match="can't start new thread"):
        group.process("orders", bool, concurrency=3)
    assert not any(thread.is_alive() for thread in begun)
