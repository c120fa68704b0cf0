"""Damage and its readers: each gives the same messages and the same damaged ranges.

Bodies that cannot be decompressed are damage for each reader that is asked for bodies; an export
keeps them as they are stored.
"""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args, get_origin

import pyarrow as pa
import pytest

import mqstore
import mqstore.duckdb
import mqstore.polars
from mqstore import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILE = 4096
CONFIG = {"mapped_file_size_commit_log": FILE}
COUNT = 60
BAD = 25
PLAIN = b"as the producer sent it " * 4
COLUMNS = ["flag", "physical_offset", "store_size", "body", "error"]

ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201
BODIES = {
    "json": (ZLIB, b'{"not": "packed"}'),
    "raw deflate": (ZLIB, zlib.compress(PLAIN)[2:-4]),
    "gzip": (ZLIB, gzip.compress(PLAIN, mtime=0)),
    "empty": (ZLIB, b""),
    "zlib and bytes behind": (ZLIB, zlib.compress(PLAIN) + b"more"),
    "lz4 garbage": (LZ4, b"\x04\x22\x4d\x18garbage garbage"),
    "zstd garbage": (ZSTD, b"\x28\xb5\x2f\xfdgarbage garbage"),
    "unknown method": (0x701, zlib.compress(PLAIN)),
}


@dataclass
class Damaged:
    """A damaged store.

    Attributes:
        path: The store.
        rows: In the log's order each message's flag, or offset and length of damage.
        kind: Name of the damage.
    """

    path: Path
    rows: list[int | tuple[int, int]]
    kind: str = ""

    @property
    def of_body(self) -> bool:
        return self.kind in BODIES

    @property
    def messages(self) -> list[int]:
        return [row for row in self.rows if isinstance(row, int)]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [row for row in self.rows if not isinstance(row, int)]


def write(path: Path, flag: int = 0, body: bytes = PLAIN) -> list[mqstore.AppendResult]:
    with mqstore.open(path, "a", config=CONFIG) as store:
        return store.append_many(
            mqstore.Message(
                "T",
                body if number == BAD else PLAIN,
                flag=number,
                sys_flag=flag if number == BAD else 0,
                keys=f"k{number}",
            )
            for number in range(COUNT)
        )


def overwrite(path: Path, at: int, data: bytes) -> None:
    with (path / "commitlog" / f"{at // FILE * FILE:020}").open("r+b") as file:
        file.seek(at % FILE)
        file.write(data)


def lost(
    path: Path, results: list[mqstore.AppendResult], numbers: range, *ranges: tuple[int, int]
) -> Damaged:
    rows: list[int | tuple[int, int]] = [*range(COUNT)]
    rows[numbers.start : numbers.stop] = ranges or [
        (
            results[numbers.start].physical_offset,
            sum(results[number].store_size for number in numbers),
        )
    ]
    return Damaged(path, rows)


