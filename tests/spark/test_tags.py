"""Reads by tags: the same rows by every access path, whatever the queues lack."""

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
    assert all(part.by_tags for part in parts)
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
