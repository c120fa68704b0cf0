"""Spark's contract with a source, without a JVM: pickles, schemas, plans, every message once."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import mqstore
from helpers.arrow_types import to_arrow_schema
from mqstore.errors import ConfigError, NotAStoreError, StoreError
from mqstore.spark.filters import narrow
from mqstore.spark.options import OPTIONS, TABLES, ReadOptions, as_texts
from mqstore.spark.plan import LogRange, plan, plan_stores, split_range
from mqstore.spark.reader import read_range
from mqstore.spark.schema import columns_schema, message_schema, table_schema, usual_columns
from mqstore.spark.source import MqStoreDataSource
from mqstore.spark.stores import LogFile, StoreDir, Summary

FILE = 16384
START_MS = 1_700_000_000_000
CONFIG = {
    "mapped_file_size_commit_log": FILE,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


def write_store(path: Path, count: int = 300, first: int = 0) -> Path:
    """Messages of three topics in four queues, a second apart, with tags and keys."""
    with mqstore.open(path, "a", config=CONFIG) as store:
        store.append_many(
            mqstore.Message(
                ("orders", "pay", "audit")[n % 3],
                b"%d " % n + b"x" * (n * 37 % 900),
                queue_id=n // 3 % 4,
                tags=("paid", "refunded")[n % 2],
                keys=[f"k{n}", f"group{n % 10}"],
                unique_key=f"u{n}",
                store_timestamp_ms=START_MS + 1000 * n,
            )
            for n in range(first, first + count)
        )
        store.wait_dispatched()
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("stores") / "broker-a" / "store")


def read(options: dict[str, object], path: object = None, table: str | None = None) -> list[dict]:
    """The rows that tasks would read, each on its own copy of reader and partition."""
    texts = as_texts([path] if isinstance(path, str | os.PathLike) else path, options)
    source = pickle.loads(cloudpickle.dumps(MqStoreDataSource(CaseInsensitiveDict(texts))))
    schema = source.schema()
    reader = source.reader(schema=schema)
    parts = pickle.loads(pickle.dumps(list(reader.partitions())))
    rows = []
    for part in parts:
        fresh = pickle.loads(cloudpickle.dumps(reader))
        for batch in fresh.read(part):
            assert batch.schema.equals(to_arrow_schema(schema))
            rows += batch.to_pylist()
    return rows


def rows_of(parts: list[LogRange], options: ReadOptions) -> list[dict]:
    """Rows that tasks read from planned partitions."""
    batches = [batch for part in parts for batch in read_range(part, options, ["unique_key"])]
    return [row for batch in batches for row in batch.to_pylist()]


def by_place(row: dict) -> tuple[int, str]:
    """An order for rows."""
    return row["physical_offset"], row.get("error") or ""


def numbers(rows: list[dict]) -> list[int]:
    """Which of the messages these are."""
    return sorted(int(row["unique_key"][1:]) for row in rows)


# --- schema --------------------------------------------------------------------------------------


def test_schema_is_the_arrow_schema_to_nullability_and_child_names() -> None:
    assert to_arrow_schema(message_schema()).equals(pa.schema(mqstore.ARROW_SCHEMA))
    assert message_schema() == table_schema("messages")


def test_raw_body_and_error_are_there_only_when_asked_for(store) -> None:
    source = MqStoreDataSource(CaseInsensitiveDict({"path": str(store)}))
    assert source.schema().fieldNames() == usual_columns()
    assert not {"raw_body", "error"} & set(usual_columns())
    rows = read({"columns": ["raw_body", "error", "broker"], "topics": "pay"}, store)
    assert set(rows[0]) == {"raw_body", "error", "broker"}
    assert {row["broker"] for row in rows} == {"broker-a"}


def test_a_schema_of_the_users_is_a_projection(store) -> None:
    source = MqStoreDataSource(CaseInsensitiveDict({"path": str(store)}))
    schema = StructType([message_schema()["body"], message_schema()["topic"]])
    reader = source.reader(schema=schema)
    batch = next(iter(reader.read(reader.partitions()[0])))
    assert batch.schema.names == ["body", "topic"]
    for wrong, says in [
        (StructType([StructField("queue_id", StringType())]), "column queue_id is int"),
        (StructType([StructField("queue_id", IntegerType(), nullable=False)]), "not null"),
        (StructType([StructField("topics", StringType())]), "did you mean topic?"),
    ]:
        with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
            source.reader(schema=wrong)


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "x"}, "no option 'topic'; did you mean topics"),
        ({"colums": "x"}, "did you mean columns"),
        ({"columns": "topic,boddy"}, "no column 'boddy'; did you mean body"),
        ({"columns": "topic,topic,queue_id,topic"}, None),
        ({"queues": "{"}, "option queues: expected JSON, got '{'"),
        ({"queues": "[1]"}, "option queues: expected queues by topic, .*, got '\\[1\\]'"),
        ({"queues": '{"orders": ["a"]}'}, "got '\\[\"a\"\\]'; topic 'orders'"),
        ({"queues": '{"orders": [-1]}'}, "got '\\[-1\\]'; topic 'orders'"),
        ({"topics": "orders", "queues": '{"pay": [0]}'}, "that option topics names, got 'pay'"),
        (
            {"startingOffsets": '{"orders": {"0": -3}}'},
            "expected an offset from 0, .*, got '-3'; topic 'orders', queue 0",
        ),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, "expected a queue from 0 .*, got 'x'; topic"),
        ({"startingOffsets": '{"orders": 3}'}, "got '3'; topic 'orders'"),
        ({"startingOffsets": "latest"}, "expected earliest or offsets in a batch, got latest"),
        ({"endingOffsets": "earliest"}, "got earliest; nothing would be read"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp: 'soon' is no time"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "at most endingTimestamp, 4, got 5"),
        ({"startingPhysicalOffset": "-1"}, "expected a number from 0 to .*, got '-1'"),
        ({"splitBytes": "many"}, "got 'many'"),
        ({"splitBytes": "0"}, "expected 1 byte or more, got '0'"),
        ({"minPartitions": "0"}, "expected 1 or more, got '0'"),
        ({"pushdown": "yes"}, "expected true or false, got 'yes'"),
        ({"onError": "skp"}, "no value 'skp'; did you mean skip"),
        ({"accessPath": "index"}, "option keys: expected keys, .*, got none"),
        ({"table": "indexes"}, "did you mean index"),
        ({"topicPattern": "("}, "expected a regular expression of RE2, got"),
        ({"topicPattern": "a)|(b"}, "expected a regular expression of RE2, got"),
        ({"topicPattern": "(?=a)a"}, "expected a regular expression of RE2, got"),
        ({"topics": "a", "topicPattern": "a"}, "expected none beside topics, got both"),
        ({"topics": "a,,b"}, "got 'a,,b'; one of them is empty"),
        ({"maxRowsPerTrigger": "5"}, "is for streams"),
        ({"paths": "x"}, "option paths: expected JSON, got 'x'"),
    ],
)
def test_an_impossible_option_is_refused_in_the_drivers_words(store, options, says) -> None:
    texts = {"path": str(store), **options}
    if says is None:
        assert ReadOptions.parse(texts).columns == ("topic", "queue_id")
        return
    source = MqStoreDataSource(CaseInsensitiveDict(texts))
    with pytest.raises(ConfigError, match=says.replace("{", r"\{")) as caught:
        source.reader(schema=source.schema())
    assert caught.value.field.lower() in {name.lower() for name in (*options, *OPTIONS)}


def test_options_are_read_in_any_case_and_as_python_values() -> None:
    texts = as_texts(
        ["/a", Path("/b")],
        {
            "TOPICS": ["x", "y,z"],
            "queues": {"x": [1, 0]},
            "startingTimestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "endingTimestamp": START_MS + 5,
            "verifyCrc": False,
            "minPartitions": None,
            "startingOffsets": {"x": {"0": 5, 1: -1}},
        },
    )
    parsed = ReadOptions.parse(texts)
    assert parsed.paths == ("/a", "/b")
    assert parsed.topics == ("x", "y,z")
    assert parsed.queues == (("x", (0, 1)),)
    assert (parsed.starting_timestamp_ms, parsed.ending_timestamp_ms) == (START_MS, START_MS + 5)
    assert not parsed.verify_crc
    assert [dataclasses.astuple(one) for one in parsed.starting_offsets] == [
        ("x", 0, 5, None),
        ("x", 1, -1, None),
    ]
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_paths_that_are_no_stores(tmp_path, store) -> None:
    (tmp_path / "empty").mkdir()
    for path, says in [
        (tmp_path / "none", "no such path"),
        (tmp_path / "empty", "no folder `commitlog` in it"),
        (tmp_path / "emp*", "no directory that it matches"),
    ]:
        with pytest.raises(NotAStoreError, match=says):
            plan(ReadOptions.parse({"path": str(path)}))
    with pytest.raises(ConfigError, match="a URL with s3://"):
        ReadOptions.parse({"path": "s3:/bucket/store"})
    assert plan(ReadOptions.parse({"path": f"file://{store}"}))


# --- planning ------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    begin=st.integers(0, 200_000),
    length=st.integers(0, 200_000),
    split=st.integers(1, 300_000),
    file_size=st.sampled_from([1, 4096, 16384, 1_000_000]),
)
def test_pieces_meet_and_cover_a_range(begin, length, split, file_size) -> None:
    split = max(split, length // 5000)
    pieces = split_range(begin, begin + length, split, file_size)
    at = begin
    for first, last in pieces:
        assert first == at < last
        assert last - first <= max(split, min(file_size, split) if split < file_size else file_size)
        at = last
    assert at == begin + length


def test_files_are_left_out_by_their_first_store_time() -> None:
    files = tuple(LogFile(FILE * n, 1000 * n) for n in range(5))
    summary = Summary(StoreDir("/s", "b"), 0, FILE * 5, FILE * 5, FILE, files)

    def spans(**bounds: int) -> list[tuple[int, int]]:
        options = dataclasses.replace(ReadOptions(paths=("/s",)), **bounds)
        parts = plan_stores([summary], options)
        return [(part.begin // FILE, -(-part.end // FILE)) for part in parts]

    assert spans() == [(0, 5)]
    assert spans(starting_timestamp_ms=2500) == [(2, 5)]
    assert spans(ending_timestamp_ms=2500) == [(0, 3)]
    assert spans(starting_timestamp_ms=2000, ending_timestamp_ms=2000) == [(1, 3)]
    assert spans(starting_timestamp_ms=9000) == [(4, 5)]
    assert spans(starting_physical_offset=FILE * 9) == []
    assert spans(split_bytes=FILE, starting_timestamp_ms=2500) == [(2, 3), (3, 4), (4, 5)]


def test_ho05_partitions_are_primitives_and_as_many_as_asked_for(store) -> None:
    ways = [(least, way) for least in (1, 7, 40) for way in ("scan", "consumequeue")]
    for least, way in ways:
        options = {"topics": "orders", "minPartitions": least, "accessPath": way}
        parts = plan(ReadOptions.parse(as_texts(store, options)))
        assert len(parts) >= least
        for part in parts:
            for value in dataclasses.astuple(part):
                assert isinstance(value, str | int | tuple | None)
            assert pickle.loads(pickle.dumps(part)) == part


def test_the_way_that_reads_least_is_taken(store) -> None:
    def way(**options: object) -> str:
        parts = plan(ReadOptions.parse(as_texts(store, options)))
        if any(part.places is not None for part in parts):
            return "index"
        return "consumequeue" if any(part.queue_parts for part in parts) else "scan"

    assert way() == "scan"
    assert way(topics="orders") == "scan"  # a third of all messages
    assert way(queues={"orders": [1]}, startingOffsets={"orders": {"1": 20}}) == "consumequeue"
    assert way(keys="k5") == "index"
    assert way(keys="k5", accessPath="scan") == "scan"
    assert way(topics="orders", accessPath="consumequeue") == "consumequeue"
    # Only a scan meets all damage.
    assert way(keys="k5", onError="rows", columns="error") == "scan"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, lambda n: True),
        ({"topics": "orders"}, lambda n: n % 3 == 0),
        ({"topics": ["pay", "none"]}, lambda n: n % 3 == 1),
        ({"topicPattern": "(pay|aud.*)"}, lambda n: n % 3),
        ({"topicPattern": "or"}, lambda n: False),
        ({"topicPattern": "pay|aud"}, lambda n: n % 3 == 1),
        ({"queues": {"orders": [0, 2]}}, lambda n: n % 3 == 0 and n // 3 % 4 in (0, 2)),
        ({"topics": "orders", "tags": "paid"}, lambda n: n % 6 == 0),
        ({"keys": "group3"}, lambda n: n % 10 == 3),
        ({"keys": ["k7", "u8"], "topics": "pay"}, lambda n: n == 7),
        ({"keys": ["k7", "u8"]}, lambda n: n in (7, 8)),
        (
            {"topics": "orders", "startingOffsets": {"orders": {"0": 10, "1": -1}}},
            lambda n: n % 3 == 0 and n // 3 % 4 != 1 and (n // 3 % 4 != 0 or n // 12 >= 10),
        ),
        (
            {"topics": "pay", "endingOffsets": {"pay": {"2": 5, "3": -1}}},
            lambda n: n % 3 == 1 and (n // 3 % 4 != 2 or n // 12 < 5),
        ),
        (
            {"topics": "pay", "startingTimestamp": START_MS + 50_000},
            lambda n: n % 3 == 1 and n >= 50,
        ),
        ({"endingTimestamp": "2023-11-14T22:14:00Z"}, lambda n: n <= 40),
    ],
)
def test_every_way_gives_the_same_messages(store, options, wanted) -> None:
    expected = [n for n in range(300) if wanted(n)]
    ways = ["auto", "scan", "consumequeue", *(["index"] if "keys" in options else [])]
    for way in ways:
        for split in ("2k", "128m"):
            given = {**options, "accessPath": way, "splitBytes": split}
            assert numbers(read(given, store)) == expected, (way, split)


def test_bounds_of_the_log(store) -> None:
    offsets = sorted(row["physical_offset"] for row in read({}, store))
    third, tenth = offsets[3], offsets[10]
    bounds = {"startingPhysicalOffset": third, "endingPhysicalOffset": tenth}
    for way in ("scan", "consumequeue"):
        rows = read({**bounds, "accessPath": way, "topicPattern": ".*"}, store)
        assert sorted(row["physical_offset"] for row in rows) == offsets[3:10]
    assert read({"startingPhysicalOffset": 2**40}, store) == []


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ({"orders": {"0": 26}}, r"topic orders, queue 0 holds offsets 0 to 25, not 26"),
        ({"orders": {"7": 0}}, r"no store has topic orders, queue 7; its queues are 0, 1, 2, 3"),
        ({"nothing": {"0": 0}}, r"no store has topic nothing, queue 0"),
    ],
)
def test_offsets_out_of_range_are_refused_while_planning(store, offsets, says) -> None:
    texts = as_texts(store, {"startingOffsets": offsets})
    with pytest.raises(ConfigError, match=says) as caught:
        plan(ReadOptions.parse(texts))
    assert caught.value.field == "startingOffsets"
    if "26" in says:
        assert str(store) in str(caught.value)
        texts["failOnDataLoss"] = "false"
        assert plan(ReadOptions.parse(texts))


def test_ends_are_fixed_while_planning(tmp_path) -> None:
    path = write_store(tmp_path / "store", 30)
    options = ReadOptions.parse({"path": str(path)})
    parts = plan(options)
    write_store(path, 30, first=30)
    rows = [
        row
        for part in parts
        for b in read_range(part, options, ["unique_key"])
        for row in b.to_pylist()
    ]
    assert numbers(rows) == list(range(30))


def test_a_message_that_no_queue_has_yet_is_read_from_the_log(tmp_path) -> None:
    path = write_store(tmp_path / "store", 30)
    for queue in (path / "consumequeue").glob("*/*/*"):
        queue.unlink()
    for way in ("scan", "consumequeue", "auto"):
        assert numbers(read({"topics": "pay", "accessPath": way}, path)) == list(range(1, 30, 3))


# --- many stores ---------------------------------------------------------------------------------


def test_lists_and_globs_of_stores(tmp_path) -> None:
    for number, name in enumerate("abc"):
        write_store(tmp_path / f"broker-{name}" / "store", 10, first=10 * number)
    (tmp_path / "broker-d").mkdir()
    a, b = tmp_path / "broker-a" / "store", tmp_path / "broker-b" / "store"
    rows = read({"columns": "broker,unique_key"}, [a, b, a])
    assert numbers(rows) == list(range(20))
    assert {row["broker"] for row in rows} == {"broker-a", "broker-b"}
    assert numbers(read({}, tmp_path / "*" / "store")) == list(range(30))
    assert numbers(read({}, [tmp_path / "broker-[ab]" / "store"])) == list(range(20))
    rows = read({"brokerName": "x", "columns": "broker"}, a)
    assert {row["broker"] for row in rows} == {"x"}


# --- splits and damage ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> Path:
    """A store with a wrong body, a wrong frame, zeros where a file begins and a missing file."""
    path = write_store(tmp_path_factory.mktemp("damaged") / "store")
    rows = sorted(
        read({"columns": "physical_offset,store_size"}, path), key=lambda r: r["physical_offset"]
    )

    def overwrite(at: int, what: bytes) -> None:
        with (path / "commitlog" / f"{at // FILE * FILE:020}").open("r+b") as file:
            file.seek(at % FILE)
            file.write(what)

    overwrite(rows[5]["physical_offset"] + 88, b"?")
    overwrite(rows[40]["physical_offset"] + 4, b"\xff" * 4)
    overwrite(3 * FILE, bytes(700))
    (path / "commitlog" / f"{5 * FILE:020}").unlink()
    return path


@pytest.mark.parametrize("split", ["1k", "1025", "3000", "5k", "16k", "40k", "1g"])
def test_every_split_gives_every_message_and_all_damage_once(damaged, split) -> None:
    columns = ["unique_key", "physical_offset", "store_size", "error", "topic", "queue_offset"]
    whole = read({"onError": "rows", "columns": columns, "splitBytes": "1g"}, damaged)
    rows = read({"onError": "rows", "columns": columns, "splitBytes": split}, damaged)
    assert sorted(rows, key=by_place) == sorted(whole, key=by_place)
    errors = [row for row in rows if row["error"]]
    assert len(errors) == 4
    assert all(row["physical_offset"] is not None for row in errors)
    skipped = read({"onError": "skip", "splitBytes": split}, damaged)
    assert numbers(skipped) == numbers([row for row in rows if not row["error"]])


def test_damage_names_file_byte_and_message(damaged) -> None:
    with pytest.raises(StoreError) as caught:
        read({}, damaged)
    text = str(caught.value)
    for part in (
        str(damaged / "commitlog" / f"{0:020}"),
        "byte ",
        "topic audit, queue 1, queue offset 0",
        "physical offsets",
    ):
        assert part in text
    # A queue leads past damage that is not its own.
    options = {
        "queues": {"orders": [1]},
        "accessPath": "consumequeue",
        "endingOffsets": {"orders": {"1": 3}},
    }
    assert numbers(read(options, damaged)) == [3, 15, 27]


def test_checksums_are_checked_unless_told_otherwise(damaged) -> None:
    rows = read({"verifyCrc": False, "endingPhysicalOffset": 4000}, damaged)
    assert 5 in numbers(rows)


def test_bodies_as_they_were_sent_or_as_they_are_stored(tmp_path) -> None:
    import zlib

    packed = zlib.compress(b"what was sent")
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.append_many([mqstore.Message("t", packed, sys_flag=0x301)])
        store.append_many([mqstore.Message("t", b"not packed", sys_flag=0x301)])
    columns = {"columns": "body,raw_body,error,topic"}
    first, second = read({**columns, "decompress": False}, tmp_path / "store")
    assert first["body"] == first["raw_body"] == packed
    assert second["body"] == b"not packed"
    first, second = read({**columns, "onError": "rows"}, tmp_path / "store")
    assert (first["body"], first["error"]) == (b"what was sent", None)
    assert (second["body"], second["topic"]) == (None, "t")
    assert "queue offset 1" in second["error"]
    with pytest.raises(StoreError, match="topic t, queue 0, queue offset 1"):
        read(columns, tmp_path / "store")


def test_files_that_retention_took_since_planning(tmp_path) -> None:
    path = write_store(tmp_path / "store", 100)
    options = ReadOptions.parse({"path": str(path)})
    parts = plan(options)
    (path / "commitlog" / f"{0:020}").unlink()

    with pytest.raises(StoreError, match=r"physical offset 0 is outside of the log.*tmp|store"):
        rows_of(parts, options)
    left = rows_of(parts, dataclasses.replace(options, fail_on_data_loss=False))
    assert 0 < len(left) < 100


def test_nothing_to_read(tmp_path) -> None:
    with mqstore.open(tmp_path / "store", "a"):
        pass
    reader = MqStoreDataSource(CaseInsensitiveDict({"path": str(tmp_path / "store")})).reader(
        schema=message_schema()
    )
    assert reader.partitions() == []
    from pyspark.sql.datasource import InputPartition

    assert list(reader.read(InputPartition(None))) == []


# --- filters -------------------------------------------------------------------------------------


def test_filters_narrow_and_never_lose(store) -> None:
    options = ReadOptions.parse({"path": str(store), "topicPattern": "orders|pay"})
    at = datetime.fromtimestamp(START_MS / 1000 + 10, tz=UTC)
    narrowed = narrow(
        options,
        [
            In(("topic",), ("orders", "audit", None)),
            GreaterThanOrEqual(("store_timestamp",), at),
            LessThan(("physical_offset",), 9000),
            EqualTo(("unique_key",), "u12"),
            EqualTo(("tags",), "paid"),
            EqualTo(("properties", "a"), "b"),
        ],
    )
    assert narrowed.topics == ("orders",)
    assert narrowed.topic_pattern is None
    assert narrowed.starting_timestamp_ms == START_MS + 10_000
    assert narrowed.ending_physical_offset == 9001
    assert (narrowed.keys, narrowed.tags) == (("u12",), "paid")
    assert plan(narrow(options, [EqualTo(("topic",), "audit")])) == []
    assert narrow(options, [EqualTo(("topic",), "a\ufffd")]) == options
    assert narrow(options, [EqualTo(("tags",), "a || b")]) == options
    assert narrow(options, [EqualTo(("tags",), "\x01a")]) == options
    assert narrow(options, [In(("tags",), ("a b", "c", None))]).tags == "a b || c"
    assert narrow(options, [In(("tags",), ("a", "*"))]) == options


def test_a_pushdown_reader_gives_every_filter_back(store) -> None:
    texts = CaseInsensitiveDict({"path": str(store), "pushdown": "true"})
    reader = MqStoreDataSource(texts).reader(schema=message_schema())
    filters = [EqualTo(("topic",), "pay"), EqualTo(("queue_id",), 1)]
    returned = list(reader.pushFilters(filters))
    assert all(a is b for a, b in zip(filters, returned, strict=True))
    assert reader.options.topics == ("pay",)
    plain = MqStoreDataSource(CaseInsensitiveDict({"path": str(store)})).reader(message_schema())
    assert type(plain).pushFilters.__qualname__.startswith("DataSourceReader")


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_each_table_has_its_schema_and_rows(store, damaged, table) -> None:
    path = damaged if table == "damage" else store
    options = {"table": table}
    if table == "offsets":
        (path / "config").mkdir(exist_ok=True)
        offsets = {"offsetTable": {"orders@readers": {"0": 5}}}
        (path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    rows = read(options, path)
    assert rows
    assert {row["broker"] for row in rows} == {path.parent.name}
    names = table_schema(table).fieldNames()
    assert set(rows[0]) == set(usual_columns() if table == "messages" else names)
    one = read({**options, "columns": names[-1]}, path)
    assert [set(row) for row in one] == [{names[-1]}] * len(rows)


def test_tables_of_the_log_agree_with_its_structures(store) -> None:
    raw = {row["physical_offset"]: row for row in read({"table": "raw"}, store)}
    messages = read({}, store)
    assert len(raw) == len(messages) == 300
    for row in messages[:20]:
        message = mqstore.decode(raw[row["physical_offset"]]["record"])
        assert (message.topic, message.body) == (row["topic"], row["body"])
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "tags_code")

    def entries_of(**options: object) -> list[tuple]:
        return sorted(tuple(row[name] for name in names) for row in read(options, store))

    assert entries_of(table="dispatch") == entries_of(table="consumequeue")
    some = entries_of(table="consumequeue", queues={"pay": [1]}, splitBytes="100")
    assert [one[2] for one in some] == list(range(25))
    entries = read({"table": "index"}, store)
    assert len(entries) == 900
    assert {row["physical_offset"] for row in entries} == set(raw)
    files = {row["path"]: row["size"] for row in read({"table": "files"}, store)}
    assert files["checkpoint"] == 4096
    assert files[f"commitlog/{0:020}"] == FILE
    (checkpoint,) = read({"table": "checkpoint"}, store)
    assert checkpoint["dispatched_offset"] == checkpoint["max_physical_offset"]
    assert not checkpoint["abort"]


def test_columns_of_one_table_are_not_those_of_another(store) -> None:
    with pytest.raises(ConfigError, match="no column 'body'; there are broker, code"):
        read({"table": "damage", "columns": "body"}, store)
    assert columns_schema(["code"], table_schema("damage")).fieldNames() == ["code"]


def test_partitions_say_what_they_are() -> None:
    part = LogRange("/s", "b", 1, 2, 3, queue_parts=(("t", 0, 5, 6),))
    assert str(part) == "/s, physical offsets 1 to 2, topic t queue 0 offsets 5 to 6"
