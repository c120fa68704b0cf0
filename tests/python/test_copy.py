"""Copies of stores and of parts of them, with content replaced; and two stores compared."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.golden import Case, manifest
from helpers.stores import TIME, TINY, log_bytes, message
from mqstore.exchange.matching import DROPPED

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {**TINY, "mapped_file_size_commit_log": 8192}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A hundred messages in three queues, and a group that has read some."""
    with mqstore.open(tmp_path / "store", "a", config=SETTINGS) as store:
        store.append_many(
            [
                message(
                    topic="orders" if n % 3 else "audit",
                    queue_id=n % 2 if n % 3 else 0,
                    body=f"secret {n}".encode(),
                    tags=("paid", "open")[n % 2],
                    keys=[f"order-{n // 2}", "all"],
                    unique_key=f"U{n:03}",
                    properties={"customer": f"c{n % 5}", "city": "Hamburg"},
                    store_timestamp_ms=TIME + 1000 * n,
                )
                for n in range(100)
            ]
        )
        group = store.group("g")
        assert len(group.poll("orders", max_messages=20)) == 20
        group.commit()
        group.close()
    return tmp_path / "store"


def read(path: Path, topic: str, queue_id: int) -> list[mqstore.StoredMessage]:
    """A queue as a consumer reads it."""
    with mqstore.open(path) as store:
        found: list[mqstore.StoredMessage] = []
        for queue in store.queues(topic):
            if queue.queue_id == queue_id:
                result = store.read(topic, queue_id, queue.min_offset, max_messages=10_000)
                found.extend(result.messages)
        return found


def stand_ins(messages: list[mqstore.StoredMessage]) -> int:
    return sum(found.properties == {"MQSTORE_LEFT_OUT": "true"} for found in messages)


@pytest.mark.parametrize("name", [n for n in manifest()["cases"] if not n.startswith("abort-crc")])
def test_a_whole_copy_of_each_golden_store_is_the_same(name: str, tmp_path: Path) -> None:
    case = Case(name)
    root = case.unpack(tmp_path)
    case.bring_to_order(root)
    report = mqstore.copy(root, tmp_path / "out", config=case.settings)
    assert report.in_place
    assert (report.left_out, report.redacted, report.renumbered) == (0, 0, False)
    found = mqstore.diff(root, tmp_path / "out", config=case.settings)
    assert found.ok, found.differing
    with case.open(tmp_path / "out") as store:
        end = store.max_physical_offset - store.min_physical_offset
    assert log_bytes(tmp_path / "out")[:end] == log_bytes(root)[:end]


def test_topics_keep_their_offsets(root: Path, tmp_path: Path) -> None:
    report = mqstore.copy(root, tmp_path / "out", topics=["orders"])
    assert (report.messages, report.left_out, report.stand_ins) == (66, 34, 0)
    for queue_id in (0, 1):
        before, after = read(root, "orders", queue_id), read(tmp_path / "out", "orders", queue_id)
        assert [m.queue_offset for m in after] == [m.queue_offset for m in before]
        assert [m.body for m in after] == [m.body for m in before]
    with mqstore.open(root) as one, mqstore.open(tmp_path / "out") as other:
        assert other.groups() == one.groups()
        assert len(other.query("orders", "all", max_messages=999)) == 66
    verified = mqstore.verify(tmp_path / "out", config=SETTINGS)
    assert verified.ok, verified.findings


def test_a_message_left_out_between_others_is_stood_in_for(root: Path, tmp_path: Path) -> None:
    report = mqstore.copy(root, tmp_path / "out", tags="paid")
    assert report.messages == 50
    for topic, queue_id in (("orders", 0), ("orders", 1), ("audit", 0)):
        before = {m.queue_offset: m for m in read(root, topic, queue_id)}
        after = read(tmp_path / "out", topic, queue_id)
        # No hole, nothing before the first or behind the last message that was asked for.
        offsets = [m.queue_offset for m in after]
        assert offsets == list(range(offsets[0], offsets[-1] + 1)) if offsets else True
        for found in after:
            if found.tags == "paid":
                assert found.body == before[found.queue_offset].body
            else:
                assert (found.raw_body, found.properties) == (b"", {"MQSTORE_LEFT_OUT": "true"})
    with mqstore.open(tmp_path / "out") as store:
        assert stand_ins(list(store.scan())) == report.stand_ins == 16
    assert mqstore.verify(tmp_path / "out", config=SETTINGS).ok


