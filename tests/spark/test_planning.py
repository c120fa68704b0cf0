"""Options and plans without a JVM: stores found once, shared tasks, tags, names of Kafka."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TIME, TINY, message
from mqstore.errors import ConfigError
from mqstore.spark import stores as stores_module
from mqstore.spark.options import OPTIONS, ReadOptions, as_texts, in_zone_of
from mqstore.spark.plan import ranges_of, size_of
from mqstore.spark.schema import read_schema
from mqstore.spark.tables import make_table_reader

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000


def fill(root: Path, numbers: range, **fields: Any) -> None:
    """A message each hour, in topics T0 and T1, queues 0 to 2."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message(
                    f"T{n % 2}",
                    body=b"%d" % n,
                    queue_id=n % 3,
                    tags=("paid", "refunded", "a,b")[n % 3],
                    keys=f"k{n}",
                    store_timestamp_ms=TIME + n * HOUR_MS,
                    **fields,
                )
                for n in numbers
            ]
        )
        store.wait_dispatched()


def reader(paths: object, **options: object) -> Any:
    parsed = ReadOptions.parse(as_texts(paths, options))  # type: ignore[arg-type]
    names = read_schema(parsed).fieldNames()
    return make_table_reader(parsed, names)


def rows(paths: object, **options: object) -> list[dict[str, Any]]:
    made = reader(paths, **options)
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(paths: object, **options: object) -> list[int]:
    return sorted(int(row["body"]) for row in rows(paths, **options))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "broker-a" / "store"
    fill(path, range(60))
    return path


# --- tags ----------------------------------------------------------------------------------------


def test_a_list_of_tags_means_any_of_them(root: Path) -> None:
    assert numbers(root, tags=["paid", "refunded"]) == [n for n in range(60) if n % 3 < 2]
    assert numbers(root, tags=["a,b"]) == list(range(2, 60, 3))
    assert numbers(root, tags="paid || refunded") == [n for n in range(60) if n % 3 < 2]


@pytest.mark.parametrize("tags", ["paid,refunded", "paid && refunded", "paid|refunded", ["a||b"]])
def test_tags_that_would_match_nothing_are_refused(root: Path, tags: object) -> None:
    for streaming in (False, True):
        with pytest.raises(ConfigError, match="option tags: ") as caught:
            ReadOptions.parse(as_texts(root, {"tags": tags}), streaming=streaming)
        assert caught.value.field == "tags"


# --- stores --------------------------------------------------------------------------------------


def test_a_store_under_two_names_is_read_once_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "x-a", range(5))
    fill(tmp_path / "x-b", range(5, 9))
    (tmp_path / "x-c").symlink_to(tmp_path / "x-a")
    (tmp_path / "x-d").mkdir()
    (tmp_path / "x-d" / "commitlog").symlink_to(tmp_path / "x-b" / "commitlog")
    assert numbers(tmp_path / "x-*") == list(range(9))
    for link, store in (("x-c", "x-a"), ("x-d", "x-b")):
        assert f"{tmp_path / link} and {tmp_path / store} are one store" in caplog.text


def test_stores_of_one_broker_name_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("one", "two"):
        fill(tmp_path / folder / "broker" / "store", range(3))
    assert len(rows(tmp_path / "*" / "broker" / "store")) == 6
    assert caplog.text.count("column broker has 'broker' for both") == 1
    assert str(tmp_path / "one" / "broker" / "store") in caplog.text
    stores_module.log_once.cache_clear()
    caplog.clear()
    rows(tmp_path / "*" / "broker" / "store", brokerName="both")
    assert not caplog.records


def test_days_by_before_timestamp_have_each_message_once(root: Path) -> None:
    midnight = datetime(2023, 10, 2, tzinfo=UTC)
    begin_ms = int(midnight.timestamp() * 1000)
    at_ms = [TIME + n * HOUR_MS for n in range(60)]
    found = numbers(root, startingTimestamp=at_ms[10], beforeTimestamp=at_ms[20])
    assert found == list(range(10, 20))
    days = [
        numbers(
            root,
            startingTimestamp=begin_ms + d * 24 * HOUR_MS,
            beforeTimestamp=begin_ms + (d + 1) * 24 * HOUR_MS,
        )
        for d in range(-1, 4)
    ]
    assert sorted(n for day in days for n in day) == list(range(60))
    with pytest.raises(ConfigError, match="expected none beside endingTimestamp, got both"):
        rows(root, endingTimestamp=5, beforeTimestamp=6)


# --- tables --------------------------------------------------------------------------------------


