"""A real broker on a store that we wrote, and ours on a store that a broker wrote."""

from __future__ import annotations

import base64
import json
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.clients import by_place, consumed, offset_table
from helpers.java import RocketMQError
from helpers.waiting import wait_until
from mqstore.cli import main

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


def test_a_broker_passes_over_what_we_keep_beside_its_offsets(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    offsets = root / "config" / "consumerOffset.json"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        store.append_many([mqstore.Message("done", b"%d" % number) for number in range(8)])
        with store.group("late") as group:
            messages = group.poll("done", max_messages=8)
            assert all(group.ack(messages[number]) for number in (0, 1, 5, 7))
        with store.group("reset") as group:
            assert len(group.poll("done", max_messages=8)) == 8
            group.commit()
    assert main(["groups", str(root), "-g", "reset", "--reset-to", "earliest", "--apply"]) == 0
    (kept,) = offsets.parent.glob("consumerOffset.json.mqstore-*")
    copied = kept.read_bytes()
    assert json.loads(mqstore.read_config_json(offsets))["mqstoreDone"]

    rocketmq.start_broker(root, PARAMS)
    try:
        # From the committed offset on, although we know that two of them are done.
        taken = rocketmq.consume(["done"], "late", mode="push", count=6, timeoutMs=60_000)
        assert sorted(base64.b64decode(row["body"]) for row in taken) == [
            b"%d" % n for n in range(2, 8)
        ]
        again = rocketmq.consume(["done"], "reset", mode="push", count=8, timeoutMs=60_000)
        assert len(again) == 8
    finally:
        rocketmq.stop_broker()
    assert kept.read_bytes() == copied
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        ends = {name: [of.lag for of in store.groups()[name]] for name in ("late", "reset")}
        assert ends == {"late": [0], "reset": [0]}
        with store.group("late") as group:
            assert group.poll("done") == []


def test_a_store_of_dledger_is_named_left_alone_and_salvaged(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        peer = f"n0-127.0.0.1:{free.getsockname()[1]}"
    ledger = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": peer}
    rocketmq.start_broker(root, {"storeConfig": {**SETTINGS, **ledger, "dLegerSelfId": "n0"}})

    def is_sent(lines: list[Row]) -> bool:
        # Until it was elected, a broker that is alone takes nothing.
        with suppress(RocketMQError):
            return all(row.get("status") in (None, "SEND_OK") for row in rocketmq.produce(lines))
        return False

    try:
        wait_until(lambda: is_sent([{"op": "create-topic", "topic": "kept", "queues": 1}]))
        for number in range(5):
            line = {"topic": "kept", "queueId": 0, "bodyText": str(number)}
            wait_until(lambda line=line: is_sent([line]))  # type: ignore[misc]
    finally:
        rocketmq.stop_broker()

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = files()
    data = root / "dledger-n0" / "data"
    for use in (
        lambda: mqstore.open(root),
        lambda: mqstore.open(root, "r+"),
        lambda: mqstore.open(root, "a"),
        lambda: mqstore.recover(root, dry_run=False),
        lambda: mqstore.rebuild(root),
        lambda: mqstore.verify(root),
        lambda: mqstore.doctor(root),
    ):
        with pytest.raises(mqstore.NotAStoreError, match=f"DLedger.*mqstore salvage {data} --out"):
            use()
    assert files() == before
    mqstore.salvage(data, tmp_path / "out")
    with mqstore.open(tmp_path / "out") as store:
        assert {m.body for m in store.scan(topics=["kept"])} == {b"%d" % n for n in range(5)}