def test_a_span_of_time_begins_where_it_did(root: Path, tmp_path: Path) -> None:
    mqstore.copy(root, tmp_path / "out", begin_ms=TIME + 40_000, end_ms=TIME + 59_000)
    with mqstore.open(tmp_path / "out") as store:
        found = list(store.scan())
        assert [m.store_timestamp_ms for m in found] == [TIME + 1000 * n for n in range(40, 60)]
        for queue in store.queues():
            numbers = [m.queue_offset for m in read(tmp_path / "out", queue.topic, queue.queue_id)]
            assert (queue.min_offset, queue.max_offset) == (numbers[0], numbers[-1] + 1)
            assert queue.min_offset > 0
    assert mqstore.verify(tmp_path / "out", config=SETTINGS).ok


def test_numbered_anew_nothing_stands_in(root: Path, tmp_path: Path) -> None:
    with mqstore.open(root) as store:
        before = {(at.topic, at.queue_id): at.queue_offset for at in store.groups()["g"]}
    report = mqstore.copy(root, tmp_path / "out", tags="open", renumber=True)
    assert (report.stand_ins, report.renumbered) == (0, True)
    with mqstore.open(tmp_path / "out") as store:
        for at in store.groups()["g"]:
            had = [
                m
                for m in read(root, at.topic, at.queue_id)
                if m.queue_offset < before[at.topic, at.queue_id] and m.tags == "open"
            ]
            assert at.queue_offset == len(had)
        for queue in store.queues():
            numbers = [m.queue_offset for m in read(tmp_path / "out", queue.topic, queue.queue_id)]
            assert numbers == list(range(len(numbers)))
    assert mqstore.verify(tmp_path / "out", config=SETTINGS).ok


def test_by_key(root: Path, tmp_path: Path) -> None:
    report = mqstore.copy(root, tmp_path / "out", keys=["order-7", "U050"], renumber=True)
    assert report.messages == 3
    with mqstore.open(tmp_path / "out") as store:
        assert {m.unique_key for m in store.scan()} == {"U014", "U015", "U050"}


RULES = """
salt = "pepper"

[[rule]]
topics = ["ord*"]
body = "hash"
properties = { customer = "hash", city = { constant = "X" }, KEYS = "hash" }

[[rule]]
topics = ["audit"]
body = "zeros"
properties = { customer = "remove" }
"""


def hashed(value: bytes) -> bytes:
    salt = b"pepper"
    text = len(salt).to_bytes(8, "big") + salt + value
    return hashlib.sha256(text).hexdigest().encode()


