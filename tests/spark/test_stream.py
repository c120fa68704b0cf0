"""Streams: every message once, over a store that grows, is cut, and loses its oldest files."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import mqstore
import mqstore.spark
from helpers.stores import TINY, crashed_copy, message
from mqstore.spark import flushed_offsets, stream
from mqstore.spark.options import ReadOptions
from mqstore.spark.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ["broker", "physical_offset", "body"]


def progress(*paths: Path, **options: str) -> Progress:
    texts = {"paths": json.dumps([str(path) for path in paths]), **options}
    return Progress(ReadOptions.parse(texts, streaming=True))


def fill(store: mqstore.Store, numbers: range) -> None:
    store.append_many([message("T", body=b"%d" % n, keys=f"k{n}") for n in numbers])


def make(root: Path, numbers: range) -> Path:
    with mqstore.open(root, "a", config=TINY) as store:
        fill(store, numbers)
    return root


def run(of: Progress, start: dict[str, int], end: dict[str, int]) -> list[bytes]:
    """Rows that a batch's tasks read."""
    reader = stream.make_stream_reader(of.options, COLUMNS)
    found = []
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            found += batch.column("body").to_pylist()
    return found


def sent(numbers: range) -> list[bytes]:
    return [b"%d" % n for n in numbers]


@pytest.mark.parametrize("limit", [{"most_bytes": 300}, {"most_rows": 7}, {"most_rows": 1}])
def test_limited_batches_give_each_message_once(tmp_path: Path, limit: dict[str, int]) -> None:
    stores = [make(tmp_path / name, range(i, i + 60)) for i, name in ((0, "a"), (100, "b"))]
    plan = progress(*stores, until="end", splitBytes="500")
    at, found, batches = plan.first(), [], 0
    while (end := plan.next(at, **limit)) != at:
        rows = run(plan, at, end)
        # A batch that is planned again is the same batch.
        assert run(plan, at, end) == rows
        assert len(rows) <= limit.get("most_rows", 60)
        found += rows
        at, batches = end, batches + 1
    assert batches > 8
    assert Counter(found) == Counter(sent(range(60)) + sent(range(100, 160)))
    assert at == plan.last()


@pytest.mark.parametrize("seed", [7])
def test_any_cut_of_the_offsets_gives_each_message_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = make(tmp_path / "a", range(80))
    plan = progress(root, until="end", splitBytes="333")
    end = plan.last()["a"]
    for _ in range(20):
        cuts = sorted({0, end, *(chance.randrange(end) for _ in range(chance.randrange(9)))})
        found = [
            body
            for begin, stop in itertools.pairwise(cuts)
            for body in run(plan, {"a": begin}, {"a": stop})
        ]
        assert found == sent(range(80))


def test_until_says_how_far_a_stream_trusts_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqstore.open(tmp_path / "live", "a", config=TINY) as store:
        fill(store, range(20))
        store.flush()
        copy = crashed_copy(store, tmp_path / "crashed")
    closed = progress(tmp_path / "live")
    closed_end = progress(copy, until="end").last()
    assert closed.last() == {"live": closed_end["crashed"]}
    with mqstore.open(copy) as store:
        flushed, dispatched = store.flushed_offset, store.dispatched_offset
        assert flushed <= store.max_physical_offset
    with monkeypatch.context() as patch:
        # What another machine says of its disk proves nothing.
        patch.setattr(flushed_offsets, "_file_system", lambda _: "nfs4")
        assert progress(copy, until="flushed").last() == {"crashed": flushed}
    assert progress(copy, until="flushed").last() == closed_end
    assert progress(copy, until="dispatched").last() == {"crashed": dispatched}


def test_starts_are_earliest_latest_or_a_place(tmp_path: Path) -> None:
    root = make(tmp_path / "a", range(10))
    end = progress(root).last()["a"]
    assert progress(root).first() == {"a": 0}
    assert progress(root, startingOffsets="latest").first() == {"a": end}
    assert progress(root, startingPhysicalOffset="77").first() == {"a": 77}
    with pytest.raises(mqstore.OffsetOutOfRangeError, match="startingPhysicalOffset"):
        progress(root, startingPhysicalOffset=str(end + 1)).first()
    for options in (
        {"endingOffsets": '{"T": {"0": 5}}'},
        {"endingPhysicalOffset": "9"},
        {"table": "files"},
    ):
        with pytest.raises(mqstore.UnsupportedError, match=next(iter(options))):
            progress(root, **options)


