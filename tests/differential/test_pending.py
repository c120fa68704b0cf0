"""``pending`` against a real broker: what it calls overdue is delivered at the next start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.java import SMALL
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {**SMALL, "messageDelayLevel": "1s 16s 1d"}
PARAMS = {
    "storeConfig": {**SETTINGS, "timerWheelEnable": "true", "mappedFileSizeTimerLog": 10240},
}
FIRST: list[dict[str, Any]] = [
    {"op": "create-topic", "queues": 1},
    {"bodyText": "fails", "tags": "t", "keys": ["fails"]},
    {"bodyText": "committed", "transaction": "commit", "keys": ["a"]},
    {"bodyText": "rolled back", "transaction": "rollback", "keys": ["b"]},
    {"bodyText": "hangs", "transaction": "unknown", "keys": ["c"]},
]
SENT: list[dict[str, Any]] = [
    {"bodyText": "tomorrow", "delayLevel": 3, "keys": ["far"]},
    {"bodyText": "far", "delayMs": 80_000_000, "keys": ["far-timer"]},
    {"bodyText": "soon", "delayLevel": 2, "keys": ["level"]},
    {"bodyText": "by time", "delayMs": 16_000, "keys": ["timer"]},
]


def overdue(report: mqstore.PendingReport) -> set[tuple[str, tuple[str, ...]]]:
    return {(row.kind, row.keys) for row in report.overdue}


def test_overdue_messages_are_those_that_the_next_start_delivers(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    rocketmq.start_broker(root, PARAMS)
    try:
        rocketmq.produce([{"topic": "T", **row} for row in FIRST])
        rocketmq.consume(["T"], "dead", mode="push", count=1, fail=True, tags="t")
        wait_until(lambda: len(mqstore.pending(root, config=SETTINGS).half) == 1)
        # The broker ends before the last two are due.
        rocketmq.produce([{"topic": "T", **row} for row in SENT])
    finally:
        rocketmq.stop_broker()
    now_ms = time.time_ns() // 1_000_000

    later = mqstore.pending(root, now_ms=now_ms + 40_000, config=SETTINGS)
    assert [(row.topic, row.keys, row.checks) for row in later.half] == [("T", ("c",), 0)]
    assert later.half[0].producer_group
    assert overdue(later) == {("delayed", ("level",)), ("timer", ("timer",))}
    assert {row.late_ms > 10_000 for row in later.overdue} == {True}
    far = mqstore.pending(root, now_ms=now_ms + 100_000_000, config=SETTINGS)
    assert overdue(far) - overdue(later) == {("delayed", ("far",)), ("timer", ("far-timer",))}
    assert [(row.group, row.origin_topic, row.messages) for row in later.dead_letters] == [
        ("dead", "T", 1)
    ]
    assert (later.retries, later.unread) == ((), ())

    rocketmq.start_broker(root, PARAMS)
    try:
        found = rocketmq.consume(["T"], "all", mode="push", count=4)
    finally:
        rocketmq.stop_broker()
    assert len(found) >= 4
    after = mqstore.pending(root, now_ms=now_ms + 40_000, config=SETTINGS)
    assert overdue(after) == set()
    assert [row.keys for row in after.half] == [("c",)]
