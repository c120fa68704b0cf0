"""Reading queues and single messages: cases QY of tests/cases.md."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.files import stamps
from helpers.stores import TIME, TINY, log_files, message, times

if TYPE_CHECKING:
    from pathlib import Path


def test_qy01_as_many_as_asked(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message()] * 32)
        for most in (32, 20, 10):
            found = store.read("T", 0, 0, max_messages=most)
            assert [m.queue_offset for m in found.messages] == list(range(most))
            assert (found.status, found.next_queue_offset) == ("FOUND", most)


def without_the_first_20(root: Path) -> None:
    """A queue of 100 messages, 20 in each commit log file, after the first file has expired."""
    config = {**TINY, "mapped_file_size_commit_log": 20 * 100 + 8}
    with mqstore.open(root, "a", config=config) as store:
        store.append_many([message(size=100, store_timestamp_ms=TIME + 10 * n) for n in range(100)])
    names = log_files(root)
    assert names[:5] == [f"{2008 * n:020}" for n in range(5)]
    (root / "commitlog" / names[0]).unlink()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_qy02_outside_of_the_queue(tmp_path: Path, mode: str) -> None:
    without_the_first_20(tmp_path)
    config = {**TINY, "mapped_file_size_commit_log": 2008}
    with mqstore.open(tmp_path, mode, config=config) as store:
        answers = {
            offset: store.read("T", 0, offset) for offset in (-1, 0, 19, 20, 99, 100, 101, 10**12)
        }
        empty = store.read("T", 1, 0)
        (queue,) = store.queues()
        assert (queue.min_offset, queue.max_offset) == (20, 100)
        assert queue.first_store_timestamp_ms == TIME + 200
        assert queue.last_store_timestamp_ms == TIME + 990
        for asked, expected in ((0, 20), (TIME + 200, 20), (TIME + 201, 21), (TIME + 991, 100)):
            assert store.offset_at("T", 0, asked) == expected
        for asked, expected in ((0, 20), (TIME + 209, 20), (TIME + 210, 21), (TIME + 991, 99)):
            assert store.offset_at("T", 0, asked, boundary="upper") == expected
    for offset in (-1, 0, 19):
        assert (answers[offset].status, answers[offset].next_queue_offset) == (
            "OFFSET_TOO_SMALL",
            20,
        )
    assert [m.queue_offset for m in answers[20].messages] == list(range(20, 52))
    assert [m.queue_offset for m in answers[99].messages] == [99]
    assert (answers[100].status, answers[100].next_queue_offset) == ("OFFSET_OVERFLOW_ONE", 100)
    for offset in (101, 10**12):
        assert (answers[offset].status, answers[offset].next_queue_offset) == (
            "OFFSET_OVERFLOW_BADLY",
            100,
        )
    for answer in answers.values():
        assert (answer.min_queue_offset, answer.max_queue_offset) == (20, 100)
    assert (empty.status, empty.next_queue_offset) == ("NO_MESSAGE_IN_QUEUE", 0)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_qy03_unknown_topic_or_queue(tmp_path: Path, mode: str) -> None:
    times(tmp_path, [TIME])
    before = stamps(tmp_path)
    with mqstore.open(tmp_path, mode, config=TINY) as store:
        for topic, queue_id in (("nope", 0), ("T", 1), ("../T", 0), ("", 0), ("T", -1)):
            found = store.read(topic, queue_id, 0)
            assert (found.status, found.messages) == ("NO_MESSAGE_IN_QUEUE", ())
            assert (found.next_queue_offset, found.max_queue_offset) == (0, 0)
            assert store.offset_at(topic, queue_id, TIME) == 0
            assert store.offset_at(topic, queue_id, TIME, boundary="upper") == 0
        assert store.queues("nope") == []
        assert list(store.query("nope", "k0")) == []
        inside = {name for name in stamps(tmp_path) if name.startswith("consumequeue")}
    assert inside == {name for name in before if name.startswith("consumequeue")}
    if mode == "r":
        assert stamps(tmp_path) == before


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_qy04_by_physical_offset(tmp_path: Path, mode: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        results = store.append_many([message(size=100, keys=f"k{n}") for n in range(10)])
    with mqstore.open(tmp_path, mode, config=TINY) as store:
        for result in (results[0], results[-1]):
            found = store.get(result.physical_offset)
            assert found.queue_offset == result.queue_offset
            assert store.get_by_id(result.message_id) == found
        for offset in (1000, 10**15, -1):
            with pytest.raises(mqstore.OffsetOutOfRangeError) as outside:
                store.get(offset)
            assert (outside.value.physical_offset, outside.value.min, outside.value.max) == (
                offset,
                0,
                1000,
            )
        for offset in (1, 99, 101, 950):
            with pytest.raises(mqstore.MessageNotFoundError):
                store.get(offset)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_qy05_equal_store_times(tmp_path: Path, mode: str) -> None:
    times(tmp_path, [10, 10, 10, 30, 30])
    with mqstore.open(tmp_path, mode, config=TINY) as store:
        asked = (5, 10, 20, 30, 40)
        assert [store.offset_at("T", 0, time) for time in asked] == [0, 0, 3, 3, 5]
        assert [store.offset_at("T", 0, time, boundary="upper") for time in asked] == [
            0,
            2,
            2,
            4,
            4,
        ]


def test_qy05_over_several_queue_files(tmp_path: Path) -> None:
    stored = [TIME + 100 * (n // 15) for n in range(45)]
    times(tmp_path, stored)
    with mqstore.open(tmp_path, config=TINY) as store:
        for asked in (TIME - 1, *(TIME + d for d in (0, 1, 99, 100, 101, 200, 201))):
            lower = next((n for n, time in enumerate(stored) if time >= asked), 45)
            upper = max((n for n, time in enumerate(stored) if time <= asked), default=0)
            assert store.offset_at("T", 0, asked) == lower
            assert store.offset_at("T", 0, asked, boundary="upper") == upper


def test_qy06_messages_some_time_apart(tmp_path: Path) -> None:
    stored = [TIME + 17 * n for n in range(10)]
    times(tmp_path, stored)
    with mqstore.open(tmp_path, config=TINY) as store:
        for number, time in enumerate(stored):
            assert store.offset_at("T", 0, time) == number
            assert store.offset_at("T", 0, time - 2) == number
        assert store.offset_at("T", 0, TIME - 20_000) == 0
        assert store.offset_at("T", 0, 2**62) == 10


@pytest.mark.parametrize("as_rocketmq", [False, True])
def test_qy07_messages_of_a_file_deleted_under_a_reader(tmp_path: Path, as_rocketmq: bool) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 2008, "emulate_transfer_limits": as_rocketmq}
    with mqstore.open(tmp_path, "a", config=config) as store:
        for topic in ("T", "other", "T"):
            store.append_many([message(topic, size=100)] * 20)
    with mqstore.open(tmp_path, config=config) as reader:
        (tmp_path / "commitlog" / f"{0:020}").unlink()
        answers = [reader.read("T", 0, 0)]
        while answers[-1].next_queue_offset < 40:
            answers.append(reader.read("T", 0, answers[-1].next_queue_offset))
            assert len(answers) < 10
    # RocketMQ looks no further than one queue file; without its limits one read passes them all.
    assert answers[0].status == ("MESSAGE_WAS_REMOVING" if as_rocketmq else "FOUND")
    found = [m.queue_offset for answer in answers for m in answer.messages]
    assert found == list(range(20, 40))


def test_qy08_only_matches_and_past_the_others(tmp_path: Path) -> None:
    # BBBB has the hash of AaAa; its text is another.
    tags = ["AaAa", "BBBB", None, "x", "AaAa"] * 6
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(tags=tag) for tag in tags])
        for expression, wanted in (
            ("AaAa", {"AaAa"}),
            (" BBBB ||x|| ", {"BBBB", "x"}),
            ("*", {"AaAa", "BBBB", None, "x"}),
            ("", {"AaAa", "BBBB", None, "x"}),
        ):
            numbers = [n for n, tag in enumerate(tags) if tag in wanted]
            found = store.read("T", 0, 0, tags=expression, max_messages=100)
            assert [m.queue_offset for m in found.messages] == numbers
            assert found.next_queue_offset == 30
            found = store.read("T", 0, 0, tags=expression, max_messages=5)
            assert [m.queue_offset for m in found.messages] == numbers[:5]
            assert numbers[4] < found.next_queue_offset <= numbers[5]
        none = store.read("T", 0, 0, tags="nope")
        assert (none.status, none.messages, none.next_queue_offset) == (
            "NO_MATCHED_MESSAGE",
            (),
            30,
        )


KEEPS_THE_SMALL = """
import os, resource, subprocess, sys
import mqstore

def memory():
    if sys.platform == "darwin":
        return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())])) << 10
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

with mqstore.open(sys.argv[1]) as store:
    before = memory()
    kept = [message for message in store.scan() if len(message.body) < 1000]
    print(memory() - before)
    assert [message.body for message in kept] == [b"%d" % n for n in range(len(kept))]
    assert len(kept) == 15_000
"""


def test_a_message_that_is_kept_holds_no_memory_of_larger_ones(tmp_path: Path) -> None:
    # The scan builds messages in memory of those that were dropped.
    with mqstore.open(tmp_path / "s", "a") as store:
        for begin in range(0, 15_000, 500):
            pairs = [(b"%d" % n, bytes(3_800)) for n in range(begin, begin + 500)]
            store.append_many([message(body=body) for pair in pairs for body in pair])
    run = subprocess.run(
        [sys.executable, "-c", KEEPS_THE_SMALL, tmp_path / "s"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    # The small records have 2 MB, the large ones 57.
    assert int(run.stdout) < 20 << 20
