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
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mqstore.errors import (
    ConfigError,
    CorruptionError,
    NotAStoreError,
    StoreIOError,
    UnsupportedError,
    io_errors,
    needs,
    wrong_setting,
)
from mqstore.files.durable import new_file, sync_up
from mqstore.files.remote import Counted, _ObstoreObjects
from mqstore.files.remote_path import objects_of
from mqstore.store import has_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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


class _Folder(Counted):
    """Files of a folder of this machine, by names with ``/`` between their parts.

    What is asked of several objects is asked of each: a ``_Bucket`` does that otherwise.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Content of objects; ``None`` for one that is missing."""
        return self._each("read", partial(_if_there, self._content), names)

    def times(self, names: Sequence[str]) -> list[float | None]:
        """Unix times of objects in seconds; ``None`` for one that is missing."""
        return self._each("read", partial(_if_there, self._time_s), names)

    def put(self, contents: Mapping[str, bytes]) -> list[bool]:
        """Writes objects that are missing; whether each was."""
        return self._each("write", lambda name: self._put(name, contents[name]), list(contents))

    def replace(self, contents: Mapping[str, bytes]) -> None:
        """Writes objects that may be there, each at once."""
        self._each("write", lambda n: self._write(n, contents[n], overwrite=True), list(contents))

    def renew(self, contents: Mapping[str, bytes]) -> None:
        """Gives objects that are there, and old, the present time."""
        self._each("write", self._touch, list(contents))

    def names(self, folder: str, *, most: int | None = None) -> list[tuple[str, int, float]]:
        """Objects below a folder, sorted: name, bytes, and Unix time in seconds.

        With `most` only some, which are more than so many if there are more.
        """
        return self._each("list", partial(self._names, most), [folder])[0]

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder, sorted."""
        return self._each("list", self._folders, [folder])[0]

    def remove(self, names: Sequence[str]) -> None:
        """Deletes objects that may be missing."""
        self._each("delete", self._delete, names)

    def objects(self, digests: Sequence[str]) -> list[bytes]:
        """Content of objects, proven by their digests."""
        contents = self.get([object_name(digest) for digest in digests])
        pairs = zip(digests, contents, strict=True)
        return [self.proven(digest, content) for digest, content in pairs]

    def proven(self, digest: str, content: bytes | None, least_bytes: int = 0) -> bytes:
        """Content of an object, decompressed; refuses one that is missing or other than stored."""
        name = object_name(digest)
        if content is None:
            raise self.damaged(name, "an object", "nothing")
        if digest_of(content) != digest:
            content = _unpacked(content)
            if digest_of(content) != digest:
                raise self.damaged(name, "the content that its name proves", "other content")
        if len(content) < least_bytes:
            raise self.damaged(name, f"{least_bytes} bytes", f"{len(content)} bytes")
        return content

    def damaged(self, name: str, expected: str, found: str) -> CorruptionError:
        """The error of an object that is not what was stored."""
        path = f"{self.url}/{name}"
        text = (
            f"{path}: expected {expected}, found {found}; nothing was changed: "
            "`mqstore snapshots TARGET --check` lists all such objects"
        )
        return CorruptionError(text, path, 0, "backup-object", expected, found)

    def clock_s(self) -> float:
        """Unix time in seconds by the clock of the target."""
        name = f"now-{uuid.uuid4().hex}"
        self.put({name: b"1"})
        found = self.times([name])[0]
        self.remove([name])
        return time.time() if found is None else found

    @cached_property
    def _root(self) -> Path:
        return Path(self.url)

    def _each(self, op: str, ask: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
        found = []
        for name in names:
            self._count(1)
            with io_errors(op, self._root / name):
                found.append(ask(name))
        return found

    def _content(self, name: str) -> bytes:
        path = self._root / name
        # Neither a link's bytes, nor a device's without an end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", str(path))
            content = file.read() if status.st_size <= MOST_OBJECT_BYTES else b""
        self._count(0, len(content))
        return content

    def _time_s(self, name: str) -> float:
        return (self._root / name).stat().st_mtime

    def _put(self, name: str, content: bytes) -> bool:
        if (self._root / name).exists():
            return False
        if not self._root.exists():
            make_root(self._root)
        try:
            try:
                self._write(name, content)
            except FileNotFoundError:  # `prune` removes empty folders
                self._write(name, content)
        except FileExistsError:
            return False
        return True

    def _write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, overwrite=overwrite) as temporary:
            temporary.write_bytes(content)
        sync_up(path.parent, self._root)

    def _touch(self, name: str) -> None:
        path = self._root / name
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            sync_up(path.parent, self._root)  # a killed sync may not have come to it

    def _names(self, most: int | None, folder: str) -> list[tuple[str, int, float]]:
        found: list[tuple[str, int, float]] = []
        for above, _, names in os.walk(self._root / folder, onerror=_refuse, followlinks=True):
            if most is not None and len(found) >= most:
                break
            for path in (Path(above, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    name = path.relative_to(self._root).as_posix()
                    found.append((name, status.st_size, status.st_mtime))
        return sorted(found)

    def _folders(self, folder: str) -> list[str]:
        return sorted(_if_there(os.listdir, self._root / folder) or [])

    def _delete(self, name: str) -> None:
        path = self._root / name
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def make_root(folder: Path) -> None:
    """Makes a folder that may be there, for its owner only and with a durable name."""
    above = next(one for one in (folder, *folder.parents) if one.exists())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_up(folder, above)


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


class _Bucket(_Folder):
    """Objects below a URL."""

    def __init__(self, objects: _ObstoreObjects) -> None:
        import obstore

        super().__init__(objects.url)
        self._objects = objects
        self._store: Any = objects._store  # noqa: SLF001 - of this package, as all below
        self._above = f"{objects._prefix}/" if objects._prefix else ""  # noqa: SLF001
        self._obstore = obstore

    def _each(self, op: str, ask: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
        def counted(name: str) -> _T:
            self._count(1)
            return ask(name)

        objects, found = self._objects, []
        for at in range(0, len(names), 256):
            several = names[at : at + 256]
            tasks = [objects._task(op, name, partial(counted, name)) for name in several]  # noqa: SLF001
            found += objects._wait(tasks)  # noqa: SLF001
        return found

    def renew(self, contents: Mapping[str, bytes]) -> None:
        # Only a new body gives an object a new time.
        least_s = time.time() - _YOUNG_S
        times = zip(contents, self.times(list(contents)), strict=True)
        self.replace({n: contents[n] for n, time_s in times if time_s is None or time_s < least_s})

    def _content(self, name: str) -> bytes:
        found = self._obstore.get(self._store, self._above + name)
        is_ours = found.meta["size"] <= MOST_OBJECT_BYTES
        content = found.bytes().to_bytes() if is_ours else b""
        self._count(0, len(content))
        return content

    def _time_s(self, name: str) -> float:
        return self._obstore.head(self._store, self._above + name)["last_modified"].timestamp()

    def _put(self, name: str, content: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._write(name, content)
        except (AlreadyExistsError, FileExistsError):
            return False
        return True

    def _write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        mode: Any = "overwrite" if overwrite else "create"
        path = self._above + name
        self._obstore.put(self._store, path, content, mode=mode, use_multipart=False)

    def _names(self, most: int | None, folder: str) -> list[tuple[str, int, float]]:
        found: list[tuple[str, int, float]] = []
        pages = self._obstore.list(self._store, self._above + folder, chunk_size=1000)
        for number, page in enumerate(pages):
            self._count(int(number > 0))
            for meta in page:
                path = meta["path"].removeprefix(self._above)
                found.append((path, meta["size"], meta["last_modified"].timestamp()))
            if most is not None and len(found) >= most:
                break
        return sorted(found)

    def _folders(self, folder: str) -> list[str]:
        found = self._obstore.list_with_delimiter(self._store, self._above + folder)
        prefixes = (prefix.rstrip("/") for prefix in found["common_prefixes"])
        return sorted(prefix.rpartition("/")[2] for prefix in prefixes)

    def _delete(self, name: str) -> None:
        _if_there(partial(self._obstore.delete, self._store), self._above + name)


Target: TypeAlias = _Folder


def target_of(
    target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Target:
    """The objects of a target, which need not be there."""
    if not has_scheme(target):
        if storage_options is not None:
            text = "storage_options: expected None for a local path, which takes none"
            raise ConfigError(text, "storage_options")
        return _Folder(os.path.abspath(os.fspath(target)))  # noqa: PTH100 - no link is followed
    objects = objects_of(target, None, storage_options)
    if not isinstance(objects, _ObstoreObjects):
        raise _refused(objects.url, "fsspec has no such call")
    return _Bucket(objects)


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
        raise target.damaged(FORMAT, "a backup's format", "something else")
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
        target.replace({FORMAT: json_bytes({**found, "version": _NEWEST})})
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


def json_bytes(value: object) -> bytes:
    """A value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def object_name(digest: str) -> str:
    """Name of the object with the content of a digest."""
    return f"objects/{digest[:2]}/{digest}"


def digest_of(content: bytes) -> str:
    """Digest of content, which names and proves it."""
    return sha256(content).hexdigest()


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
