"""New stores out of data frames: whole or not at all, each row once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructField, StructType

import mqstore
import mqstore.spark
from helpers.stores import TIME, TINY, message
from mqstore.spark import staging, writer
from mqstore.spark.schema import columns_schema
from mqstore.spark.source import MqStoreDataSource
from mqstore.spark.writer import make_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["topic", "queue_id", "body", "keys", "tags", "store_timestamp", "broker"]
CONF = """mappedFileSizeCommitLog=4096
mappedFileSizeConsumeQueue=200
maxHashSlotNum=7
maxIndexNum=50
"""


def rows(numbers: range) -> list[dict[str, Any]]:
    return [
        {
            "topic": "orders",
            "queue_id": n % 2,
            "body": b"body %d" % n,
            "keys": [f"k{n}"],
            "tags": "even" if n % 2 == 0 else None,
            "store_timestamp": TIME * 1000 + n * 1_000_000,
            "broker": f"broker-{n % 3}",
        }
        for n in numbers
    ]


def batches(numbers: range, rows_of_a_batch: int = 7) -> list[pa.RecordBatch]:
    schema = pa.schema([pa.schema(mqstore.ARROW_SCHEMA).field(name) for name in COLUMNS])
    return pa.Table.from_pylist(rows(numbers), schema).to_batches(max_chunksize=rows_of_a_batch)


def bodies(*stores: Path) -> list[bytes]:
    """The bodies in stores, each of which must be sound."""
    found = []
    for path in stores:
        report = mqstore.verify(path, config=TINY)
        assert report.ok, report.findings
        with mqstore.open(path, config=TINY) as store:
            found += [message.body for message in store.scan()]
    return sorted(found)


def sent(numbers: range) -> list[bytes]:
    return sorted(b"body %d" % n for n in numbers)


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "broker.conf").write_text(CONF)
    return str(tmp_path / "broker.conf")


class Task:
    """Spark as a task sees it."""

    def __init__(self, partition: int, attempt: int) -> None:
        self.partitionId = lambda: partition
        self.taskAttemptId = lambda: attempt


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(made: Any, partition: int, attempt: int, given: Any) -> Any:
        monkeypatch.setattr(writer, "_task", lambda: Task(partition, attempt))
        return made.write(iter(given))

    return run


def new_writer(out: Path, conf: str, *, overwrite: bool = False) -> Any:
    options = {"PATH": str(out), "config": conf}
    return make_writer(options, columns_schema(COLUMNS), overwrite=overwrite)


def test_each_task_becomes_a_store_at_commit(tmp_path: Path, conf: str, as_task: Any) -> None:
    out = tmp_path / "out"
    job = new_writer(out, conf)
    one = as_task(job, 0, 10, batches(range(20)))
    none = as_task(job, 1, 11, [])
    two = as_task(job, 2, 12, batches(range(20, 30)))
    # Nobody sees a store before the commit.
    assert list(out.glob("*/commitlog")) == []
    job.commit([one, none, two])
    assert sorted(path.name for path in out.iterdir()) == ["part-00000", "part-00002"]
    assert bodies(out / "part-00000", out / "part-00002") == sent(range(30))

    before = digests(out)
    again = new_writer(out, conf)
    again.commit([as_task(again, 0, 20, batches(range(30, 40)))])
    assert {path: digests(out)[path] for path in before} == before
    assert bodies(out / "part-00003") == sent(range(30, 40))


def test_repeated_and_speculative_attempts_write_nothing_twice(
    tmp_path: Path, conf: str, as_task: Any
) -> None:
    out = tmp_path / "out"
    job = new_writer(out, conf)

    def dies():
        yield from batches(range(10), 3)
        raise OSError("the executor's disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        as_task(job, 0, 1, dies())
    assert [path for path in job.staging.root.rglob("*") if path.is_file()] == []
    # Two attempts end; Spark takes one of them.
    as_task(job, 0, 2, batches(range(10)))
    taken = as_task(job, 0, 3, batches(range(10)))
    job.commit([taken])
    assert [path.name for path in out.iterdir()] == ["part-00000"]
    assert bodies(out / "part-00000") == sent(range(10))


def test_an_aborted_job_leaves_nothing(tmp_path: Path, conf: str, as_task: Any) -> None:
    out = tmp_path / "out"
    job = new_writer(out, conf)
    job.abort([as_task(job, 0, 1, batches(range(5))), None])
    assert list(out.iterdir()) == []


def test_a_commit_that_fails_takes_everything_back(tmp_path: Path, conf: str, as_task: Any) -> None:
    out = tmp_path / "out"
    first = new_writer(out, conf)
    first.commit([as_task(first, 0, 1, batches(range(5)))])
    before = digests(out)
    job = new_writer(out, conf, overwrite=True)
    good, bad = (as_task(job, n, n, batches(range(9))) for n in range(2))
    bad.stores = [(name, f"{path}-gone") for name, path in bad.stores]
    with pytest.raises(mqstore.StoreIOError, match="rename"):
        job.commit([good, bad])
    job.abort([good, bad])
    assert digests(out) == before


@pytest.mark.parametrize("then", ["write", "abort", "rename"])
@pytest.mark.parametrize(("kill_at", "wanted"), [(0, "old"), (1, "old"), (2, "old"), (3, "new")])
def test_a_driver_that_is_killed_while_it_replaces_stores_is_cured(
    tmp_path: Path,
    conf: str,
    as_task: Any,
    monkeypatch: pytest.MonkeyPatch,
    kill_at: int,
    wanted: str,
    then: str,
) -> None:
    out = tmp_path / "out"
    first = new_writer(out, conf)
    first.commit([as_task(first, n, n, batches(range(5))) for n in range(2)])
    job = new_writer(out, conf, overwrite=True)
    tasks = [as_task(job, n, n, batches(range(5, 9))) for n in range(2)]
    move, moved = staging._move, [0]

    def die(source: Path, target: Path, done: Any) -> None:
        if moved[0] == kill_at:
            raise KeyboardInterrupt
        moved[0] += 1
        move(source, target, done)

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_move", die)
        with pytest.raises(KeyboardInterrupt):
            job.commit(tasks)
    if then == "abort":
        job.abort(tasks)
    else:
        out = out.rename(tmp_path / "renamed") if then == "rename" else out
        assert new_writer(out, conf) is not None
    rows = range(5) if wanted == "old" else range(5, 9)
    assert [bodies(store) for store in sorted(out.glob("part-*"))] == [sent(rows)] * 2
    assert not list(out.glob("_mqstore-*"))


def test_what_a_cure_cannot_find_is_left_with_a_warning(
    tmp_path: Path, conf: str, as_task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    first = new_writer(out, conf)
    first.commit([as_task(first, 0, 0, batches(range(5)))])
    left = out / "_mqstore-killed"
    left.joinpath("replaced").mkdir(parents=True)
    (out / "part-00000").rename(left / "replaced" / "part-00000")
    (left / "_publishing.json").write_text('[["part-00000", "gone"]]')
    new_writer(out, conf)
    assert "neither here nor there" in caplog.text
    assert bodies(left / "replaced" / "part-00000") == sent(range(5))


def test_overwrite_replaces_stores_and_nothing_else(
    tmp_path: Path, conf: str, as_task: Any
) -> None:
    out = tmp_path / "out"
    first = new_writer(out, conf)
    first.commit([as_task(first, n, n, batches(range(5))) for n in range(3)])
    (out / "notes.txt").write_text("mine")
    (out / "part-00007").mkdir()
    job = new_writer(out, conf, overwrite=True)
    job.commit([as_task(job, 0, 9, batches(range(5, 9)))])
    assert sorted(path.name for path in out.iterdir()) == ["notes.txt", "part-00007", "part-00008"]
    assert bodies(out / "part-00008") == sent(range(5, 9))

    with (
        mqstore.open(out / "part-00008", "r+", config=TINY),
        pytest.raises(mqstore.StoreLockedError, match="part-00008"),
    ):
        new_writer(out, conf, overwrite=True)


def test_a_column_that_cannot_be_written_is_refused_before_any_task(
    tmp_path: Path, conf: str
) -> None:
    columns = columns_schema(COLUMNS)
    extra = StructType([*columns.fields, StructField("day", columns["topic"].dataType)])
    for options, schema, says in [
        ({}, columns, "path"),
        ({"path": str(tmp_path), "confg": "x"}, columns, "did you mean config"),
        ({"path": str(tmp_path)}, extra, "no column 'day'"),
        ({"path": str(tmp_path)}, columns_schema(["body"]), "a column topic"),
        ({"path": str(tmp_path)}, columns_schema(["topic"]), "body"),
    ]:
        with pytest.raises(mqstore.ConfigError, match=says):
            make_writer(options, schema, overwrite=False)
    with mqstore.open(tmp_path / "store", "a"):
        pass
    with pytest.raises(mqstore.ConfigError, match="is a store itself"):
        make_writer({"path": str(tmp_path / "store")}, columns, overwrite=False)


def frame(spark: SparkSession, numbers: range) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches(batches(numbers)))


def test_spark_writes_stores_that_it_reads_again(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    out = tmp_path / "out"
    write = frame(spark, range(50)).repartition(3).write.format("mqstore").option("config", conf)
    write.mode("append").save(str(out))
    parts = sorted(out.iterdir())
    assert len(parts) == 3
    assert bodies(*parts) == sent(range(50))
    read = spark.read.format("mqstore").option("config", conf).load(f"{out}/part-*")
    found = sorted(read.select("body", "tags", "keys", "queue_id").collect())
    wanted = [(r["body"], r["tags"], r["keys"], r["queue_id"]) for r in rows(range(50))]
    assert [tuple(row) for row in found] == sorted(wanted)

    before = digests(out)
    bad = frame(spark, range(10)).unionByName(
        spark.createDataFrame([(None, b"x")], "topic string, body binary"), allowMissingColumns=True
    )
    with pytest.raises(Exception, match=r"topic is (null|missing)"):
        bad.write.format("mqstore").option("config", conf).mode("overwrite").save(str(out))
    assert digests(out) == before
    assert sorted(out.iterdir()) == parts


def test_write_store_makes_one_store_of_each_broker(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    out = tmp_path / "out"
    given = frame(spark, range(60)).orderBy("body", ascending=False)
    given = given.withColumn("region", F.concat(F.lit("of "), "broker"))
    paths = mqstore.spark.write_store(given, out, config=conf, properties_from=["region"])
    assert paths == [str(out / f"broker-{n}") for n in range(3)]
    assert sorted(path.name for path in out.iterdir()) == [Path(path).name for path in paths]
    for number, path in enumerate(paths):
        assert bodies(Path(path)) == sent(range(number, 60, 3))
        with mqstore.open(path, config=TINY) as store:
            found = list(store.scan())
        times = [message.store_timestamp_ms for message in found]
        assert times == sorted(times)
        assert {message.properties["region"] for message in found} == {f"of broker-{number}"}
    before = digests(out)
    with pytest.raises(Exception, match="something of that name"):
        mqstore.spark.write_store(given.drop("region"), out, config=conf)
    assert digests(out) == before
    with pytest.raises(Exception, match="a name that a directory can have"):
        mqstore.spark.write_store(given.selectExpr("topic", "body", "'../up' AS broker"), out)
    with pytest.raises(mqstore.ConfigError, match="a column that names each row's store"):
        mqstore.spark.write_store(given.drop("broker", "region"), out)
    with pytest.raises(mqstore.ConfigError, match="no column 'regoin'; did you mean region"):
        mqstore.spark.write_store(given, out, properties_from=["regoin"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "out"]


def test_lossless_casts_are_taken_and_others_refused_at_planning(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    frame = spark.sql(
        "SELECT 'orders' AS topic, concat('body ', id) AS body, cast(id AS bigint) AS queue_id, "
        "array(concat('k', id)) AS keys, concat('r', id) AS region, "
        "if(id = 1, null, id * 10) AS amount, map('own', 'p') AS properties FROM range(3)"
    ).coalesce(1)
    writing = frame.write.format("mqstore").mode("append").option("config", conf)
    writing.option("propertiesFrom", "region,amount").save(str(tmp_path / "out"))
    (path,) = (tmp_path / "out").iterdir()
    with mqstore.open(path) as store:
        found = {one.body: (one.queue_id, one.properties) for one in store.scan()}
    assert sorted(found) == [b"body 0", b"body 1", b"body 2"]
    queue_id, properties = found[b"body 2"]
    assert queue_id == 2
    assert {name: properties[name] for name in ("own", "region", "amount")} == {
        "own": "p",
        "region": "r2",
        "amount": "20",
    }
    assert "amount" not in found[b"body 1"][1]
    for wrong, options, says in (
        ("cast(1 AS double) AS queue_id", {}, "column queue_id: expected int, got double"),
        ("'k' AS keys", {}, r"column keys: expected array<string>, got string"),
        ("1 AS amount", {}, "no column 'amount'"),
        ("1.5 AS amount", {"propertiesFrom": "amount"}, "column amount is decimal"),
        ("1 AS amount", {"propertiesFrom": "amonut"}, "did you mean amount"),
    ):
        schema = spark.sql(f"SELECT 'orders' AS topic, 'b' AS body, {wrong}").schema
        with pytest.raises(mqstore.ConfigError, match=says):
            make_writer({"path": str(tmp_path / "out"), **options}, schema, overwrite=False)


def stream_writer(out: Path, conf: str, checkpoint: Path, **more: str) -> Any:
    options = {"path": str(out), "config": conf, "checkpointLocation": str(checkpoint), **more}
    source = MqStoreDataSource(options)
    return source.streamWriter(columns_schema(COLUMNS), overwrite=False)


def test_a_stream_writes_each_batch_once(tmp_path: Path, conf: str, as_task: Any) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "a-query"}')

    def stores() -> list[str]:
        return sorted(path.name for path in out.iterdir() if path.is_dir())

    def write(number: int, *rows: range, commit: Any = None) -> None:
        # Tasks have another writer than the commit.
        made = stream_writer(out, conf, checkpoint)
        done = [as_task(made, n, n, batches(of)) for n, of in enumerate(rows)]
        (commit or stream_writer(out, conf, checkpoint)).commit([*done, None], number)

    write(0, range(10), range(10, 15))
    before = digests(out)
    # The driver died behind the commit, and the batch comes again.
    write(0, range(7), range(7, 15))
    assert digests(out) == before
    assert stores() == ["batch-00000000-part-00000", "batch-00000000-part-00001"]
    # It died in the middle of a commit: other tasks may have the rows now.
    dying = stream_writer(out, conf, checkpoint)
    dying.writer.staging = SimpleNamespace(out=str(out), publish=lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(1, range(15, 20), commit=dying)
    (left,) = out.glob("_mqstore-*/part-0.0")
    left.rename(out / "batch-00000001-part-00007")
    write(1, range(15, 17), range(17, 20))
    assert stores() == [f"batch-0000000{n}-part-0000{m}" for n in (0, 1) for m in (0, 1)]
    assert bodies(*(out / name for name in stores())) == sent(range(20))
    (checkpoint / "metadata").write_text('{"id": "another"}')
    with pytest.raises(mqstore.StoreError, match="batches up to 1 of another query, a-query"):
        write(0, range(3))
    assert bodies(*(out / name for name in stores() if name[0] != "_")) == sent(range(20))
    for more, says in (({"storeBy": "broker"}, "sorted rows"), ({"topcs": "x"}, "no option")):
        with pytest.raises(mqstore.ConfigError, match=says):
            stream_writer(out, conf, checkpoint, **more)
    with pytest.raises(mqstore.ConfigError, match="checkpointLocation is missing"):
        MqStoreDataSource({"path": str(out)}).streamWriter(columns_schema(COLUMNS), overwrite=False)


def test_a_stream_through_spark_becomes_stores(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    out, root = tmp_path / "out", tmp_path / "store-a"

    def run() -> None:
        rows = spark.readStream.format("mqstore").options(columns="topic,body,keys", until="end")
        query = (
            rows.load(str(root))
            .writeStream.format("mqstore")
            .options(config=conf, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()

    for numbers in (range(10), range(10, 25)):
        with mqstore.open(root, "a", config=TINY) as store:
            store.append_many([message(body=b"body %d" % n) for n in numbers])
        run()
    # The commit of the newest batch is lost.
    for page in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        page.unlink()
    run()
    assert not list((tmp_path / "checkpoint" / "commits").glob("2"))
    found = sorted(out.glob("batch-*"))
    assert [path.name[:14] for path in found] == ["batch-00000000", "batch-00000001"]
    assert bodies(*found) == sent(range(25))


def with_bad_rows(numbers: range) -> list[pa.RecordBatch]:
    """Batches of 7 rows, of which rows 3, 4 and 12 of the task are no messages."""
    table = pa.Table.from_pylist(
        [
            {**row, **{3: {"topic": ""}, 4: {"queue_id": -1}, 12: {"topic": ""}}.get(n, {})}
            for n, row in enumerate(rows(numbers))
        ],
        batches(range(1))[0].schema,
    )
    return table.to_batches(max_chunksize=7)


@pytest.mark.parametrize("by", ["task", "broker", "stream"])
def test_bad_rows_are_named_dropped_or_kept(
    tmp_path: Path, conf: str, as_task: Any, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = with_bad_rows(range(20))
    if by == "broker":
        whole = pa.Table.from_batches(given)
        given = whole.set_column(
            whole.schema.get_field_index("broker"), "broker", pa.array(["b"] * 20)
        ).to_batches(max_chunksize=7)

    def write(out: Path, bad_rows: str) -> Any:
        (tmp_path / "checkpoint").mkdir(exist_ok=True)
        if by == "stream":
            made: Any = stream_writer(out, conf, tmp_path / "checkpoint", badRows=bad_rows)
        else:
            options = {"path": str(out), "config": conf, "badRows": bad_rows, "storeBy": by}
            made = make_writer(options, columns_schema(COLUMNS), overwrite=False)
        message = as_task(made, 0, 1, given)
        made.commit([message], 0) if by == "stream" else made.commit([message])
        return made

    says = (
        "^row 3 of task 0: topic: expected 1 to 127 bytes, got 0; "
        "rows are counted from 0; option badRows=drop"
    )
    with pytest.raises(mqstore.InvalidMessageError, match=says):
        write(tmp_path / "fail", "fail")
    good = sorted(b"body %d" % n for n in range(20) if n not in (3, 4, 12))
    for bad_rows in ("drop", "quarantine"):
        out = tmp_path / bad_rows
        write(out, bad_rows)
        (store,) = (path for path in out.iterdir() if path.is_dir() and path.name[0] != "_")
        assert bodies(store) == good
        kept = [path for path in (out / "_bad_rows").glob("*.parquet") if bad_rows != "drop"]
        if bad_rows == "drop":
            assert "badRows=drop left out 3 rows" in caplog.text
            assert not (out / "_bad_rows").exists()
            continue
        (file,) = kept
        found = pq.read_table(file).to_pylist()
        assert [(row["row"], row["body"]) for row in found] == [
            (n, b"body %d" % n) for n in (3, 4, 12)
        ]
        assert found[0]["error"] == "topic: expected 1 to 127 bytes, got 0"
        assert found[1]["error"].startswith("queue_id: expected 0 to ")
    for name in ("drop", "quarantine"):
        assert not [one for one in (tmp_path / name).glob("_mqstore-*") if one.is_dir()]
