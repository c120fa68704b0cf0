"""Objects behind a URL, as the extension lists and reads them.

obstore or fsspec reads them. Requests run on threads of this module, so that an interrupt ends the
wait for them.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import random
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from mqstore.errors import NotAStoreError, StoreIOError, UnsupportedError
from mqstore.files.object_cache import WalkedObjects
from mqstore.store import DATABASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from mqstore.files.object_cache import ObjectCache, Parts, State

__all__ = ["IoCounts"]

_T = TypeVar("_T")
# Names for annotations in a class that has a method ``list``.
_Listed: TypeAlias = "list[tuple[str, int, str | None, int]]"
_Buffers: TypeAlias = "list[Buffer]"
_Ahead: TypeAlias = "Sequence[tuple[State, tuple[int, int]]]"
_Results: TypeAlias = "list[_T]"
_ATTEMPTS = 6
_PAUSE_S = 0.1
_INTERRUPTED_S = 1.0
"""Seconds after an interrupt in which a thread of the interrupted call may begin a request."""
_LONGEST_PAUSE_S = 3.0
_MOST_AHEAD = 8
_LEFT_AHEAD_S = 30.0
"""Seconds after which the reader of a part that was read ahead is taken for ended."""
_PAGE = 1000
"""Objects that one list request names."""
_STATUS = re.compile(r"status code: (\d{3})")
_MOST_IN_FLIGHT = 32
_LONGEST_EXIT_S = 5.0
_SIGNAL_CHECK_S = 0.1
"""Seconds that a wait for a request lasts at most before signals are handled."""
_ENDING = threading.Event()
_CALLED: set[object] = set()
"""Waits of the extension for requests."""
_was_used = False
_is_forked = False
_pool: ThreadPoolExecutor | None = None


def _end() -> None:
    """Ends requests before the interpreter does: a thread that it ends in the extension aborts."""
    _ENDING.set()
    end = time.monotonic() + _LONGEST_EXIT_S
    were_any = bool(_CALLED)
    while _CALLED and time.monotonic() < end:
        time.sleep(_SIGNAL_CHECK_S / 10)
    if were_any:
        # Their callers return.
        time.sleep(_SIGNAL_CHECK_S)


def _forget() -> None:
    global _is_forked
    _is_forked = _was_used


os.register_at_fork(after_in_child=_forget)


def request_threads() -> ThreadPoolExecutor:
    """The threads that send requests."""
    global _pool, _was_used
    if _is_forked:
        what = (
            "this process was forked off one that had read behind a URL, and the network's threads "
            "do not come back here; nothing was read: start processes with "
            'multiprocessing.get_context("spawn") or "forkserver", and open the store there'
        )
        raise UnsupportedError(what, what, "")
    if _ENDING.is_set():
        raise OSError("not read: the interpreter ends")
    if _pool is None:
        _was_used = True
        _pool = ThreadPoolExecutor(_MOST_IN_FLIGHT, "mqstore-io")
        threading._register_atexit(_end)  # type: ignore[attr-defined]  # noqa: SLF001
    return _pool


class IoCounts(NamedTuple):
    """Requests for a store behind a URL since it was opened.

    Attributes:
        requests: Requests sent, those that were repeated too; a listing has one for each thousand
            objects.
        bytes: Bytes of objects received.
    """

    requests: int
    bytes: int


class Counted:
    """Counts requests and bytes, from any number of threads.

    Attributes:
        counts: Requests and bytes so far.
    """

    def __init__(self) -> None:
        self.counts = IoCounts(0, 0)
        self._lock = threading.Lock()

    def _count(self, requests: int, received: int = 0) -> None:
        with self._lock:
            known = self.counts
            self.counts = IoCounts(known.requests + requests, known.bytes + received)


class _RefusedError(Exception):
    """A request that is not repeated: its meaning, the status, and advice."""

    def __init__(self, what: str, status: int | None = None) -> None:
        super().__init__(what)
        self.status = status


class _Objects(Counted):
    """The objects below a prefix.

    Attributes:
        url: The root.
        cache: Where whole objects are kept.
        failed: Requests that failed for good: their number, and the last one's error.
        in_database: The objects as listed, where some are files of RocksDB.
    """

    def __init__(self, url: str, prefix: str, secrets: Iterable[str]) -> None:
        super().__init__()
        self.url = url
        self._prefix = prefix.strip("/")
        self._secrets = sorted({text for text in secrets if len(text) > 3}, key=len, reverse=True)
        self.cache: ObjectCache | None = None
        self._walked = WalkedObjects()
        self.failed: tuple[int, StoreIOError | None] = (0, None)
        self.in_database: _Listed | None = None
        self._interrupts = 0
        self._interrupted_s = -math.inf
        # When each was begun, and its request.
        self._ahead: dict[tuple[State, tuple[int, int]], tuple[float, Future[Buffer]]] = {}
        self._asked: set[tuple[State, tuple[int, int]]] = set()

    def list(self) -> _Listed:
        """Returns each object below the prefix: its name there, length, ETag and time in ms."""
        found = self._wait([self._task("list", "", self._list)])[0]
        if not found:
            raise self._missing()
        names = {name for name, *_ in found}
        # Without its index a store's log is searched, so nothing is missing.
        needed = (name for name in DATABASES if name != "rocksdbstore")
        database = next((name for name in needed if f"{name}/CURRENT" in names), None)
        if database is not None:
            self.in_database = found
            what = (
                f"queues or tables lie in RocksDB ({database}), not read behind a URL; nothing "
                "was read: give cache_dir=, a folder that takes a copy of at most 1 GiB, or copy "
                "the whole store to a local folder, and open it there"
            )
            raise UnsupportedError(f"{self.url}: {what}", what, self.url)
        return found

    def ranges(self, state: State, parts: Parts, ahead: _Ahead = ()) -> _Buffers:
        """Returns the bytes of parts, of the cache where it has the object; as ``fetch``."""
        if self.cache is not None:
            # Later objects may be there.
            ahead = [(other, part) for other, part in ahead if other == state]

        def fetch(wanted: Parts) -> _Buffers:
            # Where a whole object is read its parts are others.
            return self.fetch(state, wanted, ahead if wanted is parts else ())

        cache = self.cache
        fetched = fetch if cache is None else partial(cache.read, state, fetch=fetch)
        # A reader that goes backwards wants little of other files.
        is_index = state[0].startswith("index/")
        return self._walked.read(state, parts, fetched) if is_index else fetched(parts)

    def fetch(self, state: State, parts: Parts, ahead: _Ahead = ()) -> _Buffers:
        """Returns the bytes of parts of an object, each from its first to before its last byte.

        Those ahead are begun.

        Raises:
            StoreIOError: The object is gone, is not the listed one any more, or cannot be read.
        """
        threads, keys = request_threads(), [(state, (at, end)) for at, end in parts]
        with self._lock:
            begun = [self._ahead.pop(key, (0.0, None))[1] for key in keys]
            # Another thread may be about to begin them ahead.
            self._asked.update(keys)
        try:
            # One that failed ahead of its reader is asked for again.
            reads = [
                threads.submit(self._reading(state, part))
                if future is None or (future.done() and future.exception() is not None)
                else future
                for future, part in zip(begun, parts, strict=True)
            ]
            for other, part in ahead:
                self._begin(other, part)
            return self._results(reads)
        finally:
            with self._lock:
                self._asked.difference_update(keys)

    def _reading(self, state: State, part: tuple[int, int]) -> Callable[[], Buffer]:
        key, length, etag, modified_ms = state
        name = f"{self._prefix}/{key}" if self._prefix else key

        def read() -> Buffer:
            received = self._read(name, (length, etag, modified_ms), *part)
            count = memoryview(received).nbytes
            self._count(0, count)
            if count != part[1] - part[0]:
                raise OSError(f"expected {part[1] - part[0]} bytes, received {count}")
            return received

        return self._task("read", key, read)

    def _begin(self, state: State, part: tuple[int, int]) -> None:
        """Reads a part ahead; one that nobody asked for makes room."""
        with self._lock:
            if (state, part) in self._ahead or (state, part) in self._asked:
                return
            now_s = time.monotonic()
            if len(self._ahead) >= _MOST_AHEAD:
                oldest = next(iter(self._ahead))
                # A younger one has a reader, and would be read twice.
                if now_s - self._ahead[oldest][0] < _LEFT_AHEAD_S:
                    return
                self._ahead.pop(oldest)[1].cancel()
            future = request_threads().submit(self._reading(state, part))
            self._ahead[state, part] = now_s, future

    def _wait(self, tasks: Sequence[Callable[[], _T]]) -> _Results[_T]:
        """The results of tasks that run at once."""
        threads = request_threads()
        return self._results([threads.submit(task) for task in tasks])

    def _results(self, futures: Sequence[Future[_T]]) -> _Results[_T]:
        """The results of requests; an interrupt ends this wait, and then those of other threads."""
        interrupts, looks, call = self._interrupts, 0, object()
        is_main = threading.get_ident() == threading.main_thread().ident
        if not is_main and time.monotonic() - self._interrupted_s < _INTERRUPTED_S:
            # Its caller, which the interrupt ended, has begun to wait for this thread.
            interrupts -= 1
        _CALLED.add(call)
        try:
            # A signal that comes just before an endless wait would not end it.
            while looks < 2 and wait(futures, timeout=_SIGNAL_CHECK_S).not_done:
                looks += 2 * _ENDING.is_set() or self._interrupts != interrupts
            if not all(future.done() for future in futures):
                text = f"read {self.url}: an interrupt ended the call; nothing was changed"
                raise StoreIOError(text, errno.EINTR, self.url, "read")  # noqa: TRY301
            return [future.result() for future in futures]
        except BaseException as error:
            if isinstance(error, StoreIOError):
                self.failed = (self.failed[0] + 1, error)
            for future in futures:
                future.cancel()
            raise
        finally:
            _CALLED.discard(call)

    def interrupted(self) -> None:
        """Ends the waits of other threads, since an interrupt ended the call that they work for."""
        self._interrupts, self._interrupted_s = self._interrupts + 1, time.monotonic()

    def _task(self, op: str, key: str, ask: Callable[[], _T]) -> Callable[[], _T]:
        """A request that is repeated where that may help, for a thread to run."""

        def run() -> _T:
            url = f"{self.url}/{key}" if key else self.url
            pause = _PAUSE_S
            for attempts in itertools.count(1):
                try:
                    return ask()
                except _RefusedError as error:
                    refused = error
                except Exception as error:
                    found = self._refused(op, error)
                    may_repeat = found is None and attempts < _ATTEMPTS
                    if may_repeat and not _ENDING.wait(pause * random.uniform(0.5, 1)):  # noqa: S311
                        pause = min(pause * 2, _LONGEST_PAUSE_S)
                        continue
                    last = f"asked {attempts} times, the last time: {_first_part(error)}"
                    refused = found or _RefusedError(last)
                break
            text = self._clean(f"{op} {url}: {refused}; nothing was changed")
            raise StoreIOError(text, {403: 13, 404: 2}.get(refused.status or 0), url, op)

        return run

    def _clean(self, text: str) -> str:
        """A text without the secrets, on one line."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())[:1000]

    def _missing(self) -> NotAStoreError:
        """Names the nearest prefix that has objects."""
        above = self._prefix
        root = self.url.removesuffix(above).rstrip("/") if above else self.url
        reason = "no object lies below it, nor in the bucket"
        while above:
            above = above.strip("/").rpartition("/")[0]
            if self._wait([self._task("list", "", partial(self._has_objects, above))])[0]:
                nearest = f"{root}/{above}" if above else f"{root}/"
                reason = f"no object lies below it; the nearest prefix that has some is {nearest}"
                break
        return NotAStoreError(f"{self.url}: {reason}", self.url, reason)

    def _list(self) -> _Listed:
        raise NotImplementedError

    def _has_objects(self, prefix: str) -> bool:
        raise NotImplementedError

    def _read(self, name: str, listed: tuple[int, str | None, int], start: int, end: int) -> Buffer:
        raise NotImplementedError

    def _refused(self, op: str, error: Exception) -> _RefusedError | None:
        """The meaning of an error, or None where the request is to be repeated."""
        raise NotImplementedError


