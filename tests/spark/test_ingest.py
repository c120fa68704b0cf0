"""The pipeline: each message once in each table, whenever its driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark
import pytest

import mqstore
from helpers import environment
from helpers.stores import TINY, message
from mqstore.spark.books import Entry
from mqstore.spark.ingest import PipelineConfig, Sinks
from mqstore.spark.stream import HAS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[..., list[dict[str, Any]]]

CONFIG = """
[source]
paths = ["{root}/store-*"]
until = "end"
{limit}

[sink]
path = "{root}/lake/messages"
format = "{format}"

[trigger]
available_now = true

[spark]
"spark.master" = "local[2]"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.sql.shuffle.partitions" = "1"
"spark.driver.memory" = "512m"
"""
SPARK = ".".join(pyspark.__version__.split(".")[:2])
DELTA = """
"spark.jars" = "{jars}"
"spark.sql.extensions" = "io.delta.sql.DeltaSparkSessionExtension"
"spark.sql.catalog.spark_catalog" = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"spark.databricks.delta.snapshotPartitions" = "1"
"""


ICEBERG = """
"spark.jars" = "{jars}"
"spark.sql.catalog.lake" = "org.apache.iceberg.spark.SparkCatalog"
"spark.sql.catalog.lake.type" = "hadoop"
"spark.sql.catalog.lake.warehouse" = "{root}"
"""


def iceberg_jar() -> str:
    """Iceberg's runtime for this Spark, out of Maven's own folder; nothing is fetched."""
    maven = Path.home() / ".m2" / "repository" / "org" / "apache" / "iceberg"
    name = f"iceberg-spark-runtime-{SPARK}_2.13"
    jars = sorted(maven.glob(f"{name}/*/*.jar"))
    if not jars:
        get = "mvn dependency:get -Dartifact=org.apache.iceberg:" + name + ":RELEASE"
        pytest.skip(f"[no-iceberg] no {name} in {maven}, if there is one for this Spark: {get}")
    return str(jars[-1])


def delta_jars() -> str:
    """The jars of Delta for this Spark, out of Maven's own folder; nothing is fetched."""
    maven = Path.home() / ".m2" / "repository" / "io" / "delta"
    name = f"delta-spark_{SPARK}_2.13"
    releases = sorted(path.parent for path in maven.glob(f"{name}/*/*.jar"))
    if not releases:
        get = "mvn dependency:get -Dartifact=io.delta:" + name + ":RELEASE"
        pytest.skip(f"[no-delta] no {name} in {maven}, if there is one for this Spark: {get}")
    others = [*maven.glob(f"delta-storage/{releases[-1].name}/*.jar")]
    others += maven.glob(f"delta-kernel-*/{releases[-1].name}/*.jar")
    return ",".join(str(jar) for jar in (*releases[-1].glob("*.jar"), *others))


def fill(root: Path, numbers: range) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [message(f"T{n % 2}", body=b"%s %d" % (root.name.encode(), n)) for n in numbers]
        )


def damage(root: Path) -> list[tuple[str, int, int]]:
    """Spoils messages in the middle of a store; the ranges that are damage then."""
    with mqstore.open(root, config=TINY) as store:
        places = [(found.physical_offset, found.store_size) for found in store.scan()]

    def overwrite(at: int, what: bytes) -> None:
        base = at // TINY["mapped_file_size_commit_log"] * TINY["mapped_file_size_commit_log"]
        with (root / "commitlog" / f"{base:020}").open("r+b") as log:
            log.seek(at - base)
            log.write(what)

    # A body, the magic of a record, and three whole records.
    overwrite(places[40][0] + 88, b"?")
    overwrite(places[70][0] + 4, b"\xff" * 4)
    overwrite(places[100][0], bytes(places[103][0] - places[100][0]))
    ranges = [places[40], places[70], (places[100][0], places[103][0] - places[100][0])]
    return [(root.name, *one) for one in ranges]


SPOILT = (40, 70, 100, 101, 102)


