"""A consumer group commits acknowledged messages; those in flight come again."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import mqstore
from helpers.consumers import Consumers
from helpers.stores import TINY
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = int(os.environ.get("MQSTORE_SEED", "29"))
KILLS = int(os.environ.get("MQSTORE_GROUP_KILLS", "50"))
ROOMY: dict[str, Any] = {
    **TINY,
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "delivery": True,
    "message_delay_level": "0s 0s 0s 0s 0s",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=ROOMY) as store:
        for number in range(100):
            store.append("t", b"%d" % number, tags="odd" if number % 2 else "even")
        yield store


def numbers(messages: list[mqstore.StoredMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def left(store: mqstore.Store, topic: str = "t") -> list[int]:
    """The messages that come to a group opened anew."""
    with store.group("g") as group:
        return numbers(group.poll(topic, max_messages=1000))


def committed(store: mqstore.Store) -> dict[tuple[str, int], int]:
    return {(at.topic, at.queue_id): at.queue_offset for at in store.groups().get("g", [])}


@pytest.mark.parametrize("held", [0, 40, 98])
def test_one_message_in_flight_holds_no_acknowledged_one(store: mqstore.Store, held: int) -> None:
    with store.group("g") as group:
        for number in range(99):
            (message,) = group.poll("t", max_messages=1)
            assert number == held or group.ack(message)
    assert committed(store) == {("t", 0): held}
    assert left(store) == [held, 99]


def test_closing_the_store_commits_what_its_groups_acknowledged(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=ROOMY)
    store.append_many([mqstore.Message("t", b"%d" % number) for number in range(4)])
    group = store.group("g")
    first, second, *_ = group.poll("t")
    assert group.ack(first)
    assert group.ack(second)
    store.close()
    group.close()
    with mqstore.open(tmp_path, "r") as reader:
        assert committed(reader) == {("t", 0): 2}


def test_time_commits_what_was_acknowledged(store: mqstore.Store) -> None:
    with store.group("g") as group, mqstore.open(store.path) as reader:
        messages = group.poll("t", max_messages=10)
        assert group.ack(messages[0])
        assert group.ack(messages[5])
        wait_until(lambda: committed(reader) == {("t", 0): 1})
        # A second handle stands for a process that takes over after a kill.
        group._places.close()
        assert left(reader) == [1, 2, 3, 4, *range(6, 100)]


def test_the_next_consumer_keeps_what_was_done_before(store: mqstore.Store) -> None:
    with store.group("g") as group:
        for message in group.poll("t", max_messages=10):
            assert message.body in {b"1", b"5"} or group.ack(message)
    for most, new in ((1, 10), (2, 11), (100, 12)):
        with store.group("g") as group:
            found = group.poll("t", max_messages=most)
            while new not in numbers(found):
                found += group.poll("t", max_messages=most)
            assert numbers(found)[:2] == [1, 5]
            assert group.ack(found[numbers(found).index(new)])
    assert left(store) == [1, 5, *range(13, 100)]


def test_the_iterator_s_messages_are_committed_by_time(store: mqstore.Store) -> None:
    with store.group("g") as group:
        messages = group.messages("t")
        for _ in range(3):
            next(messages)
        wait_until(lambda: committed(store) == {("t", 0): 2})


def test_a_handler_at_work_holds_no_message_that_was_handled(store: mqstore.Store) -> None:
    stop, go_on = threading.Event(), threading.Event()

    def handle(message: mqstore.StoredMessage) -> None:
        if message.body == b"5":
            go_on.wait()
        if message.body == b"3":
            raise RuntimeError

    with store.group("g") as group:
        work = threading.Thread(target=group.process, args=("t", handle), kwargs={"stop": stop})
        work.start()
        try:
            wait_until(lambda: committed(store).get(("t", 0)) == 5)
            # The retry of a failed message is durable before its offset is passed.
            assert len(store.read("SCHEDULE_TOPIC_XXXX", 2, 0).messages) == 1
        finally:
            stop.set()
            go_on.set()
            work.join()
    assert left(store)[0] == 6


def test_each_queue_has_the_offset_of_its_first_message_in_flight(store: mqstore.Store) -> None:
    for number in range(12):
        store.append("u", b"%d" % number, queue_id=number % 3)
    with store.group("g") as group:
        messages = [*group.poll("u"), *group.poll("t", max_messages=4)]
        for message in messages:
            if message.queue_offset != message.queue_id + 1:
                assert group.ack(message)
    assert committed(store) == {("u", 0): 1, ("u", 1): 2, ("u", 2): 3, ("t", 0): 1}
    assert sorted(left(store, "u")) == [3, 7, 11]
    assert left(store) == [1, *range(4, 100)]


def test_messages_given_back_or_sent_back_hold_no_other(store: mqstore.Store) -> None:
    with store.group("g") as group:
        first, failed, late, *others = group.poll("t", max_messages=10)
        group._hide([late], None, 0)
        assert group.nack(failed)
        for message in others:
            assert group.ack(message)
        assert not group.ack(late)
        assert group.poll("t", max_messages=1) == [late]
    assert committed(store) == {("t", 0): 0}
    assert left(store) == [int(first.body), int(late.body), *range(10, 100)]


def test_messages_that_tags_skip_come_to_others(store: mqstore.Store) -> None:
    with store.group("g") as group:
        messages = group.poll("t", max_messages=10, tags="odd")
        assert numbers(messages) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
        for message in messages[1:]:
            assert group.ack(message)
    with store.group("g") as group:
        assert numbers(group.poll("t", max_messages=2, tags="odd")) == [1, 21]


def test_a_commit_keeps_what_was_given_back(store: mqstore.Store) -> None:
    with store.group("g") as group:
        messages = group.poll("t", max_messages=5)
        group.give_back([messages[1], messages[3]])
        group.commit()
        assert committed(store) == {("t", 0): 1}
        assert numbers(group.poll("t", max_messages=3)) == [1, 3, 5]
    assert left(store) == [1, 3, *range(5, 100)]


def test_process_passes_over_what_was_done_before(store: mqstore.Store) -> None:
    handled: list[mqstore.StoredMessage] = []
    with store.group("g") as group:
        _, *others = group.poll("t", max_messages=90)
        for message in others:
            assert group.ack(message)
    with store.group("g") as group:
        group.process("t", handled.append, max_messages=1, idle_s=0)
    assert numbers(handled) == [0, *range(90, 100)]
    assert committed(store) == {("t", 0): 100}


def test_an_iterator_passes_over_what_was_done_before(store: mqstore.Store) -> None:
    with store.group("g") as group:
        for message in group.poll("t", max_messages=90):
            assert int(message.body) % 30 == 0 or group.ack(message)
    with store.group("g") as group:
        messages = group.messages("t")
        assert [int(next(messages).body) for _ in range(5)] == [0, 30, 60, 90, 91]


def test_seek_brings_all_again(store: mqstore.Store) -> None:
    with store.group("g") as group:
        for message in group.poll("t", max_messages=5)[1:]:
            assert group.ack(message)
    with store.group("g") as group:
        group.seek("t", 0, 0)
        assert numbers(group.poll("t", max_messages=3)) == [0, 1, 2]
        group.seek("t", 0, 0)
        group.commit()
    assert left(store) == list(range(100))


@pytest.mark.parametrize("renumber", [False, True])
def test_a_copy_knows_what_is_done(store: mqstore.Store, *, renumber: bool) -> None:
    with store.group("g") as group:
        for message in group.poll("t", max_messages=10):
            assert message.body in {b"1", b"5"} or group.ack(message)
    store.close()
    out = f"{store.path}.copy"
    mqstore.copy(store.path, out, tags="odd", renumber=renumber)
    with mqstore.open(out, "r+", config=ROOMY) as copied, copied.group("g") as group:
        found = group.poll("t", max_messages=100, tags="odd")
        assert numbers(found) == [1, 5, *range(11, 100, 2)]


CONSUMERS = """
import os, random, sys, time, mqstore
path, log, _ = sys.argv[1:]
log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def tell(kind, message=None):
    place = "%s/%d/%d %s" % (
        message.topic, message.queue_id, message.queue_offset, message.body.decode()
    ) if message else "- -"
    os.write(log, ("%s %d %s %f\\n" % (kind, os.getpid(), place, time.monotonic())).encode())