_GONE = "the object is gone since the store was listed (404): call refresh(), or open it again"
_CHANGED = "the object was replaced since the store was listed: call refresh(), or open it again"


def _first_part(error: Exception) -> str:
    """An error's text without obstore's source of it."""
    return str(error).partition("\n\nDebug source")[0] or type(error).__name__


_RIGHTS = {
    "list": ("ListBucket", "list", "Reader"),
    "write": ("PutObject", "create", "Contributor"),
    "delete": ("DeleteObject", "delete", "Contributor"),
}
"""Right of each operation on S3, on Google and on Azure."""


def _denied(op: str) -> str:
    s3, google, azure = _RIGHTS.get(op, ("GetObject", "get", "Reader"))
    return (
        f"refused (403): these credentials may not {op} here (on S3 the right s3:{s3}, on Google "
        f"storage.objects.{google}, on Azure Storage Blob Data {azure})"
    )


class _ObstoreObjects(_Objects):
    """Objects that obstore reads; each read names the ETag that it expects."""

    def __init__(self, store: Any, url: str, prefix: str, secrets: Iterable[str]) -> None:  # noqa: ANN401
        super().__init__(url, prefix, secrets)
        self._store = store

    def _list(self) -> _Listed:
        import obstore

        found: list[tuple[str, int, str | None, int]] = []
        skip = len(self._prefix) + 1 if self._prefix else 0
        self._count(1)
        pages = obstore.list(self._store, self._prefix or None, chunk_size=_PAGE)
        for number, page in enumerate(pages):
            self._count(int(number > 0))
            found += [
                (
                    meta["path"][skip:],
                    meta["size"],
                    meta["e_tag"],
                    int(meta["last_modified"].timestamp() * 1000),
                )
                for meta in page
            ]
        return found

    def _has_objects(self, prefix: str) -> bool:
        import obstore

        self._count(1)
        return any(page for page in obstore.list(self._store, prefix or None, chunk_size=1))

    def _read(self, name: str, listed: tuple[int, str | None, int], start: int, end: int) -> Buffer:
        import obstore

        self._count(1)
        options: Any = {"range": (start, end)}
        if listed[1] is not None:
            options["if_match"] = listed[1]
        got = obstore.get(self._store, name, options=options)
        if got.meta["size"] != listed[0]:
            raise _RefusedError(_CHANGED, 412)
        return got.bytes()

    def _refused(self, op: str, error: Exception) -> _RefusedError | None:
        from obstore import exceptions

        kinds: dict[int, tuple[type[Exception], ...]] = {
            404: (exceptions.NotFoundError, FileNotFoundError),
            412: (exceptions.PreconditionError,),
            403: (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError),
        }
        # A list request has no errors of its own.
        found = _STATUS.search(str(error))
        named = (status for status, kind in kinds.items() if isinstance(error, kind))
        status = next(named, int(found[1]) if found else 0)
        if status in (401, 403):
            return _RefusedError(_denied(op), 403)
        if status == 404:
            return _RefusedError("there is no such bucket (404)" if op == "list" else _GONE, 404)
        if status == 412:
            return _RefusedError(f"{_CHANGED} (412)", 412)
        is_final = 400 <= status < 500 and status not in (408, 429)
        return _RefusedError(_first_part(error), status) if is_final else None


