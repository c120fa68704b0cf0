"""Scans of logs so long that a thread reads ahead of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stores import message

import mqstore

COUNT = 750
FILE = 4 << 20
CONFIG = {"mapped_file_size_commit_log": FILE}


def body(number: int) -> bytes:
    return b"%08d" % number * (2 << 10)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 12 MiB in three files."""
    with mqstore.open(tmp_path, "a", config=CONFIG) as store:
        tags = ["few" if number % 100 == 0 else "many" for number in range(COUNT)]
        store.append_many([message(body=body(n), tags=tag) for n, tag in enumerate(tags)])
    return tmp_path


def reading_threads() -> int:
    """How many threads of this process read ahead of scans."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:
            # It has just ended.
            continue
    return names.count("mqstore-scan\n")


def test_a_scan_on_two_threads_gives_every_message(root: Path) -> None:
    with mqstore.open(root) as store:
        scan = store.scan()
        found = []
        place = 0
        for number, stored in enumerate(scan):
            assert stored.body == body(number)
            assert place <= stored.physical_offset
            place = stored.physical_offset + stored.store_size
            assert scan.physical_offset >= place
            found.append(stored.queue_offset)
        assert found == list(range(COUNT))
        assert (scan.skipped_ranges, scan.skipped_bytes) == (0, 0)
        tagged = [stored.queue_offset for stored in store.scan(tags="few")]
        assert tagged == list(range(0, COUNT, 100))


@pytest.mark.parametrize("number", [30, 700])
def test_damage_comes_behind_what_lies_before_it(root: Path, number: int) -> None:
    with mqstore.open(root) as store:
        damaged = [*store.scan()][number]
        path = root / "commitlog" / f"{damaged.physical_offset // FILE * FILE:020}"
    with path.open("r+b") as file:
        file.seek(damaged.physical_offset % FILE + 1000)
        file.write(b"?")
    with mqstore.open(root) as store:
        scan = store.scan()
        found = [next(scan).queue_offset for _ in range(number)]
        assert found == list(range(number))
        with pytest.raises(mqstore.CorruptionError) as damage:
            next(scan)
        assert (damage.value.path, damage.value.kind) == (str(path), "body-crc")
        assert scan.physical_offset == damaged.physical_offset
        assert list(scan) == []
        scan = store.scan(on_error="skip")
        rest = [n for n in range(COUNT) if n != number]
        assert [stored.queue_offset for stored in scan] == rest
        assert (scan.skipped_ranges, scan.skipped_bytes) == (1, damaged.store_size)


def test_a_scan_that_is_left_leaves_no_thread(root: Path) -> None:
    with mqstore.open(root) as store:
        scan = store.scan()
        for _ in range(100):
            next(scan)
        # On one processor nothing is read by threads.
        assert reading_threads() == (1 if (os.cpu_count() or 1) > 1 else 0)
        del scan
        assert reading_threads() == 0


def test_a_scan_of_a_closed_store_ends(root: Path) -> None:
    store = mqstore.open(root)
    scan = store.scan()
    for _ in range(100):
        next(scan)
    store.close()
    with pytest.raises(mqstore.StoreClosedError):
        # What was read before may come first.
        for _ in scan:
            pass
    assert list(scan) == []
