"""Forecasts of ``preflight`` for stores that were harmed at random, against RocketMQ's own start.

12 stores by default; ``MQSTORE_FORECASTS=2000`` takes so many. 5.3.3 and 5.5.0 take turns.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.java import RocketMQError
from helpers.random_stores import make
from mqstore._settings import SETTINGS
from mqstore.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ

NAMES = {setting.conf_name for setting in SETTINGS.values()}
COUNT = int(os.environ.get("MQSTORE_FORECASTS", "12"))
AGREEMENT_PERCENT = 98
# The messages are gone before the start.
UNREAD = "cannot be read from the log"
# No queue led to the messages before, and none does after.
UNQUEUED = "messages are in the log and not in their queues"
Places = set[tuple[str, int, int]]


def known(params: dict[str, Any]) -> dict[str, Any]:
    """The settings that a store has a use for."""
    return {name: value for name, value in params["storeConfig"].items() if name in NAMES}


def readable(root: Path, config: dict[str, Any]) -> Places:
    """Messages that queues lead to, before the start."""
    found: Places = set()
    with mqstore.open(root, config=config) as store:
        for queue in store.queues():
            offset = queue.min_offset
            while offset < queue.max_offset:
                try:
                    result = store.read(queue.topic, queue.queue_id, offset)
                except CorruptionError:
                    offset += 1
                    continue
                found |= {
                    (queue.topic, queue.queue_id, one.physical_offset) for one in result.messages
                }
                offset = max(result.next_queue_offset, offset + 1)
    return found


def in_log(root: Path, config: dict[str, Any]) -> Places:
    """Messages of the log, in a queue or not."""
    with mqstore.open(root, config=config) as store:
        messages = store.scan(on_error="skip")
        return {(one.topic, one.queue_id, one.physical_offset) for one in messages}


def served(rows: list[dict[str, Any]]) -> Places:
    """Messages that RocketMQ's queues lead to, after its start."""
    places = {row["phyOffset"] for row in rows if row["type"] == "message"}
    entries = [row for row in rows if row["type"] == "cq"]
    return {
        (row["topic"], row["queueId"], row["phyOffset"])
        for row in entries
        if row["phyOffset"] in places
    }


def test_a_start_on_a_harmed_store_is_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path
) -> None:
    wrong, others = [], []
    for seed in range(COUNT):
        version, folder = ("", "5.5.0")[seed % 2], tmp_path / str(seed)
        folder.mkdir()
        root, params, told = make(seed, folder)
        if "batchTopics" in params and not (root / "config").exists():
            continue  # RocketMQ is told of topics that the folder does not name
        config = known(params)
        report = mqstore.preflight(root, to=(version or "5.3")[:3], config=config)
        before = readable(root, config) if report.starts else set()
        every = in_log(root, config) if report.starts else set()
        starts = running(version).starts(root, params)
        if starts != report.starts:
            (wrong if report.ok else others).append(f"{told}: starts: {starts}; {report.notes}")
        elif starts:
            try:
                after = served(running(version).dump(root, params))
            except RocketMQError:  # it dumps only records that lie where they say
                after = set()
            lost = before - after
            if lost and report.ok:
                wrong.append(f"{told}: said to keep all, {version} lost {sorted(lost)}")
            elif (
                before
                and not lost
                and not report.ok
                and not any(UNREAD in one.what for one in report.notes)
                and not (every - after and any(UNQUEUED in one.what for one in report.notes))
            ):
                others.append(f"{told}: keeps all; {report.notes}")
        shutil.rmtree(folder)
    if wrong or len(others) * 100 > COUNT * (100 - AGREEMENT_PERCENT):
        pytest.fail("\n".join(["wrong:", *wrong, "others:", *others]))
