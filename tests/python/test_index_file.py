"""One index file at a time: against a model, many keys at once, damage, and its own manners."""

from __future__ import annotations

import os
import pickle
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqstore
from helpers.stores import TIME

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, int] = {"slots": 100, "entries": 400}
BEGIN = 40 + 4 * SMALL["slots"]


def filled(path: Path, count: int = 300) -> list[str]:
    """A file with a key for each number, some of them equal."""
    keys = [f"T#k{number % 90}" for number in range(count)]
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        times = [TIME + 1000 * number for number in range(count)]
        assert index.put_many(keys, range(0, 100 * count, 100), times) == count
    return keys


# --- where the bytes lie ----------------------------------------------------------------------


def test_slots_and_entries_of_a_default_file_lie_where_they_are_computed(tmp_path: Path) -> None:
    path = tmp_path / "20231001123456000"
    with mqstore.IndexFile(path, "a") as index:
        assert (index.slots, index.capacity) == (5_000_000, 19_999_999)
        # Two texts of one hash: 19,583,063, which is slot 4,583,063.
        assert index.put("Ea#20231001123456", 1_000, TIME)
        assert index.put("FB#20231001123456", 2_000, TIME + 7_000)
        assert index.select("Ea#20231001123456") == [2_000, 1_000]
    assert path.stat().st_size == 420_000_040
    # Taken from the disk: the slots, and a step of entries.
    assert path.stat().st_blocks * 512 < 40_000_000
    assert mqstore.key_hash("Ea#20231001123456") == 19_583_063
    with path.open("rb") as file:

        def unpack(form: str, position: int) -> tuple[int, ...]:
            file.seek(position)
            return struct.unpack(form, file.read(struct.calcsize(form)))

        assert unpack(">qqqqii", 0) == (TIME, TIME + 7_000, 1_000, 2_000, 1, 3)
        assert unpack(">i", 40 + 4 * 4_583_063) == (2,)
        first_entry = 40 + 4 * 5_000_000
        assert unpack(">iqii", first_entry) == (0, 0, 0, 0)
        assert unpack(">iqii", first_entry + 20) == (19_583_063, 1_000, 0, 0)
        assert unpack(">iqii", first_entry + 40) == (19_583_063, 2_000, 7, 1)