def test_content_is_replaced_and_everything_still_fits(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    report = mqstore.copy(root, tmp_path / "out", redact=tmp_path / "rules.toml")
    assert (report.messages, report.redacted) == (100, 100)
    with mqstore.open(root) as one, mqstore.open(tmp_path / "out") as other:
        for before, after in zip(one.scan(), other.scan(), strict=True):
            same = ("topic", "queue_id", "queue_offset", "tags", "unique_key", "store_timestamp_ms")
            assert all(getattr(before, name) == getattr(after, name) for name in same)
            if before.topic == "audit":
                assert after.body == bytes(len(before.body))
                assert "customer" not in after.properties
                assert after.properties["city"] == "Hamburg"
            else:
                assert after.body == hashed(before.body)
                assert after.properties["customer"].encode() == hashed(
                    before.properties["customer"].encode()
                )
                assert after.properties["city"] == "X"
                assert len(after.keys) == 2
        key = hashed(b"all").decode()
        assert len(other.query("orders", key, max_messages=999)) == 66
        assert len(other.query("orders", "all")) == 0
    assert b"secret" not in log_bytes(tmp_path / "out")
    verified = mqstore.verify(tmp_path / "out", config=SETTINGS)
    assert verified.ok, verified.findings


def test_one_name_is_one_topic_or_key(root: Path, tmp_path: Path) -> None:
    one = mqstore.copy(root, tmp_path / "one", topics="orders", keys="order-2")
    many = mqstore.copy(root, tmp_path / "many", topics=["orders"], keys=["order-2"])
    assert one.messages == many.messages > 0
    assert mqstore.export_store(root, tmp_path / "out", topics="orders").messages > 50


def test_zeros_leave_every_message_where_it_is(root: Path, tmp_path: Path) -> None:
    report = mqstore.copy(root, tmp_path / "out", redact={"rule": [{"body": "zeros"}]})
    assert (report.in_place, report.redacted) == (True, 100)
    found = mqstore.diff(root, tmp_path / "out")
    assert (found.ok, found.different, found.missing, found.extra) == (False, 100, 0, 0)
    assert {one.fields for one in found.differences} == {("body",)}


def test_properties_by_which_rocketmq_handles_a_message_stay_by_default(tmp_path: Path) -> None:
    kept = {*DROPPED} - {"__CRC32#", "DELAY", "INNER_NUM", "INNER_BASE"}
    with mqstore.open(tmp_path / "in", "a", config=SETTINGS) as store:
        store.append("orders", b"", properties=dict.fromkeys(kept, "2") | {"source": "2"})
    report = mqstore.copy(tmp_path / "in", tmp_path / "out", redact_default="zeros")
    assert {*report.left_as_is[0].properties} >= kept
    with mqstore.open(tmp_path / "out", config=SETTINGS) as copied:
        properties = next(iter(copied.scan())).properties
    assert {name for name, value in properties.items() if value == "2"} == kept
    assert properties["source"] == "0"


def test_batches_and_checksums_are_made_to_fit(tmp_path: Path) -> None:
    for name in ("batch", "propcrc", "lmq"):
        case = Case(name)
        root = case.unpack(tmp_path / name)
        out = tmp_path / name / "out"
        rules = {"rule": [{"body": {"constant": "-"}}]}
        mqstore.copy(root, out, redact=rules, config=case.settings)
        with case.open(root) as one, case.open(out) as other:
            for before, after in zip(one.scan(), other.scan(), strict=True):
                batch = before.batch
                if batch is not None:
                    assert after.batch is not None
                    assert [m.body for m in after.batch] == [b"-"] * len(batch)
                else:
                    assert after.body == b"-"
        codes = {found.code for found in mqstore.verify(root, config=case.settings).findings}
        verified = mqstore.verify(out, config=case.settings)
        assert {found.code for found in verified.findings} <= codes, verified.findings


def test_numbers_inside_of_messages_change_with_them(tmp_path: Path) -> None:
    for name in ("batch", "lmq"):
        case = Case(name)
        root = case.unpack(tmp_path / name)
        out = tmp_path / name / "out"
        with case.open(root) as store:
            times = sorted(m.store_timestamp_ms for m in store.scan())
            middle = times[len(times) // 2]
        mqstore.copy(root, out, begin_ms=middle, renumber=True, config=case.settings)
        with case.open(out) as store:
            for queue in store.queues():
                assert queue.min_offset == 0
            for found in store.scan():
                if found.batch is not None:
                    assert found.batch[0].queue_offset == found.queue_offset
        codes = {found.code for found in mqstore.verify(root, config=case.settings).findings}
        verified = mqstore.verify(out, config=case.settings)
        assert {found.code for found in verified.findings} <= codes, verified.findings


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({}, "at least one"),
        ({"rules": []}, "unknown name 'rules'"),
        ({"rule": [{"topic": "a"}]}, "rule 1: unknown name 'topic'"),
        ({"rule": [{"topics": ["a"]}]}, "rule 1: replaces nothing"),
        ({"rule": [{"body": "ones"}]}, r"rule 1: body: expected .*, found 'ones'"),
        ({"rule": [{"body": "zeros"}, {"properties": {"a": 1}}]}, "rule 2: properties: a"),
        ({"rule": [{"properties": {"INNER_NUM": "zeros"}}]}, "INNER_NUM says how"),
        ({"rule": [{"properties": {"a": {"constant": ""}}}]}, "not empty"),
    ],
)
def test_rules_that_cannot_be(rules: dict[str, Any], text: str, root: Path, tmp_path: Path) -> None:
    with pytest.raises(mqstore.ConfigError, match=text):
        mqstore.copy(root, tmp_path / "out", redact=rules)
    assert not (tmp_path / "out").exists()


