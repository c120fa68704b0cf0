"""A pipeline beside a writer, killed at random moments; ``MQSTORE_SPARK_KILLS`` says how often."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from itertools import count, islice
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import mqstore
from helpers.pipelines import Driver
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS = int(os.environ.get("MQSTORE_SPARK_KILLS", "20"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261125"))
COLUMNS = "broker,topic,physical_offset,store_size,store_timestamp,body,error"


def append(root: Path, numbers: Iterator[int], stop: threading.Event | None = None) -> None:
    """Appends 20 messages; with ``stop`` three more at a time until it is set."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 20)])
        while stop is not None and not stop.wait(0.1):
            store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 3)])


@pytest.mark.usefixtures("spark")  # or its skip: no Java
def test_each_message_once_however_often_the_pipeline_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    numbers = count()
    config = {
        "source": {
            "paths": [f"{tmp_path}/store-*"],
            "until": "end",
            "columns": COLUMNS.split(","),
        },
        "sink": {"path": f"{tmp_path}/lake/messages"},
        "trigger": {"available_now": True},
    }
    following = Driver(config)
    for number in range(KILLS + 1):
        driver = following
        assert driver.wait("started")
        if number < KILLS:
            following = Driver(config)
        append(tmp_path / f"store-{number % 3}", numbers)
        stop = threading.Event()
        beside = (tmp_path / f"store-{(number + 1) % 3}", numbers, stop)
        writer = threading.Thread(target=append, args=beside)
        if number < KILLS:
            writer.start()
        driver.go()
        if number == KILLS:
            assert driver.wait("over"), f"MQSTORE_SEED={SEED}"
        else:
            # Before the first batch, in the middle of one, or behind it.
            killer = threading.Timer(chance.uniform(0, 4), driver.kill)
            killer.start()
            driver.wait("over")
            killer.cancel()
            killer.join()
            driver.kill()
            stop.set()
            writer.join()
        driver.close()
    written = next(numbers)
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table()
    found = Counter(map(int, table["body"].to_pylist()))
    lost, twice = written - len(found), sum(found.values()) - len(found)
    told = f"{KILLS} kills, {written} messages, {lost} lost, {twice} twice"
    sys.stdout.write(f"MQSTORE_SEED={SEED}: {told}\n")
    assert found == Counter(range(written)), f"MQSTORE_SEED={SEED}"
    metrics = ds.dataset(tmp_path / "lake" / "messages_metrics", partitioning="hive").to_table()
    assert sum(metrics["messages"].to_pylist()) == written, f"MQSTORE_SEED={SEED}"
