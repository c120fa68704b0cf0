"""One structure at a time: consume queues, commit logs and checkpoints without their store."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.golden import Case
from helpers.stores import TIME, TINY, log_files, message, queue_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A store of 35 messages over several files of everything, closed."""
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many([message(body=bytes(n), tags=f"t{n}") for n in range(35)])
    return tmp_path / "store"


def messages(root: Path) -> list[mqstore.StoredMessage]:
    with mqstore.open(root, config=TINY) as store:
        return list(store.scan())


# --- consume queues ---------------------------------------------------------------------------


def test_a_queue_is_a_sequence_of_entries(root: Path) -> None:
    queue = mqstore.ConsumeQueue(queue_folder(root))
    found = messages(root)
    wanted = [
        mqstore.QueueEntry(n, m.physical_offset, m.store_size, mqstore.tags_code(m.tags))
        for n, m in enumerate(found)
    ]
    assert list(queue) == wanted
    assert [queue[n] for n in range(35)] == wanted
    assert [queue[n - 35] for n in range(35)] == wanted
    assert len(queue) == 35
    for outside in (35, -36, 2**62, -(2**62)):
        with pytest.raises(IndexError):
            queue[outside]
    assert (queue.topic, queue.queue_id, queue.kind, queue.file_size) == ("T", 0, "SimpleCQ", 200)
    assert (queue.min_offset, queue.max_offset) == (0, 35)
    assert queue.max_physical_offset == found[-1].physical_offset + found[-1].store_size
    assert queue.path == str(queue_folder(root))
    assert "35 entries" in repr(queue)


def test_entries_of_a_range_of_queue_offsets(root: Path) -> None:
    queue = mqstore.ConsumeQueue(queue_folder(root))

    def numbers(*bounds: int | None) -> list[int]:
        return [entry.queue_offset for entry in queue.entries(*bounds)]

    assert numbers() == numbers(None, None) == numbers(-5, 99) == list(range(35))
    assert numbers(9, 21) == list(range(9, 21))
    assert numbers(34) == [34]
    assert numbers(35) == numbers(20, 20) == numbers(21, 20) == []
    both = queue.entries(3, 5)
    assert (next(both).queue_offset, next(iter(both)).queue_offset) == (3, 4)
    assert list(both) == []


def test_a_queue_whose_first_files_are_gone(root: Path) -> None:
    first = queue_folder(root) / f"{0:020}"
    first.unlink()
    queue = mqstore.ConsumeQueue(queue_folder(root))
    assert (queue.min_offset, queue.max_offset, len(queue)) == (10, 35, 25)
    assert queue[0].queue_offset == 10


def test_filler_at_the_head_is_not_counted(root: Path) -> None:
    # RocketMQ fills up to the first entry with these (`ConsumeQueue#fillPreBlank`).
    path = queue_folder(root) / f"{0:020}"
    raw = path.read_bytes()
    path.write_bytes(struct.pack(">qiq", 0, 2**31 - 1, 0) * 7 + raw[140:])
    queue = mqstore.ConsumeQueue(queue_folder(root))
    assert (queue.min_offset, len(queue), queue[0].queue_offset) == (7, 28, 7)
    assert [entry.queue_offset for entry in queue.entries(5, 9)] == [7, 8]


def test_the_first_invalid_entry_ends_a_queue(root: Path) -> None:
    path = queue_folder(root) / f"{200:020}"
    raw = bytearray(path.read_bytes())
    raw[60:80] = bytes(20)
    path.write_bytes(raw)
    queue = mqstore.ConsumeQueue(queue_folder(root))
    assert (len(queue), queue.max_offset) == (13, 13)
    assert [entry.queue_offset for entry in queue] == list(range(13))


def test_a_view_is_as_of_its_opening(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message()] * 3)
        store.flush()
        queue = mqstore.ConsumeQueue(queue_folder(tmp_path))
        log = mqstore.CommitLog(tmp_path / "commitlog")
        store.append_many([message()] * 30)
        store.flush()
        assert (len(queue), len(list(queue))) == (3, 3)
        assert len(list(log)) == 3
        assert len(mqstore.ConsumeQueue(queue_folder(tmp_path))) == 33
        assert len(list(mqstore.CommitLog(tmp_path / "commitlog"))) == 33


