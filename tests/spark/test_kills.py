"""A pipeline beside a writer, killed at random moments; ``MQSTORE_SPARK_KILLS`` says how often."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import mqstore
from helpers import environment
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("MQSTORE_SPARK_KILLS", "20"))
DRIVER = """
import sys
import mqstore.spark
from pyspark.sql import SparkSession

root = sys.argv[1]
settings = {
    "spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
config = {
    "source": {"paths": [root + "/store-*"], "until": "end", "columns": sys.argv[2].split(",")},
    "sink": {"path": root + "/lake/messages"},
    "trigger": {"available_now": True},
}
print("started", flush=True)
sys.stdin.readline()
mqstore.spark.pipeline(spark, config).awaitTermination()
print("over", flush=True)
spark.stop()
"""
COLUMNS = "broker,topic,physical_offset,store_size,store_timestamp,body,error"


class Driver:
    """A driver with its JVM and workers, which die together."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(root), COLUMNS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )

    def wait(self, word: str) -> bool:
        """Reads up to a word; whether it came before the driver's end."""
        assert self.process.stdout is not None
        return any(line.strip() == word for line in self.process.stdout)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def fill(root: Path, numbers: range) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in numbers])


@pytest.mark.usefixtures("spark")  # or its skip: no Java
def test_each_message_once_however_often_the_pipeline_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    written = 0
    following = Driver(tmp_path)
    for number in range(KILLS + 1):
        driver = following
        assert driver.wait("started")
        if number < KILLS:
            following = Driver(tmp_path)
        fill(tmp_path / f"store-{number % 3}", range(written, written := written + 20))
        driver.go()
        if number == KILLS:
            assert driver.wait("over"), seed
        else:
            # Before the first batch, in the middle of one, or behind it.
            killer = threading.Timer(chance.uniform(0, 4), driver.kill)
            killer.start()
            driver.wait("over")
            killer.cancel()
            killer.join()
            driver.kill()
        driver.close()
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table()
    assert Counter(map(int, table["body"].to_pylist())) == Counter(range(written)), seed
    metrics = ds.dataset(tmp_path / "lake" / "messages_metrics", partitioning="hive").to_table()
    assert sum(metrics["messages"].to_pylist()) == written, seed
