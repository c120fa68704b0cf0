"""A store's own manners: many at once, errors and what they carry, waiting, closing, settings."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mqstore
from helpers.stores import TIME, TINY, message

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOMY = {**TINY, "mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 60_000}
"""For thousands of messages: they would fill hundreds of tiny files."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        yield store


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=ROOMY) as store:
        yield store


def test_a_reader_of_an_empty_store_learns_how_large_its_files_are(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as writer, mqstore.open(tmp_path) as reader:
        for count in (1, 100, 200):
            before = sum(1 for _ in reader.scan())
            bodies = [b"%d" % number for number in range(before, count)]
            writer.append_many([message(body=body) for body in bodies])
            writer.flush()
            reader.refresh()
            assert [found.body for found in reader.scan()] == [b"%d" % n for n in range(count)]


def test_many_at_once_give_a_result_each(store: mqstore.Store) -> None:
    given = [message(body=b"0"), {"topic": "T", "body": b"1", "keys": ["k"]}, message(body=b"2")]
    results = store.append_many(iter(given))
    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert [store.get(result.physical_offset).body for result in results] == [b"0", b"1", b"2"]
    for result in results:
        assert store.get_by_id(result.message_id).physical_offset == result.physical_offset
    assert store.append_many([]) == []


def test_ids_name_the_messages_own_host(store: mqstore.Store) -> None:
    (result,) = store.append_many([message(store_host="[2001:db8::1]:7")])
    assert result.message_id == store.get(0).message_id
    assert mqstore.parse_message_id(result.message_id).host == "2001:db8::1"


@pytest.mark.parametrize("place", [0, 5, 1024, 1500])
@pytest.mark.parametrize(
    ("culprit", "kind"),
    [
        (message("no topic"), mqstore.InvalidMessageError),
        (message(properties={"INNER_NUM": "2"}), mqstore.InvalidMessageError),
        ({"topic": "T", "body": b"", "keys": ""}, mqstore.InvalidMessageError),
        ({"topic": "T"}, TypeError),
        ({"topic": "T", "body": b"", "colour": "red"}, TypeError),
        (7, TypeError),
    ],
    ids=["topic", "inner", "key", "no body", "unknown", "no message"],
)
def test_a_chunk_is_checked_before_any_of_it_is_written(
    roomy: mqstore.Store, place: int, culprit: Any, kind: type[Exception]
) -> None:
    given = [message()] * place + [culprit] + [message()] * 3
    with pytest.raises(kind) as refused:
        roomy.append_many(given)
    whole_chunks = place // 1024 * 1024
    assert refused.value.index == place
    assert len(refused.value.results) == whole_chunks
    assert sum(1 for _ in roomy.scan()) == whole_chunks


def test_an_iterable_that_fails_says_how_far_it_came(roomy: mqstore.Store) -> None:
    def broken() -> Iterator[mqstore.Message]:
        for _ in range(1030):
            yield message()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more") as failed:
        roomy.append_many(broken())
    assert (failed.value.index, len(failed.value.results)) == (1030, 1024)


def test_an_iterable_may_append_too(store: mqstore.Store) -> None:
    def nested() -> Iterator[mqstore.Message]:
        store.append("T", b"first", keys=(store.append("T", b"inner").message_id,))
        yield message(body=b"second")

    store.append_many(nested())
    assert [found.body for found in store.scan()] == [b"inner", b"first", b"second"]


def test_errors_of_reading_carry_what_they_say(store: mqstore.Store) -> None:
    store.append("T", b"body")
    end = store.max_physical_offset
    for outside in (-1, end, 2**40):
        with pytest.raises(mqstore.OffsetOutOfRangeError) as error:
            store.get(outside)
        assert (error.value.physical_offset, error.value.min, error.value.max) == (outside, 0, end)
    with pytest.raises(mqstore.MessageNotFoundError):
        store.get(1)
    with pytest.raises(mqstore.MessageNotFoundError):
        store.get_by_id("no id")
    with pytest.raises(mqstore.OffsetOutOfRangeError):
        store.get(2**63)


@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("boundary", lambda store: store.offset_at("T", 0, 0, boundary="middle")),
        ("on_error", lambda store: store.scan(on_error="ignore")),
        ("mode", lambda store: mqstore.open(store.path, "w")),
    ],
)
def test_words_that_mean_nothing(store: mqstore.Store, argument: str, ask: Any) -> None:
    with pytest.raises(ValueError, match=f"{argument}: expected .*, got "):
        ask(store)


def test_a_reader_cannot_write(tmp_path: Path, store: mqstore.Store) -> None:
    store.append("T", b"")
    with mqstore.open(tmp_path, config=TINY) as reader:
        for write in (
            lambda: reader.append("T", b""),
            lambda: reader.append_many([message()]),
            reader.flush,
        ):
            with pytest.raises(mqstore.StoreReadOnlyError) as refused:
                write()
            assert refused.value.path == str(tmp_path)


