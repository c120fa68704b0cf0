"""Backups keep what they should: beside prunes, broken syncs, wrong stores and hostile objects."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY, log_bytes
from mqstore.backup import syncing, upkeep
from mqstore.backup.snapshot import document_name
from mqstore.backup.target import _Folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of several files."""
    root = tmp_path / "store"
    append(root, 60)
    return root


def append(root: Path, count: int = 1) -> None:
    with mqstore.open(root, "a", config=TINY) as made:
        for number in range(count):
            made.append("T", b"body %d" % number, keys=f"k{number}", queue_id=number % 2)


def age(path: Path, hours: float) -> None:
    """Makes files so much older."""
    for file in [path, *path.rglob("*")]:
        if file.is_file():
            status = file.stat()
            os.utime(file, (status.st_atime, status.st_mtime - 3600 * hours))


def snapshots_in_hours(store: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three snapshots, each an hour after the one before; the last is 40 hours old."""
    clock = syncing.time.time_ns
    made = []
    for hour in (42, 41, 40):
        append(store)
        with monkeypatch.context() as patch:
            patch.setattr(syncing.time, "time_ns", lambda: clock() - hour * 3600 * 10**9)
            made.append(mqstore.sync(store, backup).snapshot)
        age(backup / document_name(made[-1]), hour)
    return made


def test_prune_keeps_all_hours_where_there_are_fewer_than_asked_for(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    made = snapshots_in_hours(store, backup, monkeypatch)
    for count, left in ((5, made), (3, made), (2, made[1:]), (0, made[2:])):
        report = mqstore.prune(backup, keep=timedelta(0), keep_hourly=count)
        assert report.kept == tuple(left)
    with pytest.raises(ValueError, match="keep_hourly: expected 0 or more"):
        mqstore.prune(backup, keep=timedelta(0), keep_hourly=-1)
    with pytest.raises(ValueError, match="keep: expected 0 or more"):
        mqstore.prune(backup, keep=timedelta(-1))
