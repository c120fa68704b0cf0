"""Reads by tags or topics: the same rows by every access path, whatever the queues lack."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from mqstore.errors import StoreError
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.plan import plan
from mqstore.spark.reader import read_range

if TYPE_CHECKING:
    from pathlib import Path

FILE = 16384
START_MS = 1_700_000_000_000
CONFIG = {
    "mapped_file_size_commit_log": FILE,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "broker-a" / "store"
    with mqstore.open(path, "a", config=CONFIG) as opened:
        opened.append_many(
            mqstore.Message(
                ("orders", "pay", "audit")[n % 3],
                b"%d " % n + b"x" * (n * 37 % 900),
                queue_id=n // 3 % 4,
                tags=("paid", "refunded")[n % 2],
                unique_key=f"u{n}",
                store_timestamp_ms=START_MS + 1000 * n,
            )
            for n in range(300)
        )
    return path


def rows_of(parts, options: ReadOptions) -> list[dict]:
    """Rows that tasks read from planned partitions."""
    columns = ["unique_key", "tags"]
    batches = [batch for part in parts for batch in read_range(part, options, columns)]
    return [row for batch in batches for row in batch.to_pylist()]


def read(options: dict[str, object], path: Path) -> list[dict]:
    parsed = ReadOptions.parse(as_texts(path, options))
    return rows_of(plan(parsed), parsed)


def numbers(rows: list[dict]) -> list[int]:
    """Which of the messages these are."""
    return sorted(int(row["unique_key"][1:]) for row in rows)


@pytest.mark.parametrize("tags", ["paid", "paid || refunded", " refunded||none ", "none", "*"])
@pytest.mark.parametrize("more", [{}, {"topics": "pay"}, {"startingTimestamp": START_MS + 99_000}])
def test_tags_give_the_same_rows_by_every_way(store, tags, more) -> None:
    wanted = set(tags.replace(" ", "").split("||"))
    whole = read({**more, "accessPath": "scan"}, store)
    expected = numbers([row for row in whole if tags == "*" or row["tags"] in wanted])
    for way in ("auto", "scan", "consumequeue"):
        for split in ("2k", "128m"):
            given = {**more, "tags": tags, "accessPath": way, "splitBytes": split}
            assert numbers(read(given, store)) == expected, (way, split)


def rare_tags(path: Path) -> Path:
    with mqstore.open(path, "a", config=CONFIG) as store:
        store.append_many(
            mqstore.Message(
                f"t{n % 3}",
                b"x" * 6000,
                queue_id=n % 2,
                tags="rare" if n % 50 == 7 else f"tag{n % 9}",
                unique_key=f"u{n}",
            )
            for n in range(300)
        )
        store.wait_dispatched()
    return path


RARE = list(range(7, 300, 50))


def test_rare_tags_are_found_by_the_codes_in_the_queues(tmp_path) -> None:
    path = rare_tags(tmp_path / "store")
    options = ReadOptions.parse(as_texts(path, {"tags": "rare"}))
    parts = plan(options)
    assert parts
    assert all(part.with_gaps for part in parts)
    assert numbers(rows_of(parts, options)) == RARE
    # Only they are read: damage of another message goes unseen.
    with mqstore.open(path) as store:
        other = store.read("t0", 0, 0, max_messages=1).messages[0].physical_offset
    with (path / "commitlog" / f"{other // FILE * FILE:020}").open("r+b") as file:
        file.seek(other % FILE + 200)
        file.write(b"?")
    assert numbers(rows_of(plan(options), options)) == RARE
    with pytest.raises(StoreError):
        read({"tags": "rare", "accessPath": "scan"}, path)
    by_topic = {"tags": "rare", "topics": "t0", "accessPath": "consumequeue"}
    assert numbers(read(by_topic, path)) == [n for n in RARE if n % 3 == 0]


@pytest.mark.parametrize("what", ["queue", "topic", "all", "file", "foreign", "size"])
def test_a_lost_queue_loses_no_row_that_tags_ask_for(tmp_path, what) -> None:
    path = rare_tags(tmp_path / "store")
    queues = path / "consumequeue"
    if what == "queue":
        shutil.rmtree(queues / "t1" / "1")
    elif what == "topic":
        shutil.rmtree(queues / "t2")
    elif what == "all":
        shutil.rmtree(queues)
    elif what == "file":
        next((queues / "t1" / "1").iterdir()).write_bytes(bytes(77))
    elif what == "foreign":
        (queues / "t1" / "lost+found").mkdir()
        (queues / "OPTIONS-1").touch()
    else:
        # An entry that covers records behind its own.
        with next((queues / "t0" / "0").iterdir()).open("r+b") as file:
            file.seek(8)
            file.write((60_000).to_bytes(4, "big"))
    for way in ("auto", "consumequeue"):
        for split in ("2k", "128m"):
            options = {"tags": "rare", "accessPath": way, "splitBytes": split}
            assert numbers(read(options, path)) == RARE, (way, split)


def copy_of_a_store_in_use(path: Path, *, with_config: bool) -> Path:
    """A copy in the order of docs/spark.md, with messages written between its steps."""
    live = path / "live" / "store"

    def put(first: int, topic: str, queue_id: int, count: int = 10, size: int = 10) -> None:
        with mqstore.open(live, "a", config=CONFIG | {"mapped_file_size_commit_log": 1 << 20}) as s:
            s.append_many(
                mqstore.Message(topic, b"x" * size, queue_id=queue_id, unique_key=f"u{n}")
                for n in range(first, first + count)
            )

    def copy(*names: str) -> None:
        for name in names:
            shutil.copytree(live / name, path / "copy" / "store" / name)

    put(0, "t0", 0)
    put(100, "t1", 0, 100, 9000)
    copy(*["config"] * with_config, "consumequeue/t0")
    put(10, "t0", 0)
    put(20, "t0", 1)
    put(30, "t2", 0)
    put(200, "t1", 0, 100, 9000)
    copy("consumequeue/t1")
    put(40, "t0", 0)
    put(300, "t1", 0, 10, 9000)
    copy("commitlog")
    return path / "copy" / "store"


@pytest.mark.parametrize("with_config", [False, True])
def test_a_copy_of_a_store_in_use_has_every_row_of_a_topic(tmp_path, with_config) -> None:
    path = copy_of_a_store_in_use(tmp_path, with_config=with_config)
    first, second, late = range(10), range(10, 20), range(40, 50)
    for given, wanted in (
        ({"topics": "t0"}, [*first, *second, *range(20, 30), *late]),
        ({"topicPattern": "t[02]"}, [*range(50)]),
        ({"queues": {"t0": [0]}}, [*first, *second, *late]),
        ({"topics": "t2"}, [*range(30, 40)]),
        ({"queues": {"t0": [0]}, "startingOffsets": {"t0": {"0": 5}}}, [*range(5, 20), *late]),
        ({"topics": "t1"}, [*range(100, 310)]),
    ):
        for way in ("auto", "consumequeue", "scan"):
            for split in ("20k", "128m"):
                options = {**given, "accessPath": way, "splitBytes": split}
                assert numbers(read(options, path)) == wanted, options


@pytest.mark.parametrize("lost", ["t1/1", "t1"])
def test_a_lost_queue_loses_no_row_of_a_topic(tmp_path, lost) -> None:
    path = rare_tags(tmp_path / "store")
    shutil.rmtree(path / "consumequeue" / lost)
    wanted = [n for n in range(300) if n % 3 == 1]
    for given in ({"topics": "t1"}, {"topicPattern": "t1"}, {"queues": {"t1": [0, 1]}}):
        for way in ("auto", "consumequeue"):
            assert numbers(read({**given, "accessPath": way}, path)) == wanted, (given, way)
    assert numbers(read({"accessPath": "consumequeue"}, path)) == [*range(300)]
    for more in ({}, {"topics": "t1"}, {"topicPattern": "t[12]"}):
        for way in ("auto", "index"):
            options = {"keys": ["u2", "u4", "u6"], "accessPath": way, **more}
            wanted = {"topics": [4], "topicPattern": [2, 4]}.get(next(iter(more), ""), [2, 4, 6])
            assert numbers(read(options, path)) == wanted, options


def test_only_behind_its_last_entry_a_queue_of_an_unsealed_store_is_in_doubt(tmp_path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=CONFIG) as store:
        store.append_many(
            mqstore.Message("rare" if n % 50 == 0 else "t", b"x" * 6000, unique_key=f"u{n}")
            for n in range(480)
        )
        (last,) = store.read("rare", 0, 9, max_messages=1).messages
    rare = [*range(0, 480, 50)]
    end = last.physical_offset + last.store_size

    def doubtful(**given: object) -> int | None:
        options = ReadOptions.parse(as_texts(path, given))
        parts = plan(options)
        assert all(part.queue_parts is not None for part in parts)
        assert numbers(rows_of(parts, options)) == ([] if given == {"topics": "none"} else rare)
        return min((part.begin for part in parts if part.with_gaps), default=None)

    assert doubtful(topics="rare") is None
    (path / "mqstore.seal").unlink()
    assert doubtful(queues={"rare": [0]}) == end
    assert doubtful(topics="rare") == 0  # the table of topics has further queues
    assert doubtful(topics="none") == 0