class Places:
    def __init__(self, places):
        self._places = places

    def __getattr__(self, name):
        return getattr(self._places, name)

    def commit(self):
        tell("s")
        self._places.commit()
        tell("e")

def consume():
    choose = random.Random(os.getpid())
    with mqstore.open(path) as store, store.group("g") as group:
        group._places = Places(group._places)
        os.write(1, b"%d\\n" % os.getpid())
        held = []
        while True:
            topic = choose.choice(["t", "u", group.retry_topic])
            is_short = choose.random() < 0.05
            found = group.poll(
                topic,
                max_messages=choose.randrange(1, 5),
                visibility_s=0.3 if is_short else 3600,
                timeout_s=0.01,
            )
            for message in found:
                tell("v" if is_short else "p", message)
            held += found
            # The oldest ones stay in flight for long.
            while len(held) > (2 if choose.random() < 0.99 else 0):
                message = held.pop(choose.randrange(len(held)) if choose.random() < 0.02 else -1)
                is_failed = choose.random() < 0.1
                if not is_failed:
                    tell("b", message)
                if (group.nack if is_failed else group.ack)(message):
                    tell("n" if is_failed else "a", message)
"""
# A second, and what a busy machine takes to begin a commit.
PROMISE_S = 3.0


class Event(NamedTuple):
    """A line of a consumer's log.

    A message was (p)olled, polled to be (v)isible soon, is to (b)e acknowledged, or was (a)cked or
    (n)acked; a commit (s)tarted or (e)nded.
    """

    kind: str
    pid: int
    place: str
    body: str
    at_s: float


def without_commits_s(pid: int, start_s: float, end_s: float, events: list[Event]) -> float:
    """How long a process had between two times, but for its commits, which wait for the disk."""
    left_s, since_s = end_s - start_s, None
    for event in events:
        if event.pid == pid and event.kind == "s":
            since_s = event.at_s
        elif event.pid == pid and event.kind == "e" and since_s is not None:
            left_s -= max(min(event.at_s, end_s) - max(since_s, start_s), 0)
            since_s = None
    return left_s - (0 if since_s is None else max(end_s - max(since_s, start_s), 0))


def kill(pid: int) -> tuple[float, float]:
    """Kills a process; its end lies between these times, however late this one goes on."""
    before_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return before_s, time.monotonic()


def check_repeats(
    events: list[Event], killed_s: dict[int, tuple[float, float]]
) -> tuple[int, int, int]:
    """Holds each message that came again against the promise; counts.

    Returns:
        How many were in flight, how many were acknowledged in the last second, and how many
        acknowledged ones did not come again although the commit was another thread's.
    """
    of_place: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in "pvan":
            of_place[event.place].append(event)
    in_flight = acked = kept = 0
    for of_one in of_place.values():
        before: Event | None = None
        done: Event | None = None
        for event in of_one:
            if event.kind in "an":
                done = event
                continue
            if before is not None:
                first_s, end_s = killed_s.get(before.pid, (float("inf"), float("inf")))
                is_expired = before.kind == "v" and done is None
                is_killed = first_s <= event.at_s and before.pid != event.pid
                is_late = (
                    done is None
                    or without_commits_s(before.pid, done.at_s, end_s, events) <= PROMISE_S
                )
                told = f"MQSTORE_SEED={SEED}: {before}, {done}, killed at {end_s}, again {event}"
                assert is_expired or (is_killed and is_late), told
                in_flight += done is None
                acked += done is not None
            before, done = event, None
        kept += done is not None and done.at_s < killed_s.get(done.pid, (0, 0))[1] - PROMISE_S
    return in_flight, acked, kept


def test_kills_repeat_what_was_in_flight_and_the_last_second(tmp_path: Path) -> None:
    """Consumers that share two topics are killed; each repeated message is held against a model.

    ``MQSTORE_GROUP_KILLS`` sets how many kills.
    """
    choose = random.Random(SEED)
    root, log = tmp_path / "store", tmp_path / "log"
    killed_s: dict[int, tuple[float, float]] = {}
    with mqstore.open(root, "a", config=ROOMY) as store:
        bodies: set[str] = set()

        def append(count: int) -> None:
            for _ in range(count):
                body = str(len(bodies))
                store.append(choose.choice("tu"), body.encode(), queue_id=choose.randrange(3))
                bodies.add(body)

        append(20)
        consumers = Consumers(CONSUMERS, root, log, "r")
        running = [consumers.start() for _ in range(4)]
        for _ in range(KILLS):
            append(choose.randrange(60))
            threading.Event().wait(choose.random() * 1.5)
            pid = running.pop(choose.randrange(4))
            killed_s[pid] = kill(pid)
            running.append(consumers.start())
        for pid in running:
            killed_s[pid] = kill(pid)
        consumers.close()
        events = []
        for line in consumers.lines():
            kind, pid_text, place, body, at_s = line.decode().split()
            events.append(Event(kind, int(pid_text), place, body, float(at_s)))
        # A process may be killed between an acknowledgement and its line.
        done = {event.body for event in events if event.kind in "ab"}
        with store.group("g") as group:

            def drain() -> bool:
                for topic in ("t", "u", group.retry_topic):
                    for message in group.poll(topic, max_messages=1000):
                        place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
                        body = message.body.decode()
                        events.append(Event("p", 0, place, body, time.monotonic()))
                        assert group.ack(message)
                        done.add(body)
                return bodies <= done

            wait_until(drain)
        in_flight, acked, kept = check_repeats(events, killed_s)
    told = f"{KILLS} kills, {len(bodies)} messages, lost 0, repeats: {in_flight} in flight, "
    told += f"{acked} of the last second; {kept} older ones did not come again"
    sys.stdout.write(f"MQSTORE_SEED={SEED}: {told}\n")
    assert kept > 0 or KILLS < 20
    assert mqstore.verify(root).ok