def start(file: Path) -> subprocess.Popen[str]:
    with file.with_suffix(".out").open("w") as out:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "mqstore", "pipeline", str(file), "--jsonl"),
                *("--health", str(file.with_name("health.json"))),
            ],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            # Its JVM and workers die with it.
            start_new_session=True,
        )


def run(file: Path, *, kill_at: str | None) -> list[str]:
    """Runs a pipeline to its end, or kills everything of it when it says so."""
    process = start(file)
    told = []
    assert process.stderr is not None
    for line in process.stderr:
        told.append(line.rstrip())
        if told[-1] == kill_at:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.stderr.close()
    code = process.wait()
    assert code == (0 if kill_at is None else -signal.SIGKILL), "\n".join(told[-40:])
    return told


def test_each_message_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    ingest_and_kill(tmp_path, "parquet", "", read)


def test_each_message_once_in_delta_too(tmp_path: Path) -> None:
    ingest_and_kill(tmp_path, "delta", DELTA.format(jars=delta_jars()), read_delta)


def test_each_message_once_in_iceberg_too(tmp_path: Path) -> None:
    spark = ICEBERG.format(jars=iceberg_jar(), root=tmp_path)
    ingest_and_kill(tmp_path, "iceberg", spark, read_iceberg)


def ingest_and_kill(tmp_path: Path, kind: str, spark: str, read: Read) -> None:
    stores = [tmp_path / "store-a", tmp_path / "store-b"]
    for root in stores:
        fill(root, range(150))
    damaged = damage(stores[1])
    file = tmp_path / "ingest.toml"
    # Before 4.2 a batch is all that there is.
    limit, second = ("maxRowsPerTrigger = 200", 1) if HAS_LIMITS else ("", 0)
    config = CONFIG.format(root=tmp_path, format=kind, limit=limit) + spark
    if kind == "iceberg":
        names = f'table = "lake.lake.messages"\ncheckpoint = "{tmp_path}/checkpoint"'
        config = config.replace(f'path = "{tmp_path}/lake/messages"', names)
    file.write_text(config)
    # In the middle of a sink, and between two of them.
    told = run(file, kill_at="batch 0: quarantine")
    assert told[0] == "batch 0: begun", "a JVM that starts says a lot, and none of it is ours"
    run(file, kill_at=f"batch {second}: messages")
    fill(stores[0], range(150, 180))
    run(file, kill_at=None)
    if not second:
        # The first batch was planned before there was more.
        run(file, kill_at=None)

    check(tmp_path, stores, damaged, read)
    lines = file.with_suffix(".out").read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1])
    assert last["state"] == "done"
    assert last["messages"] == sum(broker["messages"] for broker in last["brokers"]) > 0
    health = json.loads(file.with_name("health.json").read_text(encoding="utf-8"))
    assert health["state"] == "ended"
    assert health["last_batch"] == last


def check(
    tmp_path: Path, stores: list[Path], damaged: list[tuple[str, int, int]], read: Read
) -> None:
    wanted = Counter(b"store-a %d" % n for n in range(180))
    wanted += Counter(b"store-b %d" % n for n in range(150) if n not in SPOILT)
    lake = tmp_path / "lake"
    rows = read(lake / "messages", "date", "topic", "broker")
    assert Counter(row["body"] for row in rows) == wanted
    assert {(row["topic"], row["date"]) for row in rows} == {
        ("T0", "2023-10-01"),
        ("T1", "2023-10-01"),
    }
    metrics = read(lake / "messages_metrics")
    assert sum(row["messages"] for row in metrics) == wanted.total()
    assert sum(row["damaged_ranges"] for row in metrics) == len(damaged)
    quarantine = read(lake / "messages_quarantine")
    names = ("broker", "physical_offset", "store_size")
    assert sorted(tuple(row[name] for name in names) for row in quarantine) == damaged
    assert all(row["error"] for row in quarantine)
    ends = {}
    for root in stores:
        with mqstore.open(root) as store:
            ends[root.name] = store.max_physical_offset
    assert max(row["end_physical_offset"] for row in metrics) == max(ends.values())


