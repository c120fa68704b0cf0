"""Disks without room: one that says so, and one that lies about it."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers import environment
from helpers.disks import MIB, disk, memory_disk, need_disk, run
from helpers.filler import CONFIG
from helpers.limited import config_of
from helpers.writer import SETTINGS
from helpers.writing import lost, number, writer

if TYPE_CHECKING:
    from pathlib import Path

LIES = number("MQSTORE_LYING_DISKS", 2)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_fl06_a_full_disk_is_an_error_and_passes(kind: str) -> None:
    need_disk("ext4")
    config = {**SETTINGS, "mapped_file_size_commit_log": 1 * MIB}
    small = memory_disk(8 * MIB) if kind == "tmpfs" else disk("ext4", size=16 * MIB)
    with small as made:
        folder = made if kind == "tmpfs" else made.folder
        fill_and_go_on(folder, config)
        gc.collect()


def fill_and_go_on(folder: Path, config: dict[str, object]) -> None:
    """Appends until there is no room, makes some, and appends again; all of it is there."""
    ballast = folder / "ballast"
    room = os.statvfs(folder)
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 3 * MIB))
    with mqstore.open(folder / "store", "a", config=config) as store:
        told, error = 0, None
        while error is None:
            try:
                store.append("full", b"x" * 10_000, keys=f"k{told}")
                told += 1
            except OSError as full:
                error = full.errno
        assert error == errno.ENOSPC
        assert told > 0
        assert sum(1 for _ in store.scan()) == told
        ballast.unlink()
        store.append("full", b"there is room again", keys=f"k{told}")
    with mqstore.open(folder / "store", "r+", config=config) as store:
        assert sum(1 for _ in store.scan()) == told + 1
    assert mqstore.verify(folder / "store", config=config).ok


@pytest.mark.parametrize(("flush", "length"), [("ASYNC_FLUSH", 0), ("SYNC_FLUSH", 20_000)])
def test_a_store_on_a_full_disk_is_closed_in_good_order(flush: str, length: int) -> None:
    """The space that appends leave free is enough for entries, index, checkpoint and seal."""
    need_disk("ext4")
    config = {**SETTINGS, "mapped_file_size_commit_log": 4 * MIB, "flush_disk_type": flush}
    with disk("ext4", size=32 * MIB) as made:
        root, told, full = made.folder / "store", 0, None
        with mqstore.open(root, "a", config=config) as store:
            while full is None:
                try:
                    store.append(
                        f"topic{told % 7}", bytes(length), queue_id=told % 3, keys=f"k{told}"
                    )
                    told += 1
                except OSError as error:
                    full = error
        assert full.errno == errno.ENOSPC
        assert "bytes free, and" in str(full)
        assert told > 100
        assert not (root / "abort").exists()
        with mqstore.open(root, config=config) as store:
            assert sum(1 for _ in store.scan()) == told
            assert len(store.query(f"topic{(told - 1) % 7}", f"k{told - 1}")) == 1
        gc.collect()


QUERIES = """
import sys
from pathlib import Path
import mqstore

root, ballast = map(Path, sys.argv[1:])
with mqstore.open(root, "r+") as store:
    (index,) = (root / "index").iterdir()
    with mqstore.IndexFile(index) as file, ballast.open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
        for number in range(100):
            assert not list(store.query("T", f"unknown{number}"))
            assert not list(file.select(f"T#unknown{number}"))
    ballast.unlink()
