"""Appending messages: cases AP of tests/cases.md."""

from __future__ import annotations

import functools
import inspect
import struct
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY, log_bytes, log_files, message, next_offset

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
BLANK = 0xCBD43194
V2 = 0xDAA320AB


def test_ap01_ten_messages(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 16 * MIB}) as store:
        results = [store.append("FooBar", bytes(32), properties={"p": "x" * 26}) for _ in range(10)]
        assert len(store.get(0).raw_properties) == 29
        assert store.max_physical_offset == 1580
    assert [result.store_size for result in results] == [158] * 10
    assert [result.physical_offset for result in results] == list(range(0, 1423, 158))
    assert [result.queue_offset for result in results] == list(range(10))


def test_ap02_both_hosts_ipv6(tmp_path: Path) -> None:
    config = {"mapped_file_size_commit_log": 16 * MIB, "broker_ip1": "2001:db8::1"}
    with mqstore.open(tmp_path, "a", config=config) as store:
        result = store.append(
            "FooBar", bytes(32), properties={"p": "x" * 26}, born_host="[2001:db8::7]:40000"
        )
        stored = store.get(0)
    assert result.store_size == stored.store_size == 182
    assert stored.sys_flag & 0x30 == 0x30
    assert len(result.message_id) == 56
    assert mqstore.parse_message_id(result.message_id) == mqstore.MessageId("2001:db8::1", 10911, 0)


def test_ap03_one_message_fits_exactly(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 128}
    with mqstore.open(tmp_path, "a", config=config) as store:
        results = store.append_many([message(size=120)] * 5)
    assert [result.physical_offset for result in results] == [0, 128, 256, 384, 512]
    assert log_files(tmp_path)[:5] == [f"{128 * n:020}" for n in range(5)]


def test_ap04_blank_closes_the_file(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1024}
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append_many([message(size=904), message(size=113)])
        assert [m.physical_offset for m in store.scan()] == [0, 1024]
    log = log_bytes(tmp_path)
    assert struct.unpack_from(">iI", log, 904) == (120, BLANK)
    assert log[912:1024] == bytes(112)
    assert struct.unpack_from(">i", log, 1024) == (113,)


def test_ap04_what_leaves_room_for_the_blank_stays(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1024}
    with mqstore.open(tmp_path, "a", config=config) as store:
        results = store.append_many([message(size=904), message(size=112), message(size=100)])
    assert [result.physical_offset for result in results] == [0, 904, 1024]
    assert struct.unpack_from(">iI", log_bytes(tmp_path), 1016) == (8, BLANK)


def test_ap06_many_at_once(tmp_path: Path) -> None:
    """Contiguous frames, consecutive queue offsets, distinct ids in order."""
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        results = store.append_many([message(size=114)] * 10)
        stored = list(store.scan())
    assert [result.physical_offset for result in results] == list(range(0, 1140, 114))
    assert [result.queue_offset for result in results] == list(range(10))
    assert [result.message_id for result in results] == [m.message_id for m in stored]
    assert len({result.message_id for result in results}) == 10
    assert sorted(r.message_id for r in results) == [r.message_id for r in results]


def test_ap07_largest_body(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 16 * MIB}) as store:
        properties = b"p\x01" + b"x" * (32_767 - 3) + b"\x02"
        topic = "t" * 127
        result = store.append(topic, bytes(4_194_304), properties=properties)
        assert result.store_size == 91 + 4_194_304 + 127 + 32_767
        end = store.max_physical_offset
        with pytest.raises(mqstore.InvalidMessageError) as refused:
            store.append(topic, bytes(4_194_305), properties=properties)
        assert refused.value.status == "MESSAGE_ILLEGAL"
        assert refused.value.limit == 4_194_304
        assert store.max_physical_offset == end
        assert next_offset(store, topic) == 1