def test_a7_many_stars_take_no_longer_than_one() -> None:
    from mqstore.exchange.matching import fits

    assert not fits(["*a" * 30 + "b"], "a" * 255)
    assert fits(["*a" * 30 + "?[b"], "a" * 100 + "\n[b")


def test_damage_ends_a_copy_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    with mqstore.open(root) as store:
        third = list(store.scan())[2]
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(third.physical_offset + 4)
        file.write(b"????")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(mqstore.CorruptionError):
        mqstore.copy(root, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_difference_is_named(root: Path, tmp_path: Path) -> None:
    mqstore.copy(root, tmp_path / "part", begin_ms=TIME + 10_000, config=SETTINGS)
    found = mqstore.diff(root, tmp_path / "part")
    assert (found.missing, found.extra, found.different) == (10, 0, 0)
    assert {(one.kind, one.topic) for one in found.differences} == {
        ("missing", "orders"),
        ("missing", "audit"),
    }
    back = mqstore.diff(tmp_path / "part", root)
    assert (back.missing, back.extra, back.messages) == (0, 10, 90)
    with mqstore.open(tmp_path / "part", "a", config=SETTINGS) as store:
        store.append("fresh", b"one")
    more = mqstore.diff(root, tmp_path / "part")
    assert [one for one in more.differences if one.topic == "fresh"] == [
        mqstore.Difference("extra", "fresh", 0, 0, ())
    ]
    assert mqstore.diff(root, root).ok
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.diff(root, tmp_path / "none")


def test_a_full_disk_leaves_nothing(root: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        for work in (mqstore.copy, mqstore.salvage):
            with pytest.raises(mqstore.StoreIOError, match=r"partial.*File too large"):
                work(root, tmp_path / "out", config=SETTINGS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def delete_topic(root: Path, topic: str) -> None:
    """Deletes a topic like a broker: table and queues, never the log."""
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"][topic]
    path.write_text(json.dumps(table))
    shutil.rmtree(root / "consumequeue" / topic)


def topics_of(root: Path) -> set[str]:
    return set(json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"])


def test_a_deleted_topic_stays_deleted_in_a_copy(root: Path, tmp_path: Path) -> None:
    delete_topic(root, "audit")
    report = mqstore.copy(root, tmp_path / "out", config=SETTINGS)
    assert report.deleted_topics == ("audit",)
    # Its messages are not lost: the log is the same, byte for byte.
    assert (report.messages, report.in_place) == (100, True)
    assert log_bytes(tmp_path / "out") == log_bytes(root)
    assert topics_of(tmp_path / "out") == {"orders"}
    assert not (tmp_path / "out" / "consumequeue" / "audit").exists()
    # The copy is as the source is, whoever looks.
    assert mqstore.diff(root, tmp_path / "out", config=SETTINGS).ok
    for path in (root, tmp_path / "out"):
        assert mqstore.verify(path, config=SETTINGS).ok
        assert [at.code for at in mqstore.doctor(path, config=SETTINGS)] == ["MQ-DOC-11"]
    with mqstore.open(root) as source, mqstore.open(tmp_path / "out") as store:
        assert store.topics() == source.topics()
        assert sum(found.topic == "audit" for found in store.scan()) == 34


def test_a_deleted_topic_that_is_asked_for_comes_back(root: Path, tmp_path: Path) -> None:
    delete_topic(root, "audit")
    report = mqstore.copy(root, tmp_path / "out", topics=["audit"], config=SETTINGS)
    assert (report.deleted_topics, report.messages) == ((), 34)
    assert "audit" in topics_of(tmp_path / "out")
    assert len(read(tmp_path / "out", "audit", 0)) == 34


def test_only_a_table_that_can_be_read_says_that_a_topic_was_deleted(
    root: Path, tmp_path: Path
) -> None:
    shutil.rmtree(root / "consumequeue" / "audit")
    (root / "config" / "topics.json").unlink()
    report = mqstore.copy(root, tmp_path / "out", config=SETTINGS)
    assert report.deleted_topics == ()
    assert topics_of(tmp_path / "out") == {"orders", "audit"}