"""


def test_a_query_on_a_full_disk_in_memory_sends_no_signal() -> None:
    """There a read of a hole through a map takes space."""
    need_disk("ext4")
    with memory_disk(64 * MIB) as folder:
        with mqstore.open(
            folder / "store", "a", config={"mapped_file_size_commit_log": 4 * MIB}
        ) as store:
            store.append("T", b"body", keys="known")
        program = [sys.executable, "-c", QUERIES, folder / "store", folder / "ballast"]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_store_whose_room_others_took_says_so_and_refuses_appends() -> None:
    """Close gave its space back, and appends must find it."""
    need_disk("ext4")
    config = {"mapped_file_size_commit_log": 4 * MIB}
    with disk("ext4", size=96 * MIB) as made:
        root, ballast = made.folder / "store", made.folder / "ballast"
        with mqstore.open(root, "a", config=config) as store:
            store.append("T", b"first", keys="k0")
        for left in (6 * MIB, 30 * MIB):
            room = os.statvfs(made.folder)
            ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - left))
            with mqstore.open(root, "r+") as store:
                assert "nothing can be appended" in store.warnings[-1]
                with pytest.raises(OSError, match="bytes free, and") as full:
                    store.append("T", b"refused", keys="k0")
                assert full.value.errno == errno.ENOSPC
                assert [m.body for m in store.query("T", "k0")] == [b"first"]
            ballast.unlink()
        with mqstore.open(root, "r+") as store:
            store.append("T", b"second", keys="k1")
        with mqstore.open(root) as store:
            assert [m.body for m in store.query("T", "k1")] == [b"second"]
        assert mqstore.verify(root).ok
        gc.collect()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_fl06_a_disk_that_fills_up_block_by_block_sends_no_signal(kind: str) -> None:
    """A page with half of its space, be it a large one of the cache, must not be written."""
    need_disk(kind)
    with disk(kind) as made:
        seed = number("MQSTORE_SEED", 61)
        program = [sys.executable, "-m", "helpers.filler", made.folder, str(seed)]
        done = subprocess.run(
            program, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (seed, done.returncode, done.stderr)
        took, refused = map(int, done.stdout.split())
        assert took > 1
        assert refused > 1
        store = made.folder / "store"
        with mqstore.open(store, "r+", config=CONFIG) as again:
            assert sum(1 for _ in again.scan()) == took
        assert mqstore.verify(store, config=CONFIG).ok
        gc.collect()


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_file_that_cannot_have_its_length_is_removed(
    tmp_path: Path, flush: str, kind: str
) -> None:
    """A limit on the size of files (EFBIG) is lifted: the same writer goes on."""
    program = [sys.executable, "-m", "helpers.limited", tmp_path / "store", flush, kind]
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    config = config_of(flush, kind)
    with mqstore.open(tmp_path / "store", "r+", config=config) as store:
        bodies = [message.body for message in store.scan()]
        assert [message.body for message in store.query("limited", "again")] == bodies[-1:]
    assert bodies[-1] == b"again"
    assert mqstore.verify(tmp_path / "store", config=config).ok


def test_fl05_a_disk_that_lies_about_its_room_is_an_error_and_no_silence() -> None:
    """It claims 64 MiB and has 12: what it takes and cannot keep, it tells of at the next flush."""
    need_disk("ext4")
    gone = [len(told_and_lost(100_000, by_page=False)) for _ in range(LIES)]
    # Now and then the loop device calls a write done of which only the beginning found room (see
    # docs/guarantees.md): never more than that one message.
    assert sum(gone) <= LIES // 50 + 1, gone


def test_fl05_a_disk_that_refuses_what_it_cannot_keep_loses_nothing() -> None:
    """The same, but each write is kept or refused as a whole."""
    need_disk("ext4")
    lengths = [20_000 + number * 7919 % 80_000 for number in range(LIES)]
    gone = [told_and_lost(length, by_page=True) for length in lengths]
    assert not any(gone), gone


def told_and_lost(length: int, *, by_page: bool) -> list[int]:
    """Writes until the disk refuses, and gives what was acknowledged and is not there."""
    with (
        memory_disk(12 * MIB) as memory,
        disk("ext4", size=64 * MIB, backing=memory, by_page=by_page) as made,
    ):
        root = made.folder / "store"
        with writer(root, "SYNC_FLUSH", length=length) as at_work:
            while at_work.listen(1):
                pass
            assert at_work.refused is not None, "the writer died"
            assert at_work.process.poll() is None
            told = at_work.told
        assert len(told) > 10
        made.unmount()
        # The recovery has the room that was promised.
        run("mount", "-o", f"remount,size={128 * MIB}", memory)
        made.mount()
        gone = lost(root, told, length)
        assert set(gone) <= {max(told)}
        gc.collect()
        return gone


def test_a6_a_disk_without_inodes_refuses_appends_and_closes_the_store() -> None:
    need_disk("ext4")
    config = {**SETTINGS, "mapped_file_size_commit_log": 1 * MIB}
    with memory_disk(32 * MIB) as folder:
        run("mount", "-o", "remount,nr_inodes=100", folder)
        with mqstore.open(folder / "store", "a", config=config) as store:
            told, error = 0, None
            while error is None:
                try:
                    store.append(f"t{told}", b"x", keys=f"k{told}")
                    told += 1
                except OSError as full:
                    error = full
            assert error.errno == errno.ENOSPC
            assert "inodes free" in str(error)
            assert 5 < told < 30
            store.append("t0", b"a queue that is there")
        with mqstore.open(folder / "store", "r+", config=config) as store:
            assert sum(1 for _ in store.scan()) == told + 1
        assert mqstore.verify(folder / "store", config=config).ok
