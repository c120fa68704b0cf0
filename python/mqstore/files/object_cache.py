"""Whole objects kept in a local folder or in memory, within bounds."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.errors import StoreError, StoreIOError, UnsupportedError
from mqstore.files.durable import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    State = tuple[str, int, str | None, int]
    Parts = Sequence[tuple[int, int]]
    Fetch = Callable[[Parts], list[Buffer]]

_SMALL = 16 << 20
"""Objects up to this length are kept from their first read on."""
_PART = 8 << 20
_AT_ONCE = 4
_COPY_BYTES = 1 << 30
"""Bytes of a store that is copied whole."""
_MOST_STEPS = 8
"""Blocks of a chain that are asked for one by one."""
_MOST_WALKED = 64 << 20
"""Bytes of all objects that are kept in memory whole."""
# Nothing else in the folder is removed.
_OURS = re.compile(r"[0-9a-f]{64}\.object|mqstore-\w+\.partial")
_LEFT_S = 24 * 3600
"""Age of an unfinished file whose process is taken for killed."""


class ObjectCache:
    """Objects as files; any number of processes may share a folder.

    A file has the name of the object's URL, length, ETag and time together, so that a replaced
    object is another file. Of larger objects those are kept of which a quarter was read.

    Args:
        folder: The folder; it is made when it is missing.
        most_bytes: Bytes of all files in it; those that were read longest ago are removed.
        url: The root of the objects.
    """

    def __init__(self, folder: str, most_bytes: int, url: str) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._most_bytes = most_bytes
        self._url = url
        self._read: dict[State, int] = {}
        self._make_room(0)

    def read(self, state: State, parts: Parts, fetch: Fetch) -> list[Buffer]:
        """The bytes of parts of an object: of its file, or fetched."""
        length = state[1]
        if length > self._most_bytes or not _has_version(state):
            return fetch(parts)
        name = hashlib.sha256(repr((self._url, *state)).encode()).hexdigest()
        path = self._folder / f"{name}.object"
        found = self._of_file(path, length, parts)
        if found is not None:
            return found
        self._read[state] = self._read.get(state, 0) + sum(end - begin for begin, end in parts)
        if length > _SMALL and self._read[state] < length // 4:
            return fetch(parts)
        try:
            self._keep(path, length, fetch)
        except StoreError:
            raise
        except OSError:  # a full disk keeps nothing, and is no error of the read
            return fetch(parts)
        found = self._of_file(path, length, parts)
        return fetch(parts) if found is None else found

    def _of_file(self, path: Path, length: int, parts: Parts) -> list[Buffer] | None:
        try:
            with path.open("rb") as file:
                os.utime(path)
                found: list[Buffer] = [
                    os.pread(file.fileno(), end - begin, begin) for begin, end in parts
                ]
                is_whole = os.fstat(file.fileno()).st_size == length
        except OSError:
            return None
        return found if is_whole else None

    def _keep(self, path: Path, length: int, fetch: Fetch) -> None:
        """Fetches a whole object into its file, which appears when it is durable."""
        self._make_room(length)
        descriptor, name = tempfile.mkstemp(".partial", "mqstore-", self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                _write(file, length, fetch)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def _make_room(self, length: int) -> None:
        """Removes the files that were read longest ago, and those left unfinished."""
        files = []
        for path in self._folder.iterdir():
            if not _OURS.fullmatch(path.name):
                continue
            with contextlib.suppress(OSError):
                status = path.stat()
                if path.suffix == ".object":
                    files.append((status.st_mtime_ns, status.st_size, path))
                elif time.time() - status.st_mtime > _LEFT_S:
                    path.unlink()
        left = sum(size for _, size, _ in files) + length - self._most_bytes
        for _, size, path in sorted(files):
            if left <= 0:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                left -= size


class WalkedObjects:
    """Whole objects in memory: those in which a long chain leads backwards, as in an index file."""

    def __init__(self) -> None:
        self._whole: dict[State, memoryview] = {}
        self._last: tuple[State | None, int, int] = (None, 0, 0)
        self._lock = threading.Lock()

    def read(self, state: State, parts: Parts, fetch: Fetch) -> list[Buffer]:
        """The bytes of parts of an object, which is fetched whole where a walk is long."""
        with self._lock:
            whole = self._whole.get(state)
            known, last, steps = self._last
            steps = steps + 1 if known == state and parts[0][0] < last else 0
            self._last = (state, parts[0][0], steps)
        if whole is None:
            if steps < _MOST_STEPS or state[1] > _MOST_WALKED or not _has_version(state):
                return fetch(parts)
            whole = memoryview(b"".join(fetch(_parts_of(state[1]))))
            with self._lock:
                self._whole[state] = whole
                while sum(map(len, self._whole.values())) > _MOST_WALKED:
                    del self._whole[next(iter(self._whole))]
        return [whole[begin:end] for begin, end in parts]


def _has_version(state: State) -> bool:
    """Whether a replaced object would have another state."""
    _, _, etag, modified_ms = state
    return etag is not None or modified_ms != 0


def _parts_of(length: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + _PART, length)) for begin in range(0, length, _PART)]


def _write(file: BinaryIO, length: int, fetch: Fetch) -> None:
    """Writes a whole object, durably; pieces of zeros become holes."""
    parts = _parts_of(length)
    for at in range(0, len(parts), _AT_ONCE):
        for piece in fetch(parts[at : at + _AT_ONCE]):
            count = memoryview(piece).nbytes
            if bytes(piece).count(0) == count:
                file.seek(count, os.SEEK_CUR)
            else:
                file.write(piece)
    file.truncate(length)
    file.flush()
    os.fsync(file.fileno())


def whole_copy(
    folder: str, url: str, found: Sequence[State], fetch: Callable[[State, Parts], list[Buffer]]
) -> str:
    """A local copy of all objects below a URL, one for each state of theirs.

    Copies of earlier states that no call has opened for a day are removed.

    Args:
        folder: Where copies are kept; it is made when it is missing.
        url: The root of the objects.
        found: The objects as listed.
        fetch: Reads parts of an object.

    Raises:
        UnsupportedError: The objects have more than 1 GiB.
        StoreIOError: An object cannot be read.
    """
    length = sum(length for _, length, *_ in found)
    if length > _COPY_BYTES:
        what = (
            f"its queues or tables lie in RocksDB, and it has {length} bytes; nothing was read: "
            f"expected at most {_COPY_BYTES} bytes for a copy in cache_dir; copy the store to a "
            "local folder, and open it there"
        )
        raise UnsupportedError(f"{url}: {what}", what, url)
    name = hashlib.sha256(url.encode()).hexdigest()[:32]
    state = hashlib.sha256(repr(sorted(found, key=repr)).encode()).hexdigest()[:32]
    copy = Path(folder, f"{name}-{state}.store")
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.is_dir():
        partial = Path(tempfile.mkdtemp(".partial-store", "mqstore-", folder))
        try:
            for known in found:
                key, size, *_ = known
                path = partial / key
                if key.endswith("/") or not path.resolve().is_relative_to(partial.resolve()):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    _write(file, size, functools.partial(fetch, known))
            for above, _, _ in os.walk(partial):
                sync(Path(above))
            with contextlib.suppress(OSError):
                partial.rename(copy)
            if not copy.is_dir():  # else another process was faster
                raise FileNotFoundError(errno.ENOENT, "not renamed", str(copy))
            sync(copy.parent)
        except StoreError:
            raise
        except OSError as error:
            what = f"copy to {copy}: {error.strerror}; nothing was read: give another cache_dir"
            raise StoreIOError(f"{url}: {what}", error.errno, str(copy), "write") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    os.utime(copy)
    old = [*copy.parent.glob(f"{name}-*.store"), *copy.parent.glob("mqstore-*.partial-store")]
    for other in old:
        if time.time() - other.stat().st_mtime > _LEFT_S:
            shutil.rmtree(other, ignore_errors=True)
    return str(copy)
