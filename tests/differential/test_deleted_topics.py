"""A topic that was deleted and used again before a crash: RocketMQ keeps its new messages alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

import mqstore
from helpers.files import copy_store
from helpers.java import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ, Row

PARAMS = {"storeConfig": SMALL}
OLD = 20


def lines(begin: int, count: int) -> list[Row]:
    hosts = {"bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:2"}
    return [
        {"topic": "t", "queueId": 0, "bodyText": f"{n}", **hosts}
        | dict.fromkeys(["bornTimestamp", "storeTimestamp"], 1_700_000_000_000 + n)
        for n in range(begin, begin + count)
    ]


def numbers(root: Path, mode: Literal["r", "r+"] = "r") -> list[int]:
    with mqstore.open(root, mode, config=SMALL) as store:
        return [int(message.body) for message in store.topic("t")]


@pytest.mark.parametrize("new", [3, OLD, 30])
def test_its_old_messages_stay_deleted(
    start_rocketmq: Callable[[], RocketMQ], tmp_path: Path, new: int
) -> None:
    root, ours, theirs = tmp_path / "store", tmp_path / "ours", tmp_path / "theirs"
    expected = list(range(OLD, OLD + new))
    broker = start_rocketmq()
    broker.hold(root, PARAMS)
    broker.write(root, PARAMS, lines(0, OLD))
    broker.delete_topic(root, "t")
    broker.write(root, PARAMS, lines(OLD, new))
    assert numbers(root) == expected
    broker.crash()
    assert numbers(root) == expected
    codes = {finding.code for finding in mqstore.verify(root, config=SMALL).findings}
    assert "MQ-LOG-10" in codes
    cures = [one.cure for one in mqstore.doctor(root, config=SMALL).diagnoses]
    assert not any("--what consumequeue" in cure for cure in cures if cure)
    for copy in (ours, theirs):
        copy_store(root, copy)
    assert numbers(ours, "r+") == expected
    assert numbers(ours) == expected
    again = start_rocketmq()
    again.recover(theirs, PARAMS)
    assert numbers(theirs) == expected
