"""The functions ``mq_*`` against what RocketMQ itself stored and answered."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mqstore
from helpers.golden import Case, Row, case_names, read_rows
from mqstore._native import _array_function as call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent.parent / "golden"
READABLE = case_names("messages")


def records_of(case: Case, folder: Path) -> list[bytes]:
    with case.open(case.unpack(folder)) as store:
        return [message.record for message in store.scan(on_error="skip")]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Row, bytes]]:
    """RocketMQ's reading of each message of every case, beside the record's bytes."""
    pairs = []
    for name in READABLE:
        case = Case(name)
        by_offset = {
            int.from_bytes(record[28:36]): record
            for record in records_of(case, tmp_path_factory.mktemp(name))
        }
        pairs += [
            (row, by_offset[row["phyOffset"]])
            for row in case.expected("message")
            if row["phyOffset"] in by_offset
        ]
    assert len(pairs) > 2000
    return pairs


def test_decode_tells_what_rocketmq_reads(stored: list[tuple[Row, bytes]]) -> None:
    rows = call("mq_decode", pa.array([record for _, record in stored])).to_pylist()
    for (expected, _), row in zip(stored, rows, strict=True):
        assert row["topic"] == expected["topic"]
        assert row["queue_id"] == expected["queueId"]
        assert row["queue_offset"] == expected["queueOffset"]
        assert row["physical_offset"] == expected["phyOffset"]
        assert row["store_size"] == expected["totalSize"]
        assert row["message_id"] == expected["msgId"]
        assert row["body_crc"] == expected["bodyCrc"]
        assert row["flag"] == expected["flag"]
        assert row["sys_flag"] == expected["sysFlag"]
        assert row["reconsume_times"] == expected["reconsumeTimes"]
        assert row["tags"] == expected["tags"]
        assert row["unique_key"] == expected["uniqKey"]
        assert row["raw_body"] == base64.b64decode(expected["body"])
        assert dict(row["properties"]) == expected["properties"]


def test_encode_gives_back_the_bytes_that_rocketmq_wrote(stored: list[tuple[Row, bytes]]) -> None:
    records = [record for _, record in stored]
    messages = call("mq_decode", pa.array(records))
    # A map of properties cannot hold a name twice, so it cannot come back.
    plain = [number for number, (row, _) in enumerate(stored) if map_holds(row)]
    assert len(plain) > 0.9 * len(records)
    again = call("mq_encode", messages.take(pa.array(plain))).to_pylist()
    assert again == [records[number] for number in plain]


def map_holds(row: Row) -> bool:
    """Whether properties are what a writer makes of a map: no name twice, no empty value."""
    raw = base64.b64decode(row["propertiesRaw"])
    pieces = [piece.split(b"\x01") for piece in raw.split(b"\x02")[:-1]]
    names = [piece[0] for piece in pieces]
    whole = not raw or raw.endswith(b"\x02")
    return (
        whole
        and len(set(names)) == len(names)
        and all(len(piece) == 2 and all(piece) and b"\xff" not in piece[1] for piece in pieces)
    )


def test_properties_and_checksums_are_those_of_rocketmq(stored: list[tuple[Row, bytes]]) -> None:
    raw = pa.array([base64.b64decode(row["propertiesRaw"]) for row, _ in stored])
    assert [dict(pairs) for pairs in call("mq_properties", raw).to_pylist()] == [
        row["properties"] for row, _ in stored
    ]
    with_body = [row for row, _ in stored if row["body"]]
    bodies = pa.array([base64.b64decode(row["body"]) for row in with_body])
    assert call("mq_crc32", bodies).to_pylist() == [row["bodyCrc"] for row in with_body]


def test_ids_are_taken_apart_as_rocketmq_made_them(stored: list[tuple[Row, bytes]]) -> None:
    ids = pa.array([row["msgId"] for row, _ in stored] + ["", "xyz", "0" * 33, None])
    found = call("mq_parse_message_id", ids).to_pylist()
    assert found[-4:] == [None] * 4
    for (row, _), parts in zip(stored, found, strict=False):
        assert parts["physical_offset"] == row["phyOffset"]
        assert row["storeHost"].endswith(f":{parts['port']}")


def test_codes_and_hashes_are_those_of_rocketmq(stored: list[tuple[Row, bytes]]) -> None:
    tagged = [
        row
        for row, _ in stored
        if row["tags"] and "tagsCode" in row and "DELAY" not in row["properties"]
    ]
    assert len(tagged) > 500
    codes = call("mq_tags_code", pa.array([row["tags"] for row in tagged])).to_pylist()
    hashes = call("mq_java_hash", pa.array([row["tags"] for row in tagged])).to_pylist()
    assert codes == hashes == [row["tagsCode"] for row in tagged]

    entries = {"plain": [], "full": [], "odd": []}
    for name in entries:
        puts = read_rows(GOLDEN / "indexfile" / f"{name}.puts.jsonl")
        put = [
            put
            for put, result in zip(
                puts, read_rows(GOLDEN / "indexfile" / f"{name}.results.jsonl"), strict=True
            )
            if result.get("result", result.get("ok"))
        ]
        dump = read_rows(GOLDEN / "indexfile" / f"{name}.dump.jsonl")
        java = [row["keyHash"] for row in dump if row["type"] == "entry" and row["i"] > 0]
        topics, keys = zip(*(one["key"].split("#", 1) for one in put), strict=True)
        ours = call("mq_key_hash", pa.array(topics), pa.array(keys)).to_pylist()
        assert ours[: len(java)] == java


def test_sys_flags_say_what_their_bits_are() -> None:
    names = ["none", "prepared", "commit", "rollback"]
    flags = [0, 4, 8, 12, 0x301, 0x101, 0x201, 0x1, 0x701, 0xF2, None]
    rows = call("mq_sys_flag", pa.array(flags, pa.int32())).to_pylist()
    assert [row["transaction"] for row in rows[:4]] == names
    assert [row["compression"] for row in rows[:9]] == [
        *["none"] * 4,
        "zlib",
        "lz4",
        "zstd",
        "zlib",
        None,
    ]
    assert rows[9] == {
        "transaction": "none",
        "compression": "none",
        "compressed": False,
        "multi_tags": True,
        "born_host_v6": True,
        "store_host_v6": True,
        "need_unwrap": True,
        "inner_batch": True,
    }
    assert rows[10] is None


def test_bodies_are_what_the_producer_sent() -> None:
    sent = b"again and " * 100
    raw = pa.array([zlib.compress(sent), sent, b"no zlib", None, sent, b""])
    flags = pa.array([0x301, 0, 0x301, 0, None, 0], pa.int32())
    assert call("mq_body", raw, flags).to_pylist() == [sent, sent, None, None, None, b""]


def test_a_body_that_grows_without_end_is_null() -> None:
    bomb = zlib.compress(bytes(65 << 20))
    assert call("mq_body", pa.array([bomb]), pa.array([0x301], pa.int32())).to_pylist() == [None]


def test_nulls_and_hostile_bytes_are_null_where_a_record_is_read(
    stored: list[tuple[Row, bytes]],
) -> None:
    whole = next(record for row, record in stored if row["body"])
    flipped = bytearray(whole)
    flipped[whole.index(base64.b64decode(next(r for r, _ in stored if r["body"])["body"]))] ^= 1
    hostile = [None, b"", b"\0" * 8, whole[:-1], whole + b"\0", bytes(flipped), b"\xff" * 300]
    hostile += [whole[:cut] for cut in range(0, len(whole), 7)]
    rows = call("mq_decode", pa.array([*hostile, whole], pa.binary())).to_pylist()
    assert rows[:-1] == [None] * len(hostile)
    assert rows[-1]["topic"]
    assert call("mq_encode", call("mq_decode", pa.array([None, whole]))).to_pylist() == [
        None,
        whole,
    ]


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"topic": None}, mqstore.InvalidMessageError, "topic"),
        ({"topic": "T" * 40_000}, mqstore.InvalidMessageError, "topic"),
        ({"queue_offset": None}, mqstore.InvalidMessageError, "queue_offset"),
        ({"properties": [("a", "b" * 40_000)]}, mqstore.InvalidMessageError, "properties"),
        ({"store_host": "nowhere"}, mqstore.InvalidMessageError, "store_host"),
        ({"sys_flag": "text"}, TypeError, "sys_flag"),
        ({"size": 1}, ValueError, "size"),
    ],
)
def test_a_value_that_no_record_holds_is_refused_by_name(
    fields: dict[str, Any], error: type[Exception], says: str
) -> None:
    good = {
        "topic": "T",
        "body": b"b",
        "queue_offset": 0,
        "physical_offset": 7,
        "store_host": "127.0.0.1:1",
        "store_timestamp": pa.scalar(0, pa.timestamp("us", "UTC")).as_py(),
        "properties": [("a", "b")],
    }
    kinds = {
        "properties": pa.map_(pa.string(), pa.string()),
        "store_timestamp": pa.timestamp("us", "UTC"),
    }
    row = {**good, **fields}
    arrays = [
        pa.array([good.get(n, v), v], kinds.get(n)) if n in good else pa.array([v, v])
        for n, v in row.items()
    ]
    given = pa.StructArray.from_arrays(arrays, names=list(row))
    with pytest.raises(error, match=says) as raised:
        call("mq_encode", given)
    if error is mqstore.InvalidMessageError:
        assert raised.value.__notes__ == ["in row 1 of the batch"]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_each_kind_of_text_and_bytes_is_taken(text: pa.DataType) -> None:
    texts = pa.array(["TagA", None, "标签"], pa.string()).cast(text)
    assert call("mq_java_hash", texts).to_pylist() == [
        mqstore.java_hash("TagA"),
        None,
        mqstore.java_hash("标签"),
    ]
    with pytest.raises(TypeError, match="mq_crc32 takes one column of bytes"):
        call("mq_crc32", texts)


def test_python_and_sql_have_the_same_functions(
    spark: SparkSession, stored: list[tuple[Row, bytes]]
) -> None:
    import mqstore.spark
    from mqstore.spark import functions

    records = [record for row, record in stored if map_holds(row)][:200]
    frame = spark.createDataFrame([(record,) for record in [*records, b"junk", None]], "raw binary")
    frame.createOrReplaceTempView("records")
    mqstore.spark.register(spark)
    by_name = frame.select(
        "raw",
        functions.mq_encode(functions.mq_decode("raw")).alias("again"),
        functions.mq_decode("raw").alias("m"),
    ).collect()
    assert [row.again for row in by_name] == [*records, None, None]
    sql = spark.sql(
        """
        SELECT m.topic, m.message_id, mq_crc32(m.raw_body) AS crc, m.body_crc,
               mq_parse_message_id(m.message_id).physical_offset AS place, m.physical_offset,
               mq_body(m.raw_body, m.sys_flag) = m.body AS same_body,
               mq_key_hash(m.topic, 'k') AS key_hash, mq_tags_code(m.tags) AS code, m.tags,
               mq_java_hash(m.topic) AS topic_hash, mq_sys_flag(m.sys_flag).transaction AS tx,
               mq_properties(encode('a\\u0001b\\u0002', 'UTF-8')) AS map,
               mq_encode(m) = raw AS whole
        FROM (SELECT raw, mq_decode(raw) AS m FROM records) WHERE m IS NOT NULL
        """
    ).collect()
    assert len(sql) == len(records)
    for row in sql:
        assert row.crc == row.body_crc or row.crc == 0
        assert row.place == row.physical_offset
        assert row.same_body
        assert row.whole
        assert row.key_hash == mqstore.key_hash(f"{row.topic}#k")
        assert row.code == (mqstore.tags_code(row.tags) if row.tags else None)
        assert row.topic_hash == mqstore.java_hash(row.topic)
        assert row.tx == "none"
        assert row.map == {"a": "b"}
    assert set(functions.__all__) == {name for name in dir(functions) if name.startswith("mq_")}
