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

KILLS = int(os.environ.get("MQSTORE_SPARK_KILLS", "5"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261125"))
COLUMNS = "broker,topic,physical_offset,store_size,store_timestamp,body,error"


def append(root: Path, numbers: Iterator[int], stop: threading.Event | None = None) -> None:
    """Appends 20 messages; with ``stop`` three more at a time until it is set."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 20)])
        while stop is not None and not stop.wait(0.1):
            store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 3)])


class Killer(threading.Thread):
    """Kills a driver at a random moment after its start, or after it planned a batch.

    Spark writes the batch to ``offsets`` in the checkpoint before it runs.
    """

    def __init__(self, driver: Driver, offsets: Path, *, in_batch: bool, after_s: float) -> None:
        super().__init__()
        self.driver, self.offsets, self.after_s = driver, offsets, after_s
        self.batches = self.planned() if in_batch else None
        self.over = threading.Event()
        self.hit = False

    def planned(self) -> int:
        return sum(1 for _ in self.offsets.glob("[0-9]*"))

    def run(self) -> None:
        while self.batches is not None and self.planned() == self.batches:
            if self.over.wait(0.01):
                break
        self.hit = not self.over.wait(self.after_s) and self.batches is not None
        self.driver.kill()


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
    offsets = tmp_path / "lake" / "messages" / "_checkpoint" / "offsets"
    in_batches = 0
    following = Driver(config)
    for number in range(KILLS + 1):
        driver = following
        assert driver.wait("started")
        if number < KILLS:
            following = Driver(config)
        append(tmp_path / f"store-{number % 3}", numbers)
        if number == KILLS:
            driver.go()
            assert driver.wait("over"), f"MQSTORE_SEED={SEED}"
        else:
            stop = threading.Event()
            beside = (tmp_path / f"store-{(number + 1) % 3}", numbers, stop)
            writer = threading.Thread(target=append, args=beside)
            writer.start()
            # A machine with other work takes long to plan: every second kill waits for it.
            in_batch = number % 2 == 1
            after_s = chance.uniform(0, 1 if in_batch else 4)
            killer = Killer(driver, offsets, in_batch=in_batch, after_s=after_s)
            killer.start()
            driver.go()
            driver.wait("over")
            killer.over.set()
            killer.join()
            in_batches += killer.hit
            stop.set()
            writer.join()
        driver.close()
    written = next(numbers)
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table()
    found = Counter(map(int, table["body"].to_pylist()))
    lost, twice = written - len(found), sum(found.values()) - len(found)
    told = f"{KILLS} kills, {in_batches} of them just after a batch was planned; "
    told += f"{written} messages, {lost} lost, {twice} twice"
    sys.stdout.write(f"MQSTORE_SEED={SEED}: {told}\n")
    assert found == Counter(range(written)), f"MQSTORE_SEED={SEED}"
    assert in_batches > 0 or KILLS < 2, f"MQSTORE_SEED={SEED}"
    metrics = ds.dataset(tmp_path / "lake" / "messages_metrics", partitioning="hive").to_table()
    assert sum(metrics["messages"].to_pylist()) == written, f"MQSTORE_SEED={SEED}"
