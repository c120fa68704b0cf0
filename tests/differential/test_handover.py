"""Delays, retries and dead letters that a broker takes over from us, and we from it."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.group_kills import GroupKills

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "messageDelayLevel": "1s 5s 5s",
}
OURS = {**SETTINGS, "delivery": True}
SEED = int(os.environ.get("MQSTORE_SEED", "29"))
KILLS = int(os.environ.get("MQSTORE_GROUP_KILLS", "15"))


def delay_offsets(root: Path) -> dict[str, int]:
    text = mqstore.read_config_json(root / "config" / "delayOffset.json")
    table: dict[str, int] = json.loads(text)["offsetTable"]
    return table


def test_a_broker_goes_on_with_our_delays_and_retries_and_we_with_its(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=OURS) as store, store.group("g") as group:
        store.append("orders", b"at once", delay=1)
        (first,) = group.poll("orders", timeout_s=60)
        assert group.ack(first)
        store.append("orders", b"fails", keys="k", unique_key="U1", tags="t")
        (failing,) = group.poll("orders")
        assert group.nack(failing)
        with store.group("dead") as other:
            other.process("orders", lambda _: 1 / 0, max_attempts=1, idle_s=0)
        store.append("orders", b"delayed", delay=5)
        (ours_dead, _) = store.topic("%DLQ%dead")
    assert delay_offsets(root) == {"1": 1}

    rocketmq.start_broker(root, {"storeConfig": SETTINGS})
    try:
        taken = rocketmq.consume(["orders"], "g", mode="push", count=2)
        found = {base64.b64decode(row["body"]): row for row in taken}
        assert found.keys() == {b"fails", b"delayed"}
        assert found[b"fails"]["reconsumeTimes"] == 1
        assert found[b"fails"]["properties"]["ORIGIN_MESSAGE_ID"] == failing.message_id
        # The broker's part: a delay, a retry and a dead letter for us.
        rocketmq.produce([{"topic": "orders", "queueId": 0, "bodyText": "broken", "tags": "t"}])
        rocketmq.consume(["orders"], "g", mode="push", count=1, fail=True, maxReconsumeTimes=16)
        rocketmq.consume(["orders"], "dead", mode="push", count=1, fail=True, tags="t")
        rocketmq.produce([{"topic": "orders", "queueId": 0, "bodyText": "later", "delayLevel": 2}])
    finally:
        rocketmq.stop_broker()

    seen: dict[bytes, mqstore.StoredMessage] = {}
    with mqstore.open(root, "r+", config=OURS) as store, store.group("g") as group:
        while len(seen) < 2:
            group.process("orders", lambda message: seen.update({message.body: message}), idle_s=1)
        assert seen.keys() == {b"broken", b"later"}
        retried = seen[b"broken"]
        assert retried.topic == "%RETRY%g"
        assert retried.reconsume_times >= 1  # more where the client was slow to stop
        assert sum(at.lag for at in group.lag()) == 0
        # A dead letter of ours has the properties of a broker's, but those of its client.
        *_, dead = store.topic("%DLQ%dead")
        assert dead.reconsume_times == ours_dead.reconsume_times == 1
        left = ours_dead.properties.keys() - dead.properties.keys()
        assert left <= {"REAL_TOPIC", "REAL_QID"}, (ours_dead.properties, dead.properties)
    assert mqstore.verify(root, config=SETTINGS).ok


def test_kills_before_and_after_a_broker_repeat_only_what_was_in_flight(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    """Half of the consumers are killed, a broker delivers a topic, then the others are killed.

    ``MQSTORE_GROUP_KILLS`` sets how many kills.
    """
    config = {
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 20_000,
        "max_hash_slot_num": 500,
        "max_index_num": 2000,
        "message_delay_level": "0s 0s 0s 0s 0s",
        "delivery": True,
    }
    kills = GroupKills(tmp_path / "store", tmp_path / "log", config, SEED)
    kills.kill(KILLS // 2)
    kills.hand_over(rocketmq)
    kills.kill(KILLS - KILLS // 2)
    sys.stdout.write(f"{kills.check()}\n")
