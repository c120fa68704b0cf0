"""Stray files in a store, and settings with odd values: what a start of RocketMQ makes of them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from mqstore._settings import read_as_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
PARAMS: dict[str, Any] = {"storeConfig": SETTINGS}
# A name, and its bytes; `None` for a folder.
STRAY: list[tuple[str, int | None]] = [
    ("zzz", 0),
    ("!notes", 0),
    ("zzz", 100),
    ("!notes", 100),
    (".nfs0001", 8192),
    (".nfs0001", 2000),
    ("zzz", 8192),
    ("zzz", 2000),
    (".DS_Store", 6148),
    (",", None),
    ("zzz", None),
]


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p2_a_start_on_stray_files_is_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, folder: str
) -> None:
    rocketmq = running(version)
    healthy = tmp_path / "healthy"
    with mqstore.open(healthy, "a", config=SETTINGS) as store:
        for number in range(60):
            store.append("T", b"x" * 300, queue_id=0, keys=f"k{number}")
    for number, (name, size) in enumerate(STRAY):
        root = shutil.copytree(healthy, tmp_path / f"{number}")
        stray = root / folder / name
        if size is None:
            stray.mkdir()
        else:
            stray.write_bytes(b"\0" * size)
        report = mqstore.preflight(root, to=(version or "5.3")[:3], config=SETTINGS)
        starts = rocketmq.starts(root, PARAMS)
        place = f"{folder}/{name} of {size} bytes with {version or '5.3'}"
        assert report.starts == starts, f"{place}: {report.notes}"
        gone = not stray.exists()
        told = [note for note in report.notes if "deletes" in note.what and name in note.what]
        assert bool(told) == gone, place


@pytest.mark.parametrize(
    "value", ["8192", "8192 ", " 8192", "8192\t", "+8192", "8_192", "8192.0", "0x2000", "08192"]
)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p16_rocketmq_reads_sizes_as_we_say(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, value: str
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        store.append("T", b"x")
    rocketmq = running(version)
    # A log of other files than it expects keeps RocketMQ from starting.
    params = {"storeConfig": SETTINGS | {"mappedFileSizeCommitLog": value}}
    reads = rocketmq.starts(root, params)
    taken = read_as_broker("mapped_file_size_commit_log", value)
    assert reads == (taken == 8192), taken