def test_after_close(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=TINY)
    store.append("T", b"")
    scan = store.scan()
    store.close()
    store.close()
    for use in (
        lambda: store.append("T", b""),
        lambda: store.append_many([]),
        lambda: store.append_many([message()]),
        store.flush,
        store.wait_dispatched,
        lambda: store.get(0),
        lambda: store.get_by_id("A" * 32),
        lambda: store.read("T", 0, 0),
        lambda: store.offset_at("T", 0, 0),
        lambda: store.query("T", "k"),
        store.scan,
        lambda: next(scan),
        store.topics,
        store.queues,
        store.groups,
        lambda: store.group("g"),
        store.refresh,
        lambda: store.wait(0, timeout_s=0),
        store.__enter__,
        lambda: store.min_physical_offset,
        lambda: store.max_physical_offset,
        lambda: store.flushed_offset,
        lambda: store.dispatched_offset,
        lambda: store.index_usable,
    ):
        with pytest.raises(mqstore.StoreClosedError):
            use()
    assert (store.path, store.mode) == (str(tmp_path), "a")
    assert store.config.max_index_num == 50
    assert store.recovery is not None
    assert "closed" in repr(store)


def test_a_store_says_what_it_is(tmp_path: Path, store: mqstore.Store) -> None:
    assert (store.path, store.mode, store.warnings) == (str(tmp_path), "a", [])
    assert store.min_physical_offset == store.max_physical_offset == 0
    assert store.recovery == mqstore.RecoveryReport("new")
    store.append("T", b"")
    store.flush()
    end = store.max_physical_offset
    assert end == store.flushed_offset == store.dispatched_offset > 0
    assert store.index_usable
    store.close()
    with mqstore.open(tmp_path) as reader:
        assert reader.recovery is None
        assert reader.mode == "r"
        # Told by the files.
        assert reader.config.mapped_file_size_commit_log == 4096
        assert reader.config.mapped_file_size_consume_queue == 200
        assert reader.flushed_offset == end


def test_the_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with mqstore.open("here", "a", config=TINY) as store:
        store.append("T", b"body", keys="k")
        monkeypatch.chdir(Path("/"))
        assert store.path == str(tmp_path / "here")
        store.append_many([message()] * 200)
        assert store.query("T", "k")[0].body == b"body"
    assert (tmp_path / "here" / "checkpoint").exists()


def test_a_folder_of_the_log_counts_from_the_store(tmp_path: Path) -> None:
    config = {**TINY, "store_path_commit_log": "elsewhere"}
    with mqstore.open(tmp_path / "store", "a", config=config) as store:
        store.append("T", b"")
    assert (tmp_path / "store" / "elsewhere").is_dir()
    assert not (tmp_path / "store" / "commitlog").exists()


def test_settings_are_not_believed(tmp_path: Path) -> None:
    with pytest.raises(mqstore.ConfigError) as refused:
        mqstore._native.Store(tmp_path, "a", {"max_index_num": "many"})
    assert refused.value.field == "max_index_num"
    with pytest.raises(TypeError):
        mqstore._native.Store(tmp_path, "a", {"max_index_num": 1.5})
    assert not (tmp_path / "lock").exists()


def test_a_scan_reports_where_it_is(store: mqstore.Store) -> None:
    store.append_many([message(body=bytes([number]) * 300) for number in range(20)])
    scan = store.scan()
    assert scan.physical_offset == 0
    assert scan.stop_physical_offset == store.max_physical_offset
    for found in scan:
        assert scan.physical_offset >= found.physical_offset + found.store_size
    assert scan.physical_offset == scan.stop_physical_offset
    assert (scan.skipped_ranges, scan.skipped_bytes) == (0, 0)
    assert list(scan) == []


def test_a_scan_is_of_a_range(store: mqstore.Store) -> None:
    results = store.append_many([message(body=bytes([number])) for number in range(9)])
    offsets = [result.physical_offset for result in results]

    def bodies(**bounds: int) -> list[int]:
        return [found.body[0] for found in store.scan(**bounds)]

    assert bodies(start_physical_offset=offsets[3]) == [3, 4, 5, 6, 7, 8]
    assert bodies(start_physical_offset=offsets[3] + 1) == [4, 5, 6, 7, 8]
    assert bodies(stop_physical_offset=offsets[3]) == [0, 1, 2]
    assert bodies(stop_physical_offset=offsets[3] + 1) == [0, 1, 2, 3]
    assert bodies(start_physical_offset=-5, stop_physical_offset=2**40) == list(range(9))
    assert bodies(start_physical_offset=offsets[5], stop_physical_offset=offsets[2]) == []


