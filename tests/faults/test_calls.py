"""Calls to the system that fail, or never come back, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.disks import need_strace
from helpers.writer import SETTINGS
from helpers.writing import lost, number, writer

if TYPE_CHECKING:
    from pathlib import Path

SEED = number("MQSTORE_SEED", 20261121)
POINTS = number("MQSTORE_FAULT_POINTS", 3)
FLUSHES = ["fdatasync", "msync", "fsync", "fallocate", "ftruncate", "rename", "mkdir", "pwrite64"]


def injected(call: str, what: str, when: int) -> tuple[str, ...]:
    """Lets the ``when``-th such call below the store's folder go wrong."""
    return ("strace", "-D", "-f", "-o", "/dev/null", "-e", f"inject={call}:{what}:when={when}")


def whens(call: str, what: str) -> list[int]:
    """At which calls; the interpreter makes many before there is a store."""
    dice = random.Random(f"{SEED}/{call}/{what}")
    many = {"openat": (200, 420), "mmap": (60, 130), "mkdir": (1, 12), "pwrite64": (1, 60)}
    return dice.sample(range(*many.get(call, (1, 40))), POINTS)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", [*FLUSHES, "openat", "mmap"])
def test_fl04_a_call_that_fails_loses_nothing(tmp_path: Path, call: str, error: str) -> None:
    need_strace()
    for when in whens(call, error):
        root = tmp_path / f"{when}"
        under = injected(call, f"error={error}", when)
        with writer(root, "SYNC_FLUSH", count=60, under=under) as at_work:
            at_work.listen(61)
            assert at_work.process.stdin is not None
            at_work.process.stdin.close()
            at_work.end()
            code = at_work.process.wait(60)
        # An interpreter that could not load something is no store that died.
        assert code >= 0, f"{call} number {when}: signal {-code}"
        if (root / "commitlog").is_dir() and any((root / "commitlog").iterdir()):
            assert lost(root, at_work.told) == [], f"{call} number {when}, MQSTORE_SEED={SEED}"
        else:
            assert not at_work.told


@pytest.mark.parametrize("call", [*FLUSHES, "unlink"])
def test_rc14_killed_at_a_call(tmp_path: Path, call: str) -> None:
    need_strace()
    for when in whens(call, "killed"):
        root = tmp_path / f"{when}"
        under = injected(call, "signal=SIGKILL", when)
        with writer(root, "SYNC_FLUSH", count=60, under=under) as at_work:
            at_work.listen(61)
            assert at_work.process.stdin is not None
            at_work.process.stdin.close()
            at_work.end()
        if (root / "commitlog").is_dir():
            assert lost(root, at_work.told) == [], f"{call} number {when}, MQSTORE_SEED={SEED}"
        else:
            assert not at_work.told


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/topic0/0", "index"])
def test_hm01_a_file_cut_short_under_a_reader_is_an_error(tmp_path: Path, folder: str) -> None:
    with mqstore.open(tmp_path, "a", config=SETTINGS) as store:
        for n in range(400):
            store.append(f"topic{n % 3}", b"%d" % n, queue_id=n % 2, keys=f"k{n}")
    dice = random.Random(f"{SEED}/{folder}")
    with mqstore.open(tmp_path, config=SETTINGS) as store:
        paths = sorted((tmp_path / folder).iterdir())
        for path in paths[:2]:
            size = path.stat().st_size
            for length in sorted((dice.randrange(size) for _ in range(6)), reverse=True):
                os.truncate(path, length)
                with contextlib.suppress(mqstore.StoreError):
                    assert sum(1 for _ in store.scan()) <= 400
                    for name in range(0, 400, 40):
                        store.query(f"topic{name % 3}", f"k{name}")
                    store.read("topic0", 0, 0, max_messages=100)


def test_hm01_a_queue_cut_short_under_a_writer_ends_its_writing(tmp_path: Path) -> None:
    config = {"mapped_file_size_consume_queue": 2_000, "flush_disk_type": "SYNC_FLUSH"}
    with mqstore.open(tmp_path, "a", config=config) as store:
        for n in range(90):
            store.append("T", b"%d" % n, queue_id=n % 3)
        store.flush()
        os.truncate(tmp_path / "consumequeue" / "T" / "0" / f"{0:020}", 100)
        store.append("T", b"one more")
        with pytest.raises(mqstore.StoreError):
            store.flush()
        with pytest.raises(mqstore.StorePoisonedError):
            store.append("T", b"never")
        with pytest.raises(mqstore.StoreError):
            store.close()
    with mqstore.open(tmp_path, "r+", config=config) as store:
        assert len(store.read("T", 0, 0, max_messages=100).messages) == 31
