"""Disks without room."""

from __future__ import annotations

import errno
import gc
import os
from typing import TYPE_CHECKING

import pytest
from disks import MIB, disk, memory_disk, need_disk
from writer import SETTINGS

import mqstore

if TYPE_CHECKING:
    from pathlib import Path


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
