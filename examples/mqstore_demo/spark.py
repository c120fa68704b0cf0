"""The last part of ``mqstore demo``: the store, cut into splits, through Spark to Parquet."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import mqstore
from mqstore.spark import read
from mqstore.spark.session import start_session
from mqstore_demo import DemoError, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

__all__ = ["run_spark"]

SPLIT_BYTES = 8 << 20
_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "body_crc")


def run_spark(
    folder: Path,
    done: Callable[[Step], None],
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Brings a store to Parquet and holds what is there against the store itself.

    Args:
        folder: The store.
        done: Called with each step.
        progress: Called with ``(done, total)`` tasks.

    Raises:
        DemoError: The table is not what the store is.
        StoreError: Spark does not start.
    """
    began = time.monotonic()
    spark = start_session(_SETTINGS)
    try:
        done(Step("start Spark", 1, "session", time.monotonic() - began, 0, spark.version))
        with tempfile.TemporaryDirectory(prefix="mqstore-demo-") as temporary:
            table = Path(temporary) / "messages"
            began = time.monotonic()
            frame = read(spark, folder, columns=(*_COLUMNS, "body"), splitBytes=SPLIT_BYTES)
            with _watched(spark, progress):
                frame.write.partitionBy("topic").parquet(str(table))
            seconds = time.monotonic() - began
            files = list(table.rglob("*.parquet"))
            count, size = _compare(folder, table)
            detail = f"{frame.rdd.getNumPartitions()} splits, {len(files)} files; as in the store"
            done(Step("Spark to Parquet", count, "messages", seconds, size, detail))
    finally:
        spark.stop()


def _compare(folder: Path, table: Path) -> tuple[int, int]:
    """How many messages there are, and bytes of bodies, where both sides have the same."""
    with mqstore.open(folder) as store:
        ours = store.scan_arrow(columns=_COLUMNS).read_all()
    typed = ds.partitioning(pa.schema({"topic": pa.string()}), flavor="hive")
    theirs = ds.dataset(table, format="parquet", partitioning=typed).to_table()
    for what, look in (
        ("messages by topic and queue", _by_queue),
        ("physical offsets and checksums", _rows),
    ):
        expected, found = look(ours), look(theirs)
        if expected != found:
            raise DemoError(f"{what}: the store and the Parquet files differ")
    return theirs.num_rows, pc.sum(pc.binary_length(theirs["body"])).as_py()


def _by_queue(rows: pa.Table) -> Counter[tuple[str, int]]:
    return Counter(zip(rows["topic"].to_pylist(), rows["queue_id"].to_pylist(), strict=True))


def _rows(rows: pa.Table) -> pa.Table:
    return rows.select(list(_COLUMNS[3:])).sort_by("physical_offset").combine_chunks()


_SETTINGS = {
    "spark.app.name": "mqstore demo",
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


@contextlib.contextmanager
def _watched(spark: SparkSession, progress: Callable[[int, int], object] | None) -> Iterator[None]:
    """Tells how many tasks are done while the block runs."""
    if progress is None:
        yield
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not ended.wait(0.2):
            for stage in tracker.getActiveStageIds():
                if info := tracker.getStageInfo(stage):
                    progress(info.numCompletedTasks, info.numTasks)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
