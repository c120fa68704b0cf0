"""Stores behind URLs: the answers of the local store, by a real S3 server and by fsspec."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import mqstore
import mqstore.metrics
from helpers.buckets import SECRET, SMALL, answers, compare, connect, count, nameless
from helpers.golden import Case, case_names
from helpers.stores import TINY
from mqstore.files import remote, remote_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.buckets import Bucket

ON_S3 = ("plain", "broker", "abort-half", "abort-nocq", "batch", "lmq", "rollover")


# --- equal answers ----------------------------------------------------------------------------


# A database is refused, and files of default sizes are 1.5 GB of zeros in memory.
IN_MEMORY = [name for name in case_names() if not name.startswith(("rocksdb", "defaults"))]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_golden_store_in_memory(name: str, memory: Callable[[Path], str], tmp_path: Path) -> None:
    root = Case(name).unpack(tmp_path)
    compare(root, memory(root), Case(name).settings).close()


@pytest.mark.parametrize("name", ON_S3)
def test_golden_store_on_s3(name: str, s3: Bucket, tmp_path: Path) -> None:
    root = Case(name).unpack(tmp_path)
    url = s3.put(root, f"golden/{name}")
    compare(root, url, Case(name).settings, storage_options=s3.options).close()


def test_storage_object_and_prefix(usual: Path, s3: Bucket, memory: Callable[[Path], str]) -> None:
    url = s3.put(usual, "deep/er/usual")
    storage = connect(s3.name, s3.options)
    store = compare(usual, "deep/er/usual", storage=storage)
    assert store.path == url
    memory(usual)
    compare(usual, "store", storage=fsspec.filesystem("memory"))
    compare(usual, usual.as_uri())
    with pytest.raises(ValueError, match="expected a prefix beside storage, got the URL"):
        mqstore.open("s3://a/b", storage=storage)
    with pytest.raises(TypeError, match="expected an obstore store or an fsspec file system"):
        mqstore.open("a", storage=3)
    with pytest.raises(ValueError, match="expected None for a local path"):
        mqstore.open(usual, storage_options={})


# --- requests ---------------------------------------------------------------------------------


def test_requests_are_counted_and_few(usual: Path, s3: Bucket) -> None:
    url = s3.put(usual, "counted")
    store = mqstore.open(url, storage_options=s3.options)
    counts = [store.io]
    assert isinstance(store.io, mqstore.IoCounts)

    def spent() -> mqstore.IoCounts:
        assert store.io is not None
        counts.append(store.io)
        return mqstore.IoCounts(*(b - a for a, b in zip(*counts[-2:], strict=True)))

    assert counts[0].requests <= 1 + 12
    assert counts[0].bytes <= 1 << 20
    assert [m.body for m in store.query("orders", "key-777")] == [b"body 777 " * 200]
    assert spent().requests <= 8
    assert len(store.read("orders", 1, 5, max_messages=100).messages) == 100
    # They lie in 1 MiB of the log; the queue's end was not read before.
    assert spent().requests <= 3 + 3
    assert len(store.read("orders", 1, 200, max_messages=100).messages) == 100
    assert spent().requests <= 3
    store = mqstore.open(url, storage_options=s3.options)
    counts = [store.io]
    assert sum(1 for _ in store.scan()) == 1500
    # Each byte at most once, but for what is read ahead behind the end.
    assert spent().bytes <= store.max_physical_offset + (1 << 20)
    store.refresh()
    assert spent().requests >= 1
    assert mqstore.open(usual).io is None


def test_every_scan_reads_each_byte_once_in_large_parts(s3: Bucket, tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 12 << 20}) as writer:
        for number in range(40):
            bodies = [bytes([number, n % 256]) * 512 for n in range(1000)]
            writer.append_many(
                [mqstore.Message("orders", body, keys=f"{number}") for body in bodies]
            )
        length = writer.max_physical_offset
    url = s3.put(tmp_path, "four-files")
    scans: list[tuple[Callable[[mqstore.Store], int], int]] = [
        # To the end of the last file, where the log may have grown.
        (lambda store: sum(1 for _ in store.scan()), 4 * 12 << 20),
        (lambda store: store.scan_arrow().read_all().num_rows, length),
        (lambda store: store.scan_arrow(columns=["topic", "keys"]).read_all().num_rows, length),
    ]
    for scan, most in scans:
        store = mqstore.open(url, storage_options=s3.options)
        before = store.io
        assert scan(store) == 40_000
        assert before is not None
        assert store.io is not None
        assert store.io.bytes - before.bytes <= most + (1 << 20)
        # Each file has two parts, and a scan begins with smaller ones.
        assert store.io.requests - before.requests <= 2 * 4 + 4


def test_opening_costs_the_same_for_any_number_of_queues(s3: Bucket, tmp_path: Path) -> None:
    config = {**SMALL, "mapped_file_size_consume_queue": 20_000}
    with mqstore.open(tmp_path, "a", config=config) as writer:
        for number in range(900):
            writer.append(f"topic-{number % 50}", b"body", queue_id=number % 4, keys=f"k-{number}")
    url = s3.put(tmp_path, "many-queues")
    store = mqstore.open(url, storage_options=s3.options)
    assert store.io is not None
    assert store.io.requests <= 1 + 12
    assert store.io.bytes <= 1 << 20
    assert len(store.queues()) == 100
    compare(tmp_path, url, storage_options=s3.options).close()


def test_damage_of_a_queue_is_found_when_it_is_read(
    memory: Callable[[Path], str], tmp_path: Path
) -> None:
    """Opening reads nothing of the other queues."""
    config = {**SMALL, "mapped_file_size_consume_queue": 20_000}
    with mqstore.open(tmp_path, "a", config=config) as writer:
        for number in range(200):
            writer.append("orders", b"%d" % number, queue_id=number % 4, keys=f"k-{number}")
    entries = tmp_path / "consumequeue" / "orders" / "2" / f"{0:020}"
    whole = entries.read_bytes()
    # The last 25 entries are lost but for one behind them.
    entries.write_bytes(whole[: 25 * 20] + bytes(24 * 20) + whole[49 * 20 :])
    compare(tmp_path, memory(tmp_path)).close()


def test_a_growing_store_is_followed(s3: Bucket, tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SMALL) as writer:
        writer.append("orders", b"one")
        url = s3.put(tmp_path, "growing")
        store = mqstore.open(url, storage_options=s3.options)
        writer.append("orders", b"two")
        writer.flush()
    assert [m.body for m in store.scan()] == [b"one"]
    s3.put(tmp_path, "growing")
    store.refresh()
    assert [m.body for m in store.scan()] == [b"one", b"two"]
    assert [m.body for m in store.read("orders", 0, 0).messages] == [b"one", b"two"]


# --- errors -----------------------------------------------------------------------------------


def test_replaced_and_missing_objects(
    usual: Path, s3: Bucket, memory: Callable[[Path], str]
) -> None:
    name = f"commitlog/{1 << 20:020}"
    url = s3.put(usual, "replaced")
    places = [(url, s3.options), (memory(usual), None)]
    for place, options in places:
        store = mqstore.open(place, storage_options=options)
        whole = (usual / name).read_bytes()
        put, remove, path = changers(place, options, name)
        put(path, whole[:-1] + b"x")
        with pytest.raises(mqstore.StoreIOError, match="was replaced since") as caught:
            list(store.scan())
        assert caught.value.filename == f"{place}/{name}"
        remove(path)
        with pytest.raises(mqstore.StoreIOError, match="is gone since the store was listed"):
            list(store.scan(start_physical_offset=1 << 20))
        put(path, whole)
        store.refresh()
        assert sum(1 for _ in store.scan()) == 1500


def changers(url: str, options: dict[str, str] | None, name: str) -> tuple[Any, Any, str]:
    """Calls that put and remove an object, and its path for them."""
    if options is None:
        system = fsspec.filesystem("memory")
        return system.pipe_file, system.rm, f"/store/{name}"
    import obstore

    bucket = connect("stores", options)
    path = f"{url.removeprefix('s3://stores/')}/{name}"
    return partial(obstore.put, bucket), partial(obstore.delete, bucket), path


def test_missing_prefix_names_the_nearest(usual: Path, s3: Bucket) -> None:
    s3.put(usual, "near/by")
    with pytest.raises(mqstore.NotAStoreError, match=r"has some is s3://stores/near$"):
        mqstore.open("s3://stores/near/bi/store", storage_options=s3.options)
    with pytest.raises(mqstore.StoreIOError, match=r"no such bucket \(404\)"):
        mqstore.open("s3://others/near", storage_options=s3.options)
    with pytest.raises(mqstore.NotAStoreError, match="near/by is a store: name that"):
        mqstore.open("s3://stores/near", storage_options=s3.options)


def test_secrets_are_nowhere(usual: Path, s3: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = s3.put(usual, "secret")
    wrong = {**s3.options, "secret_access_key": f"wrong-{SECRET}"}
    texts = []
    for place, options in [
        (url, wrong),
        (url, {**s3.options, "nonsense": SECRET}),
        (f"s3://key:{SECRET}@stores/secret", None),
        (f"http://host/path?token={SECRET}", None),
        (f"foo://host/path?token={SECRET}", None),
        ("s3://stores/not/there", s3.options),
    ]:
        with pytest.raises((mqstore.StoreError, ValueError)) as caught:
            mqstore.open(place, storage_options=options)
        texts += [str(caught.getrepr(style="short")), repr(caught.value.args)]
    assert "s3:ListBucket" in texts[0]
    store = mqstore.open(url, storage_options=s3.options)
    texts += [repr(store), str(store.config), str(store.warnings), caplog.text]
    assert [text for text in texts if SECRET in text.replace(f"key:{SECRET}@", "")] == []


def test_store_in_rocksdb_is_copied_into_the_cache(
    memory: Callable[[Path], str], tmp_path: Path
) -> None:
    name = next(name for name in case_names() if name.startswith("rocksdb"))
    root = Case(name).unpack(tmp_path / "store")
    url, cache = memory(root), tmp_path / "cache"
    with pytest.raises(mqstore.UnsupportedError, match="give cache_dir=, a folder that takes"):
        mqstore.open(url)
    with mqstore.open(root, config=Case(name).settings) as known:
        expected = nameless(answers(known), root)
    for _ in range(2):
        with mqstore.open(url, cache_dir=cache, config=Case(name).settings) as store:
            assert nameless(answers(store), store.path) == expected
        assert len([*cache.iterdir()]) == 1
    options = {"cache_dir": str(cache)}
    assert mqstore.verify(url, storage_options=options).ok == mqstore.verify(root).ok
    fsspec.filesystem("memory").pipe_file("/store/later", b"1")
    mqstore.open(url, cache_dir=cache).close()
    assert len([*cache.iterdir()]) == 2


@pytest.mark.parametrize("folder", ["consumequeue", "config/rdb"])
def test_store_in_rocksdb_is_refused(
    folder: str, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "CURRENT").write_text("MANIFEST-1")
    with pytest.raises(mqstore.UnsupportedError, match="copy the whole store to a local folder"):
        mqstore.open(memory(tmp_path))


@pytest.mark.parametrize(
    "call",
    [
        mqstore.rebuild,
        mqstore.recover,
        mqstore.clean,
        mqstore.convert,
        lambda url: mqstore.import_store("in", url),
        lambda url: mqstore.report("here", url),
        lambda url: mqstore.copy("here", url),
        lambda url: mqstore.export_store("here", url),
        lambda url: mqstore.salvage("here", url),
        lambda url: mqstore.open(url, "r+"),
        lambda _: mqstore.open("prefix", "a", storage=object()),  # type: ignore[call-overload]
    ],
)
def test_writing_to_a_url_is_one_error(call: Callable[[str], object]) -> None:
    with pytest.raises(mqstore.StoreReadOnlyError, match="is read-only, and nothing was") as caught:
        call(f"s3://name:{SECRET}@bucket/store?token={SECRET}")
    assert SECRET not in str(caught.value) + repr(caught.value.args)


@pytest.mark.parametrize("path", ["://x", "./a://b"])
def test_a_text_before_the_slashes_that_is_no_scheme_is_refused(path: str) -> None:
    with pytest.raises(mqstore.UnsupportedError, match="no package reads"):
        mqstore.open(path)


@pytest.mark.parametrize("call", [mqstore.inventory, mqstore.lock_state, mqstore.CommitLog])
def test_a_call_that_takes_no_url_says_so(call: Callable[[str], object]) -> None:
    with pytest.raises(mqstore.UnsupportedError, match="does not read URLs; nothing was") as caught:
        call(f"s3://name:{SECRET}@bucket/store?token={SECRET}")
    assert SECRET not in str(caught.value) + repr(caught.value.args)


# --- failing servers --------------------------------------------------------------------------


def test_an_offset_that_needs_a_failing_request_is_an_error(
    memory: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as writer:
        writer.append("T", b"", queue_id=0, keys="k")
        writer.append_many(("U", b"") for _ in range(50))
    monkeypatch.setattr(remote_path, "_FsspecObjects", Failing)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    store = mqstore.open(memory(root))
    with monkeypatch.context() as patch:
        patch.setattr(Failing, "failures", 1 << 30)
        with pytest.raises(mqstore.StoreIOError, match="asked 6 times, the last time: "):
            assert store.dispatched_offset
    assert store.dispatched_offset == store.max_physical_offset


class Failing(remote._FsspecObjects):
    """Objects of which some requests fail."""

    failures = 2

    def _read(self, name: str, listed: Any, start: int, end: int) -> bytes:
        received = bytes(super()._read(name, listed, start, end))
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked % (self.failures + 1):
            if self.asked % 2:
                raise OSError("status code: 503 Slow Down")
            return received[:-1]
        return received


def test_requests_are_repeated(
    usual: Path, memory: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_path, "_FsspecObjects", Failing)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    compare(usual, memory(usual)).close()
    monkeypatch.setattr(Failing, "failures", 1 << 30)
    with pytest.raises(mqstore.StoreIOError, match="asked 6 times, the last time: "):
        list(mqstore.open("memory://store").scan())


def test_cache_keeps_whole_objects(
    usual: Path, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    url, cache = memory(usual), tmp_path / "cache"

    def requests(**more: Any) -> int:
        with mqstore.open(url, cache_dir=cache, **more) as store:
            assert sum(1 for _ in store.scan()) == 1500
            assert [m.body for m in store.query("orders", "key-777")] == [b"body 777 " * 200]
            assert store.io is not None
            return store.io.requests

    assert requests() > 10
    # The listing alone.
    assert requests() == 1
    kept = sorted(cache.iterdir())
    assert not any(path.suffix == ".partial" for path in kept)
    # A file that was cut is fetched again.
    os.truncate(max(kept, key=lambda path: path.stat().st_size), 7)
    assert 1 < requests() < 12
    # Another content has another file.
    time.sleep(0.002)
    fsspec.filesystem("memory").put(str(usual / "checkpoint"), "/store/checkpoint")
    assert 1 < requests() < 12
    small = {"cache_bytes": str(1 << 20)}
    own = cache / "own.object"
    own.write_bytes(bytes(2 << 20))
    left = cache / "mqstore-killed.partial"
    left.write_bytes(b"of a process that was killed")
    os.utime(left, (1, 1))
    requests(storage_options=small)
    assert own.stat().st_size == 2 << 20
    assert not left.exists()
    own.unlink()
    assert sum(path.stat().st_size for path in cache.iterdir()) <= 1 << 20


def test_a_cache_that_takes_nothing_more_hinders_no_read(
    usual: Path, memory: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with mqstore.open(memory(usual), cache_dir=tmp_path / "cache") as store:
        assert sum(1 for _ in store.scan()) == 1500
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_local_store_takes_no_cache(usual: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cache_dir: expected None for a local path, got "):
        mqstore.open(usual, cache_dir=tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        "list(store.scan(start_physical_offset=1 << 20))",
        "store.scan_arrow(start_physical_offset=1 << 20).read_all()",
        "store.queues()",
        "store.query('orders', 'key-777')",
    ],
)
def test_an_interrupt_ends_a_read(usual: Path, read: str) -> None:
    code = f"""
