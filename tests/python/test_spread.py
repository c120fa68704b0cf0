"""Queues chosen by key, and messages given as tuples and mappings."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "store", "a", config={**TINY, "delivery": True}) as opened:
        yield opened


def queue_of(key: str, queues: int) -> int:
    """``SelectMessageQueueByHash#select``: Java's ``%`` keeps the sign of the hash."""
    return abs(mqstore.java_hash(key)) % queues


def test_a_key_keeps_its_queue_as_rocketmq_chooses_it(store: mqstore.Store) -> None:
    keys = [f"customer-{n}" for n in range(40)]
    for key in keys:
        store.append("orders", b"1", queue_id=None, keys=[key, "other"])
    store.append_many([mqstore.Message("orders", b"2", queue_id=None, keys=key) for key in keys])
    store.append_many([("orders", b"3", None, None, key) for key in keys])
    store.append_many(
        [{"topic": "orders", "body": b"4", "queue_id": None, "keys": k} for k in keys]
    )
    store.append("orders", b"5", queue_id=None, properties={"KEYS": keys[0]})
    found: dict[str, set[int]] = defaultdict(set)
    for message in store.topic("orders"):
        found[message.keys[0]].add(message.queue_id)
    assert found == {key: {queue_of(key, 4)} for key in keys}
    assert {queue.queue_id for queue in store.queues("orders")} == {0, 1, 2, 3}


def test_without_a_key_the_queues_take_turns(store: mqstore.Store) -> None:
    for _ in range(8):
        store.append("orders", b"", queue_id=None)
    assert [queue.max_offset for queue in store.queues("orders")] == [2, 2, 2, 2]


def test_the_queues_of_a_topic_are_the_brokers(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    topic = {"topicName": "wide", "writeQueueNums": 16, "readQueueNums": 16}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"wide": topic}}))
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for n in range(100):
            store.append("wide", b"", queue_id=None, keys=f"k{n}")
        assert len(store.queues("wide")) == 16
        first = store.topic("wide").latest(100)[-1]
        assert first.queue_id == queue_of("k0", 16)


def test_a_delayed_message_goes_to_the_queue_of_its_key(store: mqstore.Store) -> None:
    waiting = store.append("orders", b"later", queue_id=None, keys=iter(["k7"]), delay=1)
    message = store.get(waiting.physical_offset)
    assert (message.real_queue_id, message.keys) == (queue_of("k7", 4), ("k7",))


def test_rows_are_stored_as_messages_are(store: mqstore.Store) -> None:
    row = ("orders", b"x", 2, "paid", ["k1", "k2"], "U1", {"p": "v"})
    names = ("topic", "body", "queue_id", "tags", "keys", "unique_key", "properties")
    given = dict(zip(names, row, strict=True))
    results = store.append_many([row, given, mqstore.Message(**given), ("orders", b"y")])
    *same, last = (store.get(result.physical_offset) for result in results)
    for message in same:
        assert tuple(getattr(message, name) for name in names[:4]) == row[:4]
        assert (message.keys, message.unique_key) == (("k1", "k2"), "U1")
        assert message.raw_properties == same[0].raw_properties
        assert message.properties["p"] == "v"
    assert (last.queue_id, last.body, last.properties) == (0, b"y", {})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (("orders",), r"expected a tuple of 2 to 7 items \(topic, body, queue_id, .*\), got 1"),
        (("orders", "x"), "body: expected bytes"),
        (("orders", b"x", "0"), "queue_id: expected int, got str"),
        (("orders", b"x", 0, None, 5), "keys: expected str or a sequence of str, got int"),
        ({"topic": "orders"}, "expected topic and body in each message, got only topic"),
        ({"topic": "orders", "body": b"", "key": "k"}, r"no argument 'key'; did you mean keys\?"),
        ({"topic": "orders", "body": b"", 5: "k"}, "no argument 5"),
        (5, "expected a Message, a StoredMessage, or a mapping or tuple"),
    ],
    ids=str,
)
def test_a_wrong_row_is_named(store: mqstore.Store, row: object, says: str) -> None:
    with pytest.raises(TypeError, match=says) as refused:
        store.append_many([("orders", b"fine"), row])  # type: ignore[list-item]
    assert refused.value.index == 1  # type: ignore[attr-defined]
    assert not store.topics()


def test_a_mistyped_argument_names_the_near_ones(store: mqstore.Store) -> None:
    for call, near in (
        (lambda: store.append("t", b"", key="k"), "keys"),
        (lambda: mqstore.Message("t", b"", tag="k"), "tags"),
        (lambda: store.read("t", 0, 0, max_message=1), "max_messages"),
        (lambda: store.query("t", "k", begin=1), "begin_ms"),
        (lambda: store.scan(topic=["t"]), "topics"),
        (lambda: store.scan_arrow(column=["topic"]), "columns"),
        (lambda: store.append_many([], sumary=True), "summary"),
        (lambda: store.append_arrow([], atomc=True), "atomic"),
    ):
        with pytest.raises(TypeError, match=rf"did you mean (.* or )?{near}"):
            call()
