"""Recovery: cases RC01 to RC06 of tests/cases.md. The others are in tests/rust/recovery.rs."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

import mqstore
from helpers.files import copy_store, index_files, stamps
from helpers.stores import TIME, TINY, crashed_copy, message, next_offset, offsets, queue_folder


def put(store: mqstore.Store, count: int, start: int = 0) -> list[mqstore.AppendResult]:
    """Messages in two queues, each with a key of its own."""
    return store.append_many(
        [
            message(queue_id=n % 2, keys=f"k{n}", body=b"x" * (n % 50), store_timestamp_ms=TIME + n)
            for n in range(start, start + count)
        ]
    )


def check(root: Path, count: int, *, keys: bool = True) -> None:
    """Every message is in the log, in its queue and under its key, each once."""
    with mqstore.open(root, config=TINY) as store:
        assert [m.store_timestamp_ms for m in store.scan()] == [TIME + n for n in range(count)]
        for queue in (0, 1):
            found = store.read("T", queue, 0, max_messages=count + 1)
            assert [m.store_timestamp_ms for m in found.messages] == [
                TIME + n for n in range(queue, count, 2)
            ]
            assert [m.queue_offset for m in found.messages] == list(range(len(found.messages)))
        for number in range(count) if keys else ():
            for exact in (True, False):
                (one,) = store.query("T", f"k{number}", exact=exact)
                assert one.store_timestamp_ms == TIME + number
    assert mqstore.verify(root, config=TINY).ok


def replace(root: Path, folder: str, source: Path) -> None:
    """A folder of one store in place of that of another."""
    shutil.rmtree(root / folder)
    copy_store(source / folder, root / folder)


def zero(path: Path, begin: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(count))


def test_rc01_clean_restart(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        put(store, 100)
        end, queues = store.max_physical_offset, store.queues()
    before = stamps(tmp_path)
    for mode in ("r+", "r"):
        with mqstore.open(tmp_path, mode, config=TINY) as store:
            assert store.max_physical_offset == end
            assert store.queues() == queues
            if store.recovery is not None:
                assert store.recovery.mode == "clean"
                assert store.recovery.end_physical_offset == end
                assert (store.recovery.dispatched, store.recovery.cut) == (0, 0)
                assert store.recovery.rebuilt == ()
    after = stamps(tmp_path)
    data = [name for name in before if name.startswith(("commitlog/", "consumequeue/", "index/"))]
    assert {name: after[name][3] for name in data} == {name: before[name][3] for name in data}
    check(tmp_path, 100)


@pytest.mark.parametrize("crash", [False, True])
def test_rc02_last_message_damaged(tmp_path: Path, crash: bool) -> None:
    root = tmp_path / "store"
    live = tmp_path / "live"
    with mqstore.open(live, "a", config=TINY) as store:
        put(store, 100)
        end = store.max_physical_offset
        queue_end = next_offset(store, queue_id=0)
        (last,) = put(store, 1, start=100)
        if crash:
            store.flush()
            crashed_copy(store, root)
    if not crash:
        copy_store(live, root)
    body = 100 % 50
    topic_length = last.physical_offset + 88 + body
    base = topic_length // 4096 * 4096
    end = max(end, base) if last.physical_offset == base else end
    zero(root / "commitlog" / f"{base:020}", topic_length - base, 16)
    with mqstore.open(root, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == ("crash" if crash else "clean")
        assert store.recovery.end_physical_offset == last.physical_offset
        assert 0 < store.recovery.cut <= last.store_size
        assert store.recovery.cut_reason
        assert store.recovery.quarantined_messages == ()
        assert store.max_physical_offset == last.physical_offset == end
        assert next_offset(store, queue_id=0) == queue_end
        quarantine = store.recovery.quarantine
        assert quarantine is not None
        kept = [path for path in Path(quarantine).rglob("*") if path.is_file()]
        time = struct.pack(">q", TIME + 100)
        assert any(time in path.read_bytes() for path in kept)
        for folder in ("commitlog", "consumequeue", "index"):
            assert not Path(quarantine).is_relative_to(root / folder)
        results = put(store, 100, start=100)
        assert results[0].physical_offset == last.physical_offset
        assert results[0].queue_offset == queue_end
    check(root, 200)


@pytest.mark.parametrize("dispatched", [0, 1, 60, 99])
def test_rc03_crash_before_all_was_dispatched(tmp_path: Path, dispatched: int) -> None:
    part, root = tmp_path / "part", tmp_path / "store"
    live = tmp_path / "live"
    with mqstore.open(live, "a", config=TINY) as store:
        put(store, dispatched)
        store.flush()
        crashed_copy(store, part)
        put(store, 100 - dispatched, start=dispatched)
        store.flush()
        crashed_copy(store, root)
    shutil.copy(part / "checkpoint", root / "checkpoint")
    for folder in ("consumequeue", "index"):
        if (part / folder).is_dir():
            replace(root, folder, part)
        else:
            shutil.rmtree(root / folder)
    with mqstore.open(root, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
        assert store.recovery.dispatched >= 100 - dispatched
        assert len(offsets(store)) == 100
    check(root, 100)


@pytest.mark.parametrize("crash", [False, True])
def test_rc04_queues_reach_past_the_log(tmp_path: Path, crash: bool) -> None:
    root, live = tmp_path / "store", tmp_path / "live"
    with mqstore.open(live, "a", config=TINY) as store:
        put(store, 100)
        store.flush()
        crashed_copy(store, root)
        put(store, 10, start=100)
    for folder in ("consumequeue", "index"):
        replace(root, folder, live)
    if not crash:
        (root / "abort").unlink()
    assert len(mqstore.ConsumeQueue(queue_folder(root))) == 55
    with mqstore.open(root, config=TINY) as store:
        assert next_offset(store) == 50
        assert len(store.read("T", 0, 0, max_messages=100).messages) == 50
    with mqstore.open(root, "r+", config=TINY) as store:
        assert next_offset(store) == 50
    assert len(mqstore.ConsumeQueue(queue_folder(root))) == 50
    check(root, 100)
    with mqstore.open(root, "r+", config=TINY) as store:
        put(store, 30, start=100)
    check(root, 130)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("gone", [("consumequeue",), ("index",), ("consumequeue", "index")])
def test_rc05_queues_or_index_deleted(tmp_path: Path, gone: tuple[str, ...], crash: bool) -> None:
    root, live = tmp_path / "store", tmp_path / "live"
    with mqstore.open(live, "a", config=TINY) as store:
        put(store, 300)
        store.flush()
        if crash:
            crashed_copy(store, root)
    if not crash:
        copy_store(live, root)
    assert len(index_files(live)) > 3
    for folder in gone:
        shutil.rmtree(root / folder)
    before = stamps(root)
    check_reading(root, 300)
    assert stamps(root) == before
    with mqstore.open(root, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert len(store.recovery.rebuilt) > 0
        assert next_offset(store) == 150
    check(root, 300)
    for queue in (0, 1):
        made = sorted(queue_folder(root, "T", queue).iterdir())
        first = sorted(queue_folder(live, "T", queue).iterdir())
        assert [path.name for path in made] == [path.name for path in first]
        assert [path.read_bytes() for path in made] == [path.read_bytes() for path in first]
    made_index = [path.read_bytes() for path in index_files(root)]
    assert made_index == [path.read_bytes() for path in index_files(live)]


def check_reading(root: Path, count: int) -> None:
    """A reader finds everything beside the damage too."""
    with mqstore.open(root, config=TINY) as store:
        for queue in (0, 1):
            found = store.read("T", queue, 0, max_messages=count)
            assert len(found.messages) == count // 2
        for number in range(0, count, 7):
            (one,) = store.query("T", f"k{number}")
            assert one.store_timestamp_ms == TIME + number


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crash"])
def test_rc06_the_log_deleted(tmp_path: Path, crash: bool) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        put(store, 40)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    if crash:
        (tmp_path / "abort").write_text("1")
    before = stamps(tmp_path / "consumequeue")
    with pytest.raises(mqstore.CorruptionError, match="recover --apply"):
        mqstore.open(tmp_path, "r+", config=TINY)
    assert not mqstore.recover(tmp_path, config=TINY).applied
    assert stamps(tmp_path / "consumequeue") == before
    # Only when told to.
    with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
        mqstore.recover(tmp_path, dry_run=False, config=TINY)
    assert mqstore.recover(tmp_path, dry_run=False, drop_beyond=True, config=TINY).applied
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert list(store.scan()) == []
        assert [queue for queue in store.queues() if queue.max_offset > queue.min_offset] == []
        assert store.append("T", b"first").physical_offset == 0
    assert mqstore.verify(tmp_path, config=TINY).ok


@pytest.mark.parametrize("crash", [False, True])
def test_rc06_the_last_file_of_the_log_deleted(tmp_path: Path, crash: bool) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        put(store, 40)
        lengths = [item.max_offset for item in store.queues()]
    paths = sorted((tmp_path / "commitlog").iterdir())
    last = max(number for number, path in enumerate(paths) if any(path.read_bytes()))
    assert last > 0
    for path in paths[last:]:
        path.unlink()
    before = stamps(tmp_path / "consumequeue")
    if crash:
        # As in a store that RocketMQ wrote: nothing proves that the file was never durable.
        (tmp_path / "abort").write_text("1")
        (tmp_path / "mqstore.mark").unlink()
        with (tmp_path / "checkpoint").open("r+b") as file:
            file.write(bytes(48))
        for refused in (
            lambda: mqstore.recover(tmp_path, dry_run=False, config=TINY),
            lambda: mqstore.open(tmp_path, "r+", config=TINY),
        ):
            with pytest.raises(mqstore.CorruptionError, match="--drop-beyond"):
                refused()
        assert stamps(tmp_path / "consumequeue") == before
        assert mqstore.recover(tmp_path, dry_run=False, drop_beyond=True, config=TINY).applied
    else:
        told = f"from {int(paths[last].name)} on.*--apply"
        with pytest.raises(mqstore.CorruptionError, match=told):
            mqstore.open(tmp_path, "r+", config=TINY)
        plan = mqstore.recover(tmp_path, config=TINY)
        assert plan.damage is not None
        assert not plan.applied
        assert stamps(tmp_path / "consumequeue") == before
        assert mqstore.recover(tmp_path, dry_run=False, drop_beyond=True, config=TINY).applied
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        left = len(list(store.scan()))
        assert 0 < left < sum(lengths)
        assert sum(item.max_offset for item in store.queues()) == left
    assert mqstore.verify(tmp_path, config=TINY).ok


@pytest.mark.parametrize("left", [0, 30, 60, 199])
def test_rc05_the_only_queue_file_was_cut_short(tmp_path: Path, left: int) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(keys=f"k{number}") for number in range(7)])
    (path,) = queue_folder(tmp_path).iterdir()
    whole = path.read_bytes()
    os.truncate(path, left)
    with mqstore.open(tmp_path, config=TINY) as store:
        assert len(store.read("T", 0, 0).messages) == 7
    assert path.stat().st_size == left
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert len(store.read("T", 0, 0).messages) == 7
    assert path.read_bytes() == whole
    assert mqstore.verify(tmp_path, config=TINY).ok
