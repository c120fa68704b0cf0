"""Arguments that no store can have: each with an error of its own, and none from inside."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HUGE = 2**70
SURROGATE = "a\ud800"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many(mqstore.Message("T", b"%d" % n, keys="k") for n in range(3))
        yield store


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue_id", 2**31),
        ("queue_id", -(2**31) - 1),
        ("queue_id", HUGE),
        ("flag", 2**31),
        ("delay_level", 2**31),
        ("born_timestamp_ms", 2**63),
        ("tags", SURROGATE),
        ("keys", SURROGATE),
        ("keys", ["k", SURROGATE]),
        ("unique_key", SURROGATE),
        ("properties", {"p": SURROGATE}),
        ("properties", {SURROGATE: "p"}),
    ],
)
def test_a_value_that_no_message_holds_names_its_field(
    store: mqstore.Store, field: str, value: Any
) -> None:
    end = store.max_physical_offset
    for refuse in (store.append, mqstore.Message):
        with pytest.raises(mqstore.InvalidMessageError) as caught:
            refuse("T", b"", **{field: value})
        assert caught.value.field == field
    assert store.max_physical_offset == end


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sys_flag", 2**31),
        ("reconsume_times", HUGE),
        ("store_timestamp_ms", HUGE),
        ("prepared_transaction_offset", -HUGE),
    ],
)
def test_the_further_fields_of_a_message_too(field: str, value: int) -> None:
    with pytest.raises(mqstore.InvalidMessageError) as caught:
        mqstore.Message("T", b"", **{field: value})
    assert caught.value.field == field


def test_a_topic_that_is_no_text_is_refused_everywhere(store: mqstore.Store) -> None:
    for call in (
        lambda: store.append(SURROGATE, b""),
        lambda: mqstore.Message(SURROGATE, b""),
        lambda: store.read(SURROGATE, 0, 0),
        lambda: store.query(SURROGATE, "k"),
        lambda: store.offset_at(SURROGATE, 0, 0),
    ):
        with pytest.raises(mqstore.InvalidMessageError) as caught:
            call()
        assert caught.value.field == "topic"
    with pytest.raises(mqstore.InvalidMessageError):
        store.query("T", SURROGATE)


def test_a_text_that_utf8_cannot_hold_names_its_argument(store: mqstore.Store) -> None:
    group = store.group("g")
    for field, call in (
        ("name", lambda: store.group(SURROGATE)),
        ("topic", lambda: group.poll(SURROGATE)),
        ("tags", lambda: group.poll("T", tags=SURROGATE)),
        ("topic", lambda: group.seek(SURROGATE, 0, 0)),
        ("topic", lambda: group.messages(SURROGATE)),
        ("topic", lambda: store.queues(SURROGATE)),
        ("topic", lambda: len(store.topic(SURROGATE))),
        ("tags", lambda: store.topic("T").latest(tags=SURROGATE)),
        ("tags", lambda: store.read("T", 0, 0, tags=SURROGATE)),
        ("tags", lambda: store.scan(tags=SURROGATE)),
        ("tags", lambda: store.scan_arrow(tags=SURROGATE)),
        ("on_error", lambda: store.scan(on_error=SURROGATE)),
        ("boundary", lambda: store.offset_at("T", 0, 0, boundary=SURROGATE)),
        ("message_id", lambda: store.get_by_id(SURROGATE)),
        ("text", lambda: mqstore.java_hash(SURROGATE)),
        ("key", lambda: mqstore.key_hash(SURROGATE)),
        ("tags", lambda: mqstore.tags_code(SURROGATE)),
        ("text", lambda: mqstore.parse_message_id(SURROGATE)),
    ):
        with pytest.raises(mqstore.InvalidMessageError, match=f"^{field}: expected") as caught:
            call()
        assert caught.value.field == field


def test_a_path_that_the_system_cannot_name_is_refused() -> None:
    for call in (
        mqstore.inventory,
        mqstore.lock_state,
        mqstore.IndexFile,
        mqstore.CommitLog,
        mqstore.ConsumeQueue,
        mqstore.read_config_json,
    ):
        with pytest.raises(mqstore.ConfigError, match="path: expected a path in the system's"):
            call(SURROGATE)
        with pytest.raises(TypeError, match=r"path: expected str or os\.PathLike, got int"):
            call(5)


def test_a_place_beyond_all_numbers_is_out_of_range(store: mqstore.Store) -> None:
    for place in (2**63, HUGE, -1, -HUGE):
        with pytest.raises(mqstore.OffsetOutOfRangeError):
            store.get(place)
    assert store.read("T", 0, HUGE).status.name == "OFFSET_OVERFLOW_BADLY"
    assert store.read("T", 0, -HUGE).status.name == "OFFSET_TOO_SMALL"
    with pytest.raises(mqstore.InvalidMessageError):
        store.read("T", 2**31, 0)


def test_bounds_beyond_all_numbers_bound_nothing(store: mqstore.Store) -> None:
    assert len(store.query("T", "k", begin_ms=-HUGE, end_ms=HUGE)) == 3
    assert len(list(store.scan(begin_ms=-HUGE, end_ms=HUGE, stop_physical_offset=HUGE))) == 3
    assert list(store.scan(start_physical_offset=HUGE)) == []
    assert store.offset_at("T", 0, HUGE) == 3
    assert store.offset_at("T", 0, -HUGE) == 0
    assert store.scan_arrow(batch_rows=HUGE, batch_bytes=HUGE).read_all().num_rows == 3
    with pytest.raises(ValueError, match="batch_rows: expected 0 or more, got -1"):
        store.scan_arrow(batch_rows=-1)


def test_max_messages_is_a_count(store: mqstore.Store) -> None:
    # RocketMQ gives out the first message whatever the count.
    assert [m.body for m in store.read("T", 0, 1, max_messages=0).messages] == [b"1"]
    assert len(store.read("T", 0, 0, max_messages=HUGE).messages) == 3
    for refuse in (
        lambda: store.read("T", 0, 0, max_messages=-1),
        lambda: store.query("T", "k", max_messages=-1),
        lambda: store.group("g").poll("T", max_messages=-1),
    ):
        with pytest.raises(ValueError, match="max_messages: expected 0 or more, got -1"):
            refuse()
    with pytest.raises(ValueError, match="max_bytes: expected 0 or more, got -1"):
        store.read("T", 0, 0, max_bytes=-1)
    assert len(store.read("T", 0, 0, max_bytes=HUGE).messages) == 3
    assert len(store.group("h").poll("T", max_messages=HUGE)) == 3


def test_a_value_that_no_index_entry_holds_names_its_argument(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", slots=7, entries=9) as index:
        for field, call in (
            ("physical_offset", lambda: index.put("T#k", HUGE, 1)),
            ("store_timestamp_ms", lambda: index.put("T#k", 1, -HUGE)),
            ("key", lambda: index.put(SURROGATE, 1, 1)),
            ("key", lambda: index.select(SURROGATE)),
            ("key", lambda: index.chain(SURROGATE)),
            ("keys", lambda: index.put_many([SURROGATE], [1], [1])),
            ("keys", lambda: index.select_many(["k", SURROGATE])),
            ("physical_offsets", lambda: index.put_many(["T#k"], [HUGE], [1])),
            ("physical_offsets", lambda: index.put_many(["T#k"], (HUGE,), [1])),
            ("port", lambda: mqstore.MessageId("::1", HUGE, 1)),
            ("store_timestamps_ms", lambda: index.put_many(["T#k"], [1], [2**63])),
        ):
            with pytest.raises(mqstore.InvalidMessageError) as caught:
                call()
            assert caught.value.field == field
        assert len(index) == 0
        assert index.put("T#k", 1, 5_000)
        assert index.select("T#k", begin_ms=-HUGE, end_ms=HUGE, max_entries=HUGE) == [1]
        later = datetime.fromtimestamp(60, UTC)
        assert index.put("T#l", 2, later)
        assert index.put_many(["T#l"] * 2, (3, 4), [later, 70_000]) == 2
        assert index.select("T#l", end_ms=later) == [3, 2]
        for wrong in (later, "a", 1.5):
            with pytest.raises(TypeError, match="physical_offsets: expected int, got"):
                index.put_many(["T#l"], [wrong], [1])
        assert index.select_many(["T#k"], begin_ms=HUGE).to_pylist() == [[]]
        with pytest.raises(IndexError):
            index.entry(HUGE)
    for sizes in ({"slots": HUGE}, {"entries": -HUGE}):
        with pytest.raises(mqstore.ConfigError):
            mqstore.IndexFile(tmp_path / "one", **sizes)


def test_numbers_come_as_buffers_too(tmp_path: Path) -> None:
    keys, numbers = [f"T#{n}" for n in range(5)], array("q", [10, 20, 30, 40, 50])
    with mqstore.IndexFile(tmp_path / "one", "a", slots=7, entries=9) as index:
        assert index.put_many(keys, numbers, memoryview(numbers)) == 5
        assert index.select_many(keys).to_pylist() == [[n] for n in numbers]


def test_a_type_that_is_wrong_stays_a_type_error(store: mqstore.Store) -> None:
    with pytest.raises(TypeError, match="queue_id"):
        store.read("T", "0", 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="topic"):
        store.append(b"T", b"")  # type: ignore[arg-type]


def test_no_path_at_all_is_said_so() -> None:
    with pytest.raises(mqstore.NotAStoreError, match="the path is empty"):
        mqstore.open("")
    with pytest.raises(mqstore.NotAStoreError, match="the path is empty"):
        mqstore.open("", "a")


def test_a_store_time_below_zero_is_encoded_and_not_appended(tmp_path: Path) -> None:
    early = mqstore.Message("T", b"", store_timestamp_ms=-5)
    place = {"physical_offset": 0, "queue_offset": 0, "store_host": "127.0.0.1:10911"}
    assert mqstore.decode(mqstore.encode(early, **place)).store_timestamp_ms == -5
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(mqstore.InvalidMessageError):
            store.append_many([early])
        assert list(store.scan()) == []


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_a_folder_in_the_place_of_a_file_is_met_at_open(tmp_path: Path, folder: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"")
    stray = tmp_path / folder / "00000000000000999990"
    stray.mkdir()
    with pytest.raises(mqstore.StoreIOError) as caught:
        mqstore.open(tmp_path, "r+", config=TINY)
    assert caught.value.filename == str(stray)
    with mqstore.open(tmp_path, config=TINY) as store:
        assert any(str(stray) in warning for warning in store.warnings)
        assert len(store.read("T", 0, 0).messages) == 1


def test_a_damaged_body_is_not_given_out_by_queue_or_key(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        places = [store.append("T", b"body %d" % n, keys=f"k{n}").physical_offset for n in range(4)]
        (log,) = (tmp_path / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    at = data.index(b"body 2")
    data[at] ^= 1
    log.write_bytes(data)
    with mqstore.open(tmp_path, config=TINY) as store:
        # Earlier messages come first.
        before = store.read("T", 0, 0)
        assert [m.body for m in before.messages] == [b"body 0", b"body 1"]
        assert before.next_queue_offset == 2
        for ask in (
            lambda: store.read("T", 0, 2),
            lambda: store.query("T", "k2"),
            lambda: store.query("T", "k2", exact=False),
            lambda: store.get(places[2]),
        ):
            with pytest.raises(mqstore.CorruptionError) as caught:
                ask()
            assert caught.value.path == str(log)
            assert places[2] <= caught.value.offset < places[3]
        assert [m.body for m in store.read("T", 0, 3).messages] == [b"body 3"]
        assert len(store.query("T", "k3")) == 1
