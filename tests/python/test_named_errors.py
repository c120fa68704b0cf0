"""Errors name the argument, what was expected and what was found."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"mapped_file_size_commit_log": 65_536}


@pytest.fixture
def store(tmp_path: Path):
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as opened:
        yield opened


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": 7}, "topic: expected str, got int"),
        ({"body": "text"}, "body: expected bytes (encode text: text.encode()), got str"),
        ({"body": 7}, "body: expected bytes or another buffer, got int"),
        ({"queue_id": "1"}, "queue_id: expected int, got str"),
        ({"tags": 1}, "tags: expected str, got int"),
        ({"keys": 1}, "keys: expected str or a sequence of str, got int"),
        ({"keys": ["a", 1]}, "keys: expected str or a sequence of str, got int"),
        ({"unique_key": b"u"}, "unique_key: expected str, got bytes"),
        ({"properties": 1}, "properties: expected a mapping of str to str, or bytes, got int"),
        ({"properties": {"a": 1}}, 'properties["a"]: expected str, got int'),
        ({"properties": {1: "a"}}, "properties: expected names of str, got int"),
        ({"flag": None}, "flag: expected int, got NoneType"),
        (
            {"born_timestamp_ms": "now"},
            "born_timestamp_ms: expected int (milliseconds) or datetime",
        ),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(store, given, says) -> None:
    arguments = {"topic": "t", "body": b"", **given}
    with pytest.raises(TypeError, match=re.escape(says)):
        mqstore.Message(**arguments)
    with pytest.raises(TypeError, match=re.escape(says)):
        store.append(**arguments)
    assert store.max_physical_offset == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.append_many(7), "messages: expected an iterable of messages, got int"),
        (lambda s: s.scan_arrow(columns=5), "columns: expected str or a sequence of str, got int"),
        (lambda s: s.topic("t").latest("a"), "n: expected int, got str"),
        (lambda s: s.topic("t").from_offset("a"), "physical_offset: expected int, got str"),
        (lambda s: s.group("g").poll(5), "topic: expected str, got int"),
        (lambda s: s.group("g").poll("t", max_messages="a"), "max_messages: expected int, got str"),
        (lambda s: s.group("g").seek("t", 0, "a"), "queue_offset: expected int, got str"),
        (
            lambda s: s.group("g").process("t", print, stop=5),
            "stop: expected a threading.Event, got int",
        ),
        (
            lambda s: s.group("g").process("t", print, backoff=5),
            "backoff: expected a function, got int",
        ),
        (lambda s: mqstore.export_store(s.path, f"{s.path}-new", on_error=None), "on_error: expec"),
        (lambda s: mqstore.open(s.path, 5), "mode: expected str, got int"),
        (lambda _: mqstore.open(5), "path: expected str or os.PathLike, got int"),
        (lambda s: mqstore.stats(s.path, by=5), "by: expected str or a sequence of str, got int"),
        (
            lambda s: s.append_many([7]),
            "messages: expected a Message, a StoredMessage, or a mapping or tuple",
        ),
        (lambda s: s.read("t", "0", 0), "queue_id: expected int, got str"),
        (lambda s: s.read("t", 0, "0"), "queue_offset: expected int, got str"),
        (lambda s: s.read("t", 0, 0, max_messages="1"), "max_messages: expected int, got str"),
        (lambda s: s.query("t", 7), "key: expected str, got int"),
        (lambda s: s.scan(topics=7), "topics: expected str or a sequence of str, got int"),
        (lambda s: s.scan(start_physical_offset="0"), "start_physical_offset: expected int"),
        (lambda s: s.get("0"), "physical_offset: expected int, got str"),
        (lambda s: s.scan_arrow(batch_rows="5"), "batch_rows: expected int, got str"),
        (lambda s: s.scan_arrow(batch_bytes=None), "batch_bytes: expected int, got NoneType"),
        (lambda s: s.scan_arrow(verify_crc="x"), "verify_crc: expected bool, got str"),
        (lambda s: s.scan(decompress=None), "decompress: expected bool, got NoneType"),
        (lambda s: s.query("t", "k", exact="no"), "exact: expected bool, got str"),
        (lambda s: s.append_arrow(s.scan_arrow(), atomic=1), "atomic: expected bool, got int"),
        (lambda s: mqstore.decode(b"", verify_crc=1), "verify_crc: expected bool, got int"),
        (lambda s: mqstore.IndexFile(s.path, slots="5"), "slots: expected int, got str"),
        (lambda s: mqstore.IndexFile(s.path, entries=None), "entries: expected int, got NoneType"),
        (lambda _: mqstore.MessageId(None, 5, 6), "host: expected str, got NoneType"),
        (lambda _: mqstore.MessageId("::1", "5", 6), "port: expected int, got str"),
    ],
)
def test_other_calls_name_theirs_too(store, call, says) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        call(store)


def test_an_empty_text_is_refused_with_the_cure(store) -> None:
    for given, says in (
        ({"keys": ["a", ""]}, "keys: expected keys that are not empty, got an empty one"),
        ({"tags": ""}, "tags: expected a text that is not empty, or None, got an empty one"),
        ({"properties": {"a": ""}}, 'properties: "a": expected a value that is not empty'),
        ({"keys": "a b"}, 'keys=[...] for several, got "a b"'),
    ):
        with pytest.raises(mqstore.InvalidMessageError, match=re.escape(says)):
            store.append("t", b"", **given)


@pytest.mark.parametrize("tag", ["*", " a", "a ", "a\t", "a || b", "||"])
def test_a_tag_that_no_expression_selects_is_refused_with_the_reason(store, tag) -> None:
    with pytest.raises(mqstore.InvalidMessageError, match="a tag that can be selected") as caught:
        store.append("t", b"", tags=tag)
    assert caught.value.field == "tags"
    store.append("t", b"", properties={"TAGS": tag})
    assert store.topic("t").latest()[0].tags == tag
    for good in ("a b", "a|b", "**", "\u00e9"):
        store.append("t", b"", tags=good)
        assert store.read("t", 0, 0, tags=good).messages[0].tags == good


def test_a_queue_far_above_the_topics_is_refused_unless_asked_for(store, tmp_path) -> None:
    store.append("t", b"")
    with pytest.raises(
        mqstore.InvalidMessageError, match="queue_id: expected at most 1023"
    ) as caught:
        store.append("t", b"", queue_id=1_000_000)
    assert 'the highest of topic "t" is 0; the setting max_queue_id=1000000' in str(caught.value)
    with pytest.raises(mqstore.InvalidMessageError, match='topic "new" has no queue yet'):
        store.append_many([mqstore.Message("new", b"", queue_id=1024)])
    store.append("t", b"", queue_id=1023)
    store.append("t", b"", queue_id=1500)
    with mqstore.open(tmp_path / "b", "a", config={**CONFIG, "max_queue_id": 5000}) as other:
        other.append("t", b"", queue_id=5000)


def test_closed_is_said_of_what_is_closed(tmp_path) -> None:
    store = mqstore.open(tmp_path / "store", "a", config=CONFIG)
    store.append("t", b"", keys="k")
    store.close()
    with pytest.raises(mqstore.StoreClosedError, match=r"^the store is closed$"):
        store.topics()
    with mqstore.open(tmp_path / "store") as reader:
        (path,) = (tmp_path / "store" / "index").iterdir()
        index = mqstore.IndexFile(path)
        index.close()
        with pytest.raises(mqstore.StoreClosedError, match="the index file is closed"):
            index.select("t#k")
        groups = reader.group("g"), reader.group("h")
        groups[0].close()
        for call in (
            lambda: groups[0].lag(),
            lambda: groups[0].poll("t"),
            lambda: groups[0].seek("t", 0, 0),
            lambda: groups[0].commit(),
            lambda: groups[0].messages("t"),
            lambda: groups[0].process("t", print),
        ):
            with pytest.raises(mqstore.StoreClosedError, match=r"^the group is closed$"):
                call()
        reader.close()
        for group in groups:
            with pytest.raises(mqstore.StoreClosedError, match=r"^the store is closed$"):
                group.lag()


def test_whatever_counts_as_an_int_is_taken(store) -> None:
    store.append("t", b"")
    assert len(store.topic("t").latest(True)) == 1
    with pytest.raises(TypeError, match="n: expected int, got float"):
        store.topic("t").latest(1.5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: mqstore.prune(s, keep=5), "keep: expected timedelta, got int"),
        (lambda s: mqstore.prune(s, keep=None), "keep: expected timedelta, got NoneType"),
        (
            lambda s: mqstore.prune(s, keep=timedelta(1), keep_hourly="a"),
            "keep_hourly: expected int, got str",
        ),
        (
            lambda s: mqstore.prune(s, keep=timedelta(1), dry_run=None),
            "dry_run: expected bool, got NoneType",
        ),
        (lambda s: mqstore.restore(s, "new", snapshot=5), "snapshot: expected str, got int"),
        (lambda s: mqstore.restore(s, "new", to_offset="a"), "to_offset: expected int, got str"),
        (
            lambda s: mqstore.restore(s, "new", topics=5),
            "topics: expected str or a sequence of str, got int",
        ),
        (
            lambda s: mqstore.copy(s, "new", keys=["a", 5]),
            "keys: expected str or a sequence of str, got int",
        ),
        (lambda _: mqstore.snapshots(5), "target: expected str or os.PathLike, got int"),
        (lambda _: mqstore.verify(b"s"), "path: expected str or os.PathLike, got bytes"),
        (lambda s: mqstore.doctor(s, progress=5), "progress: expected a function, got int"),
        (
            lambda s: mqstore.rebuild(s, what=None),
            "what: expected str or a sequence of str, got NoneType",
        ),
        (lambda s: mqstore.open(s, snapshot=5), "snapshot: expected str, got int"),
        (
            lambda s: mqstore.open(s, storage_options=5),
            "storage_options: expected a mapping, got int",
        ),
    ],
)
def test_functions_of_the_package_name_theirs_before_any_work(tmp_path, call, says) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: mqstore.open("a\ud800"), "path: expected a path that the system can name"),
        (lambda _: mqstore.open("a\0"), "path: expected a path that the system can name"),
        (lambda s: mqstore.open(s, config="\ud800"), "config: expected a path that the system"),
        (lambda s: mqstore.sync(s, "\ud800"), "target: expected a path that the system can name"),
        (lambda s: mqstore.salvage(s, "\ud800"), "out: expected a path that the system can name"),
        (lambda s: mqstore.restore(s, "new", snapshot="\ud800"), "snapshot: expected UTF-8 text"),
        (lambda s: mqstore.stats(s, tags="\ud800"), r"tags: expected UTF-8 text, got '\ud800'"),
        (lambda s: mqstore.stats(s, topics="\ud800"), "topics: expected UTF-8 text"),
        (lambda s: mqstore.copy(s, "new", keys=["a", "\ud800"]), "keys: expected UTF-8 text"),
        (lambda s: mqstore.why(s, group="\ud800"), "group: expected UTF-8 text"),
    ],
)
def test_a_text_that_utf8_cannot_hold_names_its_argument(tmp_path, call, says) -> None:
    with pytest.raises(mqstore.ConfigError, match=re.escape(says)) as caught:
        call(tmp_path)
    assert caught.value.field == says.partition(":")[0]
    assert list(tmp_path.iterdir()) == []
