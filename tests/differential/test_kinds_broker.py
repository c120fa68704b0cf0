"""Every kind of message through a real broker: ours to its consumers, its producers' to us."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import mqstore
from helpers.clients import by_place, consumed, offset_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from helpers.java import RocketMQ

Row = dict[str, Any]
SETTINGS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
PARAMS = {
    "storeConfig": {**SETTINGS, "timerWheelEnable": "true", "mappedFileSizeTimerLog": 10240},
}
TEXT = b"compressed, or so it should be. " * 40
COMPRESSED = {
    0x001: zlib.compress,
    0x101: lambda body: pa.Codec("lz4").compress(body, asbytes=True),
    0x201: lambda body: pa.Codec("zstd").compress(body, asbytes=True),
    0x301: zlib.compress,
}
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
BATCHES = "together"


def make_batch_topic(root: Path) -> None:
    """A store that knows a topic whose queues keep batches, as a broker would have told it."""
    topic = {
        "attributes": {"queue.type": "BatchCQ"},
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": BATCHES,
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }
    (root / "config").mkdir(parents=True)
    text = json.dumps({"topicConfigTable": {BATCHES: topic}})
    (root / "config" / "topics.json").write_text(text, encoding="utf-8")


def kept_together(bodies: Sequence[bytes]) -> mqstore.Message:
    """A batch as one record."""
    items = b"".join(
        struct.pack(">5i", 22 + len(body) + 7, 0, 0, 0, len(body)) + body + b"\0\7TAGS\1t\2"
        for body in bodies
    )
    number = {"INNER_NUM": str(len(bodies))}
    return mqstore.Message(BATCHES, items, sys_flag=0xC0, properties=number)


def write(store: mqstore.Store) -> None:
    """Each kind of message, as this library writes it."""
    message = mqstore.Message
    for n in range(8):
        store.append("goes-on", f"{n}".encode(), queue_id=n % 2)
    store.append_batch([message("batches", f"member {n}".encode(), tags="t") for n in range(3)])
    store.append_many([kept_together([b"one", b"two", b"three"]), kept_together([b"four"])])
    store.append_many(
        message("small", pack(TEXT), keys=f"key-{flag:x}", sys_flag=flag)
        for flag, pack in COMPRESSED.items()
    )
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    store.append_many([message("parent", b"in three", properties=light)] * 2)
    store.append_many(
        message("ended", body, sys_flag=flag, keys="tx")
        for body, flag in ((b"prepared", PREPARED), (b"committed", COMMIT), (b"no", ROLLBACK))
    )
    store.append("later", b"level as a property", delay_level=3)
    bound = {"REAL_TOPIC": "later", "REAL_QID": "2"}
    store.append_many(
        [message("SCHEDULE_TOPIC_XXXX", b"due", queue_id=1, delay_level=2, properties=bound)]
    )


SENT: list[Row] = [
    {"op": "create-topic", "topic": "new", "queues": 2},
    {
        "op": "create-topic",
        "topic": "new-batches",
        "queues": 1,
        "attributes": {"queue.type": "BatchCQ"},
    },
    {"topic": "new", "batch": [{"bodyText": "b1"}, {"bodyText": "b2", "tags": "t"}]},
    {"topic": "new-batches", "batch": [{"bodyText": "i1", "keys": ["k"]}, {"bodyText": "i2"}]},
    {"topic": BATCHES, "batch": [{"bodyText": "five"}, {"bodyText": "six"}]},
    {"topic": "new", "bodyText": "committed", "transaction": "commit"},
    {"topic": "new", "bodyText": "rolled back", "transaction": "rollback"},
    {"topic": "new", "queueId": 1, "bodyText": "by level", "delayLevel": 1},
    {"topic": "new", "queueId": 1, "bodyText": "by time", "delayMs": 1500},
    {"topic": "parent", "bodyText": "light", "multiDispatch": "%LMQ%b,%LMQ%c"},
    *(
        {"topic": "new", "bodyText": TEXT.decode(), "tags": name, "compression": name}
        for name in ("ZLIB", "LZ4", "ZSTD")
    ),
]


def bodies(rows: Iterable[Row]) -> Counter[bytes]:
    return Counter(base64.b64decode(row["body"]) for row in rows)


def served(rocketmq: RocketMQ, ours: Sequence[mqstore.StoredMessage]) -> None:
    """Consumers' messages from the store that we wrote."""

    def of(*topics: str, but: Sequence[int] = ()) -> list[Row]:
        found = [m for m in ours if m.topic in topics and m.sys_flag not in but]
        return by_place([consumed(message) for message in found])

    plain = ("batches", "small", "parent", "ended")
    pulled = rocketmq.consume(plain, "pulling")
    assert by_place(pulled) == of(*plain, but=(PREPARED, ROLLBACK))
    assert bodies(pulled)[TEXT] == len(COMPRESSED)
    # Members of the batches that are kept together, each a message.
    members = rocketmq.consume([BATCHES], "members", mode="push", count=4)
    expected = [m for record in ours if record.topic == BATCHES for m in record.batch or ()]
    assert sorted(place_and_content(row) for row in members) == [
        place_and_content(consumed(message)) for message in expected
    ]
    for queue, count in (("%LMQ%a", 2), ("%LMQ%b", 2)):
        got = rocketmq.consume(["parent"], "light", mode="light", queue=queue, count=count)
        assert bodies(got) == {b"in three": 2}
    # The broker gives out what we had waiting in its queue of delayed messages.
    later = rocketmq.consume(["later"], "waiting", mode="push", count=2)
    assert {
        (base64.b64decode(row["body"]), row["queueId"], row["properties"].get("DELAY"))
        for row in later
    } == {(b"level as a property", 0, "3"), (b"due", 2, "2")}
    # Committed messages do not come again.
    rest = rocketmq.consume(["goes-on"], "ours", mode="push", count=5)
    assert bodies(rest) == {f"{n}".encode(): 1 for n in range(3, 8)}


