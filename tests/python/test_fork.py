"""Case HM05: a store in a child that was forked off while it was open."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mqstore
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Newer Pythons warn of any fork of a process with threads, which is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_child(work: Callable[[], str]) -> str:
    """Result of ``work`` in a forked child, or its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.append("T", b""),
        lambda store: store.append_many([message()]),
        lambda store: store.flush(),
        lambda store: store.wait_dispatched(),
    ],
    ids=["append", "append_many", "flush", "wait_dispatched"],
)
def test_hm05_the_child_cannot_write(
    tmp_path: Path, write: Callable[[mqstore.Store], object]
) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"parent")
        answer = in_child(lambda: str(write(store)))
        assert answer.startswith("StoreClosedError: "), answer
        assert "open it again" in answer
        assert store.append("T", b"").queue_offset == 1


def test_hm05_the_child_reads_a_view_of_its_own(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"parent", keys="k")

        def read() -> str:
            found = [
                store.get(0),
                *store.read("T", 0, 0).messages,
                *store.query("T", "k"),
                *store.scan(),
            ]
            return b" ".join(one.body for one in found).decode()

        assert in_child(read) == " ".join(["parent"] * 4)


@pytest.mark.parametrize("close", [True, False], ids=["close", "drop"])
def test_hm05_the_end_of_the_child_leaves_lock_and_abort(tmp_path: Path, close: bool) -> None:
    store = mqstore.open(tmp_path, "a", config=TINY)
    store.append("T", b"parent")
    held = [store]

    def leave() -> str:
        if close:
            held[0].close()
        held.clear()
        gc.collect()
        return "left"

    before = (tmp_path / "abort").read_bytes()
    if not close:
        del store
    assert in_child(leave) == "left"
    assert (tmp_path / "abort").read_bytes() == before
    assert mqstore.lock_state(tmp_path) == (True, os.getpid())
    assert held[0].append("T", b"").queue_offset == 1
    held[0].close()
    assert mqstore.lock_state(tmp_path) == (False, None)


def test_a_closed_store_stays_closed(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=TINY)
    store.close()
    assert in_child(lambda: str(store.get(0))).startswith("StoreClosedError")


def test_hm05_a_group_stays_with_the_parent(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("T", b"parent")
        group = store.group("g")
        for use in (group.poll, lambda topic: group.process(topic, print)):
            assert in_child(lambda use=use: str(use("T"))).startswith("StoreClosedError")
        assert len(group.poll("T")) == 1


def test_hm05_a_stream_on_threads_is_the_parents(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 4 << 20}) as store:
        store.append_many([message(body=bytes(64 << 10))] * 400)
        stream = pa.RecordBatchReader.from_stream(store.scan_arrow())
        first = stream.read_next_batch().num_rows
        answer = in_child(lambda: str(stream.read_next_batch()))
        # On one processor nothing is read by threads.
        assert "forked off" in answer or os.cpu_count() == 1, answer
        assert first + stream.read_all().num_rows == 400


def waiting_child() -> int:
    """The id of a forked child that does nothing until it is killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"here")
        signal.pause()
        os._exit(0)
    os.read(reading, 4)
    os.close(reading)
    os.close(writing)
    return pid


def open_elsewhere(path: Path) -> str:
    """Output of another process that opens the store for writing and appends."""
    work = (
        "import sys, mqstore\n"
        f"with mqstore.open(sys.argv[1], 'r+', config={TINY}) as store:\n"
        "    print(store.append('T', b'').queue_offset)"
    )
    command = [sys.executable, "-c", work, str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def test_closing_gives_the_lock_back_whatever_children_there_are(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path, "a", config=TINY)
    store.append("T", b"parent")
    child = waiting_child()
    try:
        assert mqstore.lock_state(tmp_path)[0]
        assert open_elsewhere(tmp_path) == ""
        store.close()
        assert mqstore.lock_state(tmp_path) == (False, None)
        assert open_elsewhere(tmp_path) == "1"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_that_outlives_a_killed_parent_does_not_keep_its_lock(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        held = mqstore.open(tmp_path, "a", config=TINY)
        held.append("T", b"")
        os.write(writing, waiting_child().to_bytes(4, "little"))
        signal.pause()
        os._exit(held.max_physical_offset)
    child = int.from_bytes(os.read(reading, 4), "little")
    try:
        assert mqstore.lock_state(tmp_path) == (True, parent)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert mqstore.lock_state(tmp_path) == (False, None)
        assert open_elsewhere(tmp_path) == "1"
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        os.close(writing)
