"""What may change under a checkpoint, and what is refused before anything is written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import mqstore
import mqstore.spark
from helpers import environment
from helpers.stores import TINY, message
from mqstore.errors import ConfigError, StoreLockedError, UnsupportedError
from mqstore.spark import micro_batch, stream, target
from mqstore.spark.books import check_purpose
from mqstore.spark.compat import is_connect
from mqstore.spark.failures import PySparkException, reason, sentence
from mqstore.spark.ingest import pipeline, preview
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.target import TargetLock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def fill(root: Path, numbers: range) -> int:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [message(f"T{n % 2}", body=b"%d" % n, queue_id=n % 3, keys=f"k{n}") for n in numbers]
        )
        return store.max_physical_offset


def reader(root: Path, **options: object) -> Any:
    texts = as_texts(root, {"until": "end", **options})
    return stream.make_stream_reader(ReadOptions.parse(texts, streaming=True), ["body"])


def latest(of: Any, start: Any) -> dict[str, Any]:
    limit = (start, of.getDefaultReadLimit()) if stream.HAS_LIMITS else ()
    return json.loads(json.dumps(of.latestOffset(*limit)))


def rows(of: Any, start: Any, end: Any) -> list[int]:
    batches = [batch for part in of.partitions(start, end) for batch in of.read(part)]
    return sorted(int(body) for batch in batches for body in batch.column("body").to_pylist())


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_refuses_other_options_than_its_checkpoint_has(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(20))
    first = reader(root, topics="T0")
    end = latest(first, first.initialOffset())
    assert rows(first, {"a": 0}, end) == list(range(0, 20, 2))
    del end["/from"]
    grown = {**end, "a": fill(root, range(20, 30))}
    for name, value in (("topics", "T1"), ("topics", None), ("keys", "k1"), ("brokerName", "a")):
        options: dict[str, object] = {"topics": "T0", name: value}
        with pytest.raises(ConfigError, match=f"option {name}: the checkpoint was made with"):
            reader(root, **options).partitions(end, grown)
        if stream.HAS_LIMITS:  # before Spark writes the batch into its checkpoint
            with pytest.raises(ConfigError, match="nothing was written"):
                latest(reader(root, **options), end)
    # Options that choose no rows may change, also the order of names.
    later = reader(root, topics=["T0"], splitBytes="1k", verifyCrc=False, failOnDataLoss=True)
    assert rows(later, end, grown) == list(range(20, 30, 2))
    # A batch that was planned by a start that was refused runs with the right options.
    planned = {**grown, "/of": {"version": 1, "topics": ["T1"]}}
    assert rows(reader(root, topics="T0"), end, planned) == list(range(20, 30, 2))
    # An interrupted one does not run with other options.
    with pytest.raises(ConfigError, match="option topics"):
        reader(root, topics="T1").partitions(end, {**grown, "/of": end["/of"]})
    # A checkpoint without a purpose was made before they were kept.
    old = {name: value for name, value in end.items() if name != "/of"}
    assert rows(reader(root, topics="T1"), old, grown | {"/of": None}) == list(range(21, 30, 2))


@pytest.mark.parametrize("kept", [7, {}, {"version": "x"}, [1]])
def test_a_purpose_of_something_else_is_refused(kept: object) -> None:
    with pytest.raises(ConfigError, match="is not of this source"):
        check_purpose(kept, {"version": 1}, "the checkpoint")
    with pytest.raises(ConfigError, match="made by a newer mqstore"):
        check_purpose({"version": 2}, {"version": 1}, "the checkpoint")


@pytest.mark.skipif(not stream.HAS_LIMITS, reason="[spark] 4.2 and newer have it")
def test_a_stream_begins_at_offsets_of_queues_and_keeps_them(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(60))
    starts = {"T0": {"0": 4, "1": -1}, "T1": "latest"}
    first = reader(root, startingOffsets=starts)
    end = latest(first, first.initialOffset())
    # T0 has 0, 6, … in queue 0, 4, 10, … in queue 1, and 2, 8, … in queue 2.
    expected = sorted([*range(24, 60, 6), *range(2, 60, 6)])
    assert rows(first, {"a": 0}, end) == expected
    grown = fill(root, range(60, 90))
    # Resolved once: "latest" is the end that it was.
    again = reader(root, startingOffsets=starts)
    assert rows(again, {"a": 0}, end) == expected
    after = latest(again, end)
    assert after["a"] == grown
    assert rows(again, end, after) == list(range(60, 90))
    with pytest.raises(ConfigError, match="no store has topic T7"):
        reader(root, startingOffsets={"T7": {"0": 1}}).initialOffset()
    with pytest.raises(ConfigError, match="the checkpoint's queues"):
        reader(root).partitions({**end, "/queues": {"a": [["T0", 0, -5]]}}, after)


def test_a_stream_of_some_queues_reads_only_these(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(30))
    made = reader(tmp_path / "a", queues={"T1": [0, 2]})
    end = latest(made, made.initialOffset())
    assert rows(made, {"a": 0}, end) == [n for n in range(30) if n % 2 and n % 3 != 1]


def test_queues_in_streams_need_a_spark_that_gives_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "a", range(3))
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    with pytest.raises(UnsupportedError, match="micro_batch has it"):
        reader(tmp_path / "a", startingOffsets={"T0": {"0": 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingTimestamp", "5"),
        ("beforeTimestamp", "5"),
        ("endingPhysicalOffset", "9"),
        ("endingOffsets", '{"T0": {"0": 5}}'),
        ("table", "files"),
        ("tags", "a,b"),
    ],
)
def test_an_option_that_no_stream_has_is_one_sentence(
    tmp_path: Path, name: str, value: str
) -> None:
    from mqstore.spark.source import MqStoreDataSource

    fill(tmp_path / "a", range(3))
    source = MqStoreDataSource({"path": str(tmp_path / "a"), name: value})
    # Spark's own process loses an error of `streamReader`.
    made: Any = source.streamReader(source_schema())
    for call in (made.initialOffset, made.latestOffset, lambda: made.partitions({}, {})):
        with pytest.raises(mqstore.StoreError, match=f"option {name}") as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(mqstore.StoreError, match=f"option {name}"):
        preview({"source": {"paths": [str(tmp_path / "a")], name: value}, "sink": {"path": "x"}})


def source_schema() -> Any:
    from mqstore.spark.schema import columns_schema

    return columns_schema(["body"])


# --- a pipeline's configuration ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "values", "says"),
    [
        ("sink", {"file_bytes": "12 MB"}, r"\[sink\] file_bytes: expected bytes .*, got '12 MB'"),
        ("sink", {"file_bytes": "0"}, r"\[sink\] file_bytes: expected 1 byte or more, got '0'"),
        ("sink", {"date_zone": "Mars"}, r"\[sink\] date_zone: 'Mars' is no time zone"),
        ("trigger", {"interval": "soon"}, r"\[trigger\] interval: expected a duration"),
        ("trigger", {"interval": "5 milliminutes"}, r"\[trigger\] interval: expected a duration"),
        ("trigger", {"interval": f"{10**19} days"}, r"\[trigger\] interval: expected a duration"),
        ("trigger", {"interval": "30seconds"}, r"\[trigger\] interval: expected a duration"),
        ("sink", {"partition_by": ""}, r"\[sink\] partition_by: "),
        ("sink", {"path": ""}, r"\[sink\] path: expected a folder or a table, got ''"),
        ("sink", {"metrics": "{lake}"}, r"\[sink\] metrics: expected a place apart from path, "),
        ("sink", {"books": "{lake}"}, r"\[sink\] books: expected a place apart from path, "),
        ("sink", {"checkpoint": "{lake}/"}, "expected a place apart from"),
        ("sink", {"metrics": "{lake}/metrics"}, r"\[sink\] metrics: .* apart from path, "),
        ("sink", {"metrics": "m", "quarantine": "m"}, "expected a place apart from"),
        (
            "trigger",
            {"interval": "1 minute", "available_now": True},
            "expected none beside available_now, got both",
        ),
        ("source", {"tags": "a && b"}, "option tags: "),
    ],
)
def test_a_mistake_is_one_sentence_and_the_dry_run_finds_it(
    tmp_path: Path, section: str, values: dict[str, object], says: str
) -> None:
    fill(tmp_path / "a", range(3))
    config: dict[str, dict[str, object]] = {
        "source": {"paths": [str(tmp_path / "a")]},
        "sink": {"path": str(tmp_path / "lake")},
        "trigger": {},
    }
    lake = str(tmp_path / "lake")
    config[section] |= {
        name: value.replace("{lake}", lake) if isinstance(value, str) else value
        for name, value in values.items()
    }
    with pytest.raises(ConfigError, match=says) as caught:
        preview(config)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


def test_a_target_that_cannot_be_written_is_found_by_the_dry_run(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(3))
    (tmp_path / "file").write_text("")
    config = {
        "source": {"paths": [str(tmp_path / "a")]},
        "sink": {"path": str(tmp_path / "file" / "lake")},
    }
    with pytest.raises(ConfigError, match="is a file, not a folder"):
        preview(config)


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        ({"path": "s3a://bucket/lake"}, "cannot reach it.*S3AFileSystem"),
        ({"path": "{tmp}/lake", "format": "delta"}, "cannot reach it.*delta"),
        (
            {"table": "lake.db.t", "format": "iceberg", "checkpoint": "{tmp}/c"},
            "no catalog 'lake'",
        ),
    ],
)
def test_jars_and_catalogs_that_a_session_lacks_are_one_sentence(
    spark: SparkSession, tmp_path: Path, sink: dict[str, str], says: str
) -> None:
    fill(tmp_path / "a", range(3))
    config = {
        "source": {"paths": [str(tmp_path / "a")]},
        "sink": {name: text.format(tmp=tmp_path) for name, text in sink.items()},
    }
    for run in (lambda: preview(config, spark), lambda: pipeline(spark, config)):
        with pytest.raises(ConfigError, match=says) as caught:
            run()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


# --- a pipeline's tables -------------------------------------------------------------------------


class Lake:
    """A pipeline into a folder, and what is in it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.config: dict[str, dict[str, Any]] = {
            "source": {"paths": [str(folder / "x-*")], "until": "end", "topics": ["T0"]},
            "sink": {"path": str(folder / "lake"), "partition_by": ["broker"]},
            "trigger": {"available_now": True},
        }

    def run(self, *, migrate: bool = False, **sections: dict[str, Any]) -> None:
        config = {name: {**part, **sections.get(name, {})} for name, part in self.config.items()}
        pipeline(self.spark, config, migrate=migrate).awaitTermination()

    def bodies(self) -> list[int]:
        table = ds.dataset(self.folder / "lake", partitioning="hive").to_table(["body"])
        return sorted(int(body) for body in table["body"].to_pylist())

    def files(self) -> set[str]:
        return {str(path) for path in self.folder.rglob("*") if path.is_file()}