def test_a_new_store_of_a_glob_joins_from_its_beginning(tmp_path: Path) -> None:
    make(tmp_path / "x-a", range(10))
    plan = progress(tmp_path / "x-*", until="end")
    start = plan.first()
    at = plan.next(start)
    make(tmp_path / "x-b", range(50, 60))
    end = plan.next(at)
    assert run(plan, start, at) + run(plan, at, end) == sent(range(10)) + sent(range(50, 60))


def test_two_stores_of_one_name_are_refused(tmp_path: Path) -> None:
    roots = [make(tmp_path / side / "a", range(1)) for side in ("left", "right")]
    with pytest.raises(mqstore.ConfigError, match="two stores are called 'a'"):
        progress(*roots).first()


def test_retention_under_a_stream_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = make(tmp_path / "a", range(120))
    plan = progress(root, until="end")
    end = plan.next({"a": 0})
    parts = plan.ranges({"a": 0}, end)
    oldest = min((root / "commitlog").iterdir())
    oldest.unlink()
    with pytest.raises(mqstore.OffsetOutOfRangeError, match=r"retention deleted .* 0 to 4096"):
        plan.ranges({"a": 0}, end)
    # A task that was planned before finds it out too.
    reader = stream.make_stream_reader(plan.options, COLUMNS)
    with pytest.raises(mqstore.OffsetOutOfRangeError, match="failOnDataLoss=false"):
        list(reader.read(parts[0]))
    lenient = progress(root, until="end", failOnDataLoss="false")
    rows = run(lenient, {"a": 0}, end)
    assert rows == sent(range(120))[-len(rows) :]
    assert 0 < len(rows) < 120
    assert "retention deleted" in caplog.text


def test_a_log_that_a_crash_cut_is_told_and_gone_on_with(tmp_path: Path) -> None:
    root = make(tmp_path / "a", range(30))
    whole = progress(root, until="end")
    at = whole.next({"a": 0})
    shutil.rmtree(root)
    make(root, range(10))
    with pytest.raises(mqstore.OffsetOutOfRangeError, match="a crash cut its tail"):
        whole.next(at)
    lenient = progress(root, until="end", failOnDataLoss="false")
    back = lenient.next(at)
    assert back == lenient.last()
    assert run(lenient, at, back) == []
    make(root, range(40, 50))
    assert run(lenient, back, lenient.next(back)) == sent(range(40, 50))


def test_a_store_that_vanished_is_told(tmp_path: Path) -> None:
    make(tmp_path / "x-a", range(3))
    make(tmp_path / "x-b", range(3))
    plan = progress(tmp_path / "x-*", until="end")
    at = plan.next(plan.first())
    shutil.rmtree(tmp_path / "x-b")
    with pytest.raises(mqstore.OffsetOutOfRangeError, match="broker x-b: its store is gone"):
        plan.next(at)
    for options in ({"failOnDataLoss": "false"}, {"missingStores": "wait"}):
        lenient = progress(tmp_path / "x-*", until="end", **options)
        assert lenient.next(at) == at


@pytest.mark.parametrize("offset", [[1], {"a": -1}, {"a": "x"}, {"a": True}, None])
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, offset: Any) -> None:
    plan = progress(make(tmp_path / "a", range(3)))
    with pytest.raises(mqstore.ConfigError, match="checkpoint"):
        plan.ranges({}, offset)


def test_limits_need_a_spark_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    session: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"})
    root = make(tmp_path / "a", range(3))
    for name in ("maxBytesPerTrigger", "maxRowsPerTrigger"):
        with pytest.raises(mqstore.UnsupportedError, match=f"{name} needs Spark 4.2"):
            stream.make_stream_reader(progress(root, **{name: "1"}).options, COLUMNS)
        config = {"source": {"paths": [str(root)], name: "1"}, "sink": {"path": "x"}}
        with pytest.raises(mqstore.UnsupportedError, match=f"{name} needs Spark 4.2"):
            mqstore.spark.pipeline(session, config)
    reader: Any = stream.make_stream_reader(progress(root).options, COLUMNS)
    assert stream.places(reader.latestOffset()) == progress(root).last()


WRITER = """
import sys, mqstore
config = {"mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": 2000,
          "max_hash_slot_num": 100, "max_index_num": 400, "flush_disk_type": "SYNC_FLUSH"}
with mqstore.open(sys.argv[1], "a", config=config) as store:
    first = store.queues("T")[0].max_offset if store.queues("T") else 0
    for number in range(first, first + 2_000):
        store.append("T", b"%d" % number, keys=f"k{number}")
        if (number - first) % 50 == 49:
            print(number, flush=True)
    sys.stdin.read()
"""