def test_queues_and_stores_share_tasks(tmp_path: Path) -> None:
    for name in ("x-a", "x-b"):
        with mqstore.open(tmp_path / name, "a", config=TINY) as store:
            store.append_many([message(f"T{n}", queue_id=n % 2) for n in range(150)])
            store.wait_dispatched()
    for table, count in (("consumequeue", 300), ("files", None), ("checkpoint", 2)):
        made = reader(tmp_path / "x-*", table=table)
        parts = made.partitions()
        assert len(parts) <= 3, table
        assert len({part.store for one in parts for part in ranges_of(one)}) == 2
        found = rows(tmp_path / "x-*", table=table)
        assert count is None or len(found) == count
        assert {row["broker"] for row in found} == {"x-a", "x-b"}
    small = reader(tmp_path / "x-*", table="consumequeue", minPartitions=8).partitions()
    assert len(small) >= 8


def test_a_structure_takes_topics_queues_and_times(root: Path) -> None:
    times = {"startingTimestamp": TIME + 10 * HOUR_MS, "endingTimestamp": TIME + 20 * HOUR_MS}
    found = rows(root, table="consumequeue", topics=["T1"], queues={"T1": [1, 2]}, **times)
    with mqstore.open(root, config=TINY) as store:
        bodies = sorted(int(store.get(row["physical_offset"]).body) for row in found)
    assert bodies == [n for n in range(10, 21) if n % 2 == 1 and n % 3 in (1, 2)]
    index = rows(root, table="index", **times)
    assert index
    found_ms = [int(row["store_timestamp"].timestamp() * 1000) for row in index]
    assert min(found_ms) >= TIME + 10 * HOUR_MS
    assert max(found_ms) <= TIME + 20 * HOUR_MS
    assert len(index) == sum(
        TIME + 10 * HOUR_MS <= int(row["store_timestamp"].timestamp() * 1000) <= TIME + 20 * HOUR_MS
        for row in rows(root, table="index")
    )


@pytest.mark.parametrize(
    ("table", "option", "value"),
    [
        ("files", "topics", "T1"),
        ("checkpoint", "startingTimestamp", "-2h"),
        ("damage", "queues", '{"T": [0]}'),
        ("offsets", "beforeTimestamp", "-2h"),
        ("index", "topics", "T1"),
        ("consumequeue", "tags", "paid"),
        ("consumequeue", "keys", "k1"),
    ],
)
def test_a_structure_refuses_what_it_cannot_filter(
    root: Path, table: str, option: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"option {option} cannot narrow table={table}"):
        reader(root, table=table, **{option: value})


def test_a_plan_has_the_size_of_what_it_reads(root: Path) -> None:
    with mqstore.open(root, config=TINY) as store:
        size = store.max_physical_offset - store.min_physical_offset
    made = reader(root)
    assert size_of(made.partitions(), made.options) == size
    made = reader(root, splitBytes="2k")
    assert size_of(made.partitions(), made.options) == size
    made = reader(root, keys="k7")
    assert 0 < size_of(made.partitions(), made.options) <= 4096


