"""Errors, brokers and kills between the steps of a consumer group lose and repeat nothing."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import mqstore
from helpers.stores import TINY
from helpers.users import GID, UID, give, open_folder, run_as
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOMY: dict[str, Any] = {
    **TINY,
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "delivery": True,
    "message_delay_level": "0s 0s 0s 0s 0s",
}
# A process that locks what a broker locks, until its standard input ends.
BROKER = """
import fcntl, sys
lock = open(sys.argv[1], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "store", "a", config=ROOMY) as store:
        for topic, number in itertools.product("tu", range(20)):
            store.append(topic, b"%d" % number, tags="odd" if number % 2 else "even")
        with store.group("g") as group:
            group.poll("t", max_messages=1)
            group.poll("u", max_messages=1)
        yield store


@pytest.fixture
def reader(store: mqstore.Store) -> Iterator[mqstore.Store]:
    """A second handle, which stands for another process; no writer is there."""
    store.close()
    with mqstore.open(store.path) as reader:
        yield reader


@contextmanager
def broker(store: mqstore.Store) -> Iterator[None]:
    command = [sys.executable, "-c", BROKER, Path(store.path, "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate()


@contextmanager
def no_commit(store: mqstore.Store) -> Iterator[None]:
    hinders = Path(store.path, "config", "consumerOffset.json.tmp")
    hinders.mkdir()
    yield
    hinders.rmdir()


def kill(group: mqstore.ConsumerGroup) -> None:
    group._places.close()


def numbers(messages: list[mqstore.StoredMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def left(store: mqstore.Store, topic: str = "t") -> list[int]:
    with store.group("g") as group:
        return sorted(numbers(group.poll(topic, max_messages=1000)))


def committed(store: mqstore.Store) -> int:
    return {at.topic: at.queue_offset for at in store.groups()["g"]}["t"]


def set_offset(store: mqstore.Store, queue_offset: int) -> None:
    """Moves the group as a broker's consumers do."""
    path = Path(store.path, "config", "consumerOffset.json")
    table = json.loads(mqstore.read_config_json(path))
    table["offsetTable"]["t@g"] = {"0": queue_offset}
    table["dataVersion"]["counter"] += 1
    table.pop("mqstoreDone", None)
    path.write_text(json.dumps(table))


def overtaken(root: Path, queue_of: Callable[[int], int], places: dict[int, int]) -> set[int]:
    """Retention overtakes a group, whose poll raises; the queues that others get messages of."""
    with mqstore.open(root, "a", config={**TINY, "mapped_file_size_commit_log": 4096}) as store:
        for number in range(30):
            store.append("t", b"%d" % number + b" " * 300, queue_id=queue_of(number))
        with store.group("g") as group:
            for queue_id, queue_offset in places.items():
                group.seek("t", queue_id, queue_offset)
            group.commit()
    min((root / "commitlog").iterdir()).unlink()
    with (
        mqstore.open(root) as one,
        mqstore.open(root) as other,
        one.group("g") as group,
        other.group("g") as second,
    ):
        with pytest.raises(mqstore.OffsetOutOfRangeError):
            group.poll("t", on_loss="error")
        return {message.queue_id for message in second.poll("t")}


@pytest.mark.parametrize("end", ["ack", "close"])
def test_a_commit_that_failed_is_not_made_up(
    reader: mqstore.Store, end: Literal["ack", "close"]
) -> None:
    killed = reader.group("g")
    assert killed.ack(killed.poll("t", max_messages=1))
    kill(killed)
    with reader.group("g") as group:
        group.poll("t", max_messages=5)
        with broker(reader), pytest.raises(mqstore.UnsupportedError):
            group.commit()
        if end == "ack":
            assert group.ack(group.poll("u", max_messages=1))
    assert left(reader) == list(range(1, 20))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_late_first_commit_passes_nothing_in_flight(
    store: mqstore.Store, *, is_killed: bool
) -> None:
    for number in range(10):
        store.append("v", b"%d" % number)
    group = store.group("g")
    with no_commit(store):
        assert len(group.poll("v", max_messages=3)) == 3
    group.poll("t", max_messages=1)
    group.poll("v", max_messages=2)
    kill(group) if is_killed else group.close()
    assert left(store, "v") == list(range(10))


def test_the_latest_place_is_known_to_the_next_process(store: mqstore.Store) -> None:
    store.append("v", b"0")
    group = store.group("new", begin="latest")
    for number in (1, 2):
        store.append("v", b"%d" % number)
    with no_commit(store):
        first, second = group.poll("v")
        with pytest.raises(mqstore.StoreIOError):
            group.ack(first)
    assert group.ack(first)
    kill(group)
    with store.group("new", begin="latest") as group:
        assert group.poll("v") == [second]


def test_acknowledgements_behind_a_seek_survive(store: mqstore.Store) -> None:
    group = store.group("g")
    group.seek("t", 0, 8)
    (message, *_) = group.poll("t", max_messages=3)
    assert group.ack(message)
    kill(group)
    assert left(store) == list(range(9, 20))


def test_a_commit_that_removes_one_file_of_two(store: mqstore.Store) -> None:
    group, acks = store.group("g"), Path(store.path, "mqstore.acks")
    of_t, of_u = group.poll("t", max_messages=5), group.poll("u", max_messages=5)
    assert group.ack(of_t[1])
    (first,) = acks.iterdir()
    assert group.ack(of_u[1])
    (second,) = set(acks.iterdir()) - {first}
    with group._lock:  # the commit by time waits
        second.unlink()
        second.mkdir()
        group._commit_progress()
        second.rmdir()
        assert group.ack(of_t[3])
        kill(group)
    assert left(store) == [0, 2, *range(4, 20)]


def test_the_iterator_passes_over_what_others_did_meanwhile(store: mqstore.Store) -> None:
    with store.group("g") as group, mqstore.open(store.path) as reader:
        messages = group.messages("t")
        assert group.ack(next(messages))
        with reader.group("g") as other:
            found = other.poll("t", max_messages=6)
            assert other.ack([found[2], found[4]])
        assert [int(next(messages).body) for _ in range(4)] == [1, 2, 4, 6]


def test_the_iterator_counts_a_message_before_it_waits(store: mqstore.Store) -> None:
    with store.group("g") as group:
        group.seek("t", 0, 18)
        threading.Thread(target=lambda: list(group.messages("t")), daemon=True).start()
        wait_until(lambda: committed(store) == 20)


@pytest.mark.parametrize("held", [False, True])
def test_a_group_that_a_broker_moved_goes_not_back(reader: mqstore.Store, *, held: bool) -> None:
    with reader.group("g") as group:
        messages = group.poll("t", max_messages=5)
        assert group.ack(messages[: 5 - held])
        set_offset(reader, 15)
        group.lag()
        group.poll("u", max_messages=1)
        if held:
            group._commit_progress()
            assert group.ack(messages[-1])
    assert committed(reader) == 15


def test_a_commit_that_failed_goes_not_back_behind_a_broker(reader: mqstore.Store) -> None:
    with reader.group("g") as group:
        group.poll("t", max_messages=3)
        group.commit()
        group.poll("t", max_messages=2)
        set_offset(reader, 15)
        with no_commit(reader), pytest.raises(mqstore.StoreIOError):
            group.commit()
        group.commit()
        assert committed(reader) == 15
    assert committed(reader) == 15


def test_a_queue_that_is_taken_again_goes_not_back_behind_a_broker(reader: mqstore.Store) -> None:
    with reader.group("g") as group:
        places = group._places
        places.take("t", 0)
        places.advance("t", 0, 3, [], 3)
        places.commit()
        set_offset(reader, 10)
        places.advance("t", 0, 5, [], 5)
        places.commit()
        table = Path(reader.path, "config", "consumerOffset.json")
        # A file that was just written is read each time.
        wait_until(lambda: time.time() - table.stat().st_ctime > 1.5)
        group.lag()
        places.release("t", 0)
        assert places.take("t", 0) == 10
    assert committed(reader) == 10


def test_a_reset_brings_again_what_was_acknowledged_before(reader: mqstore.Store) -> None:
    killed = reader.group("g")
    assert killed.ack(killed.poll("t", max_messages=10))
    kill(killed)
    set_offset(reader, 18)
    set_offset(reader, 3)
    assert left(reader) == list(range(3, 20))


def test_a_queue_without_messages_in_flight_is_free(store: mqstore.Store) -> None:
    with mqstore.open(store.path) as reader, reader.group("g") as other, store.group("g") as group:
        assert group.poll("t", tags="none") == []
        store.append("t", b"20")
        assert numbers(other.poll("t", timeout_s=30)) == [20]
        late = group.poll("u", max_messages=2, visibility_s=0)
        group.commit()
        assert numbers(other.poll("u", timeout_s=30)) == [*numbers(late), *range(2, 20)]


def test_a_queue_of_returned_messages_is_free(store: mqstore.Store) -> None:
    stop = threading.Event()

    def handle(_: mqstore.StoredMessage) -> None:
        stop.set()

    with mqstore.open(store.path) as reader, reader.group("g") as other, store.group("g") as group:
        (first,) = group.poll("t", max_messages=1)
        group.process("t", handle, max_messages=5, stop=stop)
        assert group.ack(first)
        assert numbers(other.poll("t", timeout_s=30)) == list(range(2, 20))
        for queue_id in (0, 1):
            store.append("two", b"%d" % queue_id, queue_id=queue_id)
        held = next(group.messages("two")).body
        assert [one.body for one in other.poll("two", timeout_s=30)] == [b"01".strip(held)]


def test_a_late_message_gives_no_queue_in_hand_away(store: mqstore.Store) -> None:
    handled: list[int] = []

    def handle(message: mqstore.StoredMessage) -> None:
        handled.append(int(message.body))
        # The handler's own answer: only the late message waits then.
        assert group.ack(message)

    with mqstore.open(store.path) as reader, reader.group("g") as other, store.group("g") as group:
        (late,) = group.poll("t", max_messages=1, visibility_s=0)
        group.process("t", handle, max_messages=3, idle_s=0)
        assert sorted(handled) == list(range(20))
        assert not group.ack(late)
        store.append("t", b"20")
        assert numbers(other.poll("t", timeout_s=30)) == [20]


def test_a_closed_store_holds_no_queue(store: mqstore.Store) -> None:
    group = store.group("g")
    first, *_ = group.poll("t", max_messages=3)
    assert group.ack(first)
    store.close()
    with mqstore.open(store.path) as reader:
        assert left(reader) == list(range(1, 20))
    group.close()


def test_deleted_messages_that_raise_leave_the_queue_to_others(tmp_path: Path) -> None:
    assert overtaken(tmp_path, lambda _: 0, {0: 1}) == {0}


def test_process_repeats_a_message_whose_acknowledgement_failed(store: mqstore.Store) -> None:
    acks, handled = Path(store.path, "mqstore.acks"), []

    def handle(message: mqstore.StoredMessage) -> None:
        if not handled:
            acks.rmdir()
            acks.touch()
        handled.append(int(message.body))

    with store.group("g") as group:
        assert group.ack(group.poll("u", max_messages=1))
        group.commit()
        with pytest.raises(mqstore.StoreIOError):
            group.process("t", handle, idle_s=0)
        acks.unlink()
        group.process("t", handle, idle_s=0)
    assert handled == [0, *range(20)]


def test_a_failure_is_sent_back_once_though_its_acknowledgement_failed(
    store: mqstore.Store,
) -> None:
    acks, handled = Path(store.path, "mqstore.acks"), []

    def handle(message: mqstore.StoredMessage) -> None:
        handled.append((message.topic, int(message.body)))
        if len(handled) == 1:
            acks.rmdir()
            acks.touch()
            raise ValueError

    with store.group("g") as group:
        assert group.ack(group.poll("u", max_messages=1))
        group.commit()
        with pytest.raises(mqstore.StoreIOError):
            group.process("t", handle, max_messages=1, idle_s=0)
        acks.unlink()
        group.process("t", handle, idle_s=1)
    assert sorted(number for _, number in handled) == [0, 0, *range(1, 20)]


def test_an_acknowledgement_that_a_full_disk_cut_counts_for_nothing(reader: mqstore.Store) -> None:
    group = reader.group("g")
    messages = group.poll("t", max_messages=10)
    assert group.ack(messages[9])
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (28 * 6 + 10, limits[1]))
    try:
        with pytest.raises(mqstore.StoreIOError):
            group.ack(messages[1:9])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert group.ack(messages[8])
    kill(group)
    assert left(reader) == [*range(8), *range(10, 20)]


def test_an_answer_to_an_earlier_delivery_changes_nothing(store: mqstore.Store) -> None:
    with store.group("g") as group:
        (late,) = group.poll("t", max_messages=1, visibility_s=0)
        (again,) = group.poll("t", max_messages=1)
        assert late == again
        assert not group.ack(late)
        assert not group.nack(late)
        assert group.ack([again, again])


@pytest.mark.parametrize("answer", ["ack", "nack", "skip", "give_back"])
@pytest.mark.parametrize("topic", ["t", "w"])
def test_another_store_s_message_is_not_in_flight(
    tmp_path: Path, store: mqstore.Store, answer: str, topic: str
) -> None:
    """It may lie at the same offset of the log, with the same time and body."""
    own = store.get(store.min_physical_offset)
    with mqstore.open(tmp_path / "other", "a", config=ROOMY) as other, store.group("h") as group:
        times = {name: getattr(own, name) for name in ("store_timestamp_ms", "born_timestamp_ms")}
        body = b"1" if topic == "t" else own.body
        other.append_many([mqstore.Message(topic, body, tags="even", **times)])
        given = other.get(0)
        assert given.physical_offset == own.physical_offset
        assert len(given.record) == len(own.record)
        (taken,) = group.poll("t", max_messages=1)
        assert getattr(group, answer)([given] if answer == "give_back" else given) in (False, None)
        assert group.ack([given]) is False
        assert group.ack(taken) is True


def test_nack_beside_a_broker_writes_no_retry(reader: mqstore.Store) -> None:
    with reader.group("g") as group:
        (message,) = group.poll("t", max_messages=1)
        with broker(reader), pytest.raises(mqstore.UnsupportedError):
            group.nack(message)
        assert not list(Path(reader.path).glob("mqstore.failed/*.json"))
        assert group.nack(message)
    assert len(list(Path(reader.path).glob("mqstore.failed/*.json"))) == 1


def test_a_filter_beside_a_broker_says_nothing(
    reader: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(reader), reader.group("g") as group:
        assert group.poll("t", tags="none") == []
        group._expire_late()
        assert group.poll("t", tags="none") == []
        for topic in "tu" * 3:
            assert group.poll(topic, tags="none") == []
            group._expire_late()
    assert not caplog.records


def test_an_error_of_a_later_queue_leaves_the_earlier_ones_to_others(tmp_path: Path) -> None:
    assert overtaken(tmp_path, lambda number: int(number < 15), {0: 0, 1: 1}) == {0, 1}


def test_a_timer_that_cannot_begin_loses_no_later_one(
    store: mqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with store.group("g") as group:
        first, second, _ = group.poll("t", max_messages=3)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Timer, "start", start)
            assert group.ack(first)
        assert group.ack(second)
        wait_until(lambda: committed(store) == 2)


def test_a_commit_by_time_that_failed_is_tried_again(store: mqstore.Store) -> None:
    with store.group("g") as group:
        first, *_ = group.poll("t", max_messages=2)
        with no_commit(store):
            assert group.ack(first)
            wait_until(lambda: group._timer is not None and group._timer.interval > 2)
        wait_until(lambda: committed(store) == 1)


def test_a_commit_within_a_handler_keeps_its_batch(store: mqstore.Store) -> None:
    def handle(_: mqstore.StoredMessage) -> None:
        group.commit()
        kill(group)
        raise KeyboardInterrupt

    group = store.group("g")
    with suppress(KeyboardInterrupt, mqstore.StoreClosedError):
        group.process("t", handle)
    assert left(store) == list(range(20))


def test_a_light_queue_is_handled_to_its_end(tmp_path: Path) -> None:
    config = {**ROOMY, "enable_lmq": True, "enable_multi_dispatch": True}
    with mqstore.open(tmp_path, "a", config=config) as store:
        for number in range(10):
            store.append("t", b"%d" % number, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        with store.group("g") as group:
            assert group.process("%LMQ%a", bool, max_messages=3, idle_s=0).handled == 10
        both = store.group("both")
        (first, second) = both.poll("t", max_messages=2)
        assert both.poll("%LMQ%a") == []
        assert both.ack(first)
        assert both.poll("%LMQ%a", max_messages=3) == [first]
        assert both.ack(second)
        kill(both)
        with store.group("both") as both:
            assert numbers(both.poll("%LMQ%a", max_messages=2)) == [0, 1]
            assert numbers(both.poll("t", max_messages=2)) == [2, 3]


def test_a_place_that_cannot_be_written_is_kept_in_memory() -> None:
    with open_folder() as folder:
        with mqstore.open(folder / "store", "a", config=ROOMY) as store:
            store.append_many(("t", b"%d" % number) for number in range(20))
        give(folder / "store", 0, 0, 0o755)
        code = """
with mqstore.open("store") as store, store.group("g") as group:
    print(group.ack(group.poll("t", max_messages=3)))
    print(*(message.body for message in group.poll("t", max_messages=2)))
"""
        status, printed = run_as(UID, GID, code, folder)
    assert status == 1
    assert printed.startswith("True\nb'3' b'4'\n")
    # The acknowledgements could not be kept.
    assert "Permission denied" in printed