def place_and_content(row: Row) -> tuple[object, ...]:
    return row["topic"], row["queueId"], row["queueOffset"], row["tags"], row["body"]


def by_purpose(
    store: mqstore.Store, topic: str, ours: int
) -> Callable[[str], list[mqstore.StoredMessage]]:
    """Messages behind an offset that are bound for a topic, or lie in it, by what they are for."""
    found = [m for m in store.scan(start_physical_offset=ours) if topic in (m.real_topic, m.topic)]
    return lambda purpose: [message for message in found if message.purpose == purpose]


def read(store: mqstore.Store, ours: int) -> None:
    """Our reading of messages from the broker's producers."""
    new = by_purpose(store, "new", ours)
    arrived = Counter(message.body for message in new("normal"))
    texts = {b"b1", b"b2", b"committed", b"by level", b"by time"}
    assert arrived == {**dict.fromkeys(texts, 1), TEXT: 3}
    packed = {m.tags: m for m in new("normal") if m.body == TEXT}
    assert {name: m.sys_flag & 0x701 for name, m in packed.items()} == {
        "ZLIB": 0x301,
        "LZ4": 0x101,
        "ZSTD": 0x201,
    }
    assert all(len(m.raw_body) < len(TEXT) for m in packed.values())
    # Transactions.
    halves = {m.body: m for m in new("half")}
    assert set(halves) == {b"committed", b"rolled back"}
    assert {(m.half, m.real_topic) for m in halves.values()} == {(True, "new")}
    (committed,) = [m for m in new("normal") if m.body == b"committed"]
    assert committed.transaction == "commit"
    assert committed.prepared_transaction_offset == halves[b"committed"].physical_offset
    assert [m.purpose for m in store.scan(topics=["RMQ_SYS_TRANS_OP_HALF_TOPIC"])] != []
    # Delays: what waited, and what was given out in its time.
    for purpose, body, delay in (("delayed", b"by level", 1000), ("timer", b"by time", 1500)):
        (waited,) = [m for m in new(purpose) if m.body == body]
        (came,) = [m for m in new("normal") if m.body == body]
        assert (waited.real_topic, waited.real_queue_id, came.queue_id) == ("new", 1, 1)
        assert waited.deliver_timestamp_ms is not None
        # A client's clock and the broker's turn of the wheel lie in between.
        assert 0 <= waited.deliver_timestamp_ms - waited.born_timestamp_ms <= delay + 10_000
        assert came.store_timestamp_ms >= waited.deliver_timestamp_ms - 1000
        assert came.physical_offset > waited.physical_offset
    assert [m.delay_level for m in new("delayed")] == [1]
    # Batches that are kept together.
    for topic, offset, members in (
        ("new-batches", 0, [(0, b"i1"), (1, b"i2")]),
        (BATCHES, 4, [(4, b"five"), (5, b"six")]),
    ):
        (record,) = store.read(topic, 0, offset).messages
        assert [(m.queue_offset, m.body) for m in record.batch or ()] == members
    assert {info.kind for info in store.queues("new-batches")} == {"BatchCQ"}
    # A message in several queues; ours were numbered before it.
    (light,) = [m for m in store.scan(topics=["parent"]) if m.body == b"light"]
    assert light.multi_dispatch == (("%LMQ%b", 2), ("%LMQ%c", 0))
    for name, offset in light.multi_dispatch:
        assert store.read(name, 0, offset).messages == (light,)


