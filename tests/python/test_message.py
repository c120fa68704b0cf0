"""Messages as they are given: what is taken, what is refused, what is kept."""

from __future__ import annotations

import array
import collections
import types
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import PLACE, TIME, TINY

if TYPE_CHECKING:
    from pathlib import Path


def stored(message: mqstore.Message) -> mqstore.StoredMessage:
    return mqstore.decode(mqstore.encode(message, store_timestamp_ms=TIME, **PLACE))


@pytest.mark.parametrize(
    "body",
    [
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(b"-a-b-c-d")[1::2],
        array.array("H", b"abcd"),
    ],
    ids=["bytes", "bytearray", "memoryview", "every other byte", "array"],
)
def test_a_body_is_any_buffer(tmp_path: Path, body: Any) -> None:
    assert mqstore.Message("T", body).body == b"abcd"
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        assert store.get(store.append("T", body).physical_offset).body == b"abcd"
        store.append_many([{"topic": "T", "body": body}])
        assert [message.body for message in store.scan()] == [b"abcd"] * 2


@pytest.mark.parametrize("body", ["text", None, 7, [1, 2]])
def test_other_bodies_are_of_a_wrong_type(tmp_path: Path, body: Any) -> None:
    with pytest.raises(TypeError):
        mqstore.Message("T", body)
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(TypeError):
            store.append("T", body)
        assert store.max_physical_offset == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("one", ("one",)),
        (("one", "two"), ("one", "two")),
        (["one"], ("one",)),
        ((key for key in ("one", "two")), ("one", "two")),
        ((), ()),
    ],
    ids=["text", "tuple", "list", "iterator", "none"],
)
def test_keys(tmp_path: Path, keys: Any, expected: tuple[str, ...]) -> None:
    message = mqstore.Message("T", b"", keys=keys)
    assert message.keys == stored(message).keys == expected


def test_append_takes_keys_from_an_iterator_once(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"", keys=(key for key in ("one", "two")))
        assert store.get(0).keys == ("one", "two")


@pytest.mark.parametrize(
    "properties",
    [
        {"b": "2", "a": "1"},
        collections.OrderedDict([("b", "2"), ("a", "1")]),
        types.MappingProxyType({"b": "2", "a": "1"}),
    ],
    ids=["dict", "OrderedDict", "another mapping"],
)
def test_properties_keep_their_order_behind_what_has_an_argument(
    tmp_path: Path, properties: Any
) -> None:
    given = {
        "tags": "t",
        "keys": ["k", "l"],
        "unique_key": "u",
        "delay_level": 3,
        "properties": properties,
    }
    block = b"TAGS\x01t\x02KEYS\x01k l\x02UNIQ_KEY\x01u\x02DELAY\x013\x02b\x012\x02a\x011\x02"
    message = mqstore.Message("T", b"", **given)
    assert stored(message).raw_properties == block
    assert message.properties == {"b": "2", "a": "1"}
    assert list(message.properties) == ["b", "a"]
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"", **given)
        found = store.get(0)
    assert found.raw_properties == block
    assert list(found.properties) == ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "b", "a"]
    assert (found.tags, found.keys, found.unique_key, found.delay_level) == (
        "t",
        ("k", "l"),
        "u",
        3,
    )


def test_a_block_is_taken_as_it_is(tmp_path: Path) -> None:
    block = b"odd\x02\x01\x02KEYS\x01 k  l \x02\xff"
    message = mqstore.Message("T", b"", properties=block)
    assert message.properties == stored(message).raw_properties == block
    assert stored(message).keys == ("k", "l")
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"", properties=block)
        assert store.get(0).raw_properties == block


REFUSED = [
    ("tags", {"tags": ""}),
    ("tags", {"tags": "a\x02b"}),
    ("keys", {"keys": ""}),
    ("keys", {"keys": ["a b"]}),
    ("keys", {"keys": ["a", ""]}),
    ("unique_key", {"unique_key": ""}),
    ("properties", {"properties": {"": "a"}}),
    ("properties", {"properties": {"a": ""}}),
    ("properties", {"properties": {"a\x01": "b"}}),
    ("properties", {"properties": {"a": "b\x02"}}),
    ("properties", {"tags": "a", "properties": {"TAGS": "b"}}),
    ("tags", {"tags": "a", "properties": b""}),
    ("keys", {"keys": "a", "properties": b""}),
    ("unique_key", {"unique_key": "a", "properties": b""}),
    ("delay_level", {"delay_level": 1, "properties": b""}),
    ("born_host", {"born_host": "localhost:1"}),
    ("born_host", {"born_host": "1.2.3.4"}),
]


@pytest.mark.parametrize(("field", "given"), REFUSED)
def test_a_value_that_no_record_holds_is_refused_by_name(
    tmp_path: Path, field: str, given: dict[str, Any]
) -> None:
    with pytest.raises(mqstore.InvalidMessageError) as refused:
        mqstore.Message("T", b"", **given)
    assert (refused.value.field, refused.value.status) == (field, "MESSAGE_ILLEGAL")
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(mqstore.InvalidMessageError) as refused:
            store.append("T", b"", **given)
        assert refused.value.field == field
        assert store.max_physical_offset == 0


@pytest.mark.parametrize(
    "given",
    [
        {"queue_id": 2**31},
        {"flag": -(2**31) - 1},
        {"born_timestamp_ms": 2**63},
        {"delay_level": 2**31},
    ],
    ids=str,
)
def test_a_value_too_wide_for_its_field_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(mqstore.InvalidMessageError):
        mqstore.Message("T", b"", **given)
    with (
        mqstore.open(tmp_path, "a", config=TINY) as store,
        pytest.raises(mqstore.InvalidMessageError),
    ):
        store.append("T", b"", **given)


