"""A scan through Spark against a plain-Python decoder, Parquet, and constant batches."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import samples
import spark_sources

import mqstore
from mqstore.spark import read, register
from mqstore.spark.mapping import map_parts
from mqstore.spark.options import ReadOptions
from mqstore.spark.plan import plan
from mqstore.spark.reader import read_range
from mqstore.spark.schema import columns_schema, usual_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Benchmark = Any

ALL = tuple(usual_columns())
TWO = ("topic", "queue_offset")
SMALL = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
CORES = os.environ.get("MQSTORE_BENCH_CORES", "2")
COLUMNS = pytest.mark.parametrize("columns", [ALL, TWO], ids=["all", "two"])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores, or of MQSTORE_BENCH_CORES, with the sources that are compared."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
    }
    session = SparkSession.builder.master(f"local[{CORES}]").config(map=settings).getOrCreate()
    register(session)
    session.dataSource.register(spark_sources.PlainSource)
    session.dataSource.register(spark_sources.ConstantSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many messages of 1 KiB as MQSTORE_BENCH_ROWS says, or a few where nothing is measured."""
    count = int(os.environ.get("MQSTORE_BENCH_ROWS", "400000"))
    if request.config.getoption("--benchmark-disable"):
        count = 2_000
    path = tmp_path_factory.mktemp("bench") / "store"
    sample = samples.sample(1024)
    with mqstore.open(path, "a", config=samples.CONFIG) as store:
        for first in range(0, count, 10_000):
            store.append_many(
                mqstore.Message(
                    "BenchTopic",
                    sample.body,
                    queue_id=number & 7,
                    tags="tag",
                    keys=[f"order{number}"],
                    unique_key=f"{number:032X}",
                )
                for number in range(first, min(first + 10_000, count))
            )
        store.wait_dispatched()
    # Or the system writes it out while others read it.
    os.sync()
    return path


def frame_of(spark: SparkSession, source: str, path: Path, columns: tuple[str, ...]) -> DataFrame:
    """The columns, with a projection by schema where that is what the source knows."""
    if source == "parquet":
        kept = path.parent / "parquet"
        if not kept.exists():
            read(spark, path).write.parquet(str(kept))
        return spark.read.parquet(str(kept)).select(*columns)
    if source == "mqstore_arrow":
        return read(spark, path, engine="arrow", columns=columns)
    if source in ("constant_arrow", "bare_arrow"):
        is_bare = source == "bare_arrow"
        kind = spark_sources.BareReader if is_bare else spark_sources.ConstantReader
        reader = kind(str(path), columns)
        return map_parts(spark, reader, reader.partitions(), columns_schema(columns))
    return spark.read.format(source).schema(columns_schema(columns)).load(str(path))


def consume(frame: DataFrame) -> None:
    """Every row and column, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()


@COLUMNS
@pytest.mark.parametrize(
    "source",
    [
        "mqstore",
        "bench_constant",
        "mqstore_arrow",
        "constant_arrow",
        "bare_arrow",
        "bench_plain",
        "parquet",
    ],
)
def bench_scan(
    benchmark: Benchmark, spark: SparkSession, store: Path, source: str, columns: tuple[str, ...]
) -> None:
    """All rows through Spark."""
    frame = frame_of(spark, source, store, columns)
    rows = frame.count()
    benchmark.extra_info["rows"] = rows
    benchmark.pedantic(consume, args=(frame,), rounds=5, warmup_rounds=1)
    if not benchmark.disabled:
        benchmark.extra_info["rows_per_second"] = round(rows / benchmark.stats.stats.median)


@COLUMNS
@pytest.mark.parametrize("decoder", ["mqstore", "plain"])
def bench_reader(benchmark: Benchmark, store: Path, decoder: str, columns: tuple[str, ...]) -> None:
    """The same rows in one Python process, without Spark; there it need not be cut up."""
    options = ReadOptions(paths=(str(store),), split_bytes=1 << 40)

    def rows() -> int:
        if decoder == "mqstore":
            parts = plan(options)
            return sum(b.num_rows for part in parts for b in read_range(part, options, columns))
        files = sorted((store / "commitlog").iterdir())
        return sum(1 for file in files for _ in spark_sources.decode_file(file, columns))

    count = benchmark.pedantic(rows, rounds=5 if decoder == "mqstore" else 2, warmup_rounds=1)
    benchmark.extra_info["rows"] = count
    if not benchmark.disabled:
        benchmark.extra_info["rows_per_second"] = round(count / benchmark.stats.stats.median)


@pytest.fixture(scope="session")
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many small messages as MQSTORE_BENCH_KEYS says, with two keys each."""
    count = int(os.environ.get("MQSTORE_BENCH_KEYS", "100000"))
    if request.config.getoption("--benchmark-disable"):
        count = 2_000
    path = tmp_path_factory.mktemp("keys") / "store"
    with mqstore.open(path, "a") as store:
        for first in range(0, count, 100_000):
            numbers = range(first, min(first + 100_000, count))
            columns = {
                "topic": pa.repeat(pa.scalar("BenchTopic"), len(numbers)),
                "body": pa.repeat(pa.scalar(b"x" * 16), len(numbers)),
                "queue_id": pa.array([number & 7 for number in numbers], pa.int32()),
                "keys": pa.array([[f"order{number}", f"user{number}"] for number in numbers]),
            }
            store.append_arrow(pa.record_batch(columns))
        store.wait_dispatched()
    return path


def bench_key(benchmark: Benchmark, spark: SparkSession, keyed: Path) -> None:
    """One key out of all messages, planned and read anew each time."""
    numbers = itertools.count(1)

    def lookup() -> int:
        key = f"order{next(numbers) * 1_009}"
        return len(read(spark, keyed, keys=[key], topics=["BenchTopic"]).collect())

    assert benchmark.pedantic(lookup, rounds=7 if benchmark.enabled else 1, warmup_rounds=1) == 1


@pytest.fixture(scope="session")
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand stores of 20 messages, or a few where nothing is measured."""
    count = 10 if request.config.getoption("--benchmark-disable") else 1_000
    folder = tmp_path_factory.mktemp("many")
    body = samples.sample(1024).body
    with mqstore.open(folder / "one", "a", config=SMALL) as store:
        store.append_many(mqstore.Message("BenchTopic", body, queue_id=n & 3) for n in range(20))
    for number in range(count):
        shutil.copytree(folder / "one", folder / f"store-{number}")
    return folder


def bench_many_stores(benchmark: Benchmark, spark: SparkSession, many: Path) -> None:
    """All columns of many small stores, planned and read anew each time."""

    def scan() -> None:
        consume(read(spark, many / "store-*"))

    benchmark.extra_info["rows"] = read(spark, many / "store-*").count()
    benchmark.pedantic(scan, rounds=5, warmup_rounds=1)