def test_every_kind_through_a_broker(rocketmq: RocketMQ, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_batch_topic(root)
    with mqstore.open(root, "a", config=SETTINGS) as store:
        write(store)
        with store.group("ours") as group:
            assert len(group.poll("goes-on")) == 8
            group.seek("goes-on", 0, 2)
            group.seek("goes-on", 1, 1)
            group.commit()
        ours = list(store.scan())
        end = store.max_physical_offset

    rocketmq.start_broker(root, PARAMS)
    try:
        served(rocketmq, ours)
        sent = [row for row in rocketmq.produce(SENT) if "status" in row]
        assert {row["status"] for row in sent} == {"SEND_OK"}
        taken = rocketmq.consume(["new"], "theirs", mode="push", count=8)
        assert bodies(taken)[TEXT] == 3
        given_back = rocketmq.consume(["batches"], "failing", mode="push", count=3, fail=True)
        assert len(given_back) == 3
    finally:
        rocketmq.stop_broker()

    report = mqstore.verify(root, config=SETTINGS)
    assert report.ok, report.findings
    with mqstore.open(root, config=SETTINGS) as store:
        assert list(store.scan(stop_physical_offset=end)) == ours
        read(store, end)
        messages = {m.physical_offset: m for m in store.scan(start_physical_offset=end)}
        dead = list(store.scan(topics=["%DLQ%failing"]))
        assert {(m.purpose, m.body) for m in dead} == {
            ("dead-letter", f"member {n}".encode()) for n in range(3)
        }
        assert list(store.read("%DLQ%failing", 0, 0).messages) == dead
        for row in taken:
            assert by_place([consumed(messages[row["phyOffset"]])]) == by_place([row])
        groups = store.groups()
        kept = json.loads(mqstore.read_config_json(root / "config" / "lmqConsumerOffset.json"))
        assert offset_table(groups) == kept["offsetTable"]
        for name in ("ours", "theirs", "waiting"):
            assert sum(of.lag for of in groups[name]) == 0
        ends = {(q.topic, q.queue_id): q.max_offset for q in store.queues()}
        for offsets in groups.values():
            for of in offsets:
                assert of.max_offset == ends.get((of.topic, of.queue_id), 0)
                assert of.lag == of.max_offset - of.queue_offset
    # And on where the broker stopped.
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        (put,) = store.append_many([kept_together([b"seven", b"eight"])])
        assert put.queue_offset == 6
        light_message = mqstore.Message(
            "parent", b"more", properties={"INNER_MULTI_DISPATCH": "%LMQ%c"}
        )
        (put,) = store.append_many([light_message])
        assert store.get(put.physical_offset).multi_dispatch == (("%LMQ%c", 1),)