# --- Kafka's names -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"subscribe": "T0"}, {"topics": "T0"}),
        ({"subscribePattern": "T.*"}, {"topicPattern": "T.*"}),
        ({"assign": '{"T1": [0, 2]}'}, {"queues": '{"T1": [0, 2]}'}),
        (
            {"SUBSCRIBE": "T0,T1", "maxOffsetsPerTrigger": "7"},
            {"topics": "T0,T1", "maxRowsPerTrigger": "7"},
        ),
    ],
)
def test_names_of_kafkas_source_are_understood(
    root: Path, theirs: dict[str, str], ours: dict[str, str]
) -> None:
    texts = as_texts(root, {})
    assert ReadOptions.parse({**texts, **theirs}, streaming=True) == ReadOptions.parse(
        {**texts, **ours}, streaming=True
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.bootstrap.servers": "a:9092"}, "give their directories as path"),
        ({"kafka.group.id": "g"}, "no broker is asked here"),
        ({"includeHeaders": "true"}, "column properties has"),
        ({"endingOffsetsByTimestamp": "{}"}, "give endingTimestamp"),
        ({"minOffsetsPerTrigger": "5"}, "maxRowsPerTrigger"),
        ({"subscribe": "a", "topics": "b"}, "option topics: expected it once"),
        (
            {"startingOffsetsByTimestamp": '{"T": {"0": "x"}}'},
            "expected times by topic and queue, .*; topic 'T'",
        ),
        (
            {"startingOffsetsByTimestamp": '{"T": {"x": 1}}'},
            "expected a queue from 0 to 2147483647, got 'x'; topic 'T'",
        ),
    ],
)
def test_other_names_of_kafkas_source_lead_to_ours(
    root: Path, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        ReadOptions.parse({**as_texts(root, {}), **options})
    assert not OPTIONS.keys() & {"includeHeaders", "kafka.group.id"}


def test_queues_begin_at_offsets_words_and_times(root: Path) -> None:
    # T1 has 1, 7, 13, … in queue 1, 3, 9, … in queue 0 and 5, 11, … in queue 2.
    offsets = {"T1": {"0": 4, "1": -1}, "T0": "latest"}
    expected = [n for n in range(60) if n % 2 == 1 and (n % 3 == 2 or (n % 3 == 0 and n >= 27))]
    assert numbers(root, startingOffsets=offsets) == expected
    times = {"T1": {"0": TIME + 27 * HOUR_MS}}
    found = numbers(root, startingOffsetsByTimestamp=times, topics="T1")
    assert found == [n for n in range(60) if n % 2 == 1 and (n % 3 or n >= 27)]
    with pytest.raises(ConfigError, match="no store has topic T9"):
        numbers(root, startingOffsets=json.dumps({"T9": "latest"}))


# --- zones, and values that no option can have ---------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("GMT+8", 8),
        ("UTC+8", 8),
        ("UT+08:00", 8),
        ("UTC-08:30", -8.5),
        ("+8:00", 8),
        ("-8", -8),
        ("+0800", 8),
        ("PST", -8),
        ("CTT", 8),
        ("EST", -5),
        ("GMT", 0),
        ("UT", 0),
        ("Z", 0),
        ("Asia/Shanghai", 8),
    ],
)
def test_zones_have_the_names_that_spark_gives_them(zone: str, hours: float) -> None:
    given = {"path": "/x", "timeZone": zone, "startingTimestamp": "2026-01-10T00:00:00"}
    wanted = datetime(2026, 1, 10, tzinfo=UTC).timestamp() - hours * 3600
    assert ReadOptions.parse(given).starting_timestamp_ms == wanted * 1000


class Session:
    """A session with a time zone."""

    def __init__(self, zone: str) -> None:
        self.conf = {"spark.sql.session.timeZone": zone}


def test_a_sessions_zone_counts_only_for_times_without_an_offset() -> None:
    at = "2026-01-10T00:00:00"
    for texts, wanted in (({}, "+08:00"), ({"timeZone": "UTC"}, "UTC")):
        assert in_zone_of(Session("GMT+8"), texts)["timeZone"] == wanted  # type: ignore[arg-type]
    odd: Any = Session("Mars/Olympus")
    for text in ("1700000000000", "-2h", f"{at}Z", f"{at}+01:00"):
        assert "timeZone" not in in_zone_of(odd, {"startingTimestamp": text})
    with pytest.raises(ConfigError, match=r"^spark.sql.session.timeZone: 'Mars/Olympus' is no"):
        in_zone_of(odd, {"endingTimestamp": at})
    with pytest.raises(ConfigError, match=r"^option timeZone: 'Mars/Olympus' is no time zone"):
        ReadOptions.parse({"path": "/x", "timeZone": "Mars/Olympus", "startingTimestamp": at})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("topics", [b"t"], "option topics: Object of type bytes"),
        ("topics", "\ud800", "option topics: 'utf-8' codec"),
        ("topics", ["\ud800"], "option topics: 'utf-8' codec"),
        ("queues", {"\ud800": [0]}, "option queues: 'utf-8' codec"),
        ("tags", "\ud800", "option tags: 'utf-8' codec"),
        ("topicPattern", "\ud800", "option topicPattern: 'utf-8' codec"),
        ("storageOptions", {"a": b"x"}, "option storageOptions: Object of type bytes"),
        ("storageOptions", "[" * 3000, "option storageOptions: expected a JSON object"),
        ("Paths", ["/y"], "option paths: expected it once"),
        ("Topik", ["y"], "no option 'Topik'; did you mean topic"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_option(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        ReadOptions.parse(as_texts("/x", {name: value}))


def test_python_values_have_names_in_any_case(root: Path) -> None:
    assert numbers(root, Queues={"T0": range(1)}) == numbers(root, queues={"T0": {0}})
    assert as_texts("/x", {"VERIFYCRC": False})["verifyCrc"] == "false"
    for paths in ("x" * 5000, "/x" * 5000):
        with pytest.raises(ConfigError, match=r"path: expected a directory, got .*too long"):
            rows(paths)
    for odd in (None, b"/x", [b"/x"], 5):
        with pytest.raises(ConfigError, match="path: expected a store's directory"):
            rows(odd)
