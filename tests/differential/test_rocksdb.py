"""RocketMQ 5.5 opens queues that were moved to RocksDB or back, and is read while it writes."""

from __future__ import annotations

import base64
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.comparing import write_ours
from helpers.files import copy_store, digests, stamps
from helpers.java import RocketMQ, release_of
from helpers.scripts import PARAMS, Script
from mqstore.rocksdb import read_tables, reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The newest always, the others on request.
NEWEST = ("5.5.0", "5.5.1")
VERSIONS = ("5.3.3", "5.4.0", *NEWEST) if os.environ.get("MQSTORE_ROCKETMQ_MATRIX") else NEWEST
SETTINGS = PARAMS["storeConfig"]
IN_ROCKSDB = {**PARAMS, "storeConfig": {**SETTINGS, "storeType": "defaultRocksDB"}}
QUEUES = ("default", "offset")


@pytest.fixture(scope="module")
def rocketmq(_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    process = RocketMQ(tmp_path_factory.mktemp("rocketmq"), version="5.5.0")
    yield process
    process.close()


def in_queues(root: Path) -> dict[tuple[str, int], list[int]]:
    """The messages of each queue, by our reader."""
    found = {}
    with mqstore.open(root, config=SETTINGS) as store:
        for queue in store.queues():
            read = store.read(queue.topic, queue.queue_id, 0, max_messages=10_000)
            found[queue.topic, queue.queue_id] = [one.physical_offset for one in read.messages]
    return found


def in_queues_of(
    rocketmq: RocketMQ, root: Path, params: dict[str, Any], names: Any
) -> dict[tuple[str, int], list[int]]:
    """The same by RocketMQ, which gives at most 32 messages a call."""
    found: dict[tuple[str, int], list[int]] = {name: [] for name in names}
    left = dict.fromkeys(found, 0)
    rocketmq.hold(root, params)
    try:
        while left:
            asked = [
                {"op": "cq", "topic": topic, "queueId": queue_id, "from": at, "max": 32}
                for (topic, queue_id), at in left.items()
            ]
            answers = rocketmq.query(root, params, asked)
            for name, answer in zip(list(left), answers, strict=True):
                found[name] += [one["phyOffset"] for one in answer["messages"]]
                left[name] = answer["nextBeginOffset"]
                if answer["status"] != "FOUND":
                    del left[name]
    finally:
        rocketmq.release(root)
    return found


def rows(folder: Path) -> list[tuple[str, bytes, bytes]]:
    """The rows of queues; those that tell a least offset are written where one was asked for."""
    found = reading.read_rows(folder, QUEUES)
    return [row for row in found if row[0] != "offset" or b"\x01min\x01" not in row[1]]


@pytest.mark.parametrize("version", VERSIONS)
def test_vr19_and_vr18_queues_go_to_rocksdb_and_back(
    rocketmq: RocketMQ, version: str, tmp_path: Path
) -> None:
    if version != "5.5.0":
        rocketmq = RocketMQ(tmp_path / "rocketmq", version=version)
    root, theirs = tmp_path / "store", tmp_path / "theirs"
    script = Script(31).add(700)
    write_ours(root, script, release=release_of(version))
    rocketmq.write(theirs, IN_ROCKSDB, script)
    assert len(list((root / "commitlog").iterdir())) > 12
    files, expected = digests(root, "consumequeue"), in_queues(root)
    report = mqstore.convert(root, queues="rocksdb", config=SETTINGS, dry_run=False)
    assert (report.findings, report.messages) == ((), sum(map(len, expected.values())))
    assert rows(root / "consumequeue") == rows(theirs / "consumequeue")
    assert mqstore.verify(theirs, config=SETTINGS).ok
    assert in_queues(root) == expected
    opened = copy_store(root, tmp_path / "opened")
    assert in_queues_of(rocketmq, opened, IN_ROCKSDB, expected) == expected
    # The queues that RocketMQ itself wrote are moved too.
    for store in (root, theirs, opened):
        database = {path.name for path in (store / "consumequeue").iterdir() if path.is_file()}
        report = mqstore.convert(store, queues="file", config=SETTINGS, dry_run=False)
        assert report.findings == ()
        assert digests(store, "consumequeue") == files
        kept = {path.name for path in (store / "quarantine").rglob("*") if path.is_file()}
        assert database <= kept
    assert in_queues_of(rocketmq, theirs, PARAMS, expected) == expected
    if version != "5.5.0":
        rocketmq.close()


def test_vr22_rows_that_a_crash_lost_are_written_before_the_broker_starts(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    rocketmq.hold(written, IN_ROCKSDB)
    rocketmq.write(written, IN_ROCKSDB, Script(37).add(700))
    crashed = copy_store(written, tmp_path / "crashed")
    rocketmq.release(written)
    expected = in_queues(written)
    # RocketMQ looks back at ten files, and not at all of them.
    alone = copy_store(crashed, tmp_path / "alone")
    assert in_queues_of(rocketmq, alone, IN_ROCKSDB, expected) != expected
    assert in_queues(crashed) == expected
    report = mqstore.verify(crashed, config=SETTINGS)
    assert report.ok
    mqstore.convert(crashed, queues="rocksdb", config=SETTINGS, dry_run=False)
    assert in_queues_of(rocketmq, crashed, IN_ROCKSDB, expected) == expected


def test_vr21_each_message_once_beside_a_running_broker(rocketmq: RocketMQ, tmp_path: Path) -> None:
    root = tmp_path / "store"
    script = Script(41)
    rocketmq.hold(root, IN_ROCKSDB)
    rocketmq.write(root, IN_ROCKSDB, script.add(9))
    before = stamps(root / "consumequeue")
    with mqstore.open(root, config=SETTINGS) as store:
        assert len(list(store.scan())) == 9
        with pytest.raises(mqstore.StoreLockedError):
            mqstore.open(root, "r+", config=SETTINGS)
        with pytest.raises(mqstore.StoreLockedError):
            mqstore.convert(root, queues="file", config=SETTINGS, dry_run=False)
        assert stamps(root / "consumequeue") == before
        more = script.add(400)
        writing = threading.Thread(target=rocketmq.write, args=(root, IN_ROCKSDB, more))
        writing.start()
        seen: dict[tuple[str, int], list[int]] = {}
        ended = False
        while not ended:
            ended = not writing.is_alive()
            store.refresh()
            for queue in store.queues():
                met = seen.setdefault((queue.topic, queue.queue_id), [])
                got = store.read(queue.topic, queue.queue_id, len(met), max_messages=100)
                met += [one.physical_offset for one in got.messages]
        writing.join()
    rocketmq.release(root)
    assert seen == in_queues(root)
    assert mqstore.verify(root, config=SETTINGS).ok


def test_vr25_a_consumer_goes_on_at_its_offset_on_a_store_that_was_moved(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    """Queues, topics and offsets lie in RocksDB from the broker's start on."""
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        for number in range(200):
            store.append("orders", str(number).encode(), queue_id=number % 4)
        group = store.group("old")
        group.poll("orders", max_messages=60)
        group.commit()
        offsets = {at.queue_id: at.queue_offset for at in store.groups()["old"]}
        left = {str(number) for number in range(200) if number // 4 >= offsets.get(number % 4, 0)}
    assert 0 < len(left) < 200
    mqstore.convert(root, queues="rocksdb", config=SETTINGS, dry_run=False)
    rocketmq.start_broker(root, IN_ROCKSDB)
    try:
        taken = rocketmq.consume(["orders"], "old", mode="push", count=len(left))
    finally:
        rocketmq.stop_broker()
    assert {base64.b64decode(row["body"]).decode() for row in taken} == left
    with mqstore.open(root, config=SETTINGS) as store:
        assert sum(at.lag for at in store.groups()["old"]) == 0
        assert "orders" in store.topics()
    tables = read_tables(root)
    assert "orders" in tables["topics.json"]["topicConfigTable"]
    assert "old" in tables["subscriptionGroup.json"]["subscriptionGroupTable"]
    assert mqstore.verify(root, config=SETTINGS).ok
    # And back: with queues in files the broker reads its tables from JSON.
    mqstore.convert(root, queues="file", config=SETTINGS, dry_run=False)
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        for number in range(200, 240):
            store.append("orders", str(number).encode(), queue_id=number % 4)
    rocketmq.start_broker(root, PARAMS)
    try:
        taken = rocketmq.consume(["orders"], "old", mode="push", count=40)
    finally:
        rocketmq.stop_broker()
    bodies = {base64.b64decode(row["body"]).decode() for row in taken}
    assert bodies == {str(number) for number in range(200, 240)}