def test_batch_queues_have_their_own_entries(tmp_path: Path) -> None:
    root = Case("batch").unpack(tmp_path)
    with mqstore.open(root, config=Case("batch").settings) as store:
        by_offset = {found.physical_offset: found for found in store.scan()}
    folders = sorted((root / "batchconsumequeue").glob("*/*"))
    assert folders
    for folder in folders:
        queue = mqstore.ConsumeQueue(folder)
        assert (queue.kind, queue.topic) == ("BatchCQ", folder.parent.name)
        assert queue.file_size == 230
        after = queue.min_offset
        for entry in queue:
            assert entry.queue_offset == after
            after += entry.message_count
            found = by_offset[entry.physical_offset]
            assert (found.topic, found.store_size) == (queue.topic, entry.store_size)
            assert found.store_timestamp_ms == entry.store_timestamp_ms
        assert after == queue.max_offset
        middle = queue[len(queue) // 2]
        rest = list(queue.entries(middle.queue_offset))
        assert rest == list(queue)[len(queue) // 2 :]
    assert any(entry.message_count > 1 for f in folders for entry in mqstore.ConsumeQueue(f))


@pytest.mark.parametrize(
    ("name", "length", "kind"),
    [
        ("notes", 200, "file-name"),
        ("0000000000000000080", 200, "file-name"),
        (f"{1000:020}", 200, "gap"),
        (f"{801:020}", 200, "gap"),
        (f"{800:020}", 199, "file-length"),
        (f"{800:020}", 0, "file-length"),
    ],
)
def test_files_that_are_no_queue(root: Path, name: str, length: int, kind: str) -> None:
    (queue_folder(root) / name).write_bytes(bytes(length))
    with pytest.raises(mqstore.CorruptionError) as damage:
        mqstore.ConsumeQueue(queue_folder(root))
    assert damage.value.kind == kind


def test_folders_that_are_no_queue(root: Path) -> None:
    for folder in (root / "none", root / "checkpoint"):
        with pytest.raises(mqstore.NotAStoreError) as missing:
            mqstore.ConsumeQueue(folder)
        assert missing.value.path == str(folder)
    with pytest.raises(mqstore.CorruptionError, match="file-name"):
        mqstore.ConsumeQueue(root / "index")
    empty = root / "consumequeue" / "U" / "7"
    empty.mkdir(parents=True)
    queue = mqstore.ConsumeQueue(empty)
    assert (len(queue), queue.min_offset, queue.max_offset, list(queue)) == (0, 0, 0, [])
    assert (queue.file_size, queue.max_physical_offset) == (6_000_000, -1)
    assert mqstore.ConsumeQueue(empty, file_size=400).file_size == 400
    with pytest.raises(mqstore.CorruptionError, match="a multiple of 20 bytes"):
        mqstore.ConsumeQueue(empty, file_size=130)
    with pytest.raises(mqstore.CorruptionError, match="a file of 400 bytes"):
        mqstore.ConsumeQueue(queue_folder(root), file_size=400)


def test_reading_touches_nothing(root: Path) -> None:
    from helpers.files import stamps

    before = stamps(root)
    assert len(list(mqstore.ConsumeQueue(queue_folder(root)))) == 35
    assert len(list(mqstore.CommitLog(root / "commitlog"))) == 35
    mqstore.Checkpoint(root / "checkpoint")
    assert stamps(root) == before


# --- commit logs ------------------------------------------------------------------------------


def test_a_log_gives_its_messages(root: Path) -> None:
    log = mqstore.CommitLog(root / "commitlog")
    found = messages(root)
    assert list(log) == found
    assert (log.file_size, log.files) == (4096, log_files(root))
    assert (log.min_physical_offset, log.path) == (0, str(root / "commitlog"))
    assert log.max_physical_offset == found[-1].physical_offset + found[-1].store_size
    assert all(log.get(m.physical_offset) == m for m in found)
    half = found[17].physical_offset
    assert list(log.scan(start_physical_offset=half)) == found[17:]
    assert list(log.scan(start_physical_offset=half + 1)) == found[18:]
    assert list(log.scan(stop_physical_offset=half)) == found[:17]
    assert repr(log) == f"<CommitLog {log.path!r} from 0 to {log.max_physical_offset}>"


def test_a_log_says_why_it_has_no_message_there(root: Path) -> None:
    log = mqstore.CommitLog(root / "commitlog")
    for outside in (-1, log.max_physical_offset, 2**62):
        with pytest.raises(mqstore.OffsetOutOfRangeError) as missing:
            log.get(outside)
        assert missing.value.physical_offset == outside
        assert missing.value.max == log.max_physical_offset
    with pytest.raises(mqstore.MessageNotFoundError):
        log.get(1)


def test_a_log_whose_first_files_are_gone(root: Path) -> None:
    found = messages(root)
    (root / "commitlog" / f"{0:020}").unlink()
    log = mqstore.CommitLog(root / "commitlog")
    assert log.min_physical_offset == 4096
    assert list(log) == [m for m in found if m.physical_offset >= 4096]
    with pytest.raises(mqstore.OffsetOutOfRangeError):
        log.get(0)


def test_a_log_over_damage(root: Path) -> None:
    found = messages(root)
    path = root / "commitlog" / f"{0:020}"
    raw = bytearray(path.read_bytes())
    raw[found[9].physical_offset + 90] ^= 1
    path.write_bytes(raw)
    log = mqstore.CommitLog(root / "commitlog")
    with pytest.raises(mqstore.CorruptionError) as damage:
        list(log)
    assert (damage.value.path, damage.value.kind) == (str(path), "body-crc")
    with pytest.raises(mqstore.CorruptionError):
        log.get(found[9].physical_offset)
    scan = log.scan(on_error="skip")
    assert list(scan) == found[:9] + found[10:]
    assert (scan.skipped_ranges, scan.skipped_bytes) == (1, found[9].store_size)
    with pytest.raises(ValueError, match="on_error: expected one of raise, skip"):
        log.scan(on_error="stop")  # type: ignore[arg-type]


def test_a_torn_tail_is_not_part_of_a_log(root: Path) -> None:
    found = messages(root)
    path = root / "commitlog" / log_files(root)[-1]
    raw = bytearray(path.read_bytes())
    begin = found[-1].physical_offset % 4096
    raw[begin + 60 :] = bytes(len(raw) - begin - 60)
    path.write_bytes(raw)
    log = mqstore.CommitLog(root / "commitlog")
    assert list(log) == found[:-1]
    assert log.max_physical_offset == found[-1].physical_offset


@pytest.mark.parametrize(
    ("name", "length", "kind"),
    [
        ("notes", 4096, "file-name"),
        (f"{1 << 20:020}", 4096, "gap"),
        (f"{8192 * 2 + 1:020}", 4096, "gap"),
    ],
)
def test_files_that_are_no_log(root: Path, name: str, length: int, kind: str) -> None:
    (root / "commitlog" / name).write_bytes(bytes(length))
    with pytest.raises(mqstore.CorruptionError) as damage:
        mqstore.CommitLog(root / "commitlog")
    assert damage.value.kind == kind


def test_folders_that_are_no_log(tmp_path: Path, root: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "none", tmp_path / "empty", root / "checkpoint"):
        with pytest.raises(mqstore.NotAStoreError):
            mqstore.CommitLog(folder)
    with pytest.raises(mqstore.CorruptionError, match="a file of 8192 bytes"):
        mqstore.CommitLog(root / "commitlog", file_size=8192)


# --- checkpoints ------------------------------------------------------------------------------


def test_a_checkpoint_shows_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqq", TIME + 9, TIME + 5, TIME, -3, 2**62).ljust(4096, b"\0"))
    found = mqstore.Checkpoint(path)
    assert found.physic_msg_timestamp_ms == TIME + 9
    assert found.logics_msg_timestamp_ms == TIME + 5
    assert found.index_msg_timestamp_ms == TIME
    assert (found.master_flushed_offset, found.confirm_physical_offset) == (-3, 2**62)
    assert found.min_timestamp_ms == TIME + 5 - 3_000
    assert found.min_timestamp_index_ms == TIME + 5 - 3_000
    assert found == mqstore.Checkpoint(str(path))
    same: Any = pickle.loads(pickle.dumps(found))
    assert (same, hash(same)) == (found, hash(found))
    path.write_bytes(bytes(4096))
    zeros = mqstore.Checkpoint(path)
    assert zeros != found
    assert zeros.min_timestamp_ms == zeros.min_timestamp_index_ms == 0
    # It is as it was read.
    assert found.index_msg_timestamp_ms == TIME
    assert f"index_msg_timestamp_ms={TIME}" in repr(found)


@pytest.mark.parametrize("length", [0, 7, 8, 23, 24, 39, 40])
def test_missing_bytes_of_a_checkpoint_read_as_zero(tmp_path: Path, length: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqq", 1, 2, 3, 4, 5)[:length])
    found = mqstore.Checkpoint(path)
    fields = [
        found.physic_msg_timestamp_ms,
        found.logics_msg_timestamp_ms,
        found.index_msg_timestamp_ms,
        found.master_flushed_offset,
        found.confirm_physical_offset,
        found.logics_physical_offset,
    ]
    assert fields == [n + 1 if length >= 8 * (n + 1) else 0 for n in range(6)]


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(mqstore.StoreIOError) as missing:
        mqstore.Checkpoint(tmp_path / "none")
    assert (missing.value.errno, missing.value.filename) == (2, str(tmp_path / "none"))
    with pytest.raises(mqstore.StoreIOError):
        mqstore.Checkpoint(tmp_path)