def torn_record(path: Path) -> Damaged:
    results = write(path)
    hit = results[BAD]
    overwrite(path, hit.physical_offset + hit.store_size // 2, bytes(hit.store_size // 2))
    return lost(path, results, range(BAD, BAD + 1))


def flipped_body_byte(path: Path) -> Damaged:
    results = write(path)
    overwrite(path, results[BAD].physical_offset + 90, b"?")
    return lost(path, results, range(BAD, BAD + 1))


def hole_of_zeros(path: Path) -> Damaged:
    results = write(path)
    found = lost(path, results, range(BAD - 1, BAD + 2))
    ((at, length),) = found.ranges
    overwrite(path, at, bytes(length))
    return found


def hole_across_files(path: Path) -> Damaged:
    results = write(path)
    first = next(n for n, one in enumerate(results) if one.physical_offset == FILE)
    begin, end = results[first - 1].physical_offset, results[first + 1].physical_offset
    overwrite(path, begin, bytes(FILE - begin))
    overwrite(path, FILE, bytes(end - FILE))
    ranges = ((begin, FILE - begin), (FILE, end - FILE))
    return lost(path, results, range(first - 1, first + 1), *ranges)


def missing_file(path: Path) -> Damaged:
    results = write(path)
    (path / "commitlog" / f"{FILE:020}").unlink()
    gone = [n for n, one in enumerate(results) if FILE <= one.physical_offset < 2 * FILE]
    return lost(path, results, range(gone[0], gone[-1] + 1), (FILE, FILE))


def bad_body(name: str) -> Callable[[Path], Damaged]:
    return lambda path: lost(path, write(path, *BODIES[name]), range(BAD, BAD + 1))


DAMAGE: dict[str, Callable[[Path], Damaged]] = {
    "torn record": torn_record,
    "flipped body byte": flipped_body_byte,
    "hole of zeros": hole_of_zeros,
    "hole across files": hole_across_files,
    "missing file": missing_file,
    **{name: bad_body(name) for name in BODIES},
}


@pytest.fixture(scope="module", params=DAMAGE)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    made = DAMAGE[request.param](tmp_path_factory.mktemp("damage") / "store")
    return replace(made, kind=request.param)


Row = int | tuple[int, int]


def of_arrow(rows: list[dict[str, Any]]) -> Iterator[Row]:
    for row in rows:
        if row["error"] is None:
            assert row["body"] == PLAIN
            yield row["flag"]
        else:
            assert (row["flag"], row["body"]) == (None, None)
            assert f"physical offsets {row['physical_offset']} to " in row["error"]
            yield row["physical_offset"], row["store_size"]


def items(scan: Iterator[Any]) -> Iterator[Row]:
    for item in scan:
        if isinstance(item, mqstore.Damage):
            assert f"physical offsets {item.physical_offset} to " in item.reason
            yield item.physical_offset, item.length
        else:
            assert item.body == PLAIN
            yield item.flag


def by_scan(path: Path, on_error: Any) -> Iterator[Row]:
    with mqstore.open(path) as store:
        yield from items(store.scan(on_error=on_error))


def by_commit_log(path: Path, on_error: Any) -> Iterator[Row]:
    with mqstore.open(path) as store:
        end = store.max_physical_offset
    log = mqstore.CommitLog(path / "commitlog")
    yield from items(log.scan(stop_physical_offset=end, on_error=on_error))


def by_arrow(path: Path, on_error: Any) -> Iterator[Row]:
    with mqstore.open(path) as store:
        for batch in store.scan_arrow(columns=COLUMNS, batch_rows=7, on_error=on_error):
            assert len(batch) <= 7
            yield from of_arrow(batch.to_pylist())


def by_polars(path: Path, on_error: Any) -> Iterator[Row]:
    frame = mqstore.polars.scan(path, on_error=on_error)
    if on_error != "report":
        frame = frame.with_columns(error=None)
    yield from of_arrow(frame.select(COLUMNS).collect().to_dicts())


def by_duckdb(path: Path, on_error: Any) -> Iterator[Row]:
    relation = mqstore.duckdb.relation(path, on_error=on_error)
    names = ", ".join(COLUMNS if on_error == "report" else [*COLUMNS[:-1], "null as error"])
    rows = relation.project(names).fetchall()
    yield from of_arrow([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def by_export(path: Path, on_error: Any) -> Iterator[Row]:
    target = path.parent / f"export-{on_error}"
    report = mqstore.export_store(path, target, on_error=on_error, config=CONFIG)
    lines = (target / "messages.jsonl").read_text().splitlines()
    rows = {row["physical_offset"]: row["flag"] for row in map(json.loads, lines)}
    if on_error == "report":
        found = [json.loads(line) for line in (target / "damage.jsonl").read_text().splitlines()]
        rows |= {one["physical_offset"]: (one["physical_offset"], one["length"]) for one in found}
        assert report.skipped_ranges == len(found)
    else:
        assert not (target / "damage.jsonl").exists()
    yield from (row for _, row in sorted(rows.items()))


def by_spark(path: Path, on_error: Any, step: int = 700) -> Iterator[Row]:
    with mqstore.open(path) as store:
        end = store.max_physical_offset
    for begin in range(0, end, step):
        scan = _native.scan_log(
            path,
            begin,
            min(begin + step, end),
            log_end=end,
            settings=CONFIG,
            columns=COLUMNS,
            on_error={"raise": "fail", "report": "rows"}.get(on_error, on_error),
        )
        for batch in pa.RecordBatchReader.from_stream(scan):
            yield from of_arrow(batch.to_pylist())


READERS: dict[str, Callable[[Path, Any], Iterator[Row]]] = {
    "scan": by_scan,
    "CommitLog.scan": by_commit_log,
    "scan_arrow": by_arrow,
    "polars": by_polars,
    "DuckDB": by_duckdb,
    "export": by_export,
    "Spark": by_spark,
}


@pytest.mark.parametrize("reader", READERS)
def test_damage_is_the_same_for_each_reader(damaged: Damaged, reader: str) -> None:
    read = READERS[reader]
    if reader == "export" and damaged.of_body:
        for on_error in ("raise", "skip", "report"):
            assert list(read(damaged.path, on_error)) == [*range(COUNT)]
        again = damaged.path.parent / "again"
        mqstore.import_store(damaged.path.parent / "export-raise", again)
        with mqstore.open(damaged.path) as store, mqstore.open(again) as copy:
            assert [m.raw_body for m in copy.scan()] == [m.raw_body for m in store.scan()]
        return
    if reader == "CommitLog.scan" and damaged.kind == "missing file":
        with pytest.raises(mqstore.CorruptionError, match="gap: expected the file"):
            mqstore.CommitLog(damaged.path / "commitlog")
        return
    assert list(read(damaged.path, "skip")) == damaged.messages
    assert list(read(damaged.path, "report")) == damaged.rows
    before = []
    with pytest.raises(Exception, match=f"physical offsets {damaged.ranges[0][0]} to ") as raised:
        before.extend(read(damaged.path, "raise"))
    if reader in {"scan", "export"}:
        assert isinstance(raised.value, mqstore.CorruptionError)


def test_damage_comes_behind_the_messages_before_it(damaged: Damaged) -> None:
    for read in (by_scan, by_arrow, by_spark):
        found: list[Row] = []
        with pytest.raises(Exception, match="physical offsets"):
            found.extend(read(damaged.path, "raise"))
        assert found == damaged.rows[: damaged.rows.index(damaged.ranges[0])]


def test_damage_is_counted(damaged: Damaged) -> None:
    with mqstore.open(damaged.path) as store:
        for on_error in ("skip", "report"):
            scan: Any = store.scan(on_error=on_error)
            assert len(list(scan)) == len(damaged.messages if on_error == "skip" else damaged.rows)
            assert scan.skipped_ranges == len(damaged.ranges)
            assert scan.skipped_bytes == sum(length for _, length in damaged.ranges)
            assert scan.physical_offset == scan.stop_physical_offset


def test_damage_is_a_value(damaged: Damaged) -> None:
    with mqstore.open(damaged.path) as store:
        scan = store.scan(on_error="report")
        found = [item for item in scan if isinstance(item, mqstore.Damage)]
    assert [(one.physical_offset, one.length) for one in found] == damaged.ranges
    for one in found:
        same = mqstore.Damage(one.physical_offset, one.length, one.reason)
        assert (same, hash(same)) == (one, hash(one))
        assert pickle.loads(pickle.dumps(one)) == one
        assert repr(one).startswith(f"Damage(physical_offset={one.physical_offset}, length=")
        assert one != mqstore.Damage(one.physical_offset, one.length + 1, one.reason)
        with pytest.raises(AttributeError):
            one.length = 0  # type: ignore[misc]


def test_damage_is_an_item_in_the_annotation_of_a_scan() -> None:
    annotation = mqstore.MessageScan[mqstore.StoredMessage | mqstore.Damage]
    assert get_origin(annotation) is mqstore.MessageScan
    assert get_args(annotation) == (mqstore.StoredMessage | mqstore.Damage,)


def test_damage_is_a_row_whose_other_columns_are_null(damaged: Damaged) -> None:
    with mqstore.open(damaged.path) as store:
        scan = store.scan_arrow(on_error="report")
        assert scan.schema.names[-1] == "error"
        rows = [row for row in scan.read_all().to_pylist() if row["error"]]
        # The requested order stays, and no row of damage passes for a message.
        assert store.scan_arrow(columns=["error", "flag"], on_error="report").schema.names == [
            "error",
            "flag",
        ]
        only = store.scan_arrow(columns=["flag"], on_error="report")
        assert only.schema.names == ["flag", "error"]
        lacking = pa.array(only.read_all()["flag"].to_pylist()).null_count
    # Without a column of bodies nobody needs to decompress them.
    assert lacking == (0 if damaged.of_body else len(damaged.ranges))
    assert [(row["physical_offset"], row["store_size"]) for row in rows] == damaged.ranges
    for row in rows:
        others = set(row) - {"physical_offset", "store_size", "error"}
        assert {row[name] for name in others} == {None}


@pytest.mark.parametrize("name", BODIES)
def test_damage_of_a_body_leaves_the_message_to_other_readers(tmp_path: Path, name: str) -> None:
    flag, stored = BODIES[name]
    results = write(tmp_path / "store", flag, stored)
    place = results[BAD].physical_offset
    with mqstore.open(tmp_path / "store") as store:
        (damage,) = [
            one for one in store.scan(on_error="report") if isinstance(one, mqstore.Damage)
        ]
        assert f"topic T, queue 0, queue offset {BAD})" in damage.reason
        for message in (
            store.get(damage.physical_offset),
            store.query("T", f"k{BAD}")[0],
            store.read("T", 0, BAD).messages[0],
            next(one for one in store.scan() if one.flag == BAD),
            [*store.scan(on_error="skip", decompress=False)][BAD],
            [*store.scan(on_error="report", decompress=False)][BAD],
        ):
            assert isinstance(message, mqstore.StoredMessage)
            assert (message.physical_offset, message.raw_body) == (place, stored)
            with pytest.raises(
                mqstore.CorruptionError, match=f"physical offsets {place} to "
            ) as it:
                _ = message.body
            assert it.value.kind == "body"
        rows = store.scan_arrow(columns=["body", "raw_body"], decompress=False).read_all()
        assert rows.to_pylist()[BAD] == {"body": stored, "raw_body": stored}
        raw = store.scan_arrow(columns=["raw_body"], on_error="report").read_all().to_pylist()
        assert raw[BAD] == {"raw_body": stored, "error": None}
        # The filters choose among messages, so they also choose whose bodies count.
        assert not [*store.scan(on_error="report", topics=["other"])]


def test_damage_of_a_body_holds_no_consumer_up(tmp_path: Path) -> None:
    write(tmp_path / "store", *BODIES["json"])
    seen = []
    with mqstore.open(tmp_path / "store", "r+", config=CONFIG) as store:
        offset = 0
        while (result := store.read("T", 0, offset, max_messages=7)).messages:
            seen += [message.flag for message in result.messages]
            offset = result.next_queue_offset
        assert seen == [*range(COUNT)]
        group = store.group("g")
        taken: list[int] = []
        while messages := group.poll("T", max_messages=7):
            taken += [message.flag for message in messages]
            group.commit()
        assert taken == seen


def test_damage_that_holds_any_message_is_in_no_filter(damaged: Damaged) -> None:
    with mqstore.open(damaged.path) as store:
        found = [*store.scan(on_error="report", topics=["other"])]
    expected = [] if damaged.of_body else damaged.ranges
    assert [(one.physical_offset, one.length) for one in found] == expected  # type: ignore[union-attr]


def test_damage_of_many_bodies_keeps_batches_full(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.append_many(
            mqstore.Message("T", PLAIN, flag=number, sys_flag=ZLIB if number % 2 else 0)
            for number in range(100)
        )
        scan = store.scan_arrow(columns=["flag", "body"], batch_rows=10, on_error="report")
        batches = [*scan]
        assert [len(batch) for batch in batches] == [10] * 10
        flags = [flag for batch in batches for flag in batch["flag"].to_pylist()]
        assert flags == [None if number % 2 else number for number in range(100)]


def test_damage_of_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "store")
    with mqstore.open(tmp_path / "store") as store:
        for read in (store.scan, store.scan_arrow):
            with pytest.raises(ValueError, match="on_error: expected one of raise, skip, report"):
                read(on_error="rows")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="on_error: expected one of raise, skip"):
        mqstore.stats(tmp_path / "store", on_error="report")  # type: ignore[arg-type]
