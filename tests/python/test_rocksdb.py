"""Queues, index and tables in RocksDB: read, held against the log, and moved."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import mqstore
from helpers.files import copy_store, stamps
from helpers.golden import Case, read_rows
from helpers.rocksdb_rows import OffsetRow, QueueRow
from helpers.running import holding
from helpers.shifted import number, plain
from mqstore.rocksdb import RocksDBWarning, count_rows, index, queue_files, reading, tables
from mqstore.rocksdb.converting import write_database
from mqstore.rocksdb.queue_files import ends_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 50, "max_index_num": 200}
FAMILIES = ("default", "offset")
STORES = int(os.environ.get("MQSTORE_ROCKSDB_STORES", "200"))


@pytest.fixture(autouse=True)
def _rows_of_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are read, also where the log is short enough to be read instead."""
    monkeypatch.setattr(queue_files, "FROM_LOG", -1)


@pytest.fixture
def in_rocksdb(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    """A store that RocketMQ 5.5 wrote with queues in RocksDB, and its settings."""
    case = Case("rocksdb-55")
    return case.unpack(tmp_path / "store"), case.settings


def answers(root: Path, config: object) -> dict[tuple[str, int], list[object]]:
    """What each queue answers, by number and by time."""
    found = {}
    with mqstore.open(root, config=config) as store:
        for queue in store.queues():
            name = (queue.topic, queue.queue_id)
            read = store.read(*name, 0, max_messages=10_000)
            times = [one.store_timestamp_ms for one in read.messages]
            found[name] = [
                (read.status, read.next_queue_offset, queue.min_offset, queue.max_offset),
                [one.physical_offset for one in read.messages],
                [
                    store.offset_at(*name, time + more, boundary=boundary)
                    for time in times
                    for more in (-1, 0, 1)
                    for boundary in ("lower", "upper")
                ],
            ]
    return found


def made_in_rocksdb(root: Path, count: int = 60) -> Path:
    """A store with queues in RocksDB and several files of the log."""
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(count):
            store.append("T", bytes(200), queue_id=number % 3, tags="ab"[number % 2])
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    return root


def rewrite(root: Path, change: Callable[[str, bytes, bytes], Iterator[tuple[str, bytes, bytes]]]):
    """Writes the rows of queues again, as `change` gives them."""
    folder, new = root / "consumequeue", root / "new"
    old = list(reading.read_rows(folder, FAMILIES))
    write_database(new, FAMILIES, [row for one in old for row in change(*one)])
    shutil.rmtree(folder)
    new.rename(folder)


def codes(root: Path, config: object = SMALL) -> list[str]:
    return [found.code for found in mqstore.verify(root, config=config).findings]


def test_vr16_and_vr17_rows_answer_as_files_do_and_hold_against_the_log(in_rocksdb) -> None:
    root, settings = in_rocksdb
    before = stamps(root)
    found = answers(root, settings)
    report = mqstore.verify(root, config=settings)
    assert (report.ok, report.findings) == (True, ())
    assert report.counts["rocksdb_rows"] == 60
    assert list(mqstore.doctor(root, config=settings)) == []
    with mqstore.open(root, config=settings) as store:
        keyed = [one for one in store.scan() if one.unique_key]
        for message in keyed:
            (hit,) = store.query(message.topic, message.unique_key)
            assert hit.physical_offset == message.physical_offset
    assert stamps(root) == before
    files = copy_store(root, root.with_name("files"))
    shutil.rmtree(files / "consumequeue")
    mqstore.rebuild(files, what=("consumequeue",), config=settings)
    assert answers(files, settings) == found
    queue_at = read_rows(Case("rocksdb-55").folder / "queries.jsonl")
    assert any(row["query"]["op"] == "time" for row in queue_at)


def test_vr17_a_row_that_contradicts_its_message_is_named(tmp_path: Path) -> None:
    root = made_in_rocksdb(tmp_path / "store")
    assert codes(root) == []

    def wrong_tags(family: str, key: bytes, value: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        if family == "default":
            row = QueueRow.decode(key, value)
            if (row.queue_id, row.queue_offset) == (1, 3):
                key, value = row._replace(tags_code=7).encode()
            if (row.queue_id, row.queue_offset) == (2, 4):
                key, value = row._replace(store_timestamp_ms=5).encode()
        yield family, key, value

    rewrite(root, wrong_tags)
    assert codes(root) == ["MQ-RDB-02", "MQ-RDB-02", "MQ-RDB-03", "MQ-RDB-03"]
    assert not mqstore.verify(root, config=SMALL).ok
    with mqstore.open(root, config=SMALL) as store:
        assert [len(store.read("T", q, 0, tags="a||b").messages) for q in range(3)] == [20] * 3


def test_vr20_missing_rows_are_named_and_filled_from_the_log(tmp_path: Path) -> None:
    root = made_in_rocksdb(tmp_path / "store")
    expected = answers(root, SMALL)

    def some(family: str, key: bytes, value: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        if family == "offset" or QueueRow.decode(key, value)[1:3] not in ((0, 0), (1, 7), (2, 19)):
            yield family, key, value

    rewrite(root, some)
    assert codes(root) == ["MQ-RDB-03"] * 3
    assert answers(root, SMALL) == expected


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("flip", ".sst"),
        ("cut", ".sst"),
        ("remove-sst", ".sst"),
        ("remove-manifest", "MANIFEST-"),
        ("cut-current", "CURRENT"),
    ],
)
def test_vr20_damage_names_the_file_and_the_log_answers(in_rocksdb, what: str, named: str) -> None:
    root, settings = in_rocksdb
    expected = answers(root, settings)
    folder = root / "consumequeue"
    table = max(folder.glob("*.sst"))
    if what == "flip":
        content = bytearray(table.read_bytes())
        content[40] ^= 4
        table.write_bytes(content)
    elif what == "cut":
        table.write_bytes(table.read_bytes()[:-30])
    elif what == "remove-sst":
        table.unlink()
    elif what == "remove-manifest":
        next(folder.glob("MANIFEST-*")).unlink()
    else:
        (folder / "CURRENT").write_bytes(b"MANIFEST-../../x\n")
    with pytest.raises(mqstore.CorruptionError) as raised:
        list(reading.read_rows(folder, FAMILIES))
    assert named in Path(raised.value.path or "").name
    assert "mqstore convert" in str(raised.value)
    with pytest.warns(RocksDBWarning, match="nothing was changed"):
        assert answers(root, settings) == expected
    report = mqstore.verify(root, config=settings)
    (finding,) = (one for one in report.findings if one.code.startswith("MQ-RDB"))
    assert (finding.code, finding.severity) == ("MQ-RDB-01", "error")
    assert named in finding.path
    told = {one.code: one for one in mqstore.doctor(root, config=settings)}
    assert (told["MQ-RDB-01"].cure or "").endswith("--queues rocksdb --apply")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mqstore.convert(root, queues="rocksdb", config=settings, dry_run=False)
    assert answers(root, settings) == expected
    assert mqstore.verify(root, config=settings).ok


def test_vr22_a_crash_leaves_no_rows_and_all_are_made_again(tmp_path: Path) -> None:
    case = Case("rocksdb-abort-55")
    root = case.unpack(tmp_path)
    assert count_rows(root)["consumequeue"] == {"queue entries": 0, "bounds of queues": 0}
    expected = answers(root, case.settings)
    assert sum(len(found[1]) for found in expected.values()) == 200
    report = mqstore.convert(root, queues="rocksdb", config=case.settings)
    assert (report.applied, report.messages) == (False, 200)
    assert count_rows(root)["consumequeue"]["queue entries"] == 0
    mqstore.convert(root, queues="rocksdb", config=case.settings, dry_run=False)
    assert count_rows(root)["consumequeue"]["queue entries"] == 200
    assert answers(root, case.settings) == expected


def test_vr23_rows_behind_the_end_and_before_the_log_are_ignored(tmp_path: Path) -> None:
    root = made_in_rocksdb(tmp_path / "store")

    def more(family: str, key: bytes, value: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        yield family, key, value
        if family == "default":
            row = QueueRow.decode(key, value)
            if row.queue_offset == 19:
                yield family, *row._replace(queue_offset=25).encode()

    expected = answers(root, SMALL)
    rewrite(root, more)
    assert codes(root) == []
    assert answers(root, SMALL) == expected
    (root / "commitlog" / f"{0:020}").unlink()
    assert codes(root) == []
    for first, last in ((found[0][2], found[0][3]) for found in answers(root, SMALL).values()):
        assert 0 < first < last == 20
    mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert codes(root) == []
    for first, last in ((found[0][2], found[0][3]) for found in answers(root, SMALL).values()):
        assert 0 < first < last == 20


@pytest.mark.parametrize("limit", [-1, queue_files.FROM_LOG])
@pytest.mark.parametrize("queues", ["file", "rocksdb"])
def test_a_queue_whose_messages_are_gone_keeps_its_next_number(
    tmp_path: Path, queues, limit, monkeypatch
) -> None:
    monkeypatch.setattr(queue_files, "FROM_LOG", limit)
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SMALL) as store:
        for _ in range(7):
            store.append("old", b"x")
        for _ in range(60):
            store.append("new", bytes(200))
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    (root / "commitlog" / f"{0:020}").unlink()
    rewrite(
        root,
        lambda family, key, value: (
            iter([(family, key, value)]) if family == "offset" or b"new" in key else iter([])
        ),
    )

    def ends() -> dict[str, int]:
        with mqstore.open(root, config=SMALL) as store:
            return {queue.topic: queue.max_offset for queue in store.queues()}

    assert ends() == {"old": 7, "new": 60}
    with pytest.raises(mqstore.UnsupportedError, match=r"goes on at 7.*--queues file"):
        mqstore.open(root, "r+", config=SMALL)
    # The next number is asked of RocksDB once more when another writer has let go of the lock.
    with (
        holding(root / "lock") as holder,
        mock.patch.object(time, "sleep", side_effect=lambda _: holder.communicate()),
        pytest.raises(mqstore.UnsupportedError, match="goes on at 7"),
    ):
        mqstore.open(root, "r+", config=SMALL, timeout=60)
    mqstore.convert(root, queues=queues, config=SMALL, dry_run=False)
    assert ends() == {"old": 7, "new": 60}
    assert codes(root) == []
    if queues == "file":
        with mqstore.open(root, "r+", config=SMALL) as store:
            assert store.append("old", b"y").queue_offset == 7


def test_vr24_key_queries_without_index_files(tmp_path: Path) -> None:
    case = Case("rocksdb-index-55")
    root = case.unpack(tmp_path)
    index = root / "rocksdbstore"
    written = {key: value for _, key, value in reading.read_rows(index, ["default"])}
    with mqstore.open(root, config=case.settings) as store:
        messages = list(store.scan())
        for message in messages:
            at = message.physical_offset
            for key in (*message.keys, message.unique_key):
                hits = store.query(message.topic, key, max_messages=100) if key else ()
                assert not key or at in {hit.physical_offset for hit in hits}
            if message.tags:
                hits = store.query(message.topic, tags=message.tags, max_messages=100)
                assert at in {hit.physical_offset for hit in hits}
    # The rows that we make are those that RocketMQ wrote.
    mqstore.convert(root, index="rocksdb", config=case.settings, dry_run=False)
    made = {key: value for _, key, value in reading.read_rows(index, ["default"])}
    assert made == written
    # RocketMQ's rows lack those without a unique key; the log has them.
    assert any(message.keys and not message.unique_key for message in messages)


def test_vr24_rows_answer_where_the_log_is_too_long_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(40):
            keys = ("k", f"k{number}", "a@b" if number == 7 else "a")
            given = {"tags": "xy"[number % 2], "keys": keys, "unique_key": f"U{number}"}
            store.append("T", b"%d" % number, **given)
            store.append("Other", b"", **{**given, "unique_key": f"V{number}"})
    mqstore.convert(root, index="rocksdb", config=SMALL, dry_run=False)
    shutil.rmtree(root / "index")
    before = stamps(root)

    def found(**more: object) -> dict[str, list[int]]:
        asked = {"k": {"key": "k"}, "k7": {"key": "k7"}, "a": {"key": "a"}, "U3": {"key": "U3"}}
        asked |= {"none": {"key": "none"}, "x": {"tags": "x"}, "a@b": {"key": "a@b"}}
        with mqstore.open(root, config=SMALL) as store:
            answers = {n: store.query("T", **one, **more) for n, one in asked.items()}  # type: ignore[arg-type]
        completes.append({answer.complete for answer in answers.values()})
        return {name: [one.queue_offset for one in got] for name, got in answers.items()}

    completes: list[set[bool]] = []
    time_ms = 1 << 40
    expected, newest = found(max_messages=100), found(max_messages=3)
    assert (len(expected["k"]), len(expected["a"]), expected["a@b"]) == (40, 39, [7])
    monkeypatch.setattr(index, "FROM_LOG", -1)
    assert found(max_messages=100) == expected
    assert found(max_messages=3) == newest
    assert found(begin_ms=time_ms, max_messages=100) == expected
    assert found(end_ms=time_ms, max_messages=100) == {name: [] for name in expected}
    # Nothing proves that RocketMQ put rows for every message.
    assert completes == [{True}, {True}, {False}, {False}, {False}, {False}]
    assert stamps(root) == before
    # The log has what a crash or a running broker has not put yet.
    with mqstore.open(root, "r+", config=SMALL) as store:
        store.append("T", b"later", keys="k", tags="x")
    shutil.rmtree(root / "index")
    assert found(max_messages=100)["k"] == [40, *expected["k"]]
    # Rows that lead elsewhere, and damage: the log answers.
    rows = [
        (family, key[:-8] + (5).to_bytes(8, "big") if b"@K@k7@" in key else key, value)
        for family, key, value in reading.read_rows(root / "rocksdbstore", ["default"])
    ]
    shutil.rmtree(root / "rocksdbstore")
    write_database(root / "rocksdbstore", ("default", "timer", "trans"), rows)
    with mqstore.open(root, config=SMALL) as store:
        answer = store.query("T", key="k7")
    assert (answer.complete, [one.queue_offset for one in answer]) == (True, [7])
    for table in (root / "rocksdbstore").glob("*.sst"):
        table.write_bytes(table.read_bytes()[:-9])
    with (
        mqstore.open(root, config=SMALL) as store,
        pytest.warns(RocksDBWarning, match=r"sst"),
    ):
        answer = store.query("T", key="k7")
    assert (answer.complete, [one.queue_offset for one in answer]) == (True, [7])


def test_queues_in_a_folder_of_their_own_are_read_and_moved(in_rocksdb) -> None:
    root, settings = in_rocksdb
    expected = answers(root, settings)
    (root / "consumequeue").rename(root / "consumequeue_rocksdb")
    assert answers(root, settings) == expected
    assert mqstore.verify(root, config=settings).counts["rocksdb_rows"] == 60
    mqstore.convert(root, queues="rocksdb", config=settings, dry_run=False)
    assert (root / "consumequeue_rocksdb/CURRENT").is_file()
    assert answers(root, settings) == expected
    mqstore.convert(root, queues="file", config=settings, dry_run=False)
    assert not (root / "consumequeue_rocksdb").exists()
    assert answers(root, settings) == expected


def test_a_queue_of_the_greatest_number_is_a_queue(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config={**SMALL, "validate_topic_names": False}) as store:
        for number in range(5):
            store.append("T", bytes([number]), queue_id=2**31 - 1)
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    assert mqstore.verify(root, config=SMALL).findings == ()
    expected = answers(root, SMALL)
    assert list(expected) == [("T", 2**31 - 1)]
    report = mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert (report.findings, report.messages) == ((), 5)
    assert answers(root, SMALL) == expected
    assert mqstore.verify(root, config=SMALL).findings == ()


def test_numbers_left_out_stay_in_rocksdb(tmp_path: Path) -> None:
    root = tmp_path / "store"
    plain(root, range(5), config=SMALL)
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    number(root, [0, 1, 2, 5, 6])
    moved = []
    for family, *pair in reading.read_rows(root / "consumequeue", FAMILIES):
        row = (QueueRow if family == "default" else OffsetRow).decode(*pair)
        if row.topic == "T" and row.queue_offset > 2:
            row = row._replace(queue_offset=row.queue_offset + 2)
        moved.append((family, *row.encode()))
    shutil.rmtree(root / "consumequeue")
    write_database(root / "consumequeue", FAMILIES, moved)
    assert mqstore.verify(root, config=SMALL).ok


def test_light_queues_that_lie_in_rocksdb_alone_are_read(tmp_path: Path) -> None:
    """``combineCQUseRocksdbForLmq`` of 5.5."""
    root = tmp_path / "store"
    light = {**SMALL, "enable_lmq": True, "enable_multi_dispatch": True}
    with mqstore.open(root, "a", config=light) as store:
        for number in range(5):
            names = {"INNER_MULTI_DISPATCH": "%LMQ%$T$a"}
            store.append("T", bytes([number]), properties=names)
    mqstore.convert(root, queues="rocksdb", config=light, dry_run=False)
    kept = next((root / "quarantine").rglob("T"))
    shutil.copytree(kept, root / "consumequeue" / "T")
    with mqstore.open(root, config=SMALL) as store:
        read = store.read("%LMQ%$T$a", 0, 0)
    assert [message.body for message in read.messages] == [bytes([n]) for n in range(5)]


def test_vr25_tables_in_rocksdb_are_those_of_the_json_files(tmp_path: Path) -> None:
    topic = b'{"order":false,"perm":6,"readQueueNums":4,"topicName":"T","writeQueueNums":4}'
    version = b'{"counter":2,"stateVersion":0,"timestamp":1795415648896}'

    def v2(table: int, rest: bytes, kind: int = 2) -> bytes:
        return b"\x01" + table.to_bytes(2, "big") + bytes([kind]) + rest

    offset = v2(1, b"\x00\x02G1\x01\x00\x01T\x01\x00\x00\x00\x01")
    layouts = {
        "separate": {
            "topics": [("default", b"T", topic), ("kvDataVersion", b"kvDataVersionKey", version)],
            "consumerOffsets": [("default", b"T@G1", b'{"offsetTable":{"1":7}}')],
        },
        "one": {
            "metadata": [
                ("topic", b"T", topic),
                ("topicVersion", b"kvDataVersionKey", version),
                ("consumerOffset", b"T@G1", b'{"offsetTable":{"1":7}}'),
            ]
        },
        "v2": {
            "rdb": [
                ("default", v2(3, b"\x00\x01T"), b"\x01" + topic),
                ("default", offset, (7).to_bytes(8, "big")),
                ("default", v2(3, b"data_version", 1), bytes(23) + b"\x02"),
            ]
        },
    }
    for name, databases in layouts.items():
        root = tmp_path / name
        with mqstore.open(root, "a", config=SMALL) as store:
            for _ in range(9):
                store.append("T", b"x", queue_id=1)
        (root / "config/topics.json").unlink()
        for folder, rows in databases.items():
            families = tuple(dict.fromkeys(["default", *(row[0] for row in rows)]))
            write_database(root / "config" / folder, families, rows)
        before = stamps(root)
        found = tables.read_tables(root)
        assert found["topics.json"]["topicConfigTable"]["T"]["readQueueNums"] == 4
        assert found["topics.json"]["dataVersion"]["counter"] == 2
        with mqstore.open(root, config=SMALL) as store:
            (at,) = store.groups()["G1"]
            assert (at.topic, at.queue_id, at.queue_offset, at.lag) == ("T", 1, 7, 2)
        assert stamps(root) == before


def test_without_the_package_the_log_answers_and_the_rest_says_how(
    in_rocksdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, settings = in_rocksdb
    expected = answers(root, settings)
    for module in (reading, sys.modules["mqstore.rocksdb"]):
        monkeypatch.setattr(module, "is_installed", lambda: False, raising=False)
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.warns(RocksDBWarning, match=r"pip install 'mqstore\[rocksdb\]'"):
        assert answers(root, settings) == expected
    monkeypatch.setattr(queue_files, "FROM_LOG", 1 << 20)
    assert answers(root, settings) == expected
    (finding,) = mqstore.verify(root, config=settings).findings
    assert (finding.code, finding.severity) == ("MQ-RDB-05", "info")
    with pytest.raises(mqstore.UnsupportedError, match=r"pip install 'mqstore\[rocksdb\]'"):
        list(reading.read_rows(root / "consumequeue", FAMILIES))


def test_the_folder_of_files_goes_with_the_store(in_rocksdb, tmp_path, monkeypatch) -> None:
    root, settings = in_rocksdb
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    store = mqstore.open(root, config=settings)
    assert len(list((tmp_path / "made").rglob("0" * 20))) == 4
    store.refresh()
    assert store.read("TopicTest", 0, 0).messages
    store.close()
    del store
    assert list((tmp_path / "made").iterdir()) == []


def damaged(folder: Path, rng: random.Random, whole: dict[str, bytes]) -> None:
    """Writes a database with one to three pieces of damage."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = {name: bytearray(content) for name, content in whole.items()}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(
            [n for n in files if n.endswith(".sst") or n[0] in "MC" or n[-4:] == ".log"]
        )
        content = files[name]
        at = rng.randrange(len(content) + 1)
        if rng.random() < 0.3:
            # The last bytes of a table have no checksum of their own.
            at = rng.randrange(max(0, len(content) - 53), len(content) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            content[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            content[at : at + 9] = rng.choice((b"\xff", b"\x80", b"\0")) * rng.randrange(1, 12)
        elif kind == 2:
            del content[at:]
        elif kind == 3:
            content[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif len(files) > 2:
            del files[name]
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_any_damage_is_an_error_or_the_right_rows(in_rocksdb, monkeypatch) -> None:
    """No crash, no hang, no wrong row; ``MQSTORE_ROCKSDB_STORES`` stores."""
    monkeypatch.setattr(reading, "PATIENCE_S", 5.0)
    root, settings = in_rocksdb
    folder = root / "consumequeue"
    right = set(reading.read_rows(folder, FAMILIES))
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    expected = answers(root, settings)

    def ended(seed: int) -> str:
        place = root.parent / str(seed)
        damaged(place, random.Random(seed), whole)
        try:
            found = list(reading.read_rows(place, FAMILIES))
        except mqstore.CorruptionError as error:
            return "error" if error.path else "no file named"
        else:
            # A shorter log of changes shows an earlier state of the database, and no wrong row.
            assert set(found) <= right, seed
            return "rows"
        finally:
            shutil.rmtree(place)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ended, range(STORES))) == {"error", "rows"}
    # A part of them with all that an opening and a check do.
    for seed in range(STORES // 50):
        damaged(folder, random.Random(seed), whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RocksDBWarning)
            assert answers(root, settings) == expected, seed
        mqstore.verify(root, config=settings)


def test_a_store_without_rows_for_its_last_messages_is_told(tmp_path: Path) -> None:
    root = made_in_rocksdb(tmp_path / "store", 30)
    kept = copy_store(root, tmp_path / "kept")
    shutil.rmtree(root)
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(45):
            store.append("T", bytes(200), queue_id=number % 3, tags="ab"[number % 2])
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(kept / "consumequeue", root / "consumequeue")
    ends, checkpoint, _ = ends_of(root / "consumequeue")
    assert {end.queue_offset for end in ends.values()} == {9}
    with mqstore.open(root, config=SMALL) as store:
        assert checkpoint < store.max_physical_offset
        assert [queue.max_offset for queue in store.queues()] == [15] * 3
