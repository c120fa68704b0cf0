"""Where a scan's rows lie: views into what was read, and memory that does not grow."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import mqstore
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20261121
VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    """Bodies of all sizes, some of them compressed, some larger than what is read at a time."""
    rng = random.Random(SEED)
    config = {**TINY, "mapped_file_size_commit_log": 2 << 20}
    with mqstore.open(tmp_path / "store", "a", config=config) as store:
        for number in range(700):
            size = rng.choice([0, 3, 12, 13, 500, 5_000, 300_000 if number % 70 == 0 else 1])
            body, sys_flag = rng.randbytes(size), 0
            if number % 9 == 0:
                body, sys_flag = zlib.compress(body * 3), 1
            topic = "rare" if number % 97 == 0 else "usual"
            store.append_many([message(topic, body=body, sys_flag=sys_flag, tags=f"tag-{number}")])
        yield store


def as_views(scan: mqstore.ArrowScan) -> pa.RecordBatchReader:
    schema = pa.schema(scan)
    like = pa.schema([(field.name, VIEWS.get(field.type, field.type)) for field in schema])
    return pa.RecordBatchReader.from_stream(scan, schema=like)


@pytest.mark.parametrize("filters", [{}, {"topics": ["rare"]}, {"tags": "tag-5 || tag-600"}])
@pytest.mark.parametrize("limits", [{}, {"batch_rows": 7}, {"batch_bytes": 1}])
def test_views_hold_what_copies_hold(
    store: mqstore.Store, filters: dict[str, Any], limits: dict[str, Any]
) -> None:
    scan = store.scan_arrow(columns=["topic", "body", "raw_body", "tags"], **limits, **filters)
    # All are kept while the scan goes on: nothing may be read over what they point to.
    batches = list(as_views(scan))
    found = pa.Table.from_batches(batches)
    found.validate(full=True)
    assert found.schema.field("body").type == pa.binary_view()
    assert found.to_pylist() == scan.read_all().to_pylist()
    messages = list(store.scan(**filters))
    assert found["body"].to_pylist() == [one.body for one in messages]
    assert found["raw_body"].to_pylist() == [one.raw_body for one in messages]


def test_batches_have_at_most_what_was_asked_for(store: mqstore.Store) -> None:
    for batch in as_views(store.scan_arrow(columns=["body"], batch_rows=50, batch_bytes=9_000)):
        sizes = [len(body) for body in batch["body"].to_pylist()]
        assert len(sizes) <= 50
        assert sum(sizes) <= 9_000 or len(sizes) == 1


@pytest.mark.parametrize("views", [False, True])
def test_every_library_takes_it(store: mqstore.Store, views: bool) -> None:
    scan = store.scan_arrow(columns=["topic", "queue_offset", "store_timestamp", "tags", "body"])
    wanted = [one.body for one in store.scan()]
    rows = as_views(scan) if views else scan
    assert pl.DataFrame(rows)["body"].to_list() == wanted
    rows = as_views(scan) if views else scan
    total = sum(map(len, wanted))
    assert duckdb.sql("select sum(octet_length(body))::bigint from rows").fetchall() == [(total,)]
    rows = as_views(scan) if views else scan
    assert pa.table(rows)["body"].to_pylist() == wanted


def test_checksums_can_be_left_out(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(body=b"body-%02d" % n, flag=n) for n in range(20)])
    path = tmp_path / "commitlog" / f"{0:020}"
    path.write_bytes(path.read_bytes().replace(b"body-12", b"bodi-12"))
    with mqstore.open(tmp_path, config=TINY) as store:
        with pytest.raises(mqstore.CorruptionError):
            store.scan_arrow(columns=["flag"]).read_all()
        rows = store.scan_arrow(columns=["flag", "body"], verify_crc=False).read_all()
        assert rows["flag"].to_pylist() == list(range(20))
        assert rows["body"].to_pylist()[11:14] == [b"body-11", b"bodi-12", b"body-13"]
        third = list(store.scan(stop_physical_offset=2_000, on_error="skip"))[3]
    # Where a record begins and ends is looked at all the same.
    data = bytearray(path.read_bytes())
    data[third.physical_offset + 4] ^= 0xFF
    path.write_bytes(data)
    with (
        mqstore.open(tmp_path, config=TINY) as store,
        pytest.raises(mqstore.CorruptionError, match="magic"),
    ):
        store.scan_arrow(columns=["flag"], verify_crc=False).read_all()


SCANS = """
import resource, sys
import pyarrow as pa
import mqstore

def walk(path):
    with mqstore.open(path) as store:
        for columns in (None, ["topic"]):
            scan = store.scan_arrow(columns=columns, batch_bytes=1 << 20)
            for batch in pa.RecordBatchReader.from_stream(scan):
                pass
        scan = store.scan_arrow(columns=["body"], batch_bytes=1 << 20)
        like = pa.schema([("body", pa.binary_view())])
        for batch in pa.RecordBatchReader.from_stream(scan, schema=like):
            pass
        # One message of a hundred, whose blocks must not stay.
        scan = store.scan_arrow(columns=["body"], topics=["rare"], batch_bytes=1 << 20)
        for batch in pa.RecordBatchReader.from_stream(scan, schema=like):
            pass
        for message in store.scan():
            pass

for path in sys.argv[1:]:
    walk(path)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    for name, count in (("small", 1_000), ("large", 12_000)):
        with mqstore.open(tmp_path / name, "a") as store:
            body = bytes(8 << 10)
            for start in range(0, count, 500):
                numbers = range(start, start + 500)
                store.append_many([message("T" if n % 100 else "rare", body=body) for n in numbers])
    run = subprocess.run(
        [sys.executable, "-c", SCANS, tmp_path / "small", tmp_path / "large"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    kib = 1024 if sys.platform == "darwin" else 1
    small, large = (int(line) // kib for line in run.stdout.split())
    # The large store has 90 MiB more.
    assert large - small < 24 << 10, (small, large)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than is read by one thread."""
    path = tmp_path_factory.mktemp("long") / "store"
    body = bytes(8 << 10)
    with mqstore.open(path, "a", config={**TINY, "mapped_file_size_commit_log": 5 << 20}) as store:
        for start in range(0, 3_000, 500):
            numbers = range(start, start + 500)
            store.append_many(
                [message("T" if n % 50 else "rare", body=b"%d " % n + body) for n in numbers]
            )
    return path


@pytest.mark.parametrize("filters", [{}, {"topics": ["rare"]}])
def test_several_threads_give_rows_in_the_order_of_the_log(
    long: Path, filters: dict[str, Any]
) -> None:
    with mqstore.open(long) as store:
        wanted = [(m.physical_offset, m.body[:5]) for m in store.scan(**filters)]
        scan = store.scan_arrow(columns=["physical_offset", "body"], **filters)
        for reader in (pa.RecordBatchReader.from_stream(scan), as_views(scan)):
            rows = reader.read_all().to_pylist()
            assert [(row["physical_offset"], row["body"][:5]) for row in rows] == wanted


def test_a_long_stream_ends_with_its_store_or_its_reader(long: Path) -> None:
    store = mqstore.open(long)
    left, read = (pa.RecordBatchReader.from_stream(store.scan_arrow()) for _ in range(2))
    assert left.read_next_batch().num_rows
    assert read.read_next_batch().num_rows
    # Its threads are about to make batches that nobody takes.
    del left
    store.close()
    with pytest.raises(pa.ArrowException, match="closed"):
        read.read_all()
