"""Spark on stores behind URLs: the rows of the local store, few requests, no secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.buckets import SECRET, s3_server
from mqstore.errors import ConfigError
from mqstore.spark.options import ReadOptions
from mqstore.spark.plan import plan
from mqstore.spark.roots import CONNECTED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from helpers.buckets import Bucket

SMALL = {"mapped_file_size_commit_log": 1 << 18, "max_hash_slot_num": 1000, "max_index_num": 4000}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with s3_server(tmp_path_factory.mktemp("weed")) as bucket:
        yield bucket


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cloud") / "broker-a" / "store"
    with mqstore.open(folder, "a", config=SMALL) as store:
        for number in range(600):
            body = f"body {number} ".encode() * 100
            store.append("orders", body, queue_id=number % 2, keys=f"key-{number}", tags="paid")
    return folder


@pytest.fixture(scope="module")
def url(s3: Bucket, local: Path) -> str:
    return s3.put(local, "broker-a/store")


def rows(frame: Any, *columns: str) -> list[Any]:
    return sorted(map(tuple, frame.select(*columns or frame.columns).collect()), key=str)


def options_of(s3: Bucket, **more: str) -> dict[str, str]:
    return {"storageOptions": json.dumps(s3.options), **more}


@pytest.mark.parametrize(
    "more",
    [
        {"splitBytes": "300k"},
        {"keys": "key-17,key-400"},
        {"topics": "orders", "tags": "paid", "accessPath": "consumequeue"},
        {"table": "consumequeue"},
        {"table": "index"},
        {"table": "checkpoint"},
        {"table": "offsets"},
        {"table": "damage"},
    ],
    ids=lambda more: " ".join(more.values()),
)
def test_reads_are_equal(
    more: dict[str, str], spark: SparkSession, s3: Bucket, url: str, local: Path
) -> None:
    def read(path: str, **given: str) -> list[Any]:
        return rows(spark.read.format("mqstore").options(**more, **given).load(path))

    assert read(url, **options_of(s3)) == read(str(local))


def test_files_are_the_objects(spark: SparkSession, s3: Bucket, url: str, local: Path) -> None:
    frame = spark.read.format("mqstore").options(**options_of(s3, table="files")).load(url)
    known = spark.read.format("mqstore").options(table="files").load(str(local))
    names = "broker", "path", "structure", "size"
    assert rows(frame, *names) == rows(known, *names)


def test_streams_and_micro_batches(
    spark: SparkSession, s3: Bucket, url: str, tmp_path: Path
) -> None:
    options = options_of(s3)
    stream = spark.readStream.format("mqstore").options(**options).load(url)
    writer = stream.select("topic", "physical_offset").writeStream.format("parquet")
    target = str(tmp_path / "out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    )
    query.start(target).awaitTermination()
    assert spark.read.parquet(target).count() == 600
    seen: list[int] = []

    def write(frame: Any, *_: object) -> None:
        seen.append(frame.count())

    books = tmp_path / "books"
    mqstore.spark.micro_batch(spark, url, books, write, until="end", **options)
    assert sum(seen) == 600
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_verify_on_a_cluster(spark: SparkSession, s3: Bucket, url: str) -> None:
    report = mqstore.spark.verify(spark, [url], storage_options=s3.options)
    assert report.ok
    assert report.counts["messages"] == 600


@pytest.mark.parametrize(
    "more",
    [{}, {"keys": "key-17,key-400"}, {"topics": "orders", "tags": "paid"}],
    ids=["all", "keys", "queues"],
)
def test_planning_costs_few_requests(more: dict[str, str], s3: Bucket, url: str) -> None:
    CONNECTED.clear()
    options = ReadOptions.parse({"path": url, **options_of(s3), **more})
    assert len(plan(options)) > 0
    assert options.root(url).counts.requests <= 14


def test_secrets_and_wrong_options(
    s3: Bucket, url: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ReadOptions.parse({"path": url, **options_of(s3)})
    assert SECRET not in repr(options)
    with pytest.raises(ConfigError) as caught:
        ReadOptions.parse({"path": url, "storageOptions": f'{{"key": "{SECRET}'})
    assert SECRET not in str(caught.value)
    frame = spark.read.format("mqstore").options(**options_of(s3)).load(url)
    frame.explain(extended=True)
    assert SECRET not in capsys.readouterr().out
    wrong = {**s3.options, "secret_access_key": f"wrong-{SECRET}"}
    with pytest.raises(Exception, match="ListBucket") as failed:
        spark.read.format("mqstore").option("storageOptions", json.dumps(wrong)).load(url).count()
    assert SECRET not in str(failed.value)