def test_a_scan_takes_what_a_filter_takes(store: mqstore.Store) -> None:
    for number in range(8):
        topic, tags = ("A", "B")[number % 2], (None, "x", "y", "z")[number // 2]
        fields: dict[str, Any] = {"tags": tags} if tags else {}
        store.append_many(
            [message(topic, body=bytes([number]), store_timestamp_ms=TIME + number, **fields)]
        )

    def bodies(**filters: Any) -> list[int]:
        return [found.body[0] for found in store.scan(**filters)]

    assert bodies(topics=["A"]) == [0, 2, 4, 6]
    assert bodies(topics=iter(("A", "B"))) == list(range(8))
    assert bodies(topics=[]) == []
    assert bodies(tags="x || z") == [2, 3, 6, 7]
    assert bodies(begin_ms=TIME + 2, end_ms=TIME + 4) == [2, 3, 4]
    assert bodies(topics=["B"], tags="x", end_ms=TIME + 3) == [3]


def test_a_scan_over_damage(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        results = store.append_many([message(body=b"body-%d" % number) for number in range(5)])
    path = next((tmp_path / "commitlog").iterdir())
    path.write_bytes(path.read_bytes().replace(b"body-2", b"bodi-2"))
    with mqstore.open(tmp_path, config=TINY) as store:
        scan = store.scan()
        assert [next(scan).body, next(scan).body] == [b"body-0", b"body-1"]
        with pytest.raises(mqstore.CorruptionError) as damage:
            next(scan)
        assert (damage.value.path, damage.value.kind) == (str(path), "body-crc")
        assert damage.value.offset == results[2].physical_offset + 8
        assert list(scan) == []
        scan = store.scan(on_error="skip")
        assert [found.body for found in scan] == [b"body-0", b"body-1", b"body-3", b"body-4"]
        assert (scan.skipped_ranges, scan.skipped_bytes) == (1, results[2].store_size)
        with pytest.raises(mqstore.CorruptionError):
            store.get(results[2].physical_offset)


def test_two_threads_share_a_scan(roomy: mqstore.Store) -> None:
    roomy.append_many([message(body=b"%d" % number) for number in range(3_000)])
    scan = roomy.scan()
    found: list[list[bytes]] = [[], []]

    def take(mine: list[bytes]) -> None:
        mine.extend(one.body for one in scan)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, found[0] + found[1])) == list(range(3_000))


def test_waiting_for_the_log(tmp_path: Path, store: mqstore.Store) -> None:
    assert store.wait(0, timeout_s=0) is False
    assert store.wait(-1, timeout_s=0) is True
    writer = threading.Timer(0.05, lambda: store.append("T", b"late"))
    with mqstore.open(tmp_path, config=TINY) as reader:
        writer.start()
        assert reader.wait(0, timeout_s=30) is True
        assert reader.get(0).body == b"late"
        writer.join()
    assert store.wait(0, timeout_s=float("inf")) is True


def test_bare_keys_become_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"b":{0:128,1:1.50},"a":18446744073709551616}')
    strict = '{"b":{"0":128,"1":1.50},"a":18446744073709551616}'
    assert mqstore.read_config_json(path) == strict
    path.write_text("{0:}")
    with pytest.raises(mqstore.CorruptionError) as damage:
        mqstore.read_config_json(path)
    assert (damage.value.path, damage.value.kind) == (str(path), "json")
    with pytest.raises(mqstore.StoreIOError) as missing:
        mqstore.read_config_json(tmp_path / "none")
    assert missing.value.errno == 2


def held(folder: Path) -> list[str]:
    """Files below a folder that this process has open or, where known, mapped."""
    paths = []
    for open_file in list(Path("/dev/fd").iterdir()):
        with contextlib.suppress(OSError):  # The one of the list itself is gone.
            if sys.platform == "linux":
                paths.append(str(open_file.readlink()))
            else:
                name = fcntl.fcntl(int(open_file.name), fcntl.F_GETPATH, bytes(1024))
                paths.append(os.fsdecode(name.rstrip(b"\0")))
    maps = Path("/proc/self/maps")
    if maps.exists():
        paths += [line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()]
    return [path for path in paths if path.startswith(str(folder.resolve()))]


@pytest.mark.parametrize("mode", ["r+", "r"])
def test_closing_lets_go_of_files_and_maps(tmp_path: Path, mode: mqstore.Mode) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as writer:
        writer.append_many([message(keys=f"k{number}") for number in range(40)])
    assert held(tmp_path) == []
    store = mqstore.open(tmp_path, mode, config=TINY)
    if mode == "r+":
        store.append("T", b"one more", keys="k1")
    kept = store.read("T", 0, 0).messages[0]
    assert len(store.query("T", "k1")) == (2 if mode == "r+" else 1)
    batch = next(pa.RecordBatchReader.from_stream(store.scan_arrow()))
    assert held(tmp_path)
    store.close()
    assert held(tmp_path) == []
    assert kept.body == message().body
    assert batch.num_rows > 0
    with pytest.raises(mqstore.StoreClosedError):
        store.read("T", 0, 0)
    assert held(tmp_path) == []
