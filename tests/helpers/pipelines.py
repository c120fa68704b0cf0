"""A pipeline in a process of its own, to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from helpers import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

_DRIVER = """
import json
import sys
import mqstore.spark
from pyspark.sql import SparkSession

settings = {
    "spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
print("started", flush=True)
sys.stdin.readline()
mqstore.spark.pipeline(spark, json.loads(sys.argv[1])).awaitTermination()
print("over", flush=True)
spark.stop()
"""


class Driver:
    """A driver with its JVM and workers, which die together.

    Args:
        config: Of the pipeline, which begins with ``go``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )

    def wait(self, word: str) -> bool:
        """Reads up to a word; whether it came before the driver's end."""
        assert self.process.stdout is not None
        return any(line.strip() == word for line in self.process.stdout)

    def is_alive(self) -> bool:
        """Whether it still works; it fails with what a driver said that ended by itself."""
        if self.process.poll() is None:
            return True
        self.errors.seek(0)
        raise AssertionError(f"the driver ended: {self.errors.read()[-8000:]}")

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
        self.errors.close()
