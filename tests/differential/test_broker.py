"""A real broker on a store that we wrote, and ours on a store that a broker wrote."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.clients import by_place, consumed, offset_table

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

Row = dict[str, Any]
SETTINGS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
PARAMS = {"storeConfig": SETTINGS}
TOPICS = ("orders", "pay-ment_1", "audit")
COUNT = 600


def write(store: mqstore.Store) -> list[mqstore.AppendResult]:
    """Messages as a person would append them: our clock, our host, our queues."""
    return [
        store.append(
            TOPICS[n % 3],
            f"body {n} ".encode() * (n % 40),
            queue_id=n % 4,
            tags=("TagA", "TagB", None)[n % 3 if n % 7 else 0],
            keys=(f"key-{n}", f"group-{n % 10}"),
            unique_key=f"{n:032X}",
            properties={"n": str(n), "имя": "значение"},
            flag=n,
        )
        for n in range(COUNT)
    ]


SENT: list[Row] = [
    {"op": "create-topic", "topic": "fresh", "queues": 2},
    {"topic": "orders", "queueId": 1, "bodyText": "sent", "tags": "TagA", "keys": ["s1", "s2"]},
    {"topic": "fresh", "queueId": 0, "batch": [{"bodyText": "one"}, {"bodyText": "two"}]},
    {"topic": "fresh", "queueId": 1, "bodyText": "later", "delayLevel": 1},
    {"topic": "fresh", "bodyText": "committed", "transaction": "commit"},
    {"topic": "fresh", "bodyText": "rolled back", "transaction": "rollback"},
]


def test_a_broker_serves_our_store_and_we_read_what_it_wrote(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        results = write(store)
        ours = {message.physical_offset: message for message in store.scan()}
    assert [result.physical_offset for result in results] == list(ours)

    rocketmq.start_broker(root, PARAMS)
    try:
        # Every message, by a consumer that is told the queues.
        pulled = rocketmq.consume(TOPICS, "pulling")
        assert by_place(pulled) == by_place([consumed(message) for message in ours.values()])
        # By one that the broker serves, and by tag.
        tagged = [message for message in ours.values() if message.tags == "TagA"]
        pushed = rocketmq.consume(
            TOPICS, "pushing", mode="push", tags="TagA", count=len(tagged), timeoutMs=60_000
        )
        assert by_place(pushed) == by_place([consumed(message) for message in tagged])
        # By key and by unique key, through the broker's index.
        wanted = {m.physical_offset for m in ours.values() if m.topic == "audit"}
        viewed = rocketmq.view("audit", key="group-5")
        expected = {o for o in wanted if "group-5" in ours[o].keys}
        assert {row["phyOffset"] for row in viewed} == expected
        (one,) = rocketmq.view("orders", messageId=f"{9:032X}")
        assert base64.b64decode(one["body"]) == b"body 9 " * 9

        sent = rocketmq.produce(SENT)
        assert all(row["status"] == "SEND_OK" for row in sent[1:])
        bodies = ["one", "two", "later", "committed"]
        taken = rocketmq.consume(["fresh"], "late", mode="push", count=len(bodies))
        assert Counter(base64.b64decode(row["body"]).decode() for row in taken) == Counter(bodies)
    finally:
        rocketmq.stop_broker()

    assert mqstore.verify(root, config=SETTINGS).ok
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        messages = {message.physical_offset: message for message in store.scan()}
        assert {offset: messages[offset] for offset in ours} == ours
        for row in taken:
            message = messages[row["phyOffset"]]
            assert by_place([consumed(message)]) == by_place([row])
        (found,) = store.query("orders", "s2")
        assert (found.body, found.tags, found.queue_id) == (b"sent", "TagA", 1)
        rolled_back = [m for m in messages.values() if m.body == b"rolled back"]
        assert {m.topic for m in rolled_back} == {"RMQ_SYS_TRANS_HALF_TOPIC"}
        groups = store.groups()
        kept = json.loads(mqstore.read_config_json(root / "config" / "consumerOffset.json"))
        assert offset_table(groups) == kept["offsetTable"]
        assert {"pushing", "late"} <= set(groups)
        assert sum(of.lag for of in groups["late"]) == 0
        # And go on where the broker stopped.
        after = store.append("fresh", b"after", queue_id=1, keys="mine")
        assert after.physical_offset == max(
            message.physical_offset + message.store_size for message in messages.values()
        )
        (mine,) = store.query("fresh", "mine")
        assert mine.body == b"after"
