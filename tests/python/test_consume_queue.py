"""Consume queues, as far as a store shows them: cases CQ of tests/cases.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TIME, TINY, message, queue_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_cq04_default_file(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"message_index_enable": False}) as store:
        store.append_many([message()] * 300_001)
    files = sorted(queue_folder(tmp_path).iterdir())
    assert [path.name for path in files] == [f"{0:020}", f"{6_000_000:020}"]
    assert [path.stat().st_size for path in files] == [6_000_000] * 2
    queue = mqstore.ConsumeQueue(queue_folder(tmp_path))
    assert (queue.min_offset, queue.max_offset, len(queue)) == (0, 300_001, 300_001)
    last = queue[300_000]
    assert last == mqstore.QueueEntry(300_000, 92 * 300_000, 92, 0)
    assert files[1].read_bytes()[:20] != bytes(20)
    assert files[1].read_bytes()[20:40] == bytes(20)


def test_cq05_size_is_rounded_up(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_consume_queue": 128}
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append_many([message()] * 8)
    files = sorted(queue_folder(tmp_path).iterdir())
    assert [(path.name, path.stat().st_size) for path in files] == [
        (f"{0:020}", 140),
        (f"{140:020}", 140),
    ]
    for size in (128, 140):
        again = {**config, "mapped_file_size_consume_queue": size}
        with mqstore.open(tmp_path, config=again) as store:
            assert len(store.read("T", 0, 0).messages) == 8


@pytest.mark.parametrize("kept", [0, 7])
def test_cq09_part_of_an_entry_is_none(tmp_path: Path, kept: int) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message()] * 11)
    path = queue_folder(tmp_path) / f"{200:020}"
    whole = path.read_bytes()
    path.write_bytes(whole[:kept] + bytes(200 - kept))
    queue = mqstore.ConsumeQueue(queue_folder(tmp_path))
    assert (queue.min_offset, queue.max_offset) == (0, 10)
    with mqstore.open(tmp_path, config=TINY) as store:
        assert len(store.read("T", 0, 0).messages) == 11
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert store.append("T", b"").queue_offset == 11
    assert path.read_bytes()[:20] == whole[:20]


def test_cq10_tags_code(tmp_path: Path) -> None:
    negative = "refunded"
    assert mqstore.java_hash(negative) == -707_924_457
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(tags=tags) for tags in ("TagA", None, negative)])
    queue = mqstore.ConsumeQueue(queue_folder(tmp_path))
    codes = [entry.tags_code for entry in queue]
    assert codes == [2_598_919, 0, mqstore.java_hash(negative)]
    raw = (queue_folder(tmp_path) / f"{0:020}").read_bytes()
    assert raw[12:20] == (2_598_919).to_bytes(8, "big")
    assert raw[52:60] == mqstore.java_hash(negative).to_bytes(8, "big", signed=True)
    assert raw[52:56] == b"\xff" * 4


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(1, 1_000), (3, 10_000), (18, 7_200_000), (19, 7_200_000)]
)
def test_cq11_delivery_time(tmp_path: Path, level: int, delay_ms: int) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message("SCHEDULE_TOPIC_XXXX", delay_level=level, tags="TagA")])
        store.append_many([message("other", delay_level=level, tags="TagA")])
    schedule = mqstore.ConsumeQueue(queue_folder(tmp_path, "SCHEDULE_TOPIC_XXXX"))
    assert schedule[0].tags_code == TIME + delay_ms
    other = mqstore.ConsumeQueue(queue_folder(tmp_path, "other"))
    assert other[0].tags_code == mqstore.tags_code("TagA")


def test_cq13_matches_of_a_tag(tmp_path: Path) -> None:
    """67 of 200 in 0..199 and in 0..1000; ranges outside of the queue are no ranges."""
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(tags=f"Tag{'ABC'[n % 3]}") for n in range(200)])
        for most in (200, 1000):
            found = store.read("T", 0, 0, max_messages=most, tags="TagA")
            assert len(found.messages) == 67
            assert found.next_queue_offset == 200
        outside = store.read("T", 0, 1000, max_messages=9000, tags="TagA")
        assert (outside.status, outside.messages) == ("OFFSET_OVERFLOW_BADLY", ())


def test_cq14_multi_dispatch(tmp_path: Path) -> None:
    config = {**TINY, "enable_lmq": True, "enable_multi_dispatch": True}
    names = ("%LMQ%123", "%LMQ%456")
    with mqstore.open(tmp_path, "a", config=config) as store:
        result = store.append("T", b"one", properties={"INNER_MULTI_DISPATCH": ",".join(names)})
        for topic in ("T", *names):
            (found,) = store.read(topic, 0, 0).messages
            assert found.physical_offset == result.physical_offset
    for topic in ("T", *names):
        (entry,) = mqstore.ConsumeQueue(queue_folder(tmp_path, topic))
        assert (entry.queue_offset, entry.physical_offset) == (0, result.physical_offset)
        assert entry.store_size == result.store_size