import os, signal, time, mqstore
from mqstore.files import remote, remote_path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
store = mqstore.open({usual.as_uri()!r})
def slow(self, *given):
    os.write(1, b"reads\\n")  # at once: several threads read
    time.sleep(3)
    raise OSError("slow")
remote._FsspecObjects._read = slow
try:
    {read}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reads\n"
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        while (line := process.stdout.readline()) == "reads\n":
            pass
        assert line == "interrupted\n"
        # The first requests end after three seconds, the last ones after twenty.
        assert time.monotonic() - began < 2
        # The request in flight ends, and is not repeated.
        assert process.wait(timeout=20) == 0


def test_forked_child_is_refused(usual: Path) -> None:
    store = mqstore.open(usual.as_uri())
    child = os.fork()
    if child == 0:
        refused = 0
        for ask in (
            lambda: store.read("orders", 0, 0),
            lambda: next(store.scan()),
            lambda: mqstore.open(usual.as_uri()),
        ):
            try:
                ask()
            except mqstore.UnsupportedError as error:
                refused += "spawn" in error.message and "forkserver" in error.message
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3


def test_spawned_processes_read(usual: Path, s3: Bucket) -> None:
    import multiprocessing

    url = s3.put(usual, "spawned")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(count, (url, s3.options)).get(timeout=60) == 1500


def test_threads_read_while_others_refresh(usual: Path, memory: Callable[[Path], str]) -> None:
    store = mqstore.open(memory(usual))
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            for _ in range(15):
                work()
        except BaseException as error:
            errors.append(error)

    works: list[Callable[[], object]] = [
        store.refresh,
        lambda: store.read("orders", 1, 0),
        lambda: (store.dispatched_offset, store._leaves_out_last),
        lambda: store.query("orders", "key-5"),
        lambda: store.scan_arrow().read_all(),
    ]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_package_is_named_where_it_is_missing() -> None:
    code = (
        "import sys\nsys.modules['obstore'] = None\nimport mqstore\n"
        "mqstore.open('s3://bucket/store')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs obstore, which is not installed" in done.stderr
    assert "mqstore[cloud]" in done.stderr


def test_polars_and_duckdb_read_urls(usual: Path, s3: Bucket) -> None:
    url = s3.put(usual, "frames")
    frame = mqstore.polars.scan(url, storage_options=s3.options).select("keys").collect()
    assert frame.height == 1500
    relation = mqstore.duckdb.relation(url, storage_options=s3.options)
    assert relation.aggregate("count(*)").fetchall() == [(1500,)]
