"""Reads that work on every Spark from 3.5 on: the same rows as the format, and micro batches.

``MQSTORE_SPARKS`` names Pythons with another pyspark, separated by colons: each runs this file.
``MQSTORE_SPARK_REMOTE=local`` runs it in a Spark Connect session; see ``conftest.py``.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import pickle
import platform
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import mqstore
import mqstore.spark
from helpers import environment
from helpers.stores import TINY, message
from mqstore.spark import compat, tasks
from mqstore.spark.compat import HAS_SOURCES
from mqstore.spark.mapping import _reading
from mqstore.spark.options import ReadOptions
from mqstore.spark.progress import Progress
from mqstore.spark.schema import columns_schema
from mqstore.spark.stream import StreamParts, make_stream_reader
from mqstore.spark.tables import make_table_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ("source", "arrow") if HAS_SOURCES else ("arrow",)
ROOT = Path(__file__).parents[2]
ENVIRONMENT = dict(os.environ)
"""As it was before a session of Connect names its server in it."""
SPARKS = [python for python in os.environ.get("MQSTORE_SPARKS", "").split(":") if python]


def fill(root: Path, numbers: range) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message(
                    f"T{n % 2}", body=b"%d" % n, tags=("a", "b")[n % 3 % 2], keys=f"k{n}", flag=n
                )
                for n in numbers
            ]
        )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores, one of them with a damaged body."""
    folder = tmp_path_factory.mktemp("stores")
    for name in ("x-a", "x-b"):
        fill(folder / name, range(40))
    with mqstore.open(folder / "x-b", config=TINY) as store:
        broken = list(store.scan())[11]
    with min((folder / "x-b" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(broken.physical_offset + 88)
        file.write(b"?")
    return folder


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize(
    "options",
    [
        {"onError": "rows", "splitBytes": "500"},
        {"onError": "skip", "columns": ["flag", "keys", "store_timestamp"]},
        {"topics": ["T1"], "tags": "b", "onError": "skip"},
        {"table": "files"},
        {"topics": ["none"]},
    ],
    ids=lambda options: "-".join(options),
)
def test_each_engine_gives_the_same_rows(
    spark: SparkSession, stores: Path, options: dict[str, Any]
) -> None:
    found = [mqstore.spark.read(spark, stores / "x-*", engine=one, **options) for one in ENGINES]
    assert len({frame.schema.simpleString() for frame in found}) == 1
    first, *others = [rows(frame) for frame in found]
    assert bool(first) == (options.get("topics") != ["none"])
    assert all(other == first for other in others)
    if options.get("onError") == "rows":
        errors = [row for row in found[-1].collect() if row.error is not None]
        assert len(errors) == 1
        assert len(first) == 80


def test_times_without_an_offset_are_in_the_sessions_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    with mqstore.open(tmp_path / "a", "a", config=TINY) as store:
        for hour in range(4):
            at = 1_700_006_400_000 + hour * 3_600_000
            store.append_many([message(body=b"%d" % hour, store_timestamp_ms=at)])

    def bodies(**options: object) -> set[str]:
        frame = mqstore.spark.read(spark, tmp_path / "a", columns=["body"], **options)
        return {row.body.decode() for row in frame.collect()}

    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        # 2023-11-15 00:00 UTC is one o'clock in Berlin.
        for one in ENGINES:
            assert bodies(engine=one, startingTimestamp="2023-11-15 03:00") == {"2", "3"}
        assert bodies(startingTimestamp="2023-11-15 03:00", timeZone="UTC") == {"3"}
        assert bodies(startingTimestamp="2023-11-15T03:00:00Z") == {"3"}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    with pytest.raises(mqstore.ConfigError, match="option timeZone: 'Mars' is no time zone"):
        bodies(timeZone="Mars")


def test_mistakes_are_told_at_once(spark: SparkSession, stores: Path, tmp_path: Path) -> None:
    def read(path: Path, **options: object) -> DataFrame:
        return mqstore.spark.read(spark, path, engine="arrow", **options)

    with pytest.raises(mqstore.NotAStoreError, match="no such path"):
        read(tmp_path / "none")
    with pytest.raises(mqstore.ConfigError, match="did you mean topics"):
        read(stores / "x-a", topcs="T")
    with pytest.raises(mqstore.ConfigError, match="auto, source or arrow"):
        mqstore.spark.read(spark, stores / "x-a", engine="map")
    with pytest.raises(Exception, match="topic T1, queue 0, queue offset 5"):
        read(stores / "x-b").collect()


class Arrival(pickle.Unpickler):
    """Unpickles as a worker without the package, which has no name of ours."""

    def find_class(self, module: str, name: str) -> object:
        assert not module.startswith("mqstore"), f"{module}.{name} is asked for"
        return super().find_class(module, name)


def travellers(root: Path) -> dict[str, object]:
    """All that goes from one process to another: to plan, to read and to write."""
    batch = ReadOptions.parse({"path": str(root)})
    streamed = ReadOptions.parse({"path": str(root)}, streaming=True)
    reader = make_table_reader(batch, ["body"])
    found: dict[str, object] = {
        "mapInArrow": reader,
        "table": make_table_reader(ReadOptions.parse({"path": str(root), "table": "files"}), []),
        "micro_batch": StreamParts(Progress(streamed), ["body"]),
        "job": tasks._Work(len),
    }
    if HAS_SOURCES:
        from pyspark.sql import datasource

        from mqstore.spark.books import purpose_of
        from mqstore.spark.ingest import PipelineConfig
        from mqstore.spark.sinks import Sinks
        from mqstore.spark.source import MqStoreDataSource, checked_source

        config = {"source": {"path": str(root)}, "sink": {"path": str(root.parent / "lake")}}
        source = MqStoreDataSource({"path": str(root.parent / "out")})
        columns = columns_schema(["topic", "body"])
        found |= {
            "format": MqStoreDataSource({"path": str(root)}),
            "registered": checked_source(),
            "stream": make_stream_reader(streamed, ["body"]),
            "pipeline": Sinks(
                PipelineConfig.load(config), Progress(streamed), print, purpose_of(streamed)
            ),
            "writer": source.writer(columns, overwrite=False),
        }
        if hasattr(datasource, "DataSourceStreamArrowWriter"):
            source.options["checkpointLocation"] = "query"
            found["streamWriter"] = source.streamWriter(columns, overwrite=False)
    return found


@pytest.mark.parametrize("name", travellers(Path("store")))
def test_a_worker_with_another_package_is_told(
    stores: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    thing = travellers(stores / "x-a")[name]
    assert type(pickle.loads(cloudpickle.dumps(thing))) is type(thing)
    with monkeypatch.context() as driver:
        driver.setattr(mqstore, "__version__", "0.0.1")
        sent = cloudpickle.dumps(travellers(stores / "x-a")[name])

    def arrive() -> None:
        arrived = Arrival(io.BytesIO(sent)).load()
        if name == "registered":
            assert arrived.name() == "mqstore"
            arrived(options={})

    has = rf"worker .* \(Python {re.escape(platform.python_version())}\) has "
    wanted = rf"; the driver has mqstore 0\.0\.1 with Python {re.escape(platform.python_version())}"
    with pytest.raises(RuntimeError, match=has + rf"mqstore {mqstore.__version__}{wanted}"):
        arrive()
    monkeypatch.setitem(sys.modules, "mqstore", None)
    with pytest.raises(RuntimeError, match=has + rf"no mqstore \(.*\){wanted}"):
        arrive()


def test_a_worker_that_reads_by_arrow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    read = _reading(cloudpickle.dumps(tasks._Work(len)), [b""])
    monkeypatch.setitem(sys.modules, "mqstore", None)
    with pytest.raises(RuntimeError, match=r"has no mqstore"):
        list(read([pa.RecordBatch.from_pydict({"id": [0]})]))


def test_micro_batches_bring_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "x-a", range(20))
    books, lake = tmp_path / "books", tmp_path / "lake"
    killed: list[int] = []

    def write(frame: DataFrame, number: int) -> None:
        if number == 1 and not killed:
            frame.limit(3).write.mode("overwrite").parquet(str(lake / f"batch={number}"))
            killed.append(number)
            raise KeyboardInterrupt
        frame.write.mode("overwrite").parquet(str(lake / f"batch={number}"))

    def run(**options: object) -> int:
        options = {"until": "end", "columns": ["broker", "body"], **options}
        return mqstore.spark.micro_batch(spark, tmp_path / "x-*", books, write, **options)

    assert run() == 1
    assert run() == 0
    fill(tmp_path / "x-a", range(20, 30))
    with pytest.raises(KeyboardInterrupt):
        run()
    # What comes meanwhile is of the next batch, and a store that joins too.
    fill(tmp_path / "x-a", range(30, 35))
    fill(tmp_path / "x-b", range(100, 105))
    assert run(maxBytesPerTrigger="100k") == 2
    found = [pq.read_table(lake / f"batch={n}").column("body").to_pylist() for n in range(3)]
    assert [len(batch) for batch in found] == [20, 10, 10]
    wanted = [b"%d" % n for n in (*range(35), *range(100, 105))]
    assert Counter(body for batch in found for body in batch) == Counter(wanted)
    pages = sorted(page.name for page in books.iterdir())
    assert pages == ["done-00000000.json", "done-00000001.json", "done-00000002.json", "lock"] + [
        f"planned-0000000{n}.json" for n in range(3)
    ]
    (books / "planned-00000002.json").write_text(json.dumps({"start": 1}))
    with pytest.raises(mqstore.ConfigError, match=r"planned-00000002\.json: not of a micro batch"):
        run()


@pytest.mark.parametrize(
    "options", [{"startingOffsets": "latest"}, {"startingTimestamp": "-2h"}], ids="".join
)
def test_a_micro_batch_resolves_its_start_in_the_first_call(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    root, books = tmp_path / "a", tmp_path / "books"
    hour, now = 3_600_000, 1_700_000_000_000
    found: list[str] = []

    def write(frame: DataFrame, number: int) -> None:
        assert number == 1, "batch 0 is the empty one"
        found.extend(row.body.decode() for row in frame.collect())

    def run(at: int) -> int:
        clock = SimpleNamespace(time_ns=lambda: at * 1_000_000)
        monkeypatch.setattr("mqstore.text.time", clock)
        given = {"until": "end", "columns": ["body"], **options}
        return mqstore.spark.micro_batch(spark, root, books, write, **given)

    def append(at: int, *bodies: bytes) -> None:
        with mqstore.open(root, "a", config=TINY) as store:
            store.append_many([message(body=body, store_timestamp_ms=at) for body in bodies])

    append(now - 9 * hour, b"before")
    assert [run(now), run(now + 1)] == [0, 0]
    append(now + 2, b"1", b"2")
    # The outage is longer than the relative time.
    assert run(now + 5 * hour) == 1
    assert found == ["1", "2"]
    assert run(now + 9 * hour) == 0


KILLED = """
import os, signal, sys
import mqstore.spark
from mqstore.spark.micro import _Books
from pyspark.sql import SparkSession

root, moment = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
if remote := os.environ.get("MQSTORE_SPARK_REMOTE"):
    spark = SparkSession.builder.remote(remote).getOrCreate()
else:
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
write_page = _Books.write

def page(self, kind, *rest):
    if kind == moment == "done":
        os.killpg(0, signal.SIGKILL)
    write_page(self, kind, *rest)

def write(frame, number):
    frame.write.mode("overwrite").parquet(f"{root}/lake/batch={number}")
    if moment == "written":
        os.killpg(0, signal.SIGKILL)

_Books.write = page
mqstore.spark.micro_batch(spark, root + "/a", root + "/books", write, until="end")
"""


@pytest.mark.parametrize("moment", ["written", "done"])
def test_a_batch_that_was_killed_before_it_was_done_comes_again_with_its_rows(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    fill(tmp_path / "a", range(20))
    own = environment() | {"PYSPARK_PYTHON": sys.executable}
    # In Connect only the client is killed; these say that its process has a server.
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
        own.pop(name, None)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, moment],
        capture_output=True,
        check=False,
        env=own,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    fill(tmp_path / "a", range(20, 30))

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(tmp_path / "lake" / f"batch={number}"))

    books = tmp_path / "books"
    assert mqstore.spark.micro_batch(spark, tmp_path / "a", books, write, until="end") == 2
    for number, wanted in enumerate([range(20), range(20, 30)]):
        table = pq.read_table(tmp_path / "lake" / f"batch={number}")
        assert sorted(map(int, table["body"].to_pylist())) == list(wanted)


def test_a_micro_batch_goes_on_with_the_books_of_earlier_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "a", range(20))
    with mqstore.open(tmp_path / "a", config=TINY) as store:
        middle = [one.physical_offset for one in store.scan()][12]
    books = tmp_path / "books"
    books.mkdir()
    page = json.dumps({"start": {"a": 0}, "end": {"a": middle}})
    (books / "planned-00000000.json").write_text(page)
    found: dict[int, int] = {}

    def run() -> int:
        def write(frame: DataFrame, number: int) -> None:
            found[number] = frame.count()

        given = {"until": "end", "startingOffsets": "latest"}
        return mqstore.spark.micro_batch(spark, tmp_path / "a", books, write, **given)

    assert [run(), run()] == [2, 0]
    assert found == {0: 12, 1: 8}


def test_a_spark_without_sources_says_what_to_use(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "HAS_SOURCES", False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    for name in ("ingest", "source"):
        monkeypatch.delitem(sys.modules, f"mqstore.spark.{name}", raising=False)
    spark: Any = SimpleNamespace(conf={})
    for ask in (
        lambda: mqstore.spark.register(spark),
        lambda: mqstore.spark.read(spark, stores / "x-a", engine="source"),
        lambda: mqstore.spark.pipeline,
    ):
        with pytest.raises(mqstore.UnsupportedError, match=r"needs? Spark 4\.0 or newer"):
            ask()


@pytest.mark.parametrize(
    ("lacking", "ours", "says"),
    [
        ("pandas.functions.arrow_udf", "functions", "4.1 or newer; instead call mqstore.decode"),
        ("datasource.DataSourceStreamArrowWriter", "stream_writer", "4.1 or newer; instead write"),
    ][: 1 + HAS_SOURCES],
    ids=lambda one: one.rpartition(".")[2],
)
def test_a_call_that_spark_4_0_lacks_names_another(
    monkeypatch: pytest.MonkeyPatch, lacking: str, ours: str, says: str
) -> None:
    monkeypatch.delattr(f"pyspark.sql.{lacking}", raising=False)
    monkeypatch.delitem(sys.modules, f"mqstore.spark.{ours}", raising=False)
    with pytest.raises(mqstore.UnsupportedError, match=re.escape(says)):
        importlib.import_module(f"mqstore.spark.{ours}")


def test_every_spark_with_sources_writes_stores(spark: SparkSession, tmp_path: Path) -> None:
    if not HAS_SOURCES:
        with pytest.raises(mqstore.UnsupportedError, match=r"write_store need Spark 4\.0"):
            assert mqstore.spark.write_store
        return
    fill(tmp_path / "a", range(20))
    mqstore.spark.register(spark)
    frame = mqstore.spark.read(spark, tmp_path / "a", columns=["broker", "topic", "body"])
    frame.write.format("mqstore").mode("append").save(str(tmp_path / "tasks"))
    assert mqstore.spark.write_store(frame, tmp_path / "brokers") == [str(tmp_path / "brokers/a")]
    for written in ("tasks/*", "brokers/a"):
        again = mqstore.spark.read(spark, tmp_path / written, columns=["body"])
        assert sorted(int(row.body) for row in again.collect()) == list(range(20))


def test_every_spark_with_sources_has_the_format_in_sql_and_streams(
    spark: SparkSession, stores: Path
) -> None:
    if not HAS_SOURCES:
        return
    mqstore.spark.register(spark)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW every_spark USING mqstore "
        f"OPTIONS (path '{stores / 'x-a'}', topics 'T1')"
    )
    found = spark.sql("SELECT body FROM every_spark WHERE queue_offset < 3 AND flag > 1").collect()
    assert sorted(int(row.body) for row in found) == [3, 5]
    plain = spark.read.schema("flag int, topic string").format("mqstore").load(str(stores / "x-a"))
    assert [row.flag for row in plain.where("flag = 7").collect()] == [7]
    with pytest.raises(Exception, match="did you mean topics"):
        spark.read.format("mqstore").option("topcs", "T").load(str(stores / "x-a")).collect()


def test_every_spark_checks_and_rebuilds_stores(
    spark: SparkSession, stores: Path, tmp_path: Path
) -> None:
    report = mqstore.spark.verify(spark, f"{stores}/x-*", config=TINY)
    alone = [mqstore.verify(stores / name, config=TINY) for name in ("x-a", "x-b")]
    assert [one.ok for one in alone] == [True, False]
    assert not report.ok
    assert len(report.findings) == sum(len(one.findings) for one in alone)
    made = mqstore.spark.rebuild(spark, stores / "x-a", tmp_path / "many", config=TINY)
    one = mqstore.rebuild(stores / "x-a", out=tmp_path / "one", config=TINY)
    assert made == dataclasses.replace(one, out=str(tmp_path / "many"))


def test_every_spark_with_sources_has_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    if not HAS_SOURCES:
        with pytest.raises(mqstore.UnsupportedError, match=r"the pipeline .* need Spark 4\.0"):
            assert mqstore.spark.pipeline
        return
    lake = tmp_path / "lake" / "messages"
    config = {
        "source": {"paths": [str(tmp_path / "x-*")], "until": "end"},
        "sink": {"path": str(lake)},
        "trigger": {"available_now": True},
    }
    if compat.is_connect(spark):
        with pytest.raises(
            mqstore.UnsupportedError, match=r"Leave it out, .*/lake/messages_metrics, or"
        ):
            mqstore.spark.pipeline(spark, config, progress=print)
        assert not lake.parent.exists()
    for numbers in (range(20), range(20, 30)):
        fill(tmp_path / "x-a", numbers)
        query = mqstore.spark.pipeline(spark, config)
        query.awaitTermination()
        assert query.exception() is None
        counted = query.recentProgress[0].observedMetrics["mqstore"]
        # A Connect session wraps the row in another one.
        values = counted["values"] if compat.is_connect(spark) else list(counted)
        assert (values[0], values[2]) == (len(numbers), 0)
    bodies = ds.dataset(lake, partitioning="hive").to_table()["body"].to_pylist()
    assert sorted(map(int, bodies)) == list(range(30))


def test_every_other_spark_that_is_named() -> None:
    for python in SPARKS:
        done = subprocess.run(
            [python, "-W", "ignore", "-m", "pytest", "-q", "-W", "ignore", __file__],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT | {"PYTHONPATH": str(ROOT / "python"), "MQSTORE_SPARKS": ""},
            cwd=ROOT,
        )
        assert done.returncode == 0, python + done.stdout[-4000:] + done.stderr[-1000:]