class Writer:
    """A process that writes until it is killed, and tells every fiftieth number it has written."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(root)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.told = -1

    def wait(self, lines: int) -> None:
        assert self.process.stdout is not None
        for _ in range(lines):
            self.told = int(self.process.stdout.readline())

    def kill(self) -> int:
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        os.kill(self.process.pid, signal.SIGKILL)
        rest = self.process.stdout.read().splitlines()
        self.process.stdout.close()
        self.process.stdin.close()
        self.process.wait()
        whole = [int(line) for line in rest[:-1]]
        return max([self.told, *whole])


def test_exactly_once_over_a_writer_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The query is stopped and started again too; the writer goes on where its store is."""
    root, out = tmp_path / "store-a", tmp_path / "out"

    def drain(**limits: str) -> None:
        options = limits if stream.HAS_LIMITS else {}
        query = (
            spark.readStream.format("mqstore")
            .options(columns="queue_offset,body", until="end", **options)
            .load(str(root))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()

    writer = Writer(root)
    writer.wait(lines=8)
    # It goes on writing while the stream reads.
    drain(maxRowsPerTrigger="1500")
    told = writer.kill()
    writer = Writer(root)
    writer.wait(lines=4)
    drain(maxBytesPerTrigger="1m")
    told = max(told, writer.kill())
    with mqstore.open(root, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        store.append("T", b"last")
        wanted = [found.body for found in store.scan()]
    drain()
    rows = pq.read_table(out).to_pylist()
    assert Counter(row["body"] for row in rows) == Counter(wanted)
    # Messages reported to the writer are written.
    assert set(sent(range(told + 1))) <= {row["body"] for row in rows}


def test_damage_in_a_stream_is_a_row_where_that_is_asked_for(tmp_path: Path) -> None:
    root = make(tmp_path / "a", range(30))
    with mqstore.open(root, config=TINY) as store:
        broken = list(store.scan())[11]
    first = min((root / "commitlog").iterdir())
    damaged = bytearray(first.read_bytes())
    damaged[broken.physical_offset + 8] ^= 1
    first.write_bytes(damaged)
    plan = progress(root, until="end", onError="rows", splitBytes="400")
    reader = stream.make_stream_reader(
        plan.options, ["broker", "physical_offset", "store_size", "body", "error"]
    )
    rows = [
        row
        for part in reader.partitions({"a": 0}, plan.next({"a": 0}))
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert {row["broker"] for row in rows} == {"a"}
    good = [row["body"] for row in rows if row["error"] is None]
    assert good == [body for body in sent(range(30)) if body != broken.body]
    (bad,) = (row for row in rows if row["error"] is not None)
    assert bad["physical_offset"] == broken.physical_offset
    assert bad["store_size"] == broken.store_size


@pytest.mark.parametrize("longer", [False, True])
def test_a_store_that_another_one_replaced_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, longer: bool
) -> None:
    root = make(tmp_path / "a", range(200))

    def reader(**options: str) -> Any:
        return stream.make_stream_reader(progress(root, **options).options, COLUMNS)

    def end_of(of: Any, start: Any) -> Any:
        limit = (start, of.getDefaultReadLimit()) if stream.HAS_LIMITS else ()
        return json.loads(json.dumps(of.latestOffset(*limit)))

    first = reader()
    end = end_of(first, first.initialOffset())
    # Closed, opened again and moved it is the store that it was.
    make(root, range(200, 210))
    shutil.move(root, tmp_path / "away")
    shutil.copytree(tmp_path / "away", root)
    again = reader()
    assert len(again.partitions(end, {"a": progress(root).last()["a"]})) == 1
    shutil.rmtree(root)
    make(root, range(1000, 1400 if longer else 1005))
    says = "is another store than the one that was read" if longer else "or it is another store"
    with pytest.raises(mqstore.OffsetOutOfRangeError, match=says):
        reader().partitions(end, {"a": progress(root).last()["a"]} if longer else end)
    if not longer:
        return
    later = reader(failOnDataLoss="false")
    parts = later.partitions(end, {"a": progress(root).last()["a"]})
    bodies = [body for part in parts for b in later.read(part) for body in b.column("body")]
    assert [body.as_py() for body in bodies] == sent(range(1000, 1400))
    assert "is another store" in caplog.text
