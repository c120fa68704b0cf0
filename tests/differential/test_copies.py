"""Copies, salvaged and imported stores, opened and served by RocketMQ."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.clients import by_place, consumed
from helpers.comparing import (
    assert_same_answers,
    assert_same_bytes,
    assert_same_dump,
    dump_as_ours,
    dump_ours,
    write_ours,
)
from helpers.files import copy_store
from helpers.scripts import PLAIN, Script, queries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ

PARAMS = PLAIN.params
SETTINGS = PARAMS["storeConfig"]


def by_tag(root: Path, out: Path) -> None:
    report = mqstore.copy(root, out, tags="TagA", config=SETTINGS)
    assert report.stand_ins > 0


def by_time(root: Path, out: Path) -> None:
    with mqstore.open(root, config=SETTINGS) as store:
        times = sorted(found.store_timestamp_ms for found in store.scan())
    mqstore.copy(root, out, begin_ms=times[len(times) // 2], config=SETTINGS)


def renumbered(root: Path, out: Path) -> None:
    mqstore.copy(root, out, tags="TagA", renumber=True, config=SETTINGS)


def redacted(root: Path, out: Path) -> None:
    rules = {"rule": [{"body": "hash", "properties": {"KEYS": "hash"}}]}
    mqstore.copy(root, out, redact=rules, config=SETTINGS)


def salvaged(root: Path, out: Path) -> None:
    choose = random.Random(7)
    with mqstore.open(root, config=SETTINGS) as store:
        lost = choose.sample(list(store.scan()), 10)
        size = store.config.mapped_file_size_commit_log
    assert size is not None
    for found in lost:
        name = f"{found.physical_offset // size * size:020}"
        with (root / "commitlog" / name).open("r+b") as file:
            file.seek(found.physical_offset % size)
            file.write(choose.randbytes(60))
    report = mqstore.salvage(root, out, config=SETTINGS)
    assert report.missing > 0


def imported(root: Path, out: Path) -> None:
    mqstore.export_store(root, out.parent / "exported", topics=[topics(root)[0]], config=SETTINGS)
    mqstore.import_store(out.parent / "exported", out)


def topics(root: Path) -> list[str]:
    with mqstore.open(root, config=SETTINGS) as store:
        return store.topics()


@pytest.mark.parametrize("make", [by_tag, by_time, renumbered, redacted, salvaged, imported])
def test_rocketmq_reads_it(
    make: Callable[[Path, Path], None], rocketmq: RocketMQ, tmp_path: Path
) -> None:
    """Every message, queue and entry, the same answers, and nothing that had to be repaired."""
    root, out = tmp_path / "store", tmp_path / "out"
    write_ours(root, Script(11, PLAIN).add(150))
    make(root, out)
    theirs = copy_store(out, tmp_path / "theirs")
    rocketmq.hold(theirs, PARAMS)
    dump = rocketmq.dump(theirs, PARAMS)
    asked = queries(dump, 11)
    answers = rocketmq.query(theirs, PARAMS, asked)
    rocketmq.release(theirs)
    assert_same_dump(dump_ours(out), dump_as_ours(dump))
    assert_same_answers(out, PLAIN, asked, answers)
    assert_same_bytes(theirs, out)


def test_a_broker_serves_a_copy(rocketmq: RocketMQ, tmp_path: Path) -> None:
    root, out = tmp_path / "store", tmp_path / "out"
    settings: dict[str, Any] = {"mappedFileSizeCommitLog": 65536, "maxHashSlotNum": 500}
    settings |= {"mappedFileSizeConsumeQueue": 2000, "maxIndexNum": 2000}
    with mqstore.open(root, "a", config=settings) as store:
        for number in range(400):
            body, tag = b"body %d" % number, f"T{number % 3}"
            store.append("orders", body, queue_id=number % 4, tags=tag, keys=f"k{number}")
        begin = list(store.scan())[100].store_timestamp_ms
    report = mqstore.copy(root, out, tags="T1 || T2", begin_ms=begin, config=settings)
    with mqstore.open(out, config=settings) as store:
        ours = list(store.scan())
    assert len(ours) == report.messages + report.stand_ins
    rocketmq.start_broker(out, {"storeConfig": settings})
    try:
        pulled = rocketmq.consume(("orders",), "pulling")
    finally:
        rocketmq.stop_broker()
    assert by_place(pulled) == by_place([consumed(message) for message in ours])