def test_a_pipeline_refuses_another_layout_and_migrates_what_is_safe(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    fill(tmp_path / "x-a", range(10))
    lake.run()
    assert lake.bodies() == list(range(0, 10, 2))
    fill(tmp_path / "x-a", range(10, 20))
    before = lake.files()
    columns = "broker,topic,physical_offset,store_size,store_timestamp,body,error"
    for section, values, name, then in (
        ("sink", {"partition_by": ["topic"]}, r"\[sink\] partition_by", "a new table"),
        ("sink", {"date_zone": "Asia/Tokyo"}, r"\[sink\] date_zone", "a new table"),
        ("source", {"decompress": False}, "option decompress", "a new table"),
        ("source", {"topics": ["T0", "T1"]}, "option topics", "--migrate"),
        ("source", {"columns": columns.split(",")}, r"\[sink\] columns", "--migrate"),
    ):
        with pytest.raises(ConfigError, match=name) as caught:
            lake.run(**{section: values})
        assert then in str(caught.value)
        config = {
            part: {**lake.config[part], **({} if part != section else values)}
            for part in lake.config
        }
        with pytest.raises(ConfigError, match=name):
            preview(config)
        if then == "a new table":
            with pytest.raises(ConfigError, match=name):
                lake.run(**{section: values}, migrate=True)
    assert {path for path in lake.files() if "_lock" not in path} == before - {
        path for path in before if "_lock" in path
    }
    wider = {"topics": ["T0", "T1"]}
    lake.run(source=wider, migrate=True)
    assert lake.bodies() == [*range(0, 10, 2), *range(10, 20)]
    fill(tmp_path / "x-a", range(20, 25))
    with pytest.raises(ConfigError, match="option topics"):
        lake.run()
    lake.run(source=wider)
    assert lake.bodies() == [*range(0, 10, 2), *range(10, 25)]
    # The next change, and then the checkpoint is lost: no row twice.
    lake.run(migrate=True)
    for path in sorted((tmp_path / "lake" / "_checkpoint").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    fill(tmp_path / "x-a", range(25, 30))
    lake.run()
    fill(tmp_path / "x-a", range(30, 32))
    lake.run()
    assert lake.bodies() == [*range(0, 10, 2), *range(10, 25), 26, 28, 30]


def test_a_table_of_another_pipeline_is_not_written(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name / f"x-{name}", range(4))
    first, second = (Lake(spark, tmp_path / name) for name in ("a", "b"))
    first.run()
    with pytest.raises(ConfigError, match="lake_metrics has rows, and neither"):
        second.run(sink={"metrics": str(tmp_path / "a" / "lake_metrics")})
    assert not (tmp_path / "b" / "lake").exists()


def test_a_batch_that_is_not_done_is_not_migrated(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    fill(tmp_path / "x-a", range(10))
    lake.run()
    commits = sorted((tmp_path / "lake" / "_checkpoint" / "commits").glob("[0-9]*"))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink()
    with pytest.raises(ConfigError, match=r"--migrate: batch 0 .* is not done"):
        lake.run(source={"topics": ["T1"]}, migrate=True)
    lake.run()
    assert lake.bodies() == list(range(0, 10, 2))


def test_the_date_is_the_day_in_its_zone(spark: SparkSession, tmp_path: Path) -> None:
    # 15:00 UTC is the next day in Tokyo.
    with mqstore.open(tmp_path / "x-a", "a", config=TINY) as store:
        for n in range(24):
            at_ms = 1_700_006_400_000 + n * 3_600_000
            store.append_many([message("T0", body=b"%d" % n, store_timestamp_ms=at_ms)])
    lake = Lake(spark, tmp_path)
    lake.run(sink={"partition_by": ["date"], "date_zone": "Asia/Tokyo"})
    table = ds.dataset(tmp_path / "lake", partitioning="hive").to_table(["body", "date"])
    days = {int(row["body"]): str(row["date"]) for row in table.to_pylist()}
    assert days == {n: "2023-11-15" if n < 15 else "2023-11-16" for n in range(24)}


def test_one_pipeline_at_a_time_writes_to_a_target(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    fill(tmp_path / "x-a", range(10))
    lock = f"{tmp_path}/lake_books_lock"
    holder = (
        "import sys; from mqstore.spark.target import TargetLock\n"
        f"TargetLock({lock.removesuffix('_lock')!r}).take(None); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        says = rf"{lock}: a pipeline of process {other.pid} on \S+ writes to this target"
        with pytest.raises(StoreLockedError, match=says):
            lake.run()
        with pytest.raises(StoreLockedError, match=says):
            preview(lake.config)
        assert not (tmp_path / "lake").exists()
        other.kill()
    lake.run()
    assert lake.bodies() == list(range(0, 10, 2))


@pytest.mark.parametrize("words", ["disk full", "store replaced", "catalog refused"])
def test_the_next_run_names_why_the_one_before_ended(
    spark: SparkSession, tmp_path: Path, words: str
) -> None:
    fill(tmp_path / "x-a", range(10))
    lake = Lake(spark, tmp_path)
    if words == "catalog refused":
        spark.sql("CREATE DATABASE refused")
        del lake.config["sink"]["path"]
        lake.config["sink"] |= {"table": "refused.m", "checkpoint": f"{tmp_path}/checkpoint"}

    def run(progress: Any = None) -> Any:
        query = pipeline(spark, lake.config, progress=progress)
        query.awaitTermination()
        return query.recentProgress[-1].observedMetrics["mqstore"]["previous_end"]

    def fail(event: dict[str, Any]) -> None:
        if event["state"] == "begun" and words == "disk full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if event["state"] == "begun":
            spark.sql("DROP DATABASE refused CASCADE")

    if words == "store replaced":
        assert run() is None
        shutil.move(tmp_path / "x-a", tmp_path / "kept")
        fill(tmp_path / "x-a", range(100, 140))
        with pytest.raises(PySparkException) as caught:
            run()
        shutil.rmtree(tmp_path / "x-a")
        shutil.move(tmp_path / "kept", tmp_path / "x-a")
    else:
        with pytest.raises(PySparkException) as caught:
            run(fail)
    assert reason(caught.value) == words
    fill(tmp_path / "x-a", range(10, 20))
    if words == "catalog refused":
        spark.sql("CREATE DATABASE refused")
    try:
        assert run() == words
        if words == "catalog refused":
            metrics = [row.previous_end for row in spark.table("refused.m_metrics").collect()]
        else:
            table = ds.dataset(tmp_path / "lake_metrics", partitioning="hive").to_table()
            metrics = table["previous_end"].to_pylist()
        assert metrics[-1] == words
        fill(tmp_path / "x-a", range(20, 30))
        assert run() is None
    finally:
        if words == "catalog refused":
            spark.sql("DROP DATABASE refused CASCADE")


def test_a_second_release_frees_no_other_pipeline(tmp_path: Path) -> None:
    first, second = TargetLock(f"{tmp_path}/books"), TargetLock(f"{tmp_path}/books")
    first.take(None)
    first.release()
    second.take(None)
    # Its thread may learn of the end of its query last.
    first.release()
    second.release()
    TargetLock(f"{tmp_path}/books").check(None)


def test_the_lock_keeps_why_its_pipeline_ended(tmp_path: Path) -> None:
    def end(error: Exception | None, *, is_jvm_gone: bool = False) -> str | None:
        """Why the run before ended, by a lock whose query ends with an error."""
        lock = TargetLock(f"{tmp_path}/books")
        lock.take(None)

        class Query:
            @property
            def isActive(self) -> bool:  # noqa: N802 - Spark's
                if is_jvm_gone:
                    raise ConnectionRefusedError("[Errno 111] Connection refused")
                return False

            def exception(self) -> Exception | None:
                return error

        query: Any = Query()
        lock.query = query
        target.free_ended(lock.path)
        return lock.previous_end

    assert end(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) is None
    assert end(None) == "disk full"
    assert end(None, is_jvm_gone=True) is None
    assert end(RuntimeError("org.apache.iceberg.exceptions.ForbiddenException")) == "JVM gone"
    assert end(None) == "catalog refused"
    killed = (
        "import sys, os; from mqstore.spark.target import TargetLock\n"
        "TargetLock(sys.argv[1]).take(None); os._exit(9)"
    )
    command = [sys.executable, "-c", killed, f"{tmp_path}/books"]
    subprocess.run(command, env=environment(), check=False)
    assert end(None) == "driver gone"


def test_a_lease_of_a_dead_host_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    lock, other = TargetLock("s3a://lake/books"), TargetLock("s3a://lake/books")
    session: Any = SimpleNamespace()
    monkeypatch.setattr(
        TargetLock, "renew", lambda self, _: written.__setitem__(slice(None), [self._text()])
    )
    monkeypatch.setattr(TargetLock, "_lease", lambda *_: target._parse("".join(written)))
    lock.take(session)
    with pytest.raises(StoreLockedError, match="seconds after its last sign of life"):
        other.take(session)
    now = json.loads(written[0])["time_s"]
    monkeypatch.setattr(target, "time", SimpleNamespace(time=lambda: now + target.LEASE_S + 1))
    other.take(session)
    with pytest.raises(StoreLockedError):
        lock.check(session)
    other.release()
    lock.release()


# --- micro batches, reads ------------------------------------------------------------------------


def test_micro_batches_refuse_other_options_and_keep_queues(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "a", range(30))
    found: list[int] = []

    def write(frame: DataFrame, _: int) -> None:
        found.extend(int(row.body) for row in frame.collect())

    def run(**options: object) -> int:
        given = {"until": "end", "columns": ["body"], **options}
        return micro_batch(spark, tmp_path / "a", tmp_path / "books", write, **given)

    starts = {"topics": ["T0"], "startingOffsets": {"T0": {"0": 3, "1": -1}}}
    assert run(**starts) == 1
    assert sorted(found) == sorted([*range(18, 30, 6), *range(2, 30, 6)])
    found.clear()
    fill(tmp_path / "a", range(30, 40))
    pages = sorted(path.name for path in (tmp_path / "books").iterdir())
    with pytest.raises(ConfigError, match=r"option topics: .*books was made with"):
        run(topics=["T1"])
    assert sorted(path.name for path in (tmp_path / "books").iterdir()) == pages
    assert run(**starts) == 1
    assert sorted(found) == list(range(30, 40, 2))
    with pytest.raises(UnsupportedError, match="option endingTimestamp"):
        run(endingTimestamp="5")


def test_a_large_read_is_not_broadcast_and_select_is_told_of_columns(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if is_connect(spark):
        pytest.skip("[spark] a Connect session shows no statistics")
    with mqstore.open(
        tmp_path / "a", "a", config={**TINY, "mapped_file_size_commit_log": 1 << 22}
    ) as store:
        store.append_many([message("T0", body=b"%d " % n + b"x" * 4000) for n in range(3000)])
    frame = mqstore.spark.read(spark, tmp_path / "a", splitBytes="1m")
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    with mqstore.open(tmp_path / "a") as store:
        held = store.max_physical_offset
    assert 0.9 * held < size <= held
    assert frame.count() == 3000
    frame.select("keys", "body")
    joined = frame.join(mqstore.spark.read(spark, tmp_path / "a"), "body")
    assert "Broadcast" not in joined._jdf.queryExecution().executedPlan().toString()
    assert caplog.text.count("select names 2 of 21 columns") == 1
    assert mqstore.spark.count(spark, tmp_path / "a") == 3000
    assert mqstore.spark.count(spark, tmp_path / "a", topics=["T0"]) == 3000
    assert mqstore.spark.count(spark, tmp_path / "a", queues={"T0": [1]}) == 0


def test_a_stream_that_begins_wrongly_ends_with_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "a", range(3))
    frame = (
        spark.readStream.format("mqstore").option("endingTimestamp", "5").load(str(tmp_path / "a"))
    )
    query = frame.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/c").start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    assert sentence(caught.value).startswith("option endingTimestamp is for batch reads; a stream")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Errno 111] Connection refused", "JVM gone"),
        ("java.io.IOException: No space left on device", "disk full"),
        ("broker a: /d/a is another store than the one that was read up to 7", "store replaced"),
        ("broker a: its store is gone; it was read up to 7", "store gone"),
        ("org.apache.iceberg.exceptions.ForbiddenException: no", "catalog refused"),
        ("something else", "error"),
    ],
)
def test_the_reason_of_an_end_is_named(text: str, words: str) -> None:
    assert reason(RuntimeError(text)) == words
