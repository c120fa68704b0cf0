"""Objects whose code uses the store that asks, and an exit meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import mqstore
from helpers.buckets import SMALL, asked
from mqstore.files import remote, remote_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS: dict[str, Callable[[mqstore.Store], Any]] = {
    "refresh": lambda store: store.refresh(),
    "read": lambda store: store.read("orders", 1, 40, max_messages=20),
    "query": lambda store: store.query("orders", "key-777"),
    "scan": lambda store: list(store.scan(start_physical_offset=3 << 20)),
    "scan_arrow": lambda store: store.scan_arrow(start_physical_offset=3 << 20).read_all(),
    "queues": lambda store: (store.topics(), store.queues()),
    "time": lambda store: store.offset_at("orders", 1, 1),
    "state": lambda store: (store.dispatched_offset, store.flushed_offset, store.warnings),
    "wait": lambda store: store.wait(0, timeout_s=0),
    "verify": lambda store: mqstore.verify(mqstore.store.root_of(store), level="quick").ok,
}


class Calling(remote._FsspecObjects):
    """Objects that use a store while they are asked, on both threads of a read."""

    handle: mqstore.Store | None = None
    calls = 0
    names = tuple(CALLS)
    is_calling = False

    def _call(self) -> None:
        cls = type(self)
        if cls.handle is None or cls.is_calling:
            return
        cls.is_calling = True
        try:
            cls.calls += 1
            CALLS[cls.names[cls.calls % len(cls.names)]](cls.handle)
        finally:
            cls.is_calling = False

    def list(self) -> Any:
        self._call()
        return super().list()

    def ranges(self, *given: Any) -> Any:
        self._call()
        return super().ranges(*given)

    def _read(self, name: str, listed: Any, start: int, end: int) -> Any:
        self._call()
        return super()._read(name, listed, start, end)


def upload(folder: Path) -> str:
    """Puts each file of a folder into fsspec's memory, over what lies there; returns the URL."""
    system = fsspec.filesystem("memory")
    for path in folder.rglob("*"):
        if path.is_file():
            system.pipe_file(f"/store/{path.relative_to(folder)}", path.read_bytes())
    return "memory://store"


def within(seconds: float, work: Callable[[], None]) -> None:
    """Runs work on a thread; fails where it does not end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "a callback that uses its own handle waits for itself"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("call", CALLS)
def test_a_callback_may_use_its_own_handle(
    call: str, usual: Path, memory: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_path, "_FsspecObjects", Calling)
    url = memory(usual)

    def work() -> None:
        # Opened while an earlier handle is used, and used while it is asked itself.
        for _ in range(2):
            Calling.handle = mqstore.open(url)
            answer = asked(CALLS[call], Calling.handle)
            Calling.is_calling = True
            with mqstore.open(url) as quiet:
                assert answer == asked(CALLS[call], quiet)
            Calling.is_calling = False

    monkeypatch.setattr(Calling, "calls", 0)
    try:
        within(60, work)
        assert Calling.calls > 1
    finally:
        Calling.handle, Calling.is_calling = None, False


@pytest.mark.usefixtures("memory")
def test_a_refresh_leaves_older_scans_alone_and_close_ends_them(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SMALL) as writer:
        for number in range(300):
            writer.append("orders", b"%d" % number)
        writer.flush()
        store = mqstore.open(upload(tmp_path))
        scans = [store.scan(), store.scan()]
        assert next(scans[0]).body == b"0"
        writer.append("orders", b"300")
        writer.flush()
        upload(tmp_path)
        store.refresh()
        assert sum(1 for _ in scans[0]) == 299
        assert sum(1 for _ in store.scan()) == 301
        store.close()
        with pytest.raises(mqstore.StoreClosedError):
            next(scans[1])
        with pytest.raises(mqstore.StoreClosedError):
            store.refresh()


@pytest.mark.usefixtures("memory")
def test_another_log_below_the_url_is_an_error(tmp_path: Path) -> None:
    for name, count in (("one", 3), ("two", 9)):
        with mqstore.open(tmp_path / name, "a", config=SMALL) as writer:
            for number in range(count):
                writer.append("orders", f"{name} {number}".encode())
    store = mqstore.open(upload(tmp_path / "one"))
    upload(tmp_path / "two")
    with pytest.raises(mqstore.OffsetOutOfRangeError):
        store.refresh()
    # The view stays; its objects are gone.
    assert store.max_physical_offset < 1 << 10


def test_an_exit_with_reads_in_flight(usual: Path) -> None:
    code = f"""
import threading, time, mqstore
from mqstore.files import remote
store = mqstore.open({usual.as_uri()!r})
reads = threading.Event()
def slow(self, *given):
    reads.set()
    time.sleep(1)
    raise OSError("slow")
remote._FsspecObjects._read = slow
works = [lambda: list(store.scan(start_physical_offset=1 << 20)),
         lambda: store.scan_arrow(start_physical_offset=1 << 20).read_all()]
for work in works:
    threading.Thread(target=work, daemon=True).start()
reads.wait()
print("ends", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


@pytest.mark.parametrize("stream", ["iter(scan)", "pyarrow.RecordBatchReader.from_stream(scan)"])
def test_a_scan_that_is_dropped_early_ends_its_threads(stream: str, tmp_path: Path) -> None:
    """Threads that the end waits for are in the midst of a request, and need the interpreter."""
    with mqstore.open(tmp_path / "store", "a") as store:
        for _ in range(40):
            store.append_many([mqstore.Message("orders", bytes(1 << 10))] * 1000)
    code = f"""
import sys, threading, mqstore, pyarrow
from mqstore.files import remote
gate, waiting = threading.Event(), threading.Event()
read = remote._FsspecObjects._read
def slow(self, name, listed, start, end):
    if end - start > 1 << 20:
        waiting.set()
        gate.wait()
    return read(self, name, listed, start, end)
remote._FsspecObjects._read = slow
scan = mqstore.open("file://{tmp_path}/store").scan_arrow(columns=["body"])
batches = {stream}
waiting.wait()
sys.setswitchinterval(60)
gate.set()
del batches
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ended\n"