def test_ap08_properties_too_long(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": MIB}) as store:
        with pytest.raises(mqstore.InvalidMessageError) as refused:
            store.append("T", b"body", properties=bytes(32_768))
        assert refused.value.status == "PROPERTIES_SIZE_EXCEEDED"
        assert next_offset(store) == 0
        assert store.append("T", b"body", properties=bytes(100)).queue_offset == 0


def test_ap09_the_limit_is_that_of_the_open(tmp_path: Path) -> None:
    limit = 1000
    body = bytes(limit + 10)

    def append(max_message_size: int) -> int:
        config = {"mapped_file_size_commit_log": MIB, "max_message_size": max_message_size}
        with mqstore.open(tmp_path, "a", config=config) as store:
            return store.append("T", body).queue_offset

    for allowed in (limit, limit + 10, 10):
        if allowed == limit + 10:
            assert append(allowed) == 0
        else:
            with pytest.raises(mqstore.InvalidMessageError) as refused:
                append(allowed)
            assert (refused.value.status, refused.value.limit) == ("MESSAGE_ILLEGAL", allowed)


@pytest.mark.parametrize(
    "topic",
    ["", "t" * 128, "%RETRY%" + "t" * 249, "a b", "a/b", "..", "тема", "a.b", "a#b", "a\0b", "a\n"],
)
def test_ap10_topics_refused(tmp_path: Path, topic: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(mqstore.InvalidMessageError) as refused:
            store.append(topic, b"body")
        assert (refused.value.field, refused.value.status) == ("topic", "MESSAGE_ILLEGAL")
        with pytest.raises(mqstore.InvalidMessageError):
            store.append_many([message("good"), mqstore.Message(topic, b"body")])
        assert store.max_physical_offset == 0
        assert store.topics() == []
    assert not any(name for name in (tmp_path / "consumequeue").iterdir())


@pytest.mark.parametrize("topic", ["t", "t" * 127, "%RETRY%billing", "a|b-c_D9%"])
def test_ap10_topics_taken(tmp_path: Path, topic: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append(topic, b"body")
        assert store.topics() == [topic]


def test_ap11_property_checksum(tmp_path: Path) -> None:
    config = {**TINY, "enabled_append_prop_crc": True}
    with mqstore.open(tmp_path, "a", config=config) as store:
        results = [store.append("T", b"body", properties={"p": "x" * 40}) for _ in range(10)]
        raw = store.get(results[-1].physical_offset).raw_properties
    last = results[-1]
    assert mqstore.verify(tmp_path, config=config).ok
    path = tmp_path / "commitlog" / f"{0:020}"
    place = path.read_bytes().index(raw, last.physical_offset) + len("p\x01") + 20
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"y")
    report = mqstore.verify(tmp_path, config=config)
    assert not report.ok
    wrong = [finding for finding in report.findings if finding.path.startswith("commitlog")]
    assert len(wrong) == 1
    assert wrong[0].offset is not None
    assert last.physical_offset <= wrong[0].offset < last.physical_offset + last.store_size


def test_ap12_four_threads(tmp_path: Path) -> None:
    each, queues = 10_000, 8
    start = threading.Barrier(4)
    answers: list[list[mqstore.AppendResult]] = [[] for _ in range(4)]
    config = {"mapped_file_size_commit_log": MIB}
    with mqstore.open(tmp_path, "a", config=config) as store:

        def append(thread: int) -> None:
            start.wait()
            body = b"x" * (thread + 1)
            for n in range(each):
                answers[thread].append(store.append("T", body, queue_id=n % queues))

        threads = [threading.Thread(target=append, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = list(store.scan())
        end = store.max_physical_offset
    results = {result.physical_offset: result for of_one in answers for result in of_one}
    assert len(results) == len(stored) == 4 * each
    assert Counter((m.queue_id, m.queue_offset) for m in stored) == Counter(
        (queue, offset) for queue in range(queues) for offset in range(4 * each // queues)
    )
    position = 0
    for found in stored:
        result = results[found.physical_offset]
        assert (found.queue_offset, found.store_size) == (result.queue_offset, result.store_size)
        if found.physical_offset != position:
            # Only a blank may lie between, and it ends its file.
            assert found.physical_offset % MIB == 0
            assert found.physical_offset - position < found.store_size + 8 + 1
        position = found.physical_offset + found.store_size
    assert position == end


def test_ap13_long_retry_topic(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 150
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        result = store.append(topic, b"body")
        longest = store.append("%RETRY%" + "g" * 248, b"body")
        assert store.get(0).topic == topic
    assert result.store_size == 92 + 4 + 157
    assert longest.store_size == 92 + 4 + 255
    log = log_bytes(tmp_path)
    assert struct.unpack_from(">I", log, 4) == (V2,)
    assert struct.unpack_from(">h", log, 88 + 4) == (157,)


CALLS: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((), {}),
    (("t",), {}),
    (("t", b"b"), {}),
    (("t", b"b"), {"keys": "k", "tags": "a", "queue_id": 1, "unique_key": "u", "flag": 3}),
    (("t", b"b"), {"properties": {"p": "v"}, "born_host": "1.2.3.4:5", "delay_level": 2}),
    (("t", b"b"), {"born_timestamp_ms": 1_700_000_000_000}),
    ((), {"topic": "t", "body": b"b", "keys": ["k"]}),
    (("t",), {"body": b"b"}),
    (("t", b"b"), {"topic": "t"}),
    (("t", b"b", 1), {}),
    (("t", b"b"), {"key": "k"}),
    (("t", b"b"), {"sys_flag": 1}),
    (("t", b"b"), {"store_timestamp_ms": 1}),
    (("t", b"b"), {"tags": "a", "ta\ud800gs": "a"}),
    (("t", b"b"), {"keys": 5}),
    (("t", "b"), {"keys": "k"}),
    ((5, b"b"), {}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_call_by_vector_does_what_a_call_by_tuple_and_dict_does(
    tmp_path: Path, number: int
) -> None:
    """``append`` itself, and with a delay of no level, which pyo3's method takes."""
    positional, named = CALLS[number]
    results: list[object] = []
    for more in ({}, {"delay": None}):
        with mqstore.open(tmp_path / str(len(more)), "a", config=TINY) as store:
            try:
                store.append(*positional, **named, **more)  # type: ignore[arg-type]
            except (TypeError, mqstore.StoreError) as error:
                results.append((type(error), str(error)))
            else:
                message = store.get(0)
                fields = message.to_dict()
                for name in ("store_timestamp_ms", "born_timestamp_ms"):
                    fields.pop(name) if name not in named else None
                results.append({key: value for key, value in fields.items() if "time" not in key})
    assert results[0] == results[1]


def test_calls_keep_no_reference(tmp_path: Path) -> None:
    topic, body, key = "topic-of-its-own", bytes(1000), "key-of-its-own"
    names = {"keys": key, "tags": "a", "flag": 1}
    wrong = {"kesy": key}
    with mqstore.open(tmp_path, "a", config=TINY) as store:

        def calls(count: int) -> None:
            for _ in range(count):
                store.append(topic, body)
                store.append(topic, body, **names)
                store.append(topic=topic, body=body)
                with pytest.raises(TypeError):
                    store.append(topic, body, **wrong)
                with pytest.raises(TypeError):
                    store.append(topic, "text", keys=key)

        calls(10)
        values = (topic, body, key, store, names)
        before = [sys.getrefcount(value) for value in values]
        calls(300)
        assert [sys.getrefcount(value) for value in values] == before


def test_append_is_a_method_like_others(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        assert mqstore.Store.append(store, "t", b"1").queue_offset == 0
        assert [r.queue_offset for r in map(store.append, ("t", "t"), (b"2", b"3"))] == [1, 2]
        assert functools.partial(store.append, "t", tags="x")(b"4").queue_offset == 3
        with pytest.raises(TypeError):
            mqstore.Store.append(5, "t", b"")  # type: ignore[arg-type]
    with pytest.raises(mqstore.StoreClosedError):
        store.append("t", b"")
    assert list(inspect.signature(mqstore.Store.append).parameters)[:4] == [
        "self",
        "topic",
        "body",
        "queue_id",
    ]
