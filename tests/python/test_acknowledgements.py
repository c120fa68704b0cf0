"""A consumer group commits acknowledged messages; those in flight come again."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.group_kills import GroupKills
from helpers.stores import TINY
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEED = int(os.environ.get("MQSTORE_SEED", "29"))
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


def begin_topic(group: mqstore.ConsumerGroup) -> None:
    assert group.poll("u", max_messages=1)


def seek_other_queue(group: mqstore.ConsumerGroup) -> None:
    # The second one commits what the first one left to do.
    (message, *_) = group.poll("v", max_messages=2)
    assert group.ack(message)
    group.seek("v", 0, 3)


def pass_over_by_tags(group: mqstore.ConsumerGroup) -> None:
    group.process("v", print, tags="none", idle_s=0)


@pytest.mark.parametrize("commit", [begin_topic, seek_other_queue, pass_over_by_tags])
def test_a_commit_of_another_queue_drops_no_acknowledgement(
    store: mqstore.Store, commit: Callable[[mqstore.ConsumerGroup], None]
) -> None:
    for topic in ("u", "v"):
        for number in range(4):
            store.append(topic, b"%d" % number)
    with store.group("g") as group:
        group.poll("v", max_messages=1)
    killed = store.group("g")
    assert killed.ack(killed.poll("t", max_messages=1)[0])
    killed._places.close()
    killed = store.group("g")
    held, *others = killed.poll("t", max_messages=5)
    for message in others:
        assert killed.ack(message)
    commit(killed)
    killed._places.close()
    assert left(store) == [int(held.body), *range(6, 100)]


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


def test_kills_repeat_only_what_was_in_flight(tmp_path: Path) -> None:
    """``tests/differential/test_handover.py`` has the campaign, with a broker in the middle."""
    kills = GroupKills(tmp_path / "store", tmp_path / "log", ROOMY, SEED)
    kills.kill(10)
    sys.stdout.write(f"{kills.check()}\n")