class _FsspecObjects(_Objects):
    """Objects that fsspec reads; length, time and ETag are asked for before and after."""

    def __init__(self, system: Any, url: str, prefix: str, secrets: Iterable[str]) -> None:  # noqa: ANN401
        super().__init__(url, prefix, secrets)
        self._system = system
        self._root = prefix.rstrip("/")
        # Kept as it is: a path of a local file system begins with a slash.
        self._prefix = self._root

    def _list(self) -> _Listed:
        self._system.invalidate_cache()
        self._count(1)
        try:
            entries = self._system.find(self._root, withdirs=False, detail=True)
        except FileNotFoundError:
            return []
        self._count(len(entries) // _PAGE)
        root = self._system._strip_protocol(self._root).rstrip("/")  # noqa: SLF001 - fsspec's own way
        return [
            (name[len(root) :].lstrip("/"), *self._state(info)) for name, info in entries.items()
        ]

    def _state(self, info: Mapping[str, Any]) -> tuple[int, str | None, int]:
        """Length, ETag and time in ms of an entry, as far as the file system knows them."""
        etag = next((info[key] for key in ("ETag", "etag", "md5") if info.get(key)), None)
        times = ("mtime", "LastModified", "last_modified", "updated", "created")
        changed = next((info[key] for key in times if info.get(key)), 0)
        if hasattr(changed, "timestamp"):
            changed = changed.timestamp()
        changed_ms = int(changed * 1000) if isinstance(changed, (int, float)) else 0
        return info["size"], None if etag is None else str(etag), changed_ms

    def _has_objects(self, prefix: str) -> bool:
        self._count(1)
        return bool(self._system.exists(prefix or self._system.root_marker))

    def fetch(self, state: State, parts: Parts, ahead: _Ahead = ()) -> _Buffers:
        """As of the class above, between two questions for the object's state."""
        key, *listed = state
        name = f"{self._prefix}/{key}"

        def check() -> None:
            self._count(1)
            self._system.invalidate_cache()
            if self._state(self._system.info(name)) != tuple(listed):
                raise _RefusedError(_CHANGED, 412)

        self._wait([self._task("read", key, check)])
        found = super().fetch(state, parts, ahead)
        self._wait([self._task("read", key, check)])
        return found

    def _read(self, name: str, listed: tuple[int, str | None, int], start: int, end: int) -> Buffer:
        del listed  # `ranges` compares it
        self._count(1)
        received: bytes = self._system.cat_file(name, start=start, end=end)
        return received

    def _refused(self, op: str, error: Exception) -> _RefusedError | None:
        if isinstance(error, FileNotFoundError):
            return _RefusedError("no such path (404)" if op == "list" else _GONE, 404)
        return _RefusedError(_denied(op), 403) if isinstance(error, PermissionError) else None