class Writer:
    """The request to Spark's writer; Delta's own code is no part of Spark."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.write = self

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.asked.append((name, *given)) or self


ENTRY = Entry("a-pipeline", 7, "a-query", 2, {"a": 0}, {"a": 9})


def sinks(**sink: Any) -> Sinks:
    settings = PipelineConfig.load({"source": {"paths": ["x"]}, "sink": sink})
    return Sinks(settings, cast("Any", None), lambda _: None, {})


def test_delta_gets_a_transaction_for_each_table_and_batch(tmp_path: Path) -> None:
    of = sinks(path=str(tmp_path / "t"), format="delta")
    for table, by in (("messages", ["date", "topic"]), ("metrics", [])):
        frame = Writer()
        of._write(table, cast("Any", frame), ENTRY, by)
        partitioned = [("partitionBy", *by)] if by else []
        assert frame.asked == [
            *partitioned,
            ("option", "txnAppId", f"a-pipeline-{table}"),
            ("option", "txnVersion", 7),
            ("format", "delta"),
            ("mode", "append"),
            ("save", of.settings.place(table).name),
        ]


def test_places_that_no_batch_replaces_may_lie_in_each_other(tmp_path: Path) -> None:
    lake = str(tmp_path / "t")
    for sink in (
        {"checkpoint": f"{lake}-c", "books": f"{lake}-c/_books"},
        {"checkpoint": f"{lake}/checkpoint", "format": "delta"},
    ):
        found = sinks(path=lake, **sink).settings
        assert {name: getattr(found, name) for name in sink} == sink
    for sink in ({"checkpoint": f"{lake}/checkpoint"}, {"checkpoint": lake, "format": "delta"}):
        with pytest.raises(mqstore.ConfigError, match="a place apart from"):
            sinks(path=lake, **sink)


def read(table: Path, *by: str) -> list[dict[str, Any]]:
    names = pa.schema([(name, pa.string()) for name in (*by, "batch")])
    schemes = ds.partitioning(names, flavor="hive")
    return ds.dataset(table, format="parquet", partitioning=schemes).to_table().to_pylist()


def read_delta(table: Path, *_: str) -> list[dict[str, Any]]:
    """The rows of a table as its log has it, without Delta's code."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                path, by = action["add"]["path"], action["add"]["partitionValues"]
                file = pq.ParquetFile(table / path).read()
                rows[path] = [{**row, **by} for row in file.to_pylist()]
            elif "remove" in action:
                del rows[action["remove"]["path"]]
    return [row for file in rows.values() for row in file]


def read_iceberg(table: Path, *_: str) -> list[dict[str, Any]]:
    """The rows of a table's newest snapshot, without Iceberg's code."""

    def avro(path: str) -> list[Any]:
        with open(path.removeprefix("file:"), "rb") as file:  # noqa: PTH123 - a URL perhaps
            return list(fastavro.reader(file))

    newest = max(
        (table / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:-14])
    )
    found = json.loads(newest.read_text(encoding="utf-8"))
    (snapshot,) = (
        one for one in found["snapshots"] if one["snapshot-id"] == found["current-snapshot-id"]
    )
    files = [
        entry["data_file"]["file_path"]
        for manifest in avro(snapshot["manifest-list"])
        for entry in avro(manifest["manifest_path"])
        if entry["status"] != 2
    ]
    rows = [
        row
        for path in files
        for row in pq.ParquetFile(path.removeprefix("file:")).read().to_pylist()
    ]
    return [row | {"date": str(row["date"])} if "date" in row else row for row in rows]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "paths"),
        (
            {"source": {"paths": ["x"]}},
            "expected a folder, or table with a name in the catalog, got neither",
        ),
        ({"source": {"paths": ["x"]}, "sink": {"path": "y", "fromat": "delta"}}, "mean format"),
        (
            {"source": {"paths": ["x"]}, "sink": {"path": "y", "format": "orc"}},
            "parquet, delta or iceberg",
        ),
        (
            {"source": {"paths": ["x"]}, "sink": {"path": "y", "format": "iceberg"}},
            "table: expected a name in a catalog of Iceberg",
        ),
        (
            {"source": {"paths": ["x"]}, "sink": {"table": "y"}},
            "checkpoint: expected a folder that lasts, beside table, got none",
        ),
        (
            {"source": {"paths": ["x"]}, "sink": {"path": "y", "partition_by": ["date", "topics"]}},
            "did you mean topic",
        ),
        ({"sorce": {}}, "did you mean source"),
        (
            {"source": {"path": "x"}, "sink": {"path": "y"}, "trigger": {"available_now": "true"}},
            "expected true or false without quotes, got 'true'",
        ),
        ({"source": ["x"]}, "section source: expected a table"),
        ({"source": {"paths": ["x"], "tpics": ["a"]}, "sink": {"path": "y"}}, "mean topics"),
        (
            {"source": {"paths": ["x"], "INCLUDE": "al"}, "sink": {"path": "y"}},
            "option include: no value 'al'",
        ),
        (
            {"source": {"paths": ["x"]}, "sink": {"path": "y", "date_zone": "Mars"}},
            r"^\[sink\] date_zone: 'Mars' is no time zone",
        ),
        (
            {"source": {"paths": ["x"]}, "sink": {"path": "y", "partition_by": ""}},
            r"^\[sink\] partition_by: expected names",
        ),
        (
            {"source": {"paths": ["x"], "Columns": ["body"]}, "sink": {"path": "y"}},
            "columns: expected broker, .* too, which a pipeline needs, got body",
        ),
    ],
)
def test_an_impossible_value_is_refused_by_name(config: dict[str, Any], says: str) -> None:
    with pytest.raises(mqstore.ConfigError, match=says):
        PipelineConfig.load(config).options()


