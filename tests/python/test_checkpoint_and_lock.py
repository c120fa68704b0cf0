"""Checkpoint, abort, lock: cases CK of tests/cases.md; beside RocketMQ: tests/differential."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import mqstore
from helpers.files import copy_store, stamps
from helpers.stores import TIME, TINY, crashed_copy, message, offsets, queue_folder, times

if TYPE_CHECKING:
    from pathlib import Path


def test_ck03_abort_and_lock_of_an_open_store(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY):
        assert (tmp_path / "abort").read_text() == str(os.getpid())
        assert (tmp_path / "lock").read_bytes() == b"lock"
        assert mqstore.lock_state(tmp_path) == (True, os.getpid())
    assert mqstore.lock_state(tmp_path) == (False, None)


def test_open_waits_for_another_writer(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=TINY)
    with pytest.raises(mqstore.StoreLockedError, match=r'close it there.*mode "r"'):
        mqstore.open(tmp_path, "r+", timeout=0)
    waits = threading.Event()
    closing = threading.Thread(target=lambda: (waits.wait(), store.close()))
    closing.start()
    # Set by the first attempt, so that this test waits for as long as a close takes.
    with (
        mock.patch.object(time, "sleep", side_effect=lambda _: waits.set()),
        mqstore.open(tmp_path, "r+", timeout=math.inf) as second,
    ):
        assert second.mode == "r+"
    closing.join()
    for impossible in (-1, math.nan, "1"):
        with pytest.raises((ValueError, TypeError), match="timeout"):
            mqstore.open(tmp_path, "r+", timeout=impossible)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"1", b"not a number", b"\xff" * 100])
def test_ck03_content_of_abort_is_never_trusted(tmp_path: Path, content: bytes) -> None:
    times(tmp_path, [TIME] * 3)
    (tmp_path / "abort").write_bytes(content)
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
        assert len(offsets(store)) == 3


def test_ck04_clean_close(tmp_path: Path) -> None:
    times(tmp_path, [TIME] * 3)
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "clean"
        assert (tmp_path / "abort").exists()


def test_ck05_open_again_in_the_same_process(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"body")
        before = stamps(tmp_path)
        for mode in ("r+", "a"):
            begin = time.monotonic()
            with pytest.raises(mqstore.StoreLockedError) as refused:
                mqstore.open(tmp_path, mode, config=TINY)
            assert time.monotonic() - begin < 1
            assert refused.value.pid == os.getpid()
            assert f"already open by pid {os.getpid()}" in str(refused.value)
        assert stamps(tmp_path) == before
        with mqstore.open(tmp_path, config=TINY) as reader:
            assert len(offsets(reader)) == 1
        # The attempts have not taken the lock away.
        assert mqstore.lock_state(tmp_path) == (True, os.getpid())
        store.append("T", b"body")


_OPEN = """
import mqstore, sys, time
begin = time.monotonic()
try:
    mqstore.open(sys.argv[1], sys.argv[2])
except mqstore.StoreLockedError as refused:
    print(refused.pid, time.monotonic() - begin, refused)
"""


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_ck05_open_in_another_process(tmp_path: Path, mode: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"body")
        before = stamps(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", _OPEN, str(tmp_path), mode],
            check=True,
            capture_output=True,
            text=True,
        )
        assert stamps(tmp_path) == before
    pid, seconds, text = done.stdout.split(maxsplit=2)
    assert int(pid) == os.getpid()
    assert float(seconds) < 1
    assert f"already open by pid {os.getpid()}" in text


def test_ck05_refused_before_anything_is_repaired(tmp_path: Path) -> None:
    """Repairs wait while another process has the store."""
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message()] * 5)
        store.flush()
        (queue_folder(tmp_path) / f"{0:020}").unlink()
        before = stamps(tmp_path)
        with pytest.raises(mqstore.StoreLockedError):
            mqstore.open(tmp_path, "r+", config=TINY)
        assert stamps(tmp_path) == before


@pytest.mark.parametrize("length", [None, 0, 24])
def test_ck08_short_checkpoint(tmp_path: Path, length: int | None) -> None:
    times(tmp_path, [TIME + n for n in range(100)])
    path = tmp_path / "checkpoint"
    whole = path.read_bytes()
    assert len(whole) == 4096
    path.unlink()
    if length is not None:
        path.write_bytes(whole[:length])
        read = mqstore.Checkpoint(path)
        assert read.physic_msg_timestamp_ms == struct.unpack(">q", whole[:8].ljust(8, b"\0"))[0] * (
            length >= 8
        )
        assert read.confirm_physical_offset == 0
    else:
        with pytest.raises(mqstore.StoreIOError):
            mqstore.Checkpoint(path)
    before = stamps(tmp_path)
    with mqstore.open(tmp_path, config=TINY) as store:
        assert len(offsets(store)) == 100
        assert len(store.read("T", 0, 0, max_messages=200).messages) == 100
    assert stamps(tmp_path) == before
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert len(offsets(store)) == 100
    assert path.stat().st_size == 4096
    assert path.read_bytes()[40:] == bytes(4056)
    assert mqstore.Checkpoint(path).physic_msg_timestamp_ms == TIME + 99


def test_ck09_checkpoint_in_the_future(tmp_path: Path) -> None:
    """A clock stepped back: what the checkpoint claims to be flushed is no reason to skip."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    with mqstore.open(live, "a", config=TINY) as store:
        store.append_many(
            [message(queue_id=n % 2, keys=f"k{n}", store_timestamp_ms=TIME + n) for n in range(200)]
        )
        store.flush()
        crashed_copy(store, copy)
    early = copy_store(copy, tmp_path / "early")
    future = TIME + 3_600_000
    (copy / "checkpoint").write_bytes(struct.pack(">5q", *[future] * 3, 0, 0).ljust(4096, b"\0"))
    # One queue has only its first file, the other all; the index is gone.
    for path in sorted(queue_folder(copy, "T", 1).iterdir())[1:]:
        path.unlink()
    for path in (copy / "index").iterdir():
        path.unlink()
    with mqstore.open(copy, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
        assert len(offsets(store)) == 200
        for queue in (0, 1):
            found = store.read("T", queue, 0, max_messages=200).messages
            assert [m.store_timestamp_ms for m in found] == [TIME + n for n in range(queue, 200, 2)]
        for number in range(200):
            (one,) = store.query("T", f"k{number}", exact=False, max_messages=1)
            assert one.store_timestamp_ms == TIME + number
    for queue in (0, 1):
        ours = [p.read_bytes() for p in sorted(queue_folder(copy, "T", queue).iterdir())]
        assert ours == [p.read_bytes() for p in sorted(queue_folder(early, "T", queue).iterdir())]
