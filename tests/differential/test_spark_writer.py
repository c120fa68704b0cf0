"""Output of Spark's writer, served by a real broker to a real consumer."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pyarrow as pa

import mqstore
from mqstore.spark import writer
from mqstore.spark.schema import columns_schema

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from helpers.java import RocketMQ

CONF = """mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=500
maxIndexNum=2000
"""
PARAMS = {
    "storeConfig": {
        name: int(value) for name, value in (line.split("=") for line in CONF.splitlines())
    }
}
TOPICS = ("orders", "audit")
COUNT = 300


class Task:
    """Spark as a task sees it."""

    def __init__(self) -> None:
        self.partitionId = lambda: 0
        self.taskAttemptId = lambda: 7


def test_a_broker_serves_a_store_of_the_writer(
    rocketmq: RocketMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broker.conf").write_text(CONF)
    names = ["topic", "queue_id", "body", "keys", "tags"]
    rows = [
        {
            "topic": TOPICS[n % 2],
            "queue_id": n % 4,
            "body": b"body %d " % n * (n % 50),
            "keys": [f"key-{n}"],
            "tags": ("TagA", None)[n % 2],
        }
        for n in range(COUNT)
    ]
    schema = pa.schema([pa.schema(mqstore.ARROW_SCHEMA).field(name) for name in names])
    monkeypatch.setattr(writer, "_task", Task)
    options = {"path": str(tmp_path / "out"), "config": str(tmp_path / "broker.conf")}
    job = writer.make_writer(options, columns_schema(names), overwrite=False)
    job.commit([job.write(iter(pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=64)))])

    root = tmp_path / "out" / "part-00000"
    rocketmq.start_broker(root, PARAMS)
    try:
        pulled = rocketmq.consume(TOPICS, "pulling")
        (viewed,) = rocketmq.view("orders", key="key-28")
    finally:
        rocketmq.stop_broker()
    assert sorted(base64.b64decode(row["body"]) for row in pulled) == sorted(
        row["body"] for row in rows
    )
    assert base64.b64decode(viewed["body"]) == rows[28]["body"]
    assert mqstore.verify(root, config=options["config"]).ok