def test_days_are_in_the_zone_that_the_session_means() -> None:
    sink = {"path": "y", "date_zone": "session"}
    settings = PipelineConfig.load({"source": {"paths": ["x"]}, "sink": sink})
    for zone, wanted in (("PST", "America/Los_Angeles"), ("GMT+8", "+08:00"), (None, "UTC")):
        assert settings.in_zone(zone).date_zone == wanted
    with pytest.raises(mqstore.ConfigError, match=r"^\[sink\] date_zone: 'Mars' is no time zone"):
        settings.in_zone("Mars")


def test_a_session_holds_back_only_what_its_jvm_says_while_it_starts() -> None:
    code = (
        "import os; from mqstore.spark.session import start_session as start\n"
        "spark = start({'spark.master': 'local[1]', 'spark.driver.host': '127.0.0.1',"
        " 'spark.driver.bindAddress': '127.0.0.1', 'spark.ui.enabled': 'false'})\n"
        "os.write(2, b'started\\n')\n"
        "spark._jvm.System.err.println('an operator must see this')\n"
        "spark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "started"
    assert "an operator must see this" in lines


def test_a_session_starts_without_a_standard_error() -> None:
    code = (
        "import sys; from mqstore.spark.session import start_session as start\n"
        "assert sys.stderr is None\n"
        "start({'spark.master': 'local[1]', 'spark.driver.host': '127.0.0.1',"
        " 'spark.driver.bindAddress': '127.0.0.1', 'spark.ui.enabled': 'false'}).stop()\n"
        "print('started')"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout == "started\n"


def test_a_jvm_that_does_not_start_is_a_sentence_behind_its_own_words(tmp_path: Path) -> None:
    fill(tmp_path / "store-a", range(3))
    file = tmp_path / "ingest.toml"
    file.write_text(CONFIG.format(root=tmp_path, format="parquet", limit=""))
    done = subprocess.run(
        [sys.executable, "-m", "mqstore", "pipeline", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(JAVA_HOME=str(tmp_path)),
    )
    assert done.returncode == 1
    *said, last = done.stderr.splitlines()
    assert last.startswith("mqstore: Spark does not start: [JAVA_GATEWAY_EXITED]")
    assert any(f"{tmp_path}/bin/java" in line for line in said)
    assert "Traceback" not in done.stderr


def test_the_command_refuses_what_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("[source\n")
    done = subprocess.run(
        [sys.executable, "-m", "mqstore", "pipeline", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "x.toml" in done.stderr
