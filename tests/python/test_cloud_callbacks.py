"""Objects whose code uses the store that asks, a server that fails, an exit meanwhile."""

from __future__ import annotations

import http.client
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import mqstore
from helpers.buckets import SMALL, asked
from mqstore.files import remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from helpers.buckets import Bucket

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
    monkeypatch.setattr(remote, "_FsspecObjects", Calling)
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


class Proxy(BaseHTTPRequestHandler):
    """Hands requests on to a server, and spoils answers about objects by a seed."""

    server: FailingServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        connection = http.client.HTTPConnection(self.server.behind, timeout=30)
        connection.request("GET", self.path, headers=dict(self.headers.items()))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        is_object = "list-type" not in self.path
        kind = self.server.next() if is_object else "fine"
        status = answer.status
        if kind.isdecimal():
            status, body = int(kind), b"<Error><Code>SlowDown</Code></Error>"
        if kind == "reset":
            self.close_connection = True
            return
        if kind == "slow":
            time.sleep(0.05)
        self.send_response(status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind == "short":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class FailingServer(ThreadingHTTPServer):
    daemon_threads = True
    weights: tuple[int, ...] = (1, 0, 0, 0, 0, 0)

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), Proxy)
        self.behind, self.random, self.failed = behind, random.Random(7), 0
        self._turn = threading.Lock()

    def next(self) -> str:
        kinds = ["fine", "500", "503", "short", "reset", "slow"]
        with self._turn:
            kind = self.random.choices(kinds, self.weights)[0]
            self.failed += kind not in {"fine", "slow"}
        return kind

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def failing(s3: Bucket) -> Iterator[tuple[FailingServer, dict[str, str]]]:
    """A server in front of the real one, and storage options that lead there."""
    with FailingServer(s3.options["endpoint"].removeprefix("http://")) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield server, {**s3.options, "endpoint": endpoint}
        server.shutdown()


def test_a_server_that_fails_now_and_then_is_asked_again(
    failing: tuple[FailingServer, dict[str, str]],
    usual: Path,
    s3: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, options = failing
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    url = s3.put(usual, "failing")
    server.weights = (90, 2, 2, 2, 2, 2)
    with mqstore.open(usual) as known:
        expected = [asked(call, known) for call in CALLS.values()]
    answered, errors = 0, []
    for _ in range(8):
        try:
            with mqstore.open(url, storage_options=options) as store:
                for call, answer in zip(CALLS.values(), expected, strict=True):
                    found = asked(call, store)
                    if not isinstance(found, type):
                        # Statuses of stores differ in nothing but their place.
                        assert found.replace(url, str(usual)) == answer
                        answered += 1
        except mqstore.StoreIOError as error:
            errors.append(str(error))
    assert [text for text in errors if "asked 6 times" not in text] == []
    assert answered > 40
    assert server.failed > 5
    for weights, text in [((0, 0, 1, 0, 0, 0), "503"), ((0, 1, 0, 0, 0, 0), "500")]:
        server.weights = weights
        with pytest.raises(mqstore.StoreIOError, match=f"asked 6 times, the last time: .*{text}"):
            mqstore.open(url, storage_options=options)