@pytest.mark.parametrize(
    "given", [{"tags": 1}, {"keys": [1]}, {"keys": 1}, {"properties": {"a": 1}}, {"properties": 1}]
)
def test_types_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        mqstore.Message("T", b"", **given)


def test_hosts_are_spelt_one_way() -> None:
    message = mqstore.Message(
        "T", b"", born_host="[2001:0db8::0007]:5", store_host="[::ffff:1.2.3.4]:-1"
    )
    assert message.born_host == "[2001:db8::7]:5"
    assert message.store_host == "1.2.3.4:-1"
    found = stored(message)
    assert (found.born_host, found.store_host) == ("[2001:db8::7]:5", "1.2.3.4:-1")
    assert found.sys_flag == 0x10


def test_hc09_text_that_is_not_utf8_is_shown_with_marks() -> None:
    record = bytearray(mqstore.encode(mqstore.Message("TOPIC", b"", tags="tag"), **PLACE_AND_TIME))
    record[record.index(b"TOPIC")] = 0xFF
    record[record.index(b"tag")] = 0xFF
    found = mqstore.decode(record)
    assert (found.topic, found.tags) == ("\ufffdOPIC", "\ufffdag")
    assert found.raw_properties == b"TAGS\x01\xffag\x02"
    assert found.record == record


PLACE_AND_TIME = {**PLACE, "store_timestamp_ms": TIME}


def test_a_decoded_record_is_checked() -> None:
    record = mqstore.encode(mqstore.Message("T", b"body"), **PLACE_AND_TIME)
    assert mqstore.decode(record + b"more").record == record
    wrong = record.replace(b"body", b"bodi")
    with pytest.raises(mqstore.CorruptionError) as damage:
        mqstore.decode(wrong)
    assert (damage.value.kind, damage.value.path, damage.value.offset) == ("body-crc", None, 8)
    assert mqstore.decode(wrong, verify_crc=False).body == b"bodi"
    for length in range(len(record)):
        with pytest.raises(mqstore.CorruptionError) as damage:
            mqstore.decode(record[:length])
        assert damage.value.kind == "truncated"
    for other in (bytes(100), b"\x00\x00\x00\x64\xcb\xd4\x31\x94" + bytes(92), b"x" * 100):
        with pytest.raises(mqstore.CorruptionError):
            mqstore.decode(other)


@pytest.mark.parametrize("field", ["store_timestamp_ms", "store_host"])
def test_encode_asks_for_what_a_record_needs(field: str) -> None:
    given = {name: value for name, value in PLACE_AND_TIME.items() if name != field}
    with pytest.raises(mqstore.InvalidMessageError) as missing:
        mqstore.encode(mqstore.Message("T", b""), **given)
    assert missing.value.field == field


def test_a_compressed_body_is_undone_when_asked_for() -> None:
    import zlib

    message = mqstore.Message("T", zlib.compress(b"plain" * 9), sys_flag=0x1)
    assert stored(message).body == b"plain" * 9
    assert stored(message).raw_body == message.body
    for body, sys_flag in ((b"not zlib", 0x1), (b"", 0x701), (zlib.compress(bytes(1 << 26)), 0x1)):
        found = stored(mqstore.Message("T", body + b"\0", sys_flag=sys_flag))
        with pytest.raises(mqstore.CorruptionError) as damage:
            _ = found.body
        assert damage.value.kind == "body"
        assert found.raw_body == body + b"\0"
        assert found.record[damage.value.offset :].startswith(found.raw_body)


def test_hashes_of_text() -> None:
    assert mqstore.java_hash("") == 0
    assert mqstore.java_hash("TagA") == 2_598_919
    assert mqstore.java_hash("polygenelubricants") == -(2**31)
    assert mqstore.java_hash("😀") == 0xD83D * 31 + 0xDE00
    assert mqstore.key_hash("polygenelubricants") == 0
    assert mqstore.tags_code("TagA") == 2_598_919
    assert mqstore.tags_code(None) == mqstore.tags_code("") == 0


def test_message_ids() -> None:
    text = "0A09080700002A9F00000000000000E6"
    parsed = mqstore.parse_message_id(text.lower())
    assert parsed == mqstore.MessageId("10.9.8.7", 10911, 230)
    assert str(parsed) == text
    v6 = mqstore.MessageId("2001:db8::1", 10911, 2**63 - 1)
    assert str(v6) == "20010DB800000000000000000000000100002A9F7FFFFFFFFFFFFFFF"
    assert mqstore.parse_message_id(str(v6)) == v6
    for bad in ("", text[:-1], text + "00", "x" * 32):
        with pytest.raises(ValueError, match="hex digits"):
            mqstore.parse_message_id(bad)
    with pytest.raises(ValueError, match="IP address"):
        mqstore.MessageId("localhost", 1, 0)


def test_a_body_of_json_is_parsed(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        good = store.append("T", b'{"id": [1, null, "\xc3\xa9"]}')
        bad = store.append("T", b"{")
        assert store.get(good.physical_offset).body_json() == {"id": [1, None, "é"]}
        place = f"physical offset {bad.physical_offset}: expected JSON"
        with pytest.raises(ValueError, match=place):
            store.get(bad.physical_offset).body_json()