class Model:
    """An index file as RocketMQ's source describes it."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []
        self.begin_ms = 0

    def put(self, key: str, physical_offset: int, time_ms: int) -> bool:
        if len(self.entries) == SMALL["entries"] - 1:
            return False
        seconds = 0 if self.begin_ms <= 0 else (time_ms - self.begin_ms) / 1000
        if not self.entries:
            self.begin_ms = time_ms
        clamped = min(max(int(seconds), 0), 2**31 - 1)
        self.entries.append((mqstore.key_hash(key), physical_offset, clamped))
        return True

    def select(self, key: str, begin_ms: int, end_ms: int, count: int) -> list[int]:
        key_hash, found = mqstore.key_hash(key), []
        for entry_hash, physical_offset, seconds in reversed(self.entries):
            if len(found) >= count:
                break
            if entry_hash % SMALL["slots"] != key_hash % SMALL["slots"]:
                continue
            time_ms = self.begin_ms + 1000 * seconds
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(physical_offset)
            if time_ms < begin_ms:
                break
        return found


KEYS = st.sampled_from([f"T#k{number}" for number in range(12)] + ["T#Aa", "T#BB", "T#ü", "T#"])
TIMES = st.integers(0, 60_000).map(TIME.__add__)
PUTS = st.lists(st.tuples(KEYS, st.integers(0, 2**62), TIMES), max_size=450)
SELECTS = st.lists(st.tuples(KEYS, TIMES, TIMES, st.integers(0, 40)), max_size=20)


@given(PUTS, SELECTS, st.integers(0, 450))
def test_it_answers_as_its_model(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[str, int, int]],
    selects: list[tuple[str, int, int, int]],
    alone: int,
) -> None:
    path = tmp_path_factory.mktemp("index") / "file"
    model = Model()
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        for put in puts[:alone]:
            assert index.put(*put) == model.put(*put)
        rest = puts[alone:]
        columns = zip(*rest, strict=True) if rest else ((), (), ())
        fitted = sum(model.put(*put) for put in rest)
        assert index.put_many(*map(list, columns)) == fitted
        assert len(index) == len(model.entries)
        answers = [
            index.select(key, begin_ms=begin, end_ms=end, max_entries=count)
            for key, begin, end, count in selects
        ]
    assert answers == [model.select(*select) for select in selects]
    with mqstore.IndexFile(path, **SMALL) as index:
        whole: dict[str, int] = {"begin_ms": TIME, "end_ms": TIME + 30_000, "max_entries": 7}
        keys = [select[0] for select in selects]
        assert index.select_many(keys, **whole).to_pylist() == [
            model.select(key, TIME, TIME + 30_000, 7) for key in keys
        ]
        rows = index.entries().read_all()
        found = zip(*(rows[name].to_pylist() for name in ENTRY[1:4]), strict=True)
        assert list(found) == model.entries


# --- many at once -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view()], ids=["plain", "large", "view"]
)
def test_arrow_arrays_and_sequences_give_the_same_file(tmp_path: Path, kind: pa.DataType) -> None:
    keys = filled(tmp_path / "listed")
    offsets = pa.array(range(0, 30_000, 100), pa.int64())
    times = pa.array([TIME + 1000 * number for number in range(300)])
    with mqstore.IndexFile(tmp_path / "arrow", "a", **SMALL) as index:
        # Slices, and chunks that do not meet.
        assert index.put_many(pa.array(keys, kind)[:50], offsets[:50], times[:50]) == 50
        chunked = pa.chunked_array([pa.array(keys[50:61], kind), pa.array(keys[61:], kind)])
        assert index.put_many(chunked, offsets[50:], pa.chunked_array([times[50:]])) == 250
    assert (tmp_path / "arrow").read_bytes() == (tmp_path / "listed").read_bytes()
    with mqstore.IndexFile(tmp_path / "arrow", **SMALL) as index:
        lists = index.select_many(keys)
        assert lists == index.select_many(pa.array(keys, kind))
        assert lists == index.select_many(
            chunked.combine_chunks().__class__ and pa.array(keys, kind)
        )
        assert lists.to_pylist() == [index.select(key) for key in keys]


def test_numbers_come_as_any_sequence(tmp_path: Path) -> None:
    from array import array

    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        assert index.put_many(("a", "b"), array("q", [1, 2]), range(2)) == 2
        assert index.put_many(pa.array(["c"]), pa.array([3], pa.uint8()), [3]) == 1
        assert index.put_many([], [], []) == 0
        assert index.put_many(pa.array([], pa.string()), [], pa.array([], pa.int64())) == 0
        assert [index.entry(number).physical_offset for number in (1, 2, 3)] == [1, 2, 3]


def test_a_full_file_says_how_many_fitted(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", slots=5, entries=20) as index:
        assert index.capacity == 19
        assert index.put_many([f"k{n}" for n in range(15)], range(15), [TIME] * 15) == 15
        assert index.put_many(pa.array(["k"] * 10), [7] * 10, [TIME] * 10) == 4
        assert index.put_many(["k"], [7], [TIME]) == 0
        assert not index.put("k", 7, TIME)
        assert len(index) == 19


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((["a", "b"], [1], [1, 2]), ValueError, "expected equal lengths, got 2, 1 and 2"),
        ((pa.array(["a", None]), [1, 2], [1, 2]), ValueError, "keys: expected no null"),
        (
            (["a"], pa.array([None], pa.int64()), [1]),
            ValueError,
            "physical_offsets: expected no null",
        ),
        (
            (["a"], [1], pa.array([None], pa.int64())),
            ValueError,
            "store_timestamps_ms: expected no null",
        ),
        ((pa.array([b"a"]), [1], [1]), TypeError, "keys: expected texts, got Binary"),
        ((["a"], pa.array([1.0]), [1]), TypeError, "physical_offsets: expected int64, got Float64"),
        ((["a"], pa.array([2**63], pa.uint64()), [1]), ValueError, "physical_offsets"),
        ((["a"], [2**63], [1]), ValueError, "physical_offsets: expected a number of 64 bits"),
        ((["a"], (1,), (2**63,)), ValueError, "store_timestamps_ms: expected a number of 64 bits"),
        (("ab", [1, 2], [1, 2]), TypeError, "keys: expected a list of texts, got str"),
        (([b"a"], [1], [1]), TypeError, "bytes"),
        ((["a"], ["1"], [1]), TypeError, "str"),
        ((7, [1], [1]), TypeError, "int"),
        ((["\ud800"], [1], [1]), ValueError, "keys: expected text in UTF-8"),
    ],
)
def test_an_impossible_put_changes_nothing(
    tmp_path: Path, arguments: Any, error: type[Exception], said: str
) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index:
        with pytest.raises(error, match=said):
            index.put_many(*arguments)
        assert len(index) == 0


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (pa.array(["a", None]), ValueError),
        (pa.array([b"a"]), TypeError),
        ("ab", TypeError),
        ([b"a"], TypeError),
        (7, TypeError),
    ],
)
def test_an_impossible_look_up_is_refused(
    tmp_path: Path, keys: Any, error: type[Exception]
) -> None:
    with (
        mqstore.IndexFile(tmp_path / "one", "a", **SMALL) as index,
        pytest.raises(error),
    ):
        index.select_many(keys)


def test_lists_of_offsets_are_an_arrow_array(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    with mqstore.IndexFile(tmp_path / "one", **SMALL) as index:
        lists = index.select_many(["T#k1", "none", "T#k2"])
        other = index.select_many(["T#k1"])
        assert index.select_many([]).to_pylist() == []
        assert index.select_many(["T#k1"], max_entries=0).to_pylist() == [[]]
        assert index.select_many(["T#k1"], max_entries=-1).to_pylist() == [[]]
    expected = [[27_100, 18_100, 9_100, 100], [], [27_200, 18_200, 9_200, 200]]
    assert (len(lists), lists.to_pylist()) == (3, expected)
    assert [lists[0], lists[-1], lists[1]] == [expected[0], expected[2], []]
    for outside in (3, -4, 2**62):
        with pytest.raises(IndexError):
            lists[outside]
    found = pa.array(lists)
    assert found.type == pa.list_(pa.int64())
    found.validate(full=True)
    assert found.to_pylist() == expected
    assert pa.field(lists).type == pa.list_(pa.int64())
    assert lists != other
    assert "3 keys" in repr(lists)
    # It is cast where that is asked for.
    assert pa.array(lists, pa.large_list(pa.int64())).to_pylist() == expected


def test_threads_put_and_select_at_once(tmp_path: Path) -> None:
    path = tmp_path / "one"
    keys = pa.array([f"T#{n}" for n in range(2_000)])
    wrong: list[list[int]] = []
    with mqstore.IndexFile(path, "a", slots=500, entries=10_000) as index:

        def put(first: int) -> None:
            numbers = list(range(first, first + 2_000))
            assert index.put_many(keys, numbers, [TIME] * 2_000) == 2_000

        def select() -> None:
            for _ in range(50):
                lists = index.select_many(keys[:100]).to_pylist()
                wrong.extend(found for found in lists if found != sorted(set(found), reverse=True))

        threads = [threading.Thread(target=put, args=(0,)), threading.Thread(target=select)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        put(2_000)
        assert len(index) == 4_000
        assert index.select("T#7") == [2_007, 7]
    assert wrong == []


# --- what it holds ----------------------------------------------------------------------------

ENTRY = ("number", "key_hash", "physical_offset", "seconds", "prev_entry")


def test_entries_are_columns_read_anew_each_time(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    with mqstore.IndexFile(tmp_path / "one", "r+", **SMALL) as index:
        scan = index.entries()
        rows = scan.read_all()
        assert tuple(rows.column_names) == tuple(scan.schema.names) == ENTRY
        assert [str(field.type) for field in rows.schema] == ["int32"] * 2 + ["int64"] + [
            "int32"
        ] * 2
        wanted = [index.entry(number) for number in range(1, 301)]
        assert [mqstore.IndexEntry(**row) for row in rows.to_pylist()] == wanted
        index.put("T#more", 7, TIME)
        assert scan.read_all().num_rows == 301
    # No file was open in between.
    assert pa.table(scan).num_rows == 301
    (tmp_path / "one").unlink()
    with pytest.raises(mqstore.StoreIOError):
        scan.read_all()


def test_many_entries_come_in_batches(tmp_path: Path) -> None:
    with mqstore.IndexFile(tmp_path / "one", "a", slots=5, entries=20_001) as index:
        index.put_many(["k"] * 20_000, range(20_000), [TIME] * 20_000)
        batches = list(pa.RecordBatchReader.from_stream(index.entries()))
    assert [len(batch) for batch in batches] == [8_192, 8_192, 3_616]
    numbers = [number for batch in batches for number in batch["number"].to_pylist()]
    assert numbers == list(range(1, 20_001))


def test_a_chain_goes_from_the_newest_down(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    with mqstore.IndexFile(tmp_path / "one", **SMALL) as index:
        for key in ("T#k1", "T#k89", "none"):
            slot = mqstore.key_hash(key) % 100
            numbers = [
                number for number in range(300, 0, -1) if index.entry(number).key_hash % 100 == slot
            ]
            chain = index.chain(key)
            assert [entry.number for entry in chain] == numbers
            assert [entry.prev_entry for entry in chain] == [*numbers[1:], 0][: len(numbers)]
        for outside in (0, -1, 301, 2**40, -(2**63)):
            with pytest.raises(IndexError):
                index.entry(outside)


def test_hi03_a_circle_of_links_ends(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        index.put_many(["T#k"] * 3, [10, 20, 30], [TIME] * 3)
    raw = bytearray(path.read_bytes())
    # 1 -> 2, though the older one comes first in a sound file.
    struct.pack_into(">i", raw, BEGIN + 20 + 16, 2)
    path.write_bytes(raw)
    with mqstore.IndexFile(path, **SMALL) as index:
        assert index.select("T#k") == [30, 20, 10]
        assert index.select_many(["T#k"]).to_pylist() == [[30, 20, 10]]
        assert [entry.number for entry in index.chain("T#k")] == [3, 2, 1]


@pytest.mark.parametrize("slot", [-1, 0, 4, 400, 2**31 - 1, -(2**31)])
def test_hi02_slots_that_name_no_entry_are_empty(tmp_path: Path, slot: int) -> None:
    path = tmp_path / "one"
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        index.put_many(["T#k"] * 3, [10, 20, 30], [TIME] * 3)
    raw = bytearray(path.read_bytes())
    struct.pack_into(">i", raw, 40 + 4 * (mqstore.key_hash("T#k") % 100), slot)
    path.write_bytes(raw)
    with mqstore.IndexFile(path, **SMALL) as index:
        assert index.select("T#k") == []
        assert index.chain("T#k") == []
        assert index.entries().read_all().num_rows == 3


@pytest.mark.parametrize("count", [401, 2**31 - 1, -1, -(2**31)])
def test_hi01_counts_that_cannot_be(tmp_path: Path, count: int) -> None:
    path = tmp_path / "one"
    filled(path)
    raw = bytearray(path.read_bytes())
    struct.pack_into(">i", raw, 36, count)
    path.write_bytes(raw)
    for mode in ("r", "r+", "a"):
        with pytest.raises(mqstore.CorruptionError) as damage:
            mqstore.IndexFile(path, mode, **SMALL)
        assert (damage.value.path, damage.value.offset) == (str(path), 36)
    assert path.read_bytes() == raw


def test_a_file_cut_short_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "one"
    filled(path)
    with mqstore.IndexFile(path, **SMALL) as index:
        scan = index.entries()
        os.truncate(path, BEGIN + 1_000)
        for use in (
            lambda: index.header,
            lambda: len(index),
            lambda: index.select("T#k1"),
            lambda: index.select_many(["T#k1"]),
            lambda: index.chain("T#k1"),
            lambda: index.entry(250),
            lambda: scan.read_all(),
        ):
            with pytest.raises(mqstore.CorruptionError) as damage:
                use()
            assert damage.value.kind == "file-length"


# --- opening, closing, and who may write ------------------------------------------------------


@pytest.mark.parametrize(
    "sizes",
    [
        {"slots": 0},
        {"entries": 0},
        {"slots": -1},
        {"entries": 2**40},
        {"slots": 5_000_000, "entries": 107_000_000},
    ],
)
@pytest.mark.parametrize("mode", ["r", "a"])
def test_hi07_and_hi08_sizes_that_cannot_be(
    tmp_path: Path, sizes: dict[str, int], mode: str
) -> None:
    with pytest.raises(mqstore.ConfigError, match="expected 1 or more each"):
        mqstore.IndexFile(tmp_path / "one", mode, **sizes)
    assert not (tmp_path / "one").exists()


def test_the_wrong_sizes_are_found_out(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    with pytest.raises(mqstore.CorruptionError) as damage:
        mqstore.IndexFile(tmp_path / "one", slots=100, entries=399)
    assert damage.value.kind == "file-length"
    assert "8420 bytes" in damage.value.expected
    assert "8440 bytes" in damage.value.found
    # The same length, and another place for everything: nobody may write to that.
    same = {"slots": 105, "entries": 399}
    for mode in ("r+", "a"):
        with pytest.raises(mqstore.ConfigError, match="105 slots and 399 entries"):
            mqstore.IndexFile(tmp_path / "one", mode, **same)
    mqstore.IndexFile(tmp_path / "one", **same).close()


def test_modes(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for mode in ("r", "r+"):
        with pytest.raises(mqstore.StoreIOError) as missing:
            mqstore.IndexFile(path, mode, **SMALL)
        assert (missing.value.errno, missing.value.filename) == (2, str(path))
    with pytest.raises(ValueError, match="mode: expected one of r, r"):
        mqstore.IndexFile(path, "w", **SMALL)
    with pytest.raises(mqstore.StoreIOError):
        mqstore.IndexFile(tmp_path / "none" / "one", "a", **SMALL)
    for mode in ("a", "a", "r+"):
        with mqstore.IndexFile(path, mode, **SMALL) as index:
            assert (index.mode, index.path, index.slots) == (mode, str(path), 100)
            assert index.put("k", 1, TIME)
    with mqstore.IndexFile(path, **SMALL) as index:
        assert (index.mode, len(index)) == ("r", 3)
        for write in (
            lambda: index.put("k", 1, TIME),
            lambda: index.put_many(["k"], [1], [TIME]),
        ):
            with pytest.raises(mqstore.StoreReadOnlyError):
                write()
        index.flush()
    path.chmod(0o400)
    mqstore.IndexFile(path, **SMALL).close()


def test_there_is_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        for mode in ("r+", "a"):
            with pytest.raises(mqstore.StoreLockedError) as locked:
                mqstore.IndexFile(path, mode, **SMALL)
            assert locked.value.path == str(path)
        index.put("k", 1, TIME)
        # Readers look on.
        with mqstore.IndexFile(path, **SMALL) as reader:
            assert reader.select("k") == [1]
            index.put("k", 2, TIME)
            assert reader.select("k") == [2, 1]
            assert reader.header == index.header
    mqstore.IndexFile(path, "r+", **SMALL).close()


def test_after_close(tmp_path: Path) -> None:
    path = tmp_path / "one"
    index = mqstore.IndexFile(path, "a", **SMALL)
    index.put("k", 1, TIME)
    index.close()
    index.close()
    for use in (
        lambda: index.header,
        lambda: len(index),
        lambda: index.put("k", 1, TIME),
        lambda: index.put_many(["k"], [1], [TIME]),
        lambda: index.select("k"),
        lambda: index.select_many(["k"]),
        lambda: index.chain("k"),
        lambda: index.entry(1),
        index.entries,
        index.flush,
        index.__enter__,
    ):
        with pytest.raises(mqstore.StoreClosedError, match="the index file is closed"):
            use()
    assert (index.path, index.mode, index.slots, index.capacity) == (str(path), "a", 100, 399)
    assert repr(index) == f"<IndexFile {str(path)!r} mode=a slots=100 entries=400>"


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for name in ("folder", "link", "pipe"):
        for mode in ("r", "a"):
            with pytest.raises(mqstore.StoreIOError):
                mqstore.IndexFile(tmp_path / name, mode, **SMALL)
    with pytest.raises(mqstore.CorruptionError):
        mqstore.IndexFile(tmp_path / "empty", "a", **SMALL)


def test_headers_and_entries_are_values() -> None:
    header = mqstore.IndexHeader(1, 2, 3, 4, 5, 6)
    entry = mqstore.IndexEntry(1, 2, 3, 4, 5)
    for value, other in ((header, mqstore.IndexHeader(1, 2, 3, 4, 5, 7)), (entry, header)):
        assert pickle.loads(pickle.dumps(value)) == value
        assert value != other
        assert hash(value) == hash(pickle.loads(pickle.dumps(value)))
    assert repr(entry) == (
        "IndexEntry(number=1, key_hash=2, physical_offset=3, seconds=4, prev_entry=5)"
    )


def test_a_child_process_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with mqstore.IndexFile(path, "a", **SMALL) as index:
        index.put("k", 1, TIME)
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            code = 1
            try:
                index.put("k", 2, TIME)
            except mqstore.StoreClosedError:
                code = 0 if index.select("k") == [1] else 2
                index.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert index.put("k", 3, TIME)
        assert index.select("k") == [3, 1]


@pytest.mark.parametrize("count", [0, 1, 30, 199])
def test_chain_lengths_are_those_of_the_slots(tmp_path: Path, count: int) -> None:
    with mqstore.IndexFile(tmp_path / "index", "a", slots=13, entries=200) as file:
        keys = [f"orders#{n * n % 50}" for n in range(count)]
        assert file.put_many(keys, range(0, 100 * count, 100), [1_700_000_000_000] * count) == count
        slots = Counter(mqstore.key_hash(key) % 13 for key in keys)
        assert file.chain_lengths() == Counter(slots.values())
        for key in set(keys):
            assert len(file.chain(key)) == slots[mqstore.key_hash(key) % 13]
    with mqstore.IndexFile(tmp_path / "index", slots=13, entries=200) as file:
        assert file.chain_lengths() == Counter(slots.values())
