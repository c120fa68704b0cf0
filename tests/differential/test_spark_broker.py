"""A pipeline beside a real broker, killed at random moments.

``MQSTORE_BROKER_KILLS`` says how often.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

import mqstore
from helpers.pipelines import Driver
from helpers.waiting import wait_until
from mqstore.spark.flushed_offsets import SYNC_EVERY_S

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

KILLS = int(os.environ.get("MQSTORE_BROKER_KILLS", "3"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261125"))
FILE = 65536
SETTINGS = {
    "mappedFileSizeCommitLog": FILE,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "fileReservedTime": 1,
    "deleteCommitLogFilesInterval": 1,
    # The disk counts as full, so a broker deletes all day; a really full one deletes nothing early.
    "diskMaxUsedSpaceRatio": 10,
    "cleanFileForciblyEnable": False,
}
EXPIRED_S = 2 * 3600
BATCH_S = 120
"""A batch of Spark on a machine that has other work."""


class Broker:
    """A broker that is produced to, and what it accepted.

    Args:
        process: RocketMQ with a running broker.
        root: Its store.
        checkpoint: Of the pipeline that reads it.
        chance: Decides how much is sent and how long the broker idles.
    """

    def __init__(
        self, process: RocketMQ, root: Path, checkpoint: Path, chance: random.Random
    ) -> None:
        self.process = process
        self.root = root
        self.checkpoint = checkpoint
        self.chance = chance
        self.accepted: list[str] = []
        self.deleted = 0
        process.produce([{"op": "create-topic", "topic": "orders", "queues": 4}])

    def send(self, count: int) -> None:
        """Sends messages one by one."""
        first = len(self.accepted)
        answers = self.process.produce(
            [
                {"topic": "orders", "queueId": n % 4, "bodyText": f"{n} " + "x" * (n % 1500)}
                for n in range(first, first + count)
            ]
        )
        assert all(answer["status"] == "SEND_OK" for answer in answers)
        self.accepted += [answer["uniqKey"] for answer in answers]

    def end(self) -> int:
        """The end of the log."""
        with mqstore.open(self.root) as store:
            return store.max_physical_offset

    def committed(self) -> int:
        """Up to where the batches go that the pipeline will not repeat."""
        batches = [int(file.name) for file in self.checkpoint.glob("commits/[0-9]*")]
        if not batches:
            return 0
        log = (self.checkpoint / "offsets" / str(max(batches))).read_text()
        return int(json.loads(log.splitlines()[-1])["broker"])

    def delete_consumed(self) -> None:
        """Deletes all files but the last, if the pipeline has read them for good.

        Nothing else expires, as a broker deletes by itself, too.
        """
        files = sorted((self.root / "commitlog").iterdir())
        last = self.end() // FILE * FILE
        if self.committed() >= last:
            for file in files:
                if int(file.name) < last:
                    os.utime(file, times=(time.time() - EXPIRED_S,) * 2)
            self.process.delete_expired()
            self.deleted += len(set(files) - set((self.root / "commitlog").iterdir()))

    def work(self, over: threading.Event) -> None:
        """Bursts, and times in which nothing comes, until it is over."""
        while not over.is_set():
            self.send(self.chance.choice((1, 20, 150)))
            self.delete_consumed()
            over.wait(self.chance.uniform(0, 2))


def test_each_message_once_beside_a_broker_that_idles_rolls_and_deletes(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    root, lake = tmp_path / "broker", tmp_path / "lake"
    config: dict[str, Any] = {
        "source": {"paths": [str(root)]},
        "sink": {"path": str(lake)},
        "trigger": {"interval": "200 milliseconds"},
    }
    rocketmq.start_broker(root, {"storeConfig": SETTINGS})
    drivers: list[Driver] = []

    def start() -> Driver:
        drivers.append(Driver(config))
        return drivers[-1]

    def catch_up() -> None:
        """The machine may be slow; a driver that ended fails at once."""
        wait_until(lambda: following.is_alive() and broker.committed() >= broker.end(), minutes=10)

    try:
        broker = Broker(rocketmq, root, lake / "_checkpoint", chance)
        following = start()
        for _ in range(KILLS):
            driver, following = following, start()
            assert driver.wait("started")
            broker.send(1)
            over = threading.Event()
            killer = threading.Timer(
                chance.uniform(0, 8), lambda of=driver, end=over: (of.kill(), end.set())
            )
            driver.go()
            killer.start()
            broker.work(over)
            killer.join()
        assert following.wait("started")
        following.go()
        broker.send(300)
        catch_up()
        broker.delete_consumed()

        # The broker idles, and neither checkpoint nor clean close covers its last message.
        began = time.monotonic()
        broker.send(1)
        catch_up()
        took = time.monotonic() - began
        with mqstore.open(root) as store:
            assert store.flushed_offset < store.max_physical_offset
            assert store.min_physical_offset > 0
        consumed = {row["uniqKey"] for row in rocketmq.consume(["orders"], "pulling")}
    finally:
        for one in drivers:
            with suppress(ProcessLookupError):
                one.kill()
            one.close()
        rocketmq.stop_broker()

    table = ds.dataset(lake, partitioning="hive").to_table()
    found = Counter(table["unique_key"].to_pylist())
    lost = len(set(broker.accepted) - found.keys())
    twice = sum(found.values()) - len(found)
    sys.stdout.write(
        f"MQSTORE_SEED={SEED}: {KILLS} kills, {len(broker.accepted)} messages, {lost} lost, "
        f"{twice} twice, {broker.deleted} files deleted, the last message after {took:.1f} s\n"
    )
    assert found == Counter(broker.accepted), f"MQSTORE_SEED={SEED}"
    assert consumed <= found.keys()
    assert broker.deleted > 3
    assert took < SYNC_EVERY_S + BATCH_S
