"""The objects of a backup: files of a folder, or objects below the URL of a bucket.

An object is written once, whole or not at all, and never changed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
import uuid
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mqstore.errors import (
    ConfigError,
    CorruptionError,
    NotAStoreError,
    StoreIOError,
    UnsupportedError,
    needs,
    wrong_setting,
)
from mqstore.files.durable import new_file, sync_up
from mqstore.files.remote import IoCounts, _ObstoreObjects
from mqstore.files.remote_path import objects_of
from mqstore.store import has_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


FORMAT = "mqstore-backup.json"
"""Name of the object that has the version of a backup's format."""
_PLAIN, _NEWEST = 1, 2
"""Versions of the format: objects may be compressed, and bodies redacted, in the newest alone."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_MOST_PACKED_BYTES = 8 << 20
"""Content of more bytes is not compressed, so no object unpacks to more."""
_T = TypeVar("_T")
MOST_OBJECT_BYTES = 1 << 30
"""Larger ones are none that a sync wrote: they are read as empty, so their digest is wrong."""
_YOUNG_S = 12 * 3600
"""Younger objects stay long enough: `prune` leaves them for 24 hours."""
_MISSING = FileNotFoundError, NotADirectoryError
_P = TypeVar("_P")


class _Folder:
    """Files of a folder of this machine, by names with ``/`` between their parts."""

    def __init__(self, path: str) -> None:
        self.url = path
        self.counts = IoCounts(0, 0)
        self._root = Path(path)

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Content of objects; ``None`` for one that is missing."""
        found = self._each(names, _regular_bytes)
        received = sum(len(content or b"") for content in found)
        self.counts = IoCounts(self.counts.requests, self.counts.bytes + received)
        return found

    def times(self, names: Sequence[str]) -> list[float | None]:
        """Unix times of objects in seconds; ``None`` for one that is missing."""
        return self._each(names, lambda path: path.stat().st_mtime)

    def _each(self, names: Sequence[str], ask: Callable[[Path], _T]) -> list[_T | None]:
        found = []
        for path in (self._root / name for name in names):
            with self._asked("read", path):
                found.append(_if_there(ask, path))
        return found

    def put(self, contents: Mapping[str, bytes]) -> list[bool]:
        """Writes objects that are missing; whether each was."""
        return [self._put(self._root / name, content) for name, content in contents.items()]

    def _put(self, path: Path, content: bytes) -> bool:
        with self._asked("write", path):
            if path.exists():
                return False
            if not self._root.exists():
                make_root(self._root)
            try:
                try:
                    self._write(path, content)
                except FileNotFoundError:  # `prune` removes empty folders
                    self._write(path, content)
            except FileExistsError:
                return False
        return True

    def _write(self, path: Path, content: bytes, *, overwrite: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, overwrite=overwrite) as temporary:
            temporary.write_bytes(content)
        sync_up(path.parent, self._root)

    def replace(self, name: str, content: bytes) -> None:
        """Writes an object that may be there, at once."""
        with self._asked("write", self._root / name):
            self._write(self._root / name, content, overwrite=True)

    def renew(self, contents: Mapping[str, bytes]) -> None:
        """Gives objects that are there, and old, the present time."""
        for path in (self._root / name for name in contents):
            with self._asked("write", path), contextlib.suppress(FileNotFoundError):
                os.utime(path)
                sync_up(path.parent, self._root)  # a killed sync may not have come to it

    def names(self, folder: str, *, most: int | None = None) -> list[tuple[str, int, float]]:
        """Objects below a folder, sorted: name, bytes, and Unix time in seconds.

        With `most` only some, which are more than so many if there are more.
        """
        found: list[tuple[str, int, float]] = []
        with self._asked("list", self._root / folder):
            walked = os.walk(self._root / folder, onerror=_refuse, followlinks=True)
            for above, _, names in walked:
                if most is not None and len(found) >= most:
                    break
                for path in (Path(above, name) for name in names):
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        name = path.relative_to(self._root).as_posix()
                        found.append((name, status.st_size, status.st_mtime))
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder, sorted."""
        with self._asked("list", self._root / folder):
            return sorted(_if_there(os.listdir, self._root / folder) or [])

    def remove(self, names: Sequence[str]) -> None:
        """Deletes objects that may be missing."""
        for path in (self._root / name for name in names):
            with self._asked("delete", path):
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    path.parent.rmdir()

    @contextlib.contextmanager
    def _asked(self, op: str, path: Path) -> Iterator[None]:
        self.counts = IoCounts(self.counts.requests + 1, self.counts.bytes)
        with io_errors(op, path):
            yield


def make_root(folder: Path) -> None:
    """Makes a folder that may be there, for its owner only and with a durable name."""
    above = next(one for one in (folder, *folder.parents) if one.exists())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_up(folder, above)


@contextlib.contextmanager
def io_errors(op: str, path: Path) -> Iterator[None]:
    """Raises an error of the operating system as a ``StoreIOError``."""
    try:
        yield
    except StoreIOError:
        raise
    except OSError as error:
        text = f"{op} {path}: {error.strerror}"
        raise StoreIOError(text, error.errno, str(path), op) from error


def _refuse(error: OSError) -> None:
    """Refuses to take a folder that cannot be listed for an empty one."""
    if not isinstance(error, _MISSING):
        raise error


def _if_there(ask: Callable[[_P], _T], place: _P) -> _T | None:
    """The answer about a place; ``None`` if nothing is there."""
    try:
        return ask(place)
    except _MISSING:
        return None


def _regular_bytes(path: Path) -> bytes:
    """Bytes of a regular file: neither a link's, nor a device's without an end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read() if os.fstat(file.fileno()).st_size <= MOST_OBJECT_BYTES else b""


