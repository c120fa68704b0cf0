"""A backup beside a real broker; a broker on the store that was restored from it."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.clients import by_place
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
VERSIONS = ("5.3.3", "5.5.0") if os.environ.get("MQSTORE_ROCKETMQ_MATRIX") else ("5.3.3",)
PARAMS = {"storeConfig": SETTINGS}


def sent(first: int, count: int) -> list[dict[str, Any]]:
    numbers = range(first, first + count)
    return [
        {"topic": "orders", "queueId": n % 2, "bodyText": f"body {n} " * 9, "keys": [f"key-{n}"]}
        for n in numbers
    ]


def groups(root: Path) -> dict[str, list[mqstore.GroupOffset]]:
    with mqstore.open(root, config=SETTINGS) as store:
        return store.groups()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_goes_on_from_the_moment_of_a_backup(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str
) -> None:
    rocketmq = running(version)
    root, backup, out = tmp_path / "store", tmp_path / "backup", tmp_path / "out"
    rocketmq.start_broker(root, PARAMS)
    try:
        rocketmq.produce([{"op": "create-topic", "topic": "orders", "queues": 2}, *sent(100, 300)])
        before = rocketmq.consume(["orders"], "billing", mode="push", count=300, timeoutMs=60_000)
        assert len(before) == 300
        wait_until(lambda: "billing" in groups(root))  # the broker writes them now and then
        mqstore.sync(root, backup, config=SETTINGS)
        # Sent while the broker runs, and not consumed at the moment of the second snapshot.
        rocketmq.produce(sent(400, 50))
        second = mqstore.sync(root, backup, config=SETTINGS, verify=True)
        rocketmq.consume(["orders"], "billing", mode="push", count=50, timeoutMs=60_000)
        rocketmq.produce(sent(450, 50))
        mqstore.sync(root, backup, config=SETTINGS)
        with mqstore.open(backup, snapshot=second.snapshot) as kept:
            assert len(kept.query("orders", "key-449")) == 1
            assert not kept.query("orders", "key-450")
            had = {place.queue_id: place for place in kept.groups()["billing"]}
    finally:
        rocketmq.stop_broker()
    assert mqstore.check_backup(backup).ok

    report = mqstore.restore(backup, out, snapshot=second.snapshot)
    assert [f for f in report.findings if f.severity == "error"] == []
    rocketmq.start_broker(out, PARAMS)
    try:
        left = sum(place.lag for place in had.values())
        assert left >= 50
        taken = rocketmq.consume(["orders"], "billing", mode="push", count=left, timeoutMs=60_000)
        # The messages of the moment, once.
        assert len(by_place(taken)) == left == len({row["phyOffset"] for row in taken})
        assert all(row["queueOffset"] >= had[row["queueId"]].queue_offset for row in taken)
        (found,) = rocketmq.view("orders", key="key-449")
        assert base64.b64decode(found["body"]) == b"body 449 " * 9
        assert rocketmq.produce(sent(900, 1))[0]["status"] == "SEND_OK"
    finally:
        rocketmq.stop_broker()
    assert mqstore.verify(out, config=SETTINGS).ok
