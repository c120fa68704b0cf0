"""The batch source through Spark itself, in one session."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException

import mqstore
from helpers.arrow_types import to_arrow_schema
from mqstore.spark import read, register
from mqstore.spark.failures import sentence
from mqstore.spark.schema import message_schema, usual_columns
from mqstore.spark.source import MqStoreDataSource
from mqstore.spark.stores import log_once

if TYPE_CHECKING:
    from pathlib import Path

START_MS = 1_700_000_000_000
FILE = 16384
COUNT = 120


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> Path:
    """Two brokers with messages of two topics each."""
    folder = tmp_path_factory.mktemp("brokers")
    config = {"mapped_file_size_commit_log": FILE}
    for broker in ("broker-a", "broker-b"):
        with mqstore.open(folder / broker / "store", "a", config=config) as store:
            store.append_many(
                mqstore.Message(
                    ("orders", "pay")[n % 2],
                    f"{broker} {n}".encode() + b"." * (n * 31 % 700),
                    queue_id=n // 2 % 2,
                    tags=("paid", "refunded")[n % 3 % 2],
                    keys=[f"k{n}"],
                    unique_key=f"u{n}",
                    properties={"region": f"r{n % 5}"},
                    store_timestamp_ms=START_MS + 1000 * n,
                )
                for n in range(COUNT)
            )
            store.wait_dispatched()
    return folder


def load(spark, path: object, **options: object):
    reader = spark.read.format("mqstore")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load([str(one) for one in path] if isinstance(path, list) else str(path))


def test_every_column_of_every_message_as_the_store_has_it(spark, stores) -> None:
    table = load(spark, stores / "broker-a" / "store").orderBy("physical_offset").toArrow()
    assert table.schema.names == usual_columns()
    with mqstore.open(stores / "broker-a" / "store") as store:
        own = store.scan_arrow().read_all()
    assert table.num_rows == COUNT
    assert set(table.column("broker").to_pylist()) == {"broker-a"}
    for name in usual_columns()[1:]:
        assert table.column(name).to_pylist() == own.column(name).to_pylist(), name


def test_a_plan_names_access_path_stores_splits_filters_and_columns(spark, stores, capsys) -> None:
    def plan(**options: object) -> str:
        read(spark, stores / "*" / "store", engine="arrow", **options).explain()
        return capsys.readouterr().out

    found = plan(columns=["topic", "body"], minPartitions=2)
    assert re.search(r"MapInArrow mqstore_scan_2_stores_2_splits\(.*\[topic#\d+, body#\d+\]", found)
    assert " mqstore_index_2_stores_1_split_by_topics_keys(" in plan(topics=["pay"], keys=["k3"])
    assert "_by_starting_timestamp(" in plan(startingTimestamp=START_MS)
    assert " mqstore_files_1_split(" in plan(table="files")
    # All that Spark shows of a Python source is its name and its columns.
    load(spark, stores / "*" / "store", topics="pay").select("topic").explain()
    assert "BatchScan mqstore[broker#" in capsys.readouterr().out


def test_a_read_of_all_columns_tells_once_how_to_leave_some_out(stores, caplog) -> None:
    log_once.cache_clear()
    caplog.set_level(logging.INFO, "mqstore.spark")

    def told(**options: str) -> list[str]:
        caplog.clear()
        source = MqStoreDataSource({"path": str(stores / "broker-a" / "store"), **options})
        source.reader(source.schema())
        return [record.message for record in caplog.records if "columns=" in record.message]

    assert told(columns="topic,body") == []
    (line,) = told()
    assert line.startswith("all 21 columns of a message are decoded")
    assert told() == []


def test_globs_and_lists_filters_and_splits(spark, stores) -> None:
    frame = load(spark, stores / "*" / "store", splitBytes="3k")
    assert frame.count() == 2 * COUNT
    frame.createOrReplaceTempView("messages")
    rows = spark.sql(
        "SELECT broker, topic, count(*) AS n, count(DISTINCT unique_key) AS d "
        "FROM messages WHERE tags = 'paid' OR properties['region'] = 'r1' GROUP BY ALL"
    ).collect()
    wanted = [n for n in range(COUNT) if n % 3 % 2 == 0 or n % 5 == 1]
    by_topic = {t: len([n for n in wanted if n % 2 == i]) for i, t in enumerate(("orders", "pay"))}
    assert {(row.broker, row.topic): row.n for row in rows} == {
        (broker, topic): count
        for broker in ("broker-a", "broker-b")
        for topic, count in by_topic.items()
    }
    assert all(row.n == row.d for row in rows)
    both = [stores / "broker-a" / "store", stores / "broker-b" / "store"]
    some = load(spark, both, topics="pay", tags="paid", endingTimestamp=START_MS + 50_000)
    numbers = sorted(int(row.unique_key[1:]) for row in some.select("unique_key").collect())
    assert numbers == sorted(2 * [n for n in range(51) if n % 2 and n % 3 % 2 == 0])


def test_a_schema_is_a_projection_and_times_are_times(spark, stores) -> None:
    frame = (
        spark.read.format("mqstore")
        .schema("store_timestamp timestamp, keys array<string>, raw_body binary, error string")
        .option("keys", "k7")
        .load(str(stores / "broker-b" / "store"))
    )
    (row,) = frame.collect()
    assert row.store_timestamp.replace(tzinfo=UTC) == datetime.fromtimestamp(
        START_MS / 1000 + 7, tz=UTC
    )
    assert (row.keys, row.error) == (["k7"], None)
    assert bytes(row.raw_body).startswith(b"broker-b 7")


def test_the_typed_helper_and_views(spark, stores) -> None:
    frame = read(
        spark, stores / "broker-a" / "store", topics=["orders"], columns=["queue_id", "body"]
    )
    assert frame.columns == ["queue_id", "body"]
    assert frame.count() == COUNT // 2
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW pay USING mqstore "
        f"OPTIONS (path '{stores / 'broker-a' / 'store'}', topics 'pay')"
    )
    assert spark.sql("SELECT count(*) AS n FROM pay").first().n == COUNT // 2
    damage = read(spark, stores / "*" / "store", table="damage")
    assert [row.severity for row in damage.collect() if row.severity != "info"] == []


@pytest.fixture
def pushing(spark):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_pushdown_gives_the_same_rows(pushing, stores) -> None:
    def rows(**options: object) -> list:
        frame = load(pushing, stores / "*" / "store", **options)
        chosen = frame.where(
            "topic = 'orders' AND store_timestamp >= timestamp_millis(1700000030000)"
            " AND unique_key IN ('u40', 'u41', 'u2') AND queue_id = 0"
        )
        return sorted(chosen.select("broker", "unique_key").collect())

    assert rows(pushdown="true") == rows() == [("broker-a", "u40"), ("broker-b", "u40")]
    assert load(pushing, stores / "*" / "store", pushdown="true").where("topic = 'x'").count() == 0


def test_tags_give_the_same_rows_pushed_down_as_an_option_and_by_every_way(pushing, stores) -> None:
    def rows(where: str, **options: object) -> list:
        chosen = load(pushing, stores / "*" / "store", **options).where(where)
        return sorted(chosen.select("broker", "unique_key", "tags").collect())

    all_rows = rows("true")
    for tag, where in (("paid", "tags = 'paid'"), ("refunded || x", "tags IN ('refunded', 'x')")):
        wanted = [row for row in all_rows if row.tags in tag.split(" || ")]
        assert wanted
        assert rows(where, pushdown="true") == wanted
        for way in ("auto", "scan", "consumequeue"):
            assert rows("true", tags=tag, accessPath=way) == wanted
            assert rows(where, pushdown="true", accessPath=way, splitBytes="3k") == wanted


def test_pushdown_needs_sparks_own_setting(spark, stores) -> None:
    frame = load(spark, stores / "broker-a" / "store", pushdown="true")
    with pytest.raises(Exception, match="filterPushdown"):
        frame.where("topic = 'orders'").count()


def test_ho06_damage_fails_is_skipped_or_is_a_row(spark, tmp_path) -> None:
    with mqstore.open(
        tmp_path / "store", "a", config={"mapped_file_size_commit_log": FILE}
    ) as store:
        results = store.append_many({"topic": "t", "body": b"x" * 500} for _ in range(50))
    broken = results[20].physical_offset
    with (tmp_path / "store" / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(broken + 100)
        file.write(b"?")
    options = {"splitBytes": "2k"}
    with pytest.raises(PythonException) as caught:
        load(spark, tmp_path / "store", **options).collect()
    for part in (str(tmp_path), "commitlog", "byte ", "topic t, queue 0, queue offset 20"):
        assert part in str(caught.value)
    assert load(spark, tmp_path / "store", onError="skip", **options).count() == 49
    frame = load(
        spark, tmp_path / "store", onError="rows", columns="physical_offset,error", **options
    )
    rows = frame.where("error IS NOT NULL").collect()
    assert [row.physical_offset for row in rows] == [broken]
    assert frame.count() == 50


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topcs": "x"}, "did you mean topics"),
        ({"columns": "bdy"}, "did you mean body"),
        ({"queues": "{1"}, "expected JSON, got '{1'"),
        (
            {"startingOffsets": '{"orders": {"0": 10000}}'},
            "topic orders, queue 0 holds offsets 0 to",
        ),
        ({"onError": "ignore"}, "no value 'ignore'"),
    ],
)
def test_mistakes_are_named_before_any_task(spark, stores, options, says) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(spark, stores / "broker-a" / "store", **options).count()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("VIEW v USING mqstore OPTIONS (path '{}', topcs 'T')", "no option 'topcs'; did you mean"),
        (
            "VIEW v USING mqstore",
            "path: expected a store's directory, as in load(path), got none; {}",
        ),
        ("TABLE t USING mqstore OPTIONS (path '{}')", "CREATE TABLE cannot name a store's dir"),
        ("TABLE t USING mqstore OPTIONS (topics 'T') LOCATION '{}'", "CREATE TABLE cannot name"),
    ],
)
def test_sql_is_told_in_one_sentence(spark, stores, statement: str, says: str) -> None:
    kind = "TEMPORARY " if statement.startswith("VIEW") else ""
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"CREATE {kind}" + statement.format(stores / "broker-a" / "store"))
    text = str(caught.value)
    assert "Traceback" not in text
    view = "CREATE TEMPORARY VIEW x USING mqstore OPTIONS (path '...') does, and CREATE TABLE loses"
    assert (view in text) == ("topcs" not in statement)
    assert sentence(caught.value).startswith(says.format("in SQL"))


def test_a_table_with_columns_has_no_path_when_it_is_read(spark, stores) -> None:
    options = f"OPTIONS (path '{stores / 'broker-a' / 'store'}')"
    spark.sql(f"CREATE TABLE lost (topic string) USING mqstore {options}")
    try:
        with pytest.raises(AnalysisException, match=r"path: expected .* TABLE loses its options"):
            spark.table("lost").collect()
    finally:
        spark.sql("DROP TABLE lost")


def test_paths_without_a_store_are_named_before_any_task(spark, tmp_path) -> None:
    with pytest.raises(AnalysisException, match="no directory that it matches"):
        load(spark, tmp_path / "*").count()
    with pytest.raises(AnalysisException, match="not a store: no such path"):
        load(spark, tmp_path / "none").count()
    with pytest.raises(mqstore.ConfigError, match="did you mean topics"):
        read(spark, tmp_path, topic="x")


def test_writing_asks_for_a_mode(spark, stores, tmp_path) -> None:
    frame = load(spark, stores / "broker-a" / "store")
    with pytest.raises(AnalysisException, match=r"Append|Overwrite"):
        frame.write.format("mqstore").save(str(tmp_path / "out"))


def test_spark_and_the_extension_agree_on_types(spark) -> None:
    made = spark.createDataFrame([], message_schema()).schema
    assert to_arrow_schema(made).equals(to_arrow_schema(message_schema()))
    assert sys.version_info >= (3, 11)


def test_a_workers_python_without_the_package_is_named_before_any_task(
    spark, stores, tmp_path, monkeypatch
) -> None:
    """The worker that plans has the Python that tasks would have."""
    python = tmp_path / "python"
    # Everything but what brings the package.
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH=$(echo \"$PYTHONPATH\" | tr : '\\n' | grep pyspark | paste -sd :)\n"
        f'export PYTHONPATH\nexec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", str(python))
        with pytest.raises(AnalysisException, match="No module named 'mqstore'"):
            read(spark, stores / "broker-a" / "store", engine="source")
    # Spark keeps the source with the Python it was registered from.
    register(spark)


@pytest.mark.parametrize("missing", ["pyarrow", "pyspark"])
def test_a_missing_package_is_named_with_the_cure(missing) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
import mqstore.spark
for ask in (lambda: mqstore.spark.register(None), lambda: mqstore.spark.verify):
    try:
        ask()
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert all(line.startswith(f"mqstore.spark needs {missing}, which is not") for line in lines)
    assert all(line.endswith("pip install 'mqstore[spark]'") for line in lines)
