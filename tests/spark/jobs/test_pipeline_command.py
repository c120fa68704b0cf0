"""The command ``mqstore pipeline``: what each of its flags does, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

import mqstore
from helpers import environment
from helpers.stores import TINY, message
from mqstore.spark.ingest import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[source]
paths = ["{root}/x-*"]
until = "end"

[sink]
path = "{root}/lake/messages"
partition_by = ["date", "broker"]

[trigger]
available_now = true

[spark]
"spark.master" = "local[1]"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.sql.shuffle.partitions" = "1"
"""


def fill(root: Path, numbers: range) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message("T", body=b"%d" % n) for n in numbers])


def run(file: Path, *flags: str, code: int = 0) -> tuple[str, list[str]]:
    """Standard output, and the lines on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "mqstore", "pipeline", str(file), *flags],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr.splitlines()


def test_a_dry_run_shows_stores_and_tables_and_writes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "x-a", range(10))
    file = tmp_path / "ingest.toml"
    file.write_text(CONFIG.format(root=tmp_path))
    with mqstore.open(tmp_path / "x-a") as store:
        end = store.max_physical_offset
    shown, told = run(file, "--dry-run")
    lines = shown.splitlines()
    assert lines[1].split()[:4] == ["x-a", str(tmp_path / "x-a"), "0", str(end)]
    assert ["messages", str(tmp_path / "lake" / "messages")] in [line.split() for line in lines]
    assert lines[-1] == "nothing was read into tables or written"
    assert told == []
    plan = json.loads(run(file, "--dry-run", "--json")[0])
    assert plan["begins"] == "beginning"
    assert [(one["broker"], one["bytes"]) for one in plan["stores"]] == [("x-a", end)]
    assert plan["partition_by"] == ["date", "broker"]
    assert not (tmp_path / "lake").exists()


def test_a_store_that_is_gone_fails_is_retired_and_its_batches_are_joined(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, health = tmp_path / "ingest.toml", tmp_path / "health.json"
    file.write_text(CONFIG.format(root=tmp_path))
    fill(tmp_path / "x-b", range(5))
    for numbers in (range(10), range(10, 20)):
        fill(tmp_path / "x-a", numbers)
        pipeline(spark, file).awaitTermination()
    shutil.rmtree(tmp_path / "x-b")
    fill(tmp_path / "x-a", range(20, 30))

    assert "gone         x-b" in run(file, "--dry-run")[0].splitlines()
    _, told = run(file, "--health", str(health), code=1)
    found = json.loads(health.read_text(encoding="utf-8"))
    assert (found["state"], found["last_batch"]) == ("failed", None)
    assert found["reason"] == "store gone"
    assert found["error"].startswith("broker x-b: its store is gone; it was read up to ")
    assert told[-1] == f"mqstore: {found['error']}"

    shown, _ = run(file, "--retire", "x-b", "--health", str(health), "--json")
    assert [(one["broker"], one["messages"]) for one in json.loads(shown)["brokers"]] == [
        ("x-a", 10)
    ]
    assert json.loads(health.read_text(encoding="utf-8"))["state"] == "ended"

    assert run(file, "--compact")[0] == "2 folders of batches joined\n"
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table()
    rows = [(row["broker"], int(row["body"])) for row in table.to_pylist()]
    assert sorted(rows) == [*(("x-a", n) for n in range(30)), *(("x-b", n) for n in range(5))]

    # Also before a query has begun.
    shutil.rmtree(tmp_path / "x-a")
    _, told = run(file, "--health", str(health), code=3)
    assert json.loads(health.read_text(encoding="utf-8"))["state"] == "failed"


def test_a_configuration_that_is_refused_is_in_the_health_file(tmp_path: Path) -> None:
    file, health = tmp_path / "ingest.toml", tmp_path / "health.json"
    file.write_text(CONFIG.format(root=tmp_path).replace("partition_by", "partition_bye"))
    health.write_text('{"state":"ended"}')
    _, (error,) = run(file, "--health", str(health), code=2)
    told = json.loads(health.read_text())
    assert told["state"] == "failed"
    assert "partition_bye" in told["error"]
    assert "partition_bye" in error


def test_a_jvm_that_is_killed_is_named_and_the_next_run_goes_on(tmp_path: Path) -> None:
    file, health = tmp_path / "ingest.toml", tmp_path / "health.json"
    fill(tmp_path / "x-a", range(10))
    text = CONFIG.format(root=tmp_path)
    file.write_text(text.replace("available_now = true", 'interval = "1 second"'))
    command = [sys.executable, "-m", "mqstore", "pipeline", str(file), "--health", str(health)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("batch 0: done, 10 messages") for line in process.stderr)
        (jvm,) = children(process.pid)
        os.kill(jvm, signal.SIGKILL)
        told = process.stderr.read()
        assert process.wait() == 1
    says = "Spark's JVM ended (signal 9); run the pipeline again: no batch is lost"
    # A thread of py4j may complain at the same time, in the same line.
    assert f"mqstore: {says}" in told
    found = json.loads(health.read_text(encoding="utf-8"))
    assert (found["state"], found["reason"], found["error"]) == ("failed", "JVM gone", says)
    file.write_text(text)
    fill(tmp_path / "x-a", range(10, 20))
    shown, told = run(file, "--quiet", "--json")
    # Spark may have died before it noted batch 0, which the target knows.
    assert [one["messages"] for one in json.loads(shown)["brokers"]] in ([10], [20])
    assert told == []
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table(["body"])
    assert sorted(int(body) for body in table["body"].to_pylist()) == list(range(20))
    metrics = ds.dataset(tmp_path / "lake" / "messages_metrics", partitioning="hive").to_table()
    assert "JVM gone" in metrics["previous_end"].to_pylist()


def children(pid: int) -> list[int]:
    """Processes that a process started and that run java."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    java = [one for one in found if "java" in Path(f"/proc/{one}/cmdline").read_text()]
    return java or [two for one in found for two in children(one)]
