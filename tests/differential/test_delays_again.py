"""``doctor`` and ``preflight`` against a real broker: delayed messages that it delivers again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mqstore
from helpers.java import SMALL
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {**SMALL, "messageDelayLevel": "1s 1s 1d"}
PARAMS: dict[str, Any] = {"storeConfig": {**SETTINGS, "timerWheelEnable": "true"}}


def delivered(root: Path) -> int:
    with mqstore.open(root, config=SETTINGS) as store:
        return sum(queue.max_offset for queue in store.queues() if queue.topic == "T")


def test_o1_messages_of_levels_without_an_offset_are_counted(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    rocketmq.start_broker(root, PARAMS)
    try:
        rocketmq.produce(
            [
                {"op": "create-topic", "topic": "T", "queues": 1},
                *(
                    {"topic": "T", "bodyText": f"{number}", "delayLevel": level}
                    for number in range(4)
                    for level in (1, 2, 3)
                ),
            ]
        )
        wait_until(lambda: delivered(root) == 8)
    finally:
        rocketmq.stop_broker()
    config = root / "config"
    sound = mqstore.doctor(root, config=SETTINGS)
    assert "MQ-OFF-06" not in {one.code for one in sound}

    for path in config.glob("delayOffset.json*"):
        path.unlink()
    diagnosed = {one.code: one for one in mqstore.doctor(root, config=SETTINGS)}
    assert "8 messages" in diagnosed["MQ-OFF-06"].evidence[0]
    notes = mqstore.preflight(root, to="5.3", config=SETTINGS).notes
    assert [note.what for note in notes if "delivers 8 delayed messages again" in note.what]

    rocketmq.start_broker(root, PARAMS)
    try:
        wait_until(lambda: delivered(root) == 16)
    finally:
        rocketmq.stop_broker()
    assert delivered(root) == 16
