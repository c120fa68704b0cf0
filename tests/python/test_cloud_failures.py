"""A real S3 server behind one that fails on purpose: every reader errs or is right, and ends."""

from __future__ import annotations

import http.client
import os
import random
import re
import resource
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import duckdb
import obstore
import polars as pl
import pytest

import mqstore
import mqstore.duckdb
import mqstore.metrics
import mqstore.polars
from helpers.buckets import connect
from mqstore.files import remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from helpers.buckets import Bucket

FAILURES = int(os.environ.get("MQSTORE_CLOUD_FAILURES", "300"))
KINDS = ("fine", "500", "503", "short", "few", "reset", "torn", "slow", "hung")


class Proxy(BaseHTTPRequestHandler):
    """Hands requests on to a server, and spoils answers about objects."""

    server: FailingServer
    protocol_version = "HTTP/1.1"
    # The head of an answer and its body are two packets.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        is_object = "list-type" not in self.path
        kind = self.server.next(self.path) if is_object else "fine"
        connection = http.client.HTTPConnection(self.server.behind, timeout=30)
        connection.request("GET", self.path, headers=dict(self.headers.items()))
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
        connection.close()
        self.close_connection = kind in {"reset", "short", "torn", "hung"}
        if kind == "reset":
            return
        if kind == "hung":
            self.server.ends.wait(30)
            return
        if kind.isdecimal():
            status, body = int(kind), b"<Error><Code>SlowDown</Code></Error>"
        if kind == "slow":
            time.sleep(0.05)
        if kind == "few":
            body = body[: len(body) // 2]
        self.send_response(status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if kind in {"short", "torn"} else body)
        if kind == "torn":
            # A close then resets the connection.
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


class FailingServer(ThreadingHTTPServer):
    """Fails by weights, or from a request on; `before` is called with the path of each."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), Proxy)
        self.behind, self.random, self.failed, self.asked = behind, random.Random(7), 0, 0
        self.weights = dict.fromkeys(KINDS, 0) | {"fine": 1}
        self.fails_from, self.fails_with = 1 << 30, "500"
        self.before: Callable[[str], object] = lambda _: None
        self.ends = threading.Event()
        self._turn = threading.Lock()

    def next(self, path: str) -> str:
        with self._turn:
            self.asked += 1
            self.before(path)
            kind = self.random.choices(KINDS, [*self.weights.values()])[0]
            kind = self.fails_with if self.asked > self.fails_from else kind
            self.failed += kind not in {"fine", "slow"}
        return kind

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def failing(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FailingServer, dict[str, str]]]:
    """A server in front of the real one, and storage options that lead there."""
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    with FailingServer(s3.options["endpoint"].removeprefix("http://")) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield server, {**s3.options, "endpoint": endpoint}
        server.ends.set()
        server.shutdown()


def of_store(ask: Callable[[mqstore.Store], Any]) -> Callable[..., Any]:
    def read(path: str, _: Path, options: dict[str, str] | None) -> Any:
        with mqstore.open(path, storage_options=options) as store:
            return ask(store)

    return read


def counts(report: Any) -> tuple[Any, ...]:
    return report.messages, report.complete


READERS: dict[str, Callable[[str, Path, dict[str, str] | None], Any]] = {
    "scan": of_store(lambda store: [str(message) for message in store.scan()]),
    "scan_arrow": of_store(lambda store: store.scan_arrow().read_all().to_pylist()),
    "read": of_store(lambda store: store.read("orders", 1, 10, max_messages=20)),
    "query": of_store(lambda store: store.query("orders", "key-77")),
    "time": of_store(lambda store: store.offset_at("orders", 1, 1)),
    "state": of_store(lambda store: (store.queues(), store.groups(), store.versions())),
    "verify": lambda path, _, more: mqstore.verify(path, storage_options=more).findings,
    "doctor": lambda path, _, more: mqstore.doctor(path, storage_options=more).diagnoses,
    "why": lambda path, _, more: mqstore.why(
        path, group="billing", key="key-50", now_ms=1, storage_options=more
    ),
    "pending": lambda path, _, more: mqstore.pending(path, now_ms=1, storage_options=more),
    "stats": lambda path, _, more: [*mqstore.stats(path, by=["topic"], storage_options=more)],
    "metrics": lambda path, _, more: [
        str(one)
        for one in mqstore.metrics.StoreCollector(
            path, now_ms=lambda: 1, storage_options=more
        ).collect()
        if one.name != "rocketmq_storage_size"
    ],
    "copy": lambda path, out, more: mqstore.copy(path, out, storage_options=more).messages,
    "salvage": lambda path, out, more: mqstore.salvage(path, out, storage_options=more).messages,
    "export": lambda path, out, more: counts(mqstore.export_store(path, out, storage_options=more)),
    "diff": lambda path, _, more: mqstore.diff(path, path, storage_options=more).ok,
    "report": lambda path, out, more: mqstore.report(path, out, storage_options=more),
    "sql": lambda path, _, more: mqstore.sql(
        path,
        "select topic, count(*), sum(octet_length(body)) from messages group by 1 order by 1",
        storage_options=more,
    ).fetchall(),
    "polars": lambda path, _, more: (
        mqstore.polars.scan(path, storage_options=more).select("keys").collect().rows()
    ),
    "duckdb": lambda path, _, more: (
        mqstore.duckdb.relation(path, storage_options=more).aggregate("count(*)").fetchall()
    ),
}


def answer(name: str, path: str, out: Path, options: dict[str, str] | None) -> str:
    """A reader's answer as text, without the places."""
    text = str(READERS[name](path, out, options))
    return re.sub(r"offsets_timestamp_ms=\d+", "", text.replace(path, "ROOT").replace(str(out), ""))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of three log files, with a group."""
    folder = tmp_path_factory.mktemp("failing") / "store"
    config = {
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    with mqstore.open(folder, "a", config=config) as store:
        for number in range(150):
            body = f"body {number} ".encode() * 80
            store.append("orders", body, queue_id=number % 4, tags="paid", keys=f"key-{number}")
        with store.group("billing") as group:
            group.poll("orders", max_messages=20)
            group.commit()
    return folder


@pytest.fixture(scope="module")
def url(s3: Bucket, local: Path) -> str:
    return s3.put(local, "failing")


@pytest.mark.parametrize("name", READERS)
def test_every_reader_errs_or_is_right(
    name: str,
    failing: tuple[FailingServer, dict[str, str]],
    local: Path,
    url: str,
    s3: Bucket,
    tmp_path: Path,
) -> None:
    server, options = failing
    expected = answer(name, str(local), tmp_path / "local", None)
    # A repeated request passes over these.
    server.weights |= {"fine": 84, **dict.fromkeys(KINDS[1:-1], 2)}
    assert answer(name, url, tmp_path / "repeated", options) == expected
    # Failing for good before, in and behind the opening.
    for after, kind in ((2, "503"), (14, "torn")):
        server.asked, server.fails_from, server.fails_with = 0, after, kind
        found, error = outcome(name, url, tmp_path / kind, options)
        assert found == expected or ("asked 6 times" in error and f"{url}/" in error)
        assert found is None or after > 2
    # The second file of the log, which opening does not read, is replaced before it is asked for.
    key, bucket = f"commitlog/{1 << 16:020}", connect(s3.name, s3.options)
    replaced: list[str] = []

    def before(path: str) -> None:
        if key in path and not replaced:
            replaced.append(path)
            obstore.put(bucket, f"failing/{key}", (local / key).read_bytes()[::-1])

    server.before, server.fails_from = before, 1 << 30
    found, error = outcome(name, url, tmp_path / "replaced", options)
    assert found == expected or ("was replaced since" in error and f"{url}/{key}" in error)
    assert (found is None) == bool(replaced)
    if replaced:
        obstore.put(bucket, f"failing/{key}", (local / key).read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_failures_give_errors_and_no_wrong_answer(
    name: str,
    failing: tuple[FailingServer, dict[str, str]],
    local: Path,
    url: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """``MQSTORE_CLOUD_FAILURES`` requests of all readers fail."""
    server, options = failing
    seed = int(os.environ.get("MQSTORE_SEED", "42"))
    record_property("seed", seed)
    server.random = random.Random(f"{seed} {name}")
    expected = answer(name, str(local), tmp_path / "local", None)
    # The first answer imports modules.
    assert answer(name, url, tmp_path / "fine", options) == expected
    resident_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    server.weights |= {"fine": 60, **dict.fromkeys(KINDS[1:-1], 6)}
    answers = errors = 0
    while server.failed < FAILURES / len(READERS):
        found, error = outcome(name, url, tmp_path / f"{answers + errors}", options)
        assert found == expected or ("asked 6 times" in error and f"{url}/" in error)
        answers, errors = answers + (found is not None), errors + (found is None)
    record_property("counts", (answers, errors, server.failed))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kb
    assert grown_kb < 32 << 10


def outcome(name: str, url: str, out: Path, options: dict[str, str]) -> tuple[str | None, str]:
    """A reader's answer, or its error; polars and DuckDB have their own, with our text."""
    try:
        return answer(name, url, out, options), ""
    except (mqstore.StoreIOError, pl.exceptions.PolarsError, duckdb.Error) as error:
        return None, str(error)


def test_a_server_that_answers_nothing_ends_a_read(
    failing: tuple[FailingServer, dict[str, str]],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, options = failing
    monkeypatch.setattr(remote, "_ATTEMPTS", 2)
    server.fails_from, server.fails_with = 0, "hung"
    began = time.monotonic()
    with pytest.raises(mqstore.StoreIOError, match="asked 2 times, the last time: "):
        mqstore.open(url, storage_options={**options, "timeout": "1 second"})
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("status", ["500", "503"])
def test_the_last_status_is_named(
    status: str, failing: tuple[FailingServer, dict[str, str]], url: str
) -> None:
    server, options = failing
    server.fails_from, server.fails_with = 0, status
    with pytest.raises(mqstore.StoreIOError, match=f"asked 6 times, the last time: .*{status}"):
        mqstore.open(url, storage_options=options)
