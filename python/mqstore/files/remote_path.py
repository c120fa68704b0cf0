"""Paths behind a URL, as functions of the package take them in the place of a folder's."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from mqstore import _native
from mqstore.errors import UnsupportedError
from mqstore.files.object_cache import ObjectCache, whole_copy
from mqstore.files.remote_url import objects_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from mqstore.files.remote import IoCounts, _Objects

__all__ = ["RemotePath", "remote_path"]

_CACHE_BYTES = 16 << 30


class RemotePath(str):
    """A path behind a URL, with the methods of ``pathlib.Path`` that readers of a store call.

    Pickled it is the text alone, without credentials.
    """

    __slots__ = ("_objects", "_remote")
    _remote: _native._RemoteStorage
    _objects: _Objects

    def __new__(cls, url: str, remote: _native._RemoteStorage, objects: _Objects) -> Self:
        """A path of a storage."""
        path = super().__new__(cls, url)
        path._remote, path._objects = remote, objects
        return path

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __truediv__(self, name: str) -> RemotePath:
        return self.at(f"{self}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last part from its last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def counts(self) -> IoCounts:
        """Requests and bytes so far."""
        return self._objects.counts

    @contextmanager
    def all_read(self) -> Iterator[None]:
        """Raises the error of a request that failed meanwhile: its object would look damaged."""
        before = self._objects.failed[0]
        yield
        count, last = self._objects.failed
        if count > before and last is not None:
            raise last

    def renew(self, least_age_s: float) -> None:
        """Lists again, if the listing is as old."""
        self._remote.renew(least_age_s)

    def at(self, path: str) -> RemotePath:
        """Another path of the same objects."""
        return RemotePath(path, self._remote, self._objects)

    def with_name(self, name: str) -> RemotePath:
        """The path of another name in the same folder."""
        return self.at(f"{self.rpartition('/')[0]}/{name}")

    def exists(self) -> bool:
        """Whether something is there."""
        return self._remote.is_folder(self) is not None

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self._remote.is_folder(self) is True

    def is_file(self) -> bool:
        """Whether it is an object."""
        return self._remote.is_folder(self) is False

    def is_symlink(self) -> bool:
        """Never: objects have no links."""
        return False

    def iterdir(self) -> Iterator[RemotePath]:
        """The paths in a folder."""
        return (self / name for name in self._remote.names(self))

    def stat(self) -> SimpleNamespace:
        """Length and time of an object, with the names of ``os.stat_result``."""
        length, modified_ms = self._remote.stat(self)
        blocks = -(-length // 512)
        return SimpleNamespace(
            st_size=length, st_blocks=blocks, st_mtime_ns=modified_ms * 1_000_000
        )

    def entries(self, *above: str) -> Iterator[tuple[tuple[str, ...], SimpleNamespace | None]]:
        """Each path below a folder: its names, and its length and time unless it is a folder."""
        for path in self.iterdir():
            names = (*above, path.name)
            yield names, None if path.is_dir() else path.stat()
            if path.is_dir():
                yield from path.entries(*names)

    def read_bytes(self) -> bytes:
        """The whole object."""
        return self._remote.read(self)


def remote_path(
    path: str | os.PathLike[str], storage: object, storage_options: Mapping[str, Any] | None
) -> RemotePath | str:
    """Lists a store behind a URL; arguments and errors are those of ``mqstore.open``.

    A store in RocksDB is copied to the folder ``cache_dir``, and the path of its copy returned.
    """
    options = dict(storage_options or {})
    folder, most_bytes = options.pop("cache_dir", None), options.pop("cache_bytes", _CACHE_BYTES)
    url, objects = objects_of(path, storage, options)
    if folder is not None:
        objects.cache = ObjectCache(str(folder), int(most_bytes), url)
    try:
        remote = _native._RemoteStorage(url, objects)  # noqa: SLF001 - our own
    except UnsupportedError:
        if folder is None or objects.in_database is None:
            raise
        return whole_copy(str(folder), url, objects.in_database, objects.fetch)
    found = RemotePath(url, remote, objects)
    if storage is None and (found / "mqstore-backup.json").is_file():
        from mqstore.backup.moment import backup_path

        return backup_path(path, options, None, None)
    return found