class _Bucket:
    """Objects below a URL, with the methods of a ``_Folder``."""

    def __init__(self, objects: _ObstoreObjects) -> None:
        import obstore

        self.url = objects.url
        self._objects = objects
        self._store: Any = objects._store  # noqa: SLF001 - of this package, as all below
        self._above = f"{objects._prefix}/" if objects._prefix else ""  # noqa: SLF001
        self._obstore = obstore

    @property
    def counts(self) -> IoCounts:
        return self._objects.counts

    def _run(self, op: str, ask: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
        def counted(name: str) -> Any:  # noqa: ANN401 - as `ask`
            self._objects._count(1)  # noqa: SLF001
            return ask(self._above + name)

        objects, found = self._objects, []
        for at in range(0, len(names), 256):
            several = names[at : at + 256]
            tasks = [objects._task(op, name, partial(counted, name)) for name in several]  # noqa: SLF001
            found += objects._wait(tasks)  # noqa: SLF001
        return found

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        def ask(name: str) -> bytes:
            found = self._obstore.get(self._store, name)
            is_ours = found.meta["size"] <= MOST_OBJECT_BYTES
            content = found.bytes().to_bytes() if is_ours else b""
            self._objects._count(0, len(content))  # noqa: SLF001
            return content

        return self._run("read", partial(_if_there, ask), names)

    def times(self, names: Sequence[str]) -> list[float | None]:
        head = partial(_if_there, partial(self._obstore.head, self._store))
        found = self._run("read", head, names)
        return [meta and meta["last_modified"].timestamp() for meta in found]

    def put(self, contents: Mapping[str, bytes]) -> list[bool]:
        return self._put(contents, "create")

    def replace(self, name: str, content: bytes) -> None:
        self._put({name: content}, "overwrite")

    def renew(self, contents: Mapping[str, bytes]) -> None:
        # Only a new body gives an object a new time.
        least_s = time.time() - _YOUNG_S
        times = zip(contents.items(), self.times(list(contents)), strict=True)
        self._put({n: c for (n, c), t in times if t is None or t < least_s}, "overwrite")

    def _put(self, contents: Mapping[str, bytes], mode: Any) -> list[bool]:  # noqa: ANN401 - obstore's
        from obstore.exceptions import AlreadyExistsError

        bodies = {self._above + name: content for name, content in contents.items()}

        def ask(name: str) -> bool:
            try:
                self._obstore.put(self._store, name, bodies[name], mode=mode, use_multipart=False)
            except (AlreadyExistsError, FileExistsError):
                return False
            return True

        return self._run("write", ask, list(contents))

    def names(self, folder: str, *, most: int | None = None) -> list[tuple[str, int, float]]:
        def ask(name: str) -> list[tuple[str, int, float]]:
            found: list[tuple[str, int, float]] = []
            pages = self._obstore.list(self._store, name, chunk_size=1000)
            for number, page in enumerate(pages):
                self._objects._count(int(number > 0))  # noqa: SLF001
                for meta in page:
                    path = meta["path"].removeprefix(self._above)
                    found.append((path, meta["size"], meta["last_modified"].timestamp()))
                if most is not None and len(found) >= most:
                    break
            return sorted(found)

        return self._run("list", ask, [folder])[0]  # type: ignore[no-any-return]

    def folders(self, folder: str) -> list[str]:
        def ask(name: str) -> list[str]:
            found = self._obstore.list_with_delimiter(self._store, name)["common_prefixes"]
            return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)

        return self._run("list", ask, [folder])[0]  # type: ignore[no-any-return]

    def remove(self, names: Sequence[str]) -> None:
        delete = partial(self._obstore.delete, self._store)
        self._run("delete", partial(_if_there, delete), names)


