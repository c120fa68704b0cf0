"""Index files, alone and in a store: cases IX of tests/cases.md."""

from __future__ import annotations

import datetime as dt
import os
import re
import struct
import subprocess
import sys
import zoneinfo
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.files import index_files
from helpers.stores import TIME, TINY, crashed_copy, message

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"slots": 100, "entries": 400}
BEGIN = 40 + 4 * 100


def open_index(path: Path) -> mqstore.IndexFile:
    return mqstore.IndexFile(path, slots=TINY["max_hash_slot_num"], entries=TINY["max_index_num"])


def entries_of(root: Path) -> list[mqstore.IndexEntry]:
    found = []
    for path in index_files(root):
        with open_index(path) as index:
            found += [index.entry(number) for number in range(1, len(index) + 1)]
    return found


def test_ix01_sizes(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "small", "a", **SMALL) as index:
        assert index.header == mqstore.IndexHeader(0, 0, 0, 0, 0, 1)
        assert len(index) == 0
    assert (tmp_path / "small").stat().st_size == 8_440
    mqstore.IndexFile(tmp_path / "default", "a").close()
    assert (tmp_path / "default").stat().st_size == 420_000_040


def test_ix02_a_full_file_takes_no_more(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        taken = [index.put(str(n), n, TIME) for n in range(400)]
        assert taken == [True] * 399 + [False]
        assert index.capacity == len(index) == 399
        assert index.header.index_count == 400
        before = (tmp_path / "one").read_bytes()
        assert index.put_many(["399"], [399], [TIME]) == 0
    assert (tmp_path / "one").read_bytes() == before
    assert before[BEGIN : BEGIN + 20] == bytes(20)
    with mqstore.IndexFile(tmp_path / "two", "a", **SMALL) as index:
        assert index.put("399", 399, TIME)


def test_ix02_the_store_makes_the_next_file(tmp_path: Path) -> None:
    config = {**TINY, "max_hash_slot_num": 100, "max_index_num": 400}
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append_many([message(keys=str(n)) for n in range(400)])
        assert [m.queue_offset for m in store.query("T", "399")] == [399]
    first, second = index_files(tmp_path)
    with mqstore.IndexFile(first, **SMALL) as index:
        assert len(index) == 399
    with mqstore.IndexFile(second, **SMALL) as index:
        assert len(index) == 1


def test_ix03_look_up(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        keys = [str(n) for n in range(399)]
        assert index.put_many(keys, range(399), [TIME] * 399) == 399
        assert index.select("60", max_entries=10) == [60]
        assert index.select_many(["60", "none", "61"], max_entries=10).to_pylist() == [
            [60],
            [],
            [61],
        ]


def test_ix04_first_key(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        assert index.put("T#k0", 500, TIME)
        assert index.header == mqstore.IndexHeader(TIME, TIME, 500, 500, 1, 2)
    key_hash = mqstore.key_hash("T#k0")
    assert key_hash == 2_539_444
    raw = path.read_bytes()
    assert struct.unpack_from(">qqqqii", raw) == (TIME, TIME, 500, 500, 1, 2)
    assert struct.unpack_from(">i", raw, 40 + 4 * (key_hash % 100)) == (1,)
    assert struct.unpack_from(">iqii", raw, BEGIN + 20) == (key_hash, 500, 0, 0)
    assert sum(byte != 0 for byte in raw[40:BEGIN]) == 1


def test_ix05_second_key_of_a_slot(tmp_path: Path) -> None:
    path = tmp_path / "one"
    slot = mqstore.key_hash("T#k0") % 100
    other = next(
        key for key in (f"T#other{n}" for n in range(10_000)) if mqstore.key_hash(key) % 100 == slot
    )
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        index.put("T#k0", 500, TIME)
        index.put(other, 600, TIME + 2_999)
        assert index.header == mqstore.IndexHeader(TIME, TIME + 2_999, 500, 600, 1, 3)
        assert index.entry(2) == mqstore.IndexEntry(2, mqstore.key_hash(other), 600, 2, 1)
        assert [entry.number for entry in index.chain("T#k0")] == [2, 1]
        assert index.select("T#k0") == [500]
    assert struct.unpack_from(">i", path.read_bytes(), 40 + 4 * slot) == (2,)


def test_ix06_hash_of_the_least_integer(tmp_path: Path) -> None:
    assert mqstore.java_hash("polygenelubricants") == -(2**31)
    assert mqstore.key_hash("polygenelubricants") == 0
    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        index.put("polygenelubricants", 500, TIME)
        assert index.entry(1).key_hash == 0
        assert index.select("polygenelubricants") == [500]
    assert struct.unpack_from(">i", (tmp_path / "one").read_bytes(), 40) == (1,)


def test_ix07_equal_hashes(tmp_path: Path) -> None:
    assert mqstore.key_hash("T#Aa") == mqstore.key_hash("T#BB")
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        first, second = store.append_many([message(keys="Aa"), message(keys="BB")])
        both = store.query("T", "Aa", exact=False)
        # RocketMQ gives them oldest first.
        assert [m.physical_offset for m in both] == [0, second.physical_offset]
        one = store.query("T", "Aa")
        assert [m.physical_offset for m in one] == [first.physical_offset]
        assert one.rejected_by_hash == 1
    (path,) = index_files(tmp_path)
    with open_index(path) as index:
        assert index.select("T#Aa") == [second.physical_offset, first.physical_offset]


def test_ix08_seconds_do_not_wrap(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        index.put("T#a", 1, TIME)
        index.put("T#b", 2, TIME - 5_000)
        index.put("T#c", 3, TIME + 3_000_000_000_000)
        assert [index.entry(n).seconds for n in (1, 2, 3)] == [0, 0, 2**31 - 1]


def test_ix09_times_within_a_second(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(keys="a"), message(keys="b", store_timestamp_ms=TIME + 1_999)])
        span = {"begin_ms": TIME + 1_500, "end_ms": TIME + 2_500}
        assert [m.store_timestamp_ms for m in store.query("T", "b", **span)] == [TIME + 1_999]
        assert len(store.query("T", "b", exact=False, **span)) == 0
    (path,) = index_files(tmp_path)
    with open_index(path) as index:
        assert index.select("T#b", **span) == []
        assert len(index.select("T#b")) == 1


def test_ix10_keys_of_a_message(tmp_path: Path) -> None:
    properties = b"KEYS\x01a b  c\x02UNIQ_KEY\x01U\x02"
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("topic", b"", properties=properties)
    hashes = [entry.key_hash for entry in entries_of(tmp_path)]
    assert hashes == [mqstore.key_hash(f"topic#{key}") for key in ("U", "a", "b", "c")]


def test_ix11_transactions(tmp_path: Path) -> None:
    types = {"none": 0x0, "prepared": 0x4, "commit": 0x8, "rollback": 0xC}
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(keys=name, sys_flag=bits) for name, bits in types.items()])
        found = {name for name in types if len(store.query("T", name, exact=False))}
        assert [m.transaction for m in store.scan()] == list(types)
        # The queue has those of them that a consumer may see.
        assert [m.keys for m in store.read("T", 0, 0).messages] == [("none",), ("commit",)]
    assert found == {"none", "prepared", "commit"}
    assert len(entries_of(tmp_path)) == 3


def test_ix12_dispatched_again(tmp_path: Path) -> None:
    """Recovery enters what it scans once more, and the index has it already."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    with mqstore.open(live, "a", config=TINY) as store:
        store.append_many([message(keys=(f"k{n}", f"l{n}")) for n in range(60)])
        store.flush()
        crashed_copy(store, copy)
    before = entries_of(copy)
    assert len(before) == 120
    with mqstore.open(copy, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
    assert entries_of(copy) == before


def test_ix13_the_newest_of_many_files(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        results = store.append_many([message(keys="same") for _ in range(100)])
        assert len(index_files(tmp_path)) == 3
        newest = [result.physical_offset for result in results]
        for most in (64, 100, 2**31 - 1):
            found = store.query("T", "same", max_messages=most, exact=False)
            assert [m.physical_offset for m in found] == newest[-64:]
        found = store.query("T", "same", max_messages=64)
        assert [m.physical_offset for m in found] == newest[:-65:-1]
        assert found.truncated
        found = store.query("T", "same", max_messages=2**31 - 1)
        assert [m.physical_offset for m in found] == newest[::-1]
        assert not found.truncated


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_ix14_name_is_the_local_time(tmp_path: Path, zone: str) -> None:
    code = (
        "import mqstore, sys; s = mqstore.open(sys.argv[1], 'a', config="
        f"{TINY!r}); s.append('T', b'', keys='k'); s.close()"
    )
    before = dt.datetime.now(dt.UTC)
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, env={**os.environ, "TZ": zone}
    )
    after = dt.datetime.now(dt.UTC)
    (path,) = index_files(tmp_path)
    assert re.fullmatch("[0-9]{17}", path.name)
    local = zoneinfo.ZoneInfo(zone)
    low, high = (
        time.astimezone(local).strftime("%Y%m%d%H%M%S") + f"{time.microsecond // 1000:03}"
        for time in (before, after)
    )
    assert low <= path.name <= high


def test_ix15_first_key_of_a_rolled_file(tmp_path: Path) -> None:
    full = TINY["max_index_num"] - 1
    end = TIME + 60_000
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(keys=f"k{n}") for n in range(full - 1)])
        store.append_many([message(keys="last", store_timestamp_ms=end)])
        store.append_many([message(keys="first", store_timestamp_ms=end + 10_000)])
        span = {"begin_ms": end + 10_000, "end_ms": end + 10_000}
        assert [m.store_timestamp_ms for m in store.query("T", "first", **span)] == [end + 10_000]
    _, path = index_files(tmp_path)
    with open_index(path) as index:
        assert index.header.begin_timestamp_ms == end + 10_000
        assert index.entry(1).seconds == 10
        assert index.select("T#first", **span) == []
