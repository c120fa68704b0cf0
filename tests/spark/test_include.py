"""Kinds of messages: committed and delivered ones, a broker's own topics, half messages."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY, message
from mqstore.errors import ConfigError
from mqstore.spark import mapping
from mqstore.spark.ingest import PipelineConfig
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.plan import plan
from mqstore.spark.reader import read_range
from mqstore.spark.source import MqStoreDataSource
from mqstore.spark.values import topics_matching

if TYPE_CHECKING:
    from pathlib import Path

PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC
TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%DLQ%g", "TBW102")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic with transactions as RocketMQ before 4.3 stored them, and a broker's own topics."""
    root = tmp_path_factory.mktemp("include") / "store-a"
    flags = (PREPARED, COMMITTED, ROLLED_BACK, 0, COMMITTED)
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message("TxTopic", body=b"tx %d" % n, sys_flag=flags[n % 5], keys=f"k{n}")
                for n in range(20)
            ]
        )
        store.append_many([message(topic, body=topic.encode()) for topic in TOPICS])
        store.wait_dispatched()
    return root


DELIVERED = sorted(b"tx %d" % n for n in range(20) if n % 5 not in (0, 2))
UNDELIVERED = sorted(b"tx %d" % n for n in range(20) if n % 5 in (0, 2))
OWN = sorted(topic.encode() for topic in TOPICS)


def bodies(root: Path, **options: object) -> list[bytes]:
    parsed = ReadOptions.parse(as_texts(root, options))
    batches = [batch for part in plan(parsed) for batch in read_range(part, parsed, ["body"])]
    return sorted(row["body"] for batch in batches for row in batch.to_pylist())


def test_a_topic_with_transactions_has_the_same_rows_by_every_way(store: Path) -> None:
    for way in ("auto", "scan", "consumequeue"):
        assert bodies(store, topics="TxTopic", accessPath=way) == DELIVERED, way
        assert bodies(store, accessPath=way) == sorted([*DELIVERED, *OWN]), way
        assert bodies(store, accessPath=way, include="business") == DELIVERED, way
    keys = [f"k{n}" for n in range(20)]
    for way in ("auto", "scan", "index"):
        assert bodies(store, topics="TxTopic", keys=keys, accessPath=way) == DELIVERED, way


def test_half_messages_and_system_topics_are_there_when_asked_for(store: Path) -> None:
    half = [*DELIVERED, *UNDELIVERED, b"RMQ_SYS_TRANS_HALF_TOPIC"]
    assert bodies(store, include="half") == sorted(half)
    assert bodies(store, include="system") == sorted([*DELIVERED, *OWN])
    every = sorted([*DELIVERED, *UNDELIVERED, *OWN])
    assert bodies(store, include="all") == every
    assert bodies(store, include=["system", "half"]) == every
    assert bodies(store, include="half", topics="TxTopic") == sorted([*DELIVERED, *UNDELIVERED])
    # A topic that is named is wanted.
    assert bodies(store, include="business", topics="%DLQ%g") == [b"%DLQ%g"]
    assert bodies(store, include="business", topicPattern=".*") == DELIVERED
    for way in ("consumequeue", "index"):
        with pytest.raises(
            ConfigError, match=f"accessPath: expected auto or scan with .*, got {way}"
        ):
            bodies(store, include="half", accessPath=way, keys="k1")
    with pytest.raises(ConfigError, match="did you mean half"):
        bodies(store, include="hlf")


def test_a_pipeline_has_business_messages_unless_told_otherwise(store: Path) -> None:
    def included(**source: Any) -> tuple[str, ...]:
        config = {"source": {"paths": [str(store)], **source}, "sink": {"path": "x"}}
        return ReadOptions.parse(PipelineConfig.load(config).options(), streaming=True).include

    assert included() == ("business",)
    assert included(include="all") == included(Include="all") == ("all",)
    assert included(paths=None, Path=str(store), onerror="rows") == ("business",)


def test_a_count_by_queue_has_what_no_queue_names_too(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: object, root: Path, columns: object, **options: object) -> SimpleNamespace:
        return SimpleNamespace(count=lambda: len(bodies(root, **options)))

    monkeypatch.setattr(mapping, "read", read)
    session: Any = SimpleNamespace(conf={})
    for include, wanted in (("all", 20), ("half", 20), ("system", 12)):
        assert mapping.count(session, store, topics=["TxTopic"], Include=include) == wanted
    assert mapping.count(session, store, verifycrc=False) == 17


def test_tables_of_the_log_show_all_of_it(store: Path) -> None:
    source = MqStoreDataSource({"path": str(store), "table": "raw"})
    reader: Any = source.reader(source.schema())
    rows = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert sum(rows) == 20 + len(TOPICS)


def test_rows_of_damage_always_have_the_column_that_tells_them(store: Path) -> None:
    def columns(**options: str) -> list[str]:
        given = {"path": str(store), "onError": "rows", **options}
        names: list[str] = MqStoreDataSource(given).schema().fieldNames()
        return names

    assert columns()[-1] == "error"
    assert columns(columns="broker,body") == ["broker", "body", "error"]
    assert columns(columns="error,body") == ["error", "body"]
    assert columns(table="raw", columns="record") == ["record", "error"]
    assert "error" not in columns(table="files")
    assert "error" not in columns(onError="skip")
    source = MqStoreDataSource({"path": str(store), "onError": "rows"})
    narrow = MqStoreDataSource({"path": str(store), "columns": "body"}).schema()
    for begin in (source.reader, lambda schema: source.streamReader(schema).initialOffset()):
        with pytest.raises(ConfigError, match="error string"):
            begin(narrow)
    with pytest.raises(ConfigError, match="onError: expected skip or fail with table=dispatch"):
        columns(table="dispatch")


def test_a_streams_checkpoint_and_rows_know_the_kinds_too(store: Path) -> None:
    texts = {"paths": json.dumps([str(store)]), "until": "end", "include": "business"}
    source = MqStoreDataSource(texts)
    reader: Any = source.streamReader(source.schema())
    parts = reader.partitions({}, reader.progress.last())
    rows = [row["body"] for part in parts for b in reader.read(part) for row in b.to_pylist()]
    assert sorted(rows) == DELIVERED


def test_a7_a_pattern_with_nested_repeats_takes_no_longer_than_another() -> None:
    names = ["a" * 127, "a" * 126 + "b", "a"]
    # An engine that tries again would not come back from these.
    for pattern in ("(a+)+", "(a|a)*", "(a*)*a", "((a+)+)+"):
        assert topics_matching(pattern, names) == {names[0], "a"}
    assert topics_matching("a\nb|(?i)C", ["a\nb", "c", "a\nb\n"]) == {"a\nb", "c"}
