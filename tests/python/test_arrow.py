"""Scans as Arrow streams, and appending what another program holds as Arrow."""

from __future__ import annotations

import datetime as dt
import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mqstore
from helpers.golden import Case, case_names
from helpers.stores import TIME, TINY, log_bytes, message

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.field("element", pa.string()))
MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("store_timestamp", UTC),
        ("born_timestamp", UTC),
        ("tags", pa.string()),
        ("keys", TEXTS),
        ("unique_key", pa.string()),
        ("message_id", pa.string()),
        ("properties", MAP),
        ("body", pa.binary()),
        ("raw_body", pa.binary()),
        ("body_crc", pa.int32()),
        ("sys_flag", pa.int32()),
        ("flag", pa.int32()),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("error", pa.string()),
    ]
)
USUAL = [name for name in SCHEMA.names if name not in ("raw_body", "error")]
OF_THEIR_OWN = {
    "broker",
    "error",
    "keys",
    "properties",
    "store_timestamp",
    "born_timestamp",
}
SAME = [name for name in SCHEMA.names if name not in OF_THEIR_OWN]
"""Columns that show what the message's attribute of that name shows."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        yield store


@pytest.fixture
def other(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "other", "a", config=TINY) as store:
        yield store


def stream(scan: mqstore.ArrowScan) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(scan)


def moment(time_ms: int) -> dt.datetime | None:
    """A time as Arrow shows it; outside of the calendar there is none."""
    if not -62_135_596_800_000 <= time_ms < 253_402_300_800_000:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=time_ms)


def row_of(found: mqstore.StoredMessage) -> dict[str, Any]:
    """A message as a row of a scan."""
    return {
        **{name: getattr(found, name) for name in SAME},
        "broker": None,
        "error": None,
        "keys": list(found.keys),
        "properties": list(found.properties.items()),
        "store_timestamp": moment(found.store_timestamp_ms),
        "born_timestamp": moment(found.born_timestamp_ms),
    }


# --- scanning ---------------------------------------------------------------------------------


def test_the_schema_is_what_spark_makes_of_the_columns() -> None:
    found = pa.schema(mqstore.ARROW_SCHEMA)
    assert found == SCHEMA
    assert all(field.nullable for field in found)
    # pyarrow takes two lists or maps for equal whatever their inner fields are called.
    assert found.field("keys").type.value_field.name == "element"
    assert found.field("keys").type.value_field.nullable
    assert found.field("properties").type.key_field.name == "key"
    assert found.field("properties").type.item_field.name == "value"
    assert found.field("properties").type.item_field.nullable


@pytest.mark.parametrize("name", case_names("messages"))
def test_rows_are_the_messages(name: str, tmp_path: Path) -> None:
    case = Case(name)
    with case.open(case.unpack(tmp_path)) as store:
        # One of the cases has a damaged record.
        scan = store.scan_arrow(columns=SCHEMA.names, batch_rows=7, on_error="skip")
        rows = scan.read_all()
        assert rows.schema == SCHEMA
        rows.validate(full=True)
        assert rows.to_pylist() == [row_of(found) for found in store.scan(on_error="skip")]


def test_columns_are_those_asked_for_in_that_order(store: mqstore.Store) -> None:
    store.append("T", b"body", flag=3)
    assert pa.schema(store.scan_arrow()).names == USUAL
    assert store.scan_arrow().schema.names == USUAL
    some = store.scan_arrow(columns=iter(("flag", "topic", "raw_body")))
    assert some.read_all().to_pylist() == [{"flag": 3, "topic": "T", "raw_body": b"body"}]
    none = store.scan_arrow(columns=[])
    assert (none.schema.names, none.read_all().num_rows) == ([], 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"columns": ["topic", "colour"]}, "columns: expected names of .*, got .colour."),
        ({"columns": ["topic", "topic"]}, "expected each name once"),
        ({"columns": "topic"}, "columns: expected a list of names, got str"),
        ({"batch_rows": 0}, "batch_rows: expected 1 or more"),
        ({"batch_bytes": 0}, "batch_bytes: expected 1 or more"),
        ({"on_error": "ignore"}, "on_error: expected one of raise, skip"),
    ],
)
def test_words_that_mean_nothing(store: mqstore.Store, wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        store.scan_arrow(**wrong)


def test_a_scan_takes_what_a_filter_takes(store: mqstore.Store) -> None:
    results = []
    for number in range(40):
        topic, tags = ("A", "B")[number % 2], ("x", "y", "z")[number % 3]
        results += store.append_many(
            [message(topic, tags=tags, flag=number, store_timestamp_ms=TIME + number)]
        )
    offsets = [result.physical_offset for result in results]
    for filters in (
        {"topics": ["A"]},
        {"topics": []},
        {"tags": "x || z"},
        {"begin_ms": TIME + 5, "end_ms": TIME + 20},
        {"topics": ["B"], "tags": "y", "begin_ms": TIME + 9},
        {"start_physical_offset": offsets[7] + 1, "stop_physical_offset": offsets[30]},
        {"start_physical_offset": -1, "stop_physical_offset": 2**62},
    ):
        wanted = [found.flag for found in store.scan(**filters)]  # type: ignore[arg-type]
        rows = store.scan_arrow(columns=["flag"], batch_rows=5, **filters).read_all()  # type: ignore[arg-type]
        assert rows["flag"].to_pylist() == wanted, filters


def test_ranges_that_meet_share_every_message_between_them(store: mqstore.Store) -> None:
    store.append_many([message(body=bytes([n]) * n, flag=n) for n in range(60)])
    end = store.max_physical_offset
    for split in range(0, end + 1, 97):
        parts = [
            store.scan_arrow(columns=["flag"], stop_physical_offset=split),
            store.scan_arrow(columns=["flag"], start_physical_offset=split),
        ]
        flags = [flag for part in parts for flag in part.read_all()["flag"].to_pylist()]
        assert flags == list(range(60)), split


def test_batches_end_by_rows_and_by_bytes_of_bodies(store: mqstore.Store) -> None:
    store.append_many([message(body=bytes(100)) for _ in range(25)])

    def sizes(**limits: Any) -> list[int]:
        return [len(batch) for batch in stream(store.scan_arrow(**limits))]

    assert sizes() == [25]
    assert sizes(batch_rows=10) == [10, 10, 5]
    assert sizes(batch_bytes=1_000) == [10, 10, 5]
    assert sizes(batch_bytes=1_099) == [10, 10, 5]
    assert sizes(batch_bytes=1_100) == [11, 11, 3]
    assert sizes(batch_bytes=1) == [1] * 25
    assert sizes(batch_bytes=1, columns=["topic"]) == [25]
    assert sizes(batch_rows=2**40) == [25]


def test_each_consumer_begins_anew(store: mqstore.Store) -> None:
    store.append_many([message(flag=n) for n in range(10)])
    scan = store.scan_arrow(columns=["flag"], batch_rows=3)
    first, second = stream(scan), stream(scan)
    assert first.read_next_batch()["flag"].to_pylist() == [0, 1, 2]
    assert second.read_all().num_rows == 10
    assert first.read_next_batch()["flag"].to_pylist() == [3, 4, 5]
    # It ends where the log ended when it was made.
    store.append("T", b"later")
    assert scan.read_all().num_rows == 10
    assert pa.table(scan).num_rows == 10
    assert store.scan_arrow().read_all().num_rows == 11


def test_a_requested_schema_chooses_the_layout(store: mqstore.Store) -> None:
    long = "more-than-twelve-bytes"
    store.append("T", long.encode(), tags=long, keys=[long, "k"], properties={"p": long})
    wanted = pa.schema(
        [
            ("tags", pa.string_view()),
            ("body", pa.binary_view()),
            ("keys", pa.list_(pa.string_view())),
            ("properties", pa.map_(pa.string_view(), pa.string_view())),
            ("flag", pa.int64()),
            ("unknown", pa.string_view()),
        ]
    )
    scan = store.scan_arrow(columns=["topic", "flag", "tags", "body", "keys", "properties"])
    capsule = scan.__arrow_c_stream__(wanted.__arrow_c_schema__())
    found = pa.RecordBatchReader._import_from_c_capsule(capsule).read_all()
    found.validate(full=True)
    assert [field.type for field in found.schema] == [
        pa.string(),
        pa.int32(),
        pa.string_view(),
        pa.binary_view(),
        pa.list_(pa.string_view()),
        pa.map_(pa.string_view(), pa.string_view()),
    ]
    assert found.to_pylist() == scan.read_all().to_pylist()


def test_a_request_that_is_no_schema(store: mqstore.Store) -> None:
    with pytest.raises(TypeError):
        store.scan_arrow().__arrow_c_stream__("string_view")
    with pytest.raises(TypeError):
        store.scan_arrow().__arrow_c_stream__(pa.field("x", pa.int8()).__arrow_c_schema__())


def test_hostile_values_become_rows(store: mqstore.Store) -> None:
    block = b"TAGS\x01\xff\x02KEYS\x01 a  \xc3 b\x02x\x01\x01\x02\x02\x01y\x02x\x01z"
    odd = message(
        properties=block,
        born_timestamp_ms=-(2**63),
        store_timestamp_ms=2**63 - 1,
        born_host="[::1]:-2147483648",
        flag=-(2**31),
    )
    store.append_many([message(tags="fine"), odd])
    (found,) = store.scan(begin_ms=2**62)
    rows = store.scan_arrow(columns=SCHEMA.names).read_all()
    rows.validate(full=True)
    assert rows.to_pylist()[1] == row_of(found)
    assert rows["store_timestamp"].to_pylist() == [moment(TIME), None]
    assert rows["keys"].to_pylist() == [[], ["a", "\ufffd", "b"]]
    assert rows["tags"].to_pylist() == ["fine", "\ufffd"]
    assert rows["properties"].to_pylist()[1][-1] == ("x", "z")


def damaged(root: Path) -> list[mqstore.AppendResult]:
    """Twenty messages of which number 12 has another body than was written."""
    with mqstore.open(root, "a", config=TINY) as store:
        results = store.append_many([message(body=b"body-%02d" % n, flag=n) for n in range(20)])
    path = root / "commitlog" / f"{0:020}"
    path.write_bytes(path.read_bytes().replace(b"body-12", b"bodi-12"))
    return results


def test_rows_before_damage_come_before_its_error(tmp_path: Path) -> None:
    results = damaged(tmp_path)
    with mqstore.open(tmp_path, config=TINY) as store:
        scan = store.scan_arrow(columns=["flag"], batch_rows=5)
        with pytest.raises(mqstore.CorruptionError) as damage:
            scan.read_all()
        assert damage.value.path == str(tmp_path / "commitlog" / f"{0:020}")
        assert damage.value.offset == results[12].physical_offset + 8
        assert damage.value.kind == "body-crc"
        # A reader of the stream itself gets the text.
        reader = stream(scan)
        batches = [reader.read_next_batch() for _ in range(3)]
        assert [len(batch) for batch in batches] == [5, 5, 2]
        with pytest.raises(pa.ArrowInvalid, match="body-crc: expected checksum 0x"):
            reader.read_next_batch()
        # Skipped, it is missing and nothing else.
        rest = store.scan_arrow(columns=["flag"], on_error="skip").read_all()
        assert rest["flag"].to_pylist() == [n for n in range(20) if n != 12]


def test_a_body_that_cannot_be_undone_is_damage_where_it_is_shown(store: mqstore.Store) -> None:
    packed = message(body=b"no zlib", sys_flag=1)
    store.append_many([message(flag=1), packed, message(flag=3)])
    with pytest.raises(mqstore.CorruptionError) as damage:
        store.scan_arrow().read_all()
    assert damage.value.kind == "body"
    raw = store.scan_arrow(columns=["raw_body"]).read_all()
    assert raw["raw_body"].to_pylist() == [b"", b"no zlib", b""]
    rest = store.scan_arrow(columns=["flag", "body"], on_error="skip").read_all()
    assert rest["flag"].to_pylist() == [1, 3]


def test_a_closed_store_ends_its_scans(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message()] * 9)
        scan = store.scan_arrow(batch_rows=4)
        reader, batches = stream(scan), iter(scan)
        reader.read_next_batch()
        next(batches)
    with pytest.raises(pa.ArrowInvalid, match="the store is closed"):
        reader.read_next_batch()
    for use in (scan.__arrow_c_stream__, scan.read_all, store.scan_arrow, batches.__next__):
        with pytest.raises(mqstore.StoreClosedError):
            use()  # type: ignore[operator]
    # Its type can still be named.
    assert pa.schema(scan).names == USUAL


def test_rows_outlive_scan_and_store(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(500)])
        batches = list(stream(store.scan_arrow(columns=["body"], batch_rows=10)))
    del store
    gc.collect()
    bodies = [body for batch in batches for body in batch["body"].to_pylist()]
    assert bodies == [b"%d" % n for n in range(500)]


def test_threads_read_one_scan_while_another_appends(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1 << 20}
    counts = []
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append_many([message(body=b"x" * 50) for _ in range(3_000)])
        scan = store.scan_arrow(batch_rows=100)

        def read() -> None:
            counts.append(scan.read_all().num_rows)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            store.append("T", b"beside")
        for thread in threads:
            thread.join()
    assert counts == [3_000] * 3


# --- appending --------------------------------------------------------------------------------


def test_a_scan_can_be_appended_elsewhere(store: mqstore.Store, other: mqstore.Store) -> None:
    store.append_many(
        [
            message(
                ("A", "B")[n % 2],
                body=b"body" * n,
                queue_id=n % 4,
                tags=("x", "y", None)[n % 3],
                keys=[f"k{n}", "all"] if n % 5 else (),
                unique_key=f"U{n}" if n % 2 else None,
                properties={"n": str(n), "grün": "ja"},
                flag=n,
                born_timestamp_ms=TIME - n,
                store_timestamp_ms=TIME + n,
                born_host=f"10.0.0.{n}:1",
                store_host="[2001:db8::1]:2" if n % 7 == 0 else None,
                reconsume_times=n,
                delay_level=n % 3,
            )
            for n in range(100)
        ]
    )
    summary = other.append_arrow(store.scan_arrow(batch_rows=9))
    assert summary == mqstore.AppendSummary(100, 0, store.max_physical_offset)
    store.flush()
    other.flush()
    assert log_bytes(Path(other.path)) == log_bytes(Path(store.path))


def test_stored_bodies_keep_their_compression(store: mqstore.Store, other: mqstore.Store) -> None:
    import zlib

    plain = b"body " * 100
    packed = message(body=zlib.compress(plain), sys_flag=0x301, tags="t")
    store.append_many([packed])
    other.append_arrow(store.scan_arrow(columns=["topic", "body", "sys_flag", "properties"]))
    other.append_arrow(store.scan_arrow(columns=["topic", "body", "raw_body", "sys_flag"]))
    undone, kept = other.scan()
    assert (undone.raw_body, undone.sys_flag, undone.tags) == (plain, 0, "t")
    assert (kept.raw_body, kept.body, kept.sys_flag) == (packed.body, plain, 0x301)


def test_topic_and_body_are_enough(store: mqstore.Store) -> None:
    store.append("T", b"first")
    rows = pa.table({"body": [b"a", b"b"], "topic": ["T", "U"]})
    summary = store.append_arrow(rows)
    second, third = list(store.scan())[1:]
    assert summary == mqstore.AppendSummary(
        2, second.physical_offset, third.physical_offset + third.store_size
    )
    assert (second.topic, second.body, second.queue_offset) == ("T", b"a", 1)
    assert (third.topic, third.queue_id, third.properties, third.flag) == ("U", 0, {}, 0)
    assert second.store_timestamp_ms > TIME
    assert second.born_timestamp_ms == second.store_timestamp_ms
    assert store.query("T", "x") == mqstore.QueryResult()


def test_types_of_other_programs_are_taken(store: mqstore.Store) -> None:
    ns = pa.timestamp("ns", "UTC")
    rows = pa.table(
        {
            "topic": pa.array(["T", "T"]).dictionary_encode(),
            "body": pa.array([b"a", b"b"], pa.large_binary()),
            "queue_id": pa.array([1, 2], pa.int64()),
            "keys": pa.array([["k1", "k2"], None], pa.large_list(pa.large_string())),
            "properties": pa.array(
                [[{"key": "p", "value": "1"}], []],
                pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.string_view())])),
            ),
            "tags": pa.nulls(2),
            "store_timestamp": pa.array([1_767_225_600_000_999_999, None], ns),
            "message_id": pa.array([1, 2]),
        }
    )
    store.append_arrow(rows)
    first, second = store.scan()
    assert (first.queue_id, first.keys, first.properties["p"]) == (1, ("k1", "k2"), "1")
    assert first.store_timestamp_ms == 1_767_225_600_000
    assert (second.queue_id, second.keys, second.tags) == (2, (), None)
    assert second.store_timestamp_ms > first.store_timestamp_ms


@pytest.mark.parametrize("rows", [0, 1, 1_023, 1_024, 1_025, 5_000])
def test_any_number_of_rows(tmp_path: Path, rows: int) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1 << 20, "flush_disk_type": "SYNC_FLUSH"}
    schema = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("flag", pa.int32())])
    batches = pa.table(
        {"topic": ["T"] * rows, "body": [b"b"] * rows, "flag": range(rows)}, schema=schema
    ).to_batches(max_chunksize=700)
    with mqstore.open(tmp_path, "a", config=config) as store:
        summary = store.append_arrow(pa.RecordBatchReader.from_batches(schema, iter(batches)))
        assert (summary.count, summary.first_physical_offset) == (rows, 0)
        assert summary.end_physical_offset == store.flushed_offset
        assert [found.flag for found in store.scan()] == list(range(rows))


def test_a_chunk_is_checked_before_any_of_it_is_written(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1 << 20}
    for at in (0, 1_023, 1_024, 2_999):
        for bad in ({"tags": ""}, {"topic": "a/b"}, {"born_host": "here"}):
            row = {"topic": "T", "body": b"b", "tags": "t", "born_host": "1.2.3.4:5"}
            rows = [dict(row) for _ in range(3_000)]
            rows[at].update(bad)  # type: ignore[arg-type]
            with mqstore.open(tmp_path / f"{at}-{next(iter(bad))}", "a", config=config) as store:
                with pytest.raises(mqstore.InvalidMessageError) as refused:
                    store.append_arrow(pa.Table.from_pylist(rows))
                assert refused.value.field == next(iter(bad))
                assert refused.value.index == at
                written = [found.physical_offset for found in store.scan()]
                assert len(written) == at // 1024 * 1024
                assert [r.physical_offset for r in refused.value.results] == written


def test_refused_rows_are_counted_over_all_batches(tmp_path: Path) -> None:
    config = {**TINY, "mapped_file_size_commit_log": 1 << 20}
    good = pa.record_batch({"topic": ["T"] * 10, "body": [b"b"] * 10})
    bad = pa.record_batch({"topic": ["T", "T"], "body": [b"b", b"c" * 5_000_000]})
    reader = pa.RecordBatchReader.from_batches(good.schema, iter([good, good, bad]))
    with mqstore.open(tmp_path, "a", config=config) as store:
        with pytest.raises(mqstore.InvalidMessageError) as refused:
            store.append_arrow(reader)
        assert (refused.value.index, len(refused.value.results)) == (21, 20)
        assert refused.value.results[-1].message_id == list(store.scan())[-1].message_id


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"topic": ["T"]}, ValueError, "column body is missing"),
        ({"body": [b"b"]}, ValueError, "column topic is missing"),
        ({"topic": ["T"], "body": [b"b"], "color": [1]}, ValueError, "no column .color."),
        ({"topic": ["T"], "body": [7]}, TypeError, "column body: expected binary, got int64"),
        ({"topic": [b"T"], "body": [b"b"]}, TypeError, "column topic: expected string, got binary"),
        ({"topic": ["T"], "body": [b"b"], "flag": [1.5]}, TypeError, "flag: expected int32, got d"),
        ({"topic": ["T"], "body": [b"b"], "keys": ["k"]}, TypeError, "keys: expected list"),
    ],
)
def test_columns_are_checked_by_name_and_kind(
    store: mqstore.Store, columns: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as refused:
        store.append_arrow(pa.table(columns))
    assert not isinstance(refused.value, mqstore.StoreError)
    assert list(store.scan()) == []


def test_a_number_that_is_too_wide_for_its_column_names_it(store: mqstore.Store) -> None:
    with pytest.raises(mqstore.InvalidMessageError) as refused:
        store.append_arrow(pa.table({"topic": ["T"], "body": [b"b"], "flag": [2**31]}))
    assert refused.value.field == "flag"


def test_nulls_where_a_value_must_be(store: mqstore.Store) -> None:
    for name in ("topic", "body"):
        rows = [{"topic": "T", "body": b"b"}, {"topic": "T", "body": b"b", name: None}]
        with pytest.raises(
            mqstore.InvalidMessageError, match=f"{name}: (is|expected .*, got) null"
        ) as refused:
            store.append_arrow(pa.Table.from_pylist(rows))
        assert (refused.value.field, refused.value.index) == (name, 1)


def test_columns_and_properties_may_not_contradict_each_other(store: mqstore.Store) -> None:
    row = {"topic": "T", "body": b"", "tags": "x", "properties": [("TAGS", "y")]}
    rows = pa.Table.from_pylist([row], schema=pa.schema([*(SCHEMA.field(name) for name in row)]))
    with pytest.raises(mqstore.InvalidMessageError, match="tags: expected the value that prop"):
        store.append_arrow(rows)


def test_data_that_is_no_stream_is_refused(store: mqstore.Store) -> None:
    for nothing in (None, [{"topic": "T", "body": b"b"}], {"topic": ["T"]}):
        with pytest.raises(TypeError, match="data: expected an Arrow stream"):
            store.append_arrow(nothing)  # type: ignore[arg-type]

    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return "no capsule"

    with pytest.raises(TypeError):
        store.append_arrow(Broken())


def test_an_error_of_the_stream_is_passed_on(store: mqstore.Store) -> None:
    batch = pa.record_batch({"topic": ["T"], "body": [b"b"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        raise ZeroDivisionError("of the stream")

    with pytest.raises(Exception, match="of the stream"):
        store.append_arrow(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    assert len(list(store.scan())) == 1


def test_a_reader_cannot_append(tmp_path: Path, store: mqstore.Store) -> None:
    rows = pa.table({"topic": ["T"], "body": [b"b"]})
    with (
        mqstore.open(tmp_path / "store", config=TINY) as reader,
        pytest.raises(mqstore.StoreReadOnlyError),
    ):
        reader.append_arrow(rows)
    store.close()
    with pytest.raises(mqstore.StoreClosedError):
        store.append_arrow(rows)


def test_a_store_can_be_appended_to_itself(store: mqstore.Store) -> None:
    store.append_many([message(flag=n, tags="t") for n in range(10)])
    scan = store.scan_arrow(batch_rows=3)
    assert store.append_arrow(scan).count == 10
    assert [found.flag for found in store.scan()] == [*range(10), *range(10)]


def test_a_body_that_changes_meanwhile_gives_a_whole_record(tmp_path: Path) -> None:
    rows, size = 256, 4096
    memory = bytearray(rows * size)
    ends = pa.array(range(0, rows * size + 1, size), pa.int32()).buffers()[1]
    bodies = pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(memory)])
    table = pa.table({"topic": ["T"] * rows, "body": bodies})
    is_done = threading.Event()

    def write() -> None:
        byte = 0
        while not is_done.is_set():
            byte = (byte + 1) % 256
            memory[:] = bytes([byte]) * len(memory)

    thread = threading.Thread(target=write)
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 4 << 20}) as store:
        thread.start()
        try:
            for _ in range(10):
                assert store.append_arrow(table).count == rows
        finally:
            is_done.set()
            thread.join()
        assert sum(1 for _ in store.scan()) == 10 * rows
    report = mqstore.verify(tmp_path)
    assert report.ok, report.findings[:3]