Target: TypeAlias = _Folder | _Bucket


def target_of(
    target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Target:
    """The objects of a target, which need not be there."""
    if not has_scheme(target):
        if storage_options is not None:
            raise ValueError("storage_options: expected None for a local path, which takes none")
        return _Folder(os.path.abspath(os.fspath(target)))  # noqa: PTH100 - no link is followed
    objects = objects_of(target, None, storage_options)
    if not isinstance(objects, _ObstoreObjects):
        raise _refused(objects.url, "fsspec has no such call")
    return _Bucket(objects)


def clock_s(target: Target) -> float:
    """Unix time in seconds by the clock of a target."""
    name = f"now-{uuid.uuid4().hex}"
    target.put({name: b"1"})
    found = target.times([name])[0]
    target.remove([name])
    return time.time() if found is None else found


def existing(
    target: Target, *, make: bool = False, compress: str | None = None, redact: str | None = None
) -> Target:
    """Returns a target that is a backup of a version that is known; with `make` begins one.

    With `compress` it gets a version that older readers refuse; so has one that is redacted.

    Raises:
        NotAStoreError: There is no backup.
        ConfigError: With `make`: the target has other files, or a backup with another `redact`.
        UnsupportedError: Its format is newer, or the target cannot hold one.
    """
    content = target.get([FORMAT])[0]
    if content is None and make:
        content = _begin(target, redact)
    if content is None:
        reason = f"no backup: {FORMAT} is missing"
        raise NotAStoreError(f"{target.url}: {reason}", target.url, reason)
    try:
        found = json.loads(content)
        version, is_known = found["version"], found["format"] == "mqstore-backup"
    except (ValueError, LookupError, TypeError, RecursionError):
        version, is_known = 0, False
    if not is_known or type(version) is not int:
        raise damaged(target, FORMAT, "a backup's format", "something else")
    if version > _NEWEST:
        what = (
            f"the backup has format {version}, this mqstore reads up to {_NEWEST}; nothing was "
            "read: pip install --upgrade mqstore"
        )
        raise UnsupportedError(f"{target.url}: {what}", what, target.url)
    if make and (has := found.get("redact")) != redact:
        advice = "nothing was copied: a backup has one redaction, another needs an empty target"
        raise wrong_setting("redact", f"{has!r} as of {target.url}", repr(redact), advice)
    if compress is not None and version < _NEWEST:
        target.replace(FORMAT, json_bytes({**found, "version": _NEWEST}))
    return target


def _begin(target: Target, redact: str | None) -> bytes | None:
    """Begins a backup where objects can be written only if they are missing."""
    content = json_bytes({"format": "mqstore-backup", "version": _PLAIN})
    probe = object_name(digest_of(content))
    # A sync that was killed may have left a temporary file.
    names = (name for name, *_ in target.names("", most=16) if "/." not in f"/{name}")
    foreign = next((name for name in names if name != probe), None)
    if foreign is not None:
        text = f"{target.url} has {foreign!r}, and is no backup; nothing was copied"
        raise ConfigError(f"target: expected an empty folder or a backup: {text}", "target")
    try:
        target.put({probe: content})
        is_written_twice = target.put({probe: content}) != [False]
    except StoreIOError as error:
        text, is_url = error.message, has_scheme(target.url)
        is_refused = "501" in text if is_url else error.errno in (1, 38, 95)
        if not is_refused:
            raise
        raise _refused(target.url, text) from error
    if is_written_twice:
        raise _refused(target.url, "a second write of one name succeeded")
    if redact is not None:
        content = json_bytes({"format": "mqstore-backup", "version": _NEWEST, "redact": redact})
    is_first = target.put({FORMAT: content}) == [True]
    return content if is_first else target.get([FORMAT])[0]


def _refused(url: str, why: str) -> UnsupportedError:
    what = (
        f"objects cannot be written only if they are missing ({why}), so two syncs could overwrite "
        "each other; nothing was copied: take a folder of a local disk, or a bucket of a service "
        "that supports conditional writes (If-None-Match)"
    )
    return UnsupportedError(f"{url}: {what}", what, url)


def damaged(target: Target, name: str, expected: str, found: str) -> CorruptionError:
    """The error of an object that is not what was stored."""
    path = f"{target.url}/{name}"
    text = (
        f"{path}: expected {expected}, found {found}; nothing was changed: "
        "`mqstore snapshots TARGET --check` lists all such objects"
    )
    return CorruptionError(text, path, 0, "backup-object", expected, found)


def json_bytes(value: object) -> bytes:
    """A value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def object_name(digest: str) -> str:
    """Name of the object with the content of a digest."""
    return f"objects/{digest[:2]}/{digest}"


def digest_of(content: bytes) -> str:
    """Digest of content, which names and proves it."""
    return sha256(content).hexdigest()


def get_objects(target: Target, digests: Sequence[str]) -> list[bytes]:
    """Content of objects, proven by their digests."""
    contents = target.get([object_name(digest) for digest in digests])
    pairs = zip(digests, contents, strict=True)
    return [proven(target, digest, content) for digest, content in pairs]


def proven(target: Target, digest: str, content: bytes | None, least_bytes: int = 0) -> bytes:
    """Content of an object, decompressed; refuses one that is missing or other than stored."""
    name = object_name(digest)
    if content is None:
        raise damaged(target, name, "an object", "nothing")
    if digest_of(content) != digest:
        content = _unpacked(content)
        if digest_of(content) != digest:
            raise damaged(target, name, "the content that its name proves", "other content")
    if len(content) < least_bytes:
        raise damaged(target, name, f"{least_bytes} bytes", f"{len(content)} bytes")
    return content


def packed(content: bytes, compress: str | None) -> bytes:
    """Content as an object has it: a frame of zstd if asked for, and if that is shorter."""
    if compress is None or len(content) > _MOST_PACKED_BYTES:
        return content
    frame: bytes = _pyarrow().compress(content, compress, asbytes=True)
    return min(content, frame, key=len)


def _unpacked(content: bytes) -> bytes:
    """Unpacks content of zstd; returns any other as it is."""
    if content.startswith(_ZSTD):
        arrow = _pyarrow()
        with contextlib.suppress(OSError, ValueError):
            stream = arrow.CompressedInputStream(arrow.BufferReader(content), "zstd")
            return stream.read(_MOST_PACKED_BYTES + 1)  # type: ignore[no-any-return]
    return content


def _pyarrow() -> Any:  # noqa: ANN401 - its module has no types
    with needs("parquet", "a compressed backup"):
        import pyarrow as pa
    return pa
