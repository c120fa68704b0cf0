"""Paths behind a URL, as functions of the package take them in the place of a folder's.

obstore reads ``s3://``, ``gs://``, ``az://`` and their like, fsspec every other scheme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from mqstore import _native
from mqstore.errors import ConfigError, UnsupportedError, needs
from mqstore.files.object_cache import ObjectCache, whole_copy
from mqstore.files.remote import (
    _first_part,
    _FsspecObjects,
    _Objects,
    _ObstoreObjects,
    request_threads,
)
from mqstore.store import _shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore.files.remote import IoCounts

__all__ = ["RemotePath", "objects_of", "remote_path"]

_CACHE_BYTES = 16 << 30
_OBSTORE = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_CLIENT_FLAGS = ("allow_http", "allow_invalid_certificates", "http1_only", "http2_only")
_CLIENT_OPTIONS = (
    *_CLIENT_FLAGS,
    *("connect_timeout", "read_timeout", "timeout", "proxy_url", "user_agent"),
    *("pool_idle_timeout", "pool_max_idle_per_host"),
)
_SECRET = re.compile("key|token|secret|pass|sas|credential|signature|account", re.IGNORECASE)
_SECRETS_OF_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")


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
    objects = objects_of(path, storage, options)
    url = objects.url
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


def objects_of(
    path: str | os.PathLike[str], storage: object, storage_options: Mapping[str, Any] | None
) -> _Objects:
    """Returns the objects of a store.

    Args:
        path: A URL, or with `storage` a prefix.
        storage: An obstore store, or an fsspec file system.
        storage_options: Options of the object store, for a URL.

    Raises:
        ConfigError: An option that the object store does not know.
        UnsupportedError: A scheme that cannot be listed or is not known.
        MissingPackageError: Neither obstore nor fsspec is installed.
    """
    options = dict(storage_options or {})
    secrets = [*_secrets(options), *filter(None, map(os.environ.get, _SECRETS_OF_ENVIRONMENT))]
    request_threads()
    if storage is not None:
        return _given(os.fspath(path), storage, secrets)
    url = str(path)
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (":" in user or scheme not in ("abfs", "abfss")):
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise ValueError(
            f"path: expected a URL without credentials, got some for {shown}: "
            "give them as storage_options"
        )
    if scheme in ("http", "https"):
        what = (
            "a web server cannot list a store's files; nothing was read: give the URL of the "
            "bucket (s3://, gs://, az://), or copy the store to a local folder"
        )
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url))
    make = _by_obstore if scheme in _OBSTORE else _by_fsspec
    try:
        with needs("cloud", "a store behind a URL"):
            return make(url, scheme, rest, options, secrets)
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, (UnsupportedError, ConfigError)):
            raise
        text = _Objects(url, "", secrets)._clean(f"storage_options: {error}")  # noqa: SLF001
    raise ConfigError(text, "storage_options")


def _secrets(options: Mapping[str, Any], is_inside: bool = False) -> list[str]:  # noqa: FBT001, FBT002
    """The values that no text may show."""
    found: list[str] = []
    for name, value in options.items():
        is_secret = is_inside or _SECRET.search(str(name)) is not None
        if isinstance(value, Mapping):
            found += _secrets(value, is_secret)
        elif is_secret and isinstance(value, (str, bytes)):
            found.append(value if isinstance(value, str) else value.decode("latin-1"))
    return found


def _by_obstore(
    url: str, scheme: str, rest: str, options: dict[str, Any], secrets: list[str]
) -> _Objects:
    from obstore import exceptions
    from obstore.store import from_url

    client = dict(options.pop("client_options", {}))
    client |= {name: options.pop(name) for name in _CLIENT_OPTIONS if name in options}
    client.setdefault("connect_timeout", "5 seconds")
    for name in _CLIENT_FLAGS:
        if isinstance(client.get(name), str):
            client[name] = client[name].lower() in ("1", "true", "yes")
    # Requests are repeated here, where an exit ends it.
    retry = options.pop("retry_config", {"max_retries": 0})
    bucket, _, prefix = rest.partition("/")
    try:
        store = from_url(  # type: ignore[call-overload]
            f"{scheme}://{bucket}", config=options, client_options=client, retry_config=retry
        )
    except exceptions.BaseError as error:
        raise ValueError(_first_part(error)) from None
    return _ObstoreObjects(store, url.rstrip("/"), prefix, secrets)


def _by_fsspec(
    url: str, scheme: str, _rest: str, options: dict[str, Any], secrets: list[str]
) -> _Objects:
    import fsspec

    if scheme not in fsspec.available_protocols():
        what = (
            f"no package reads {scheme}://; nothing was read: expected "
            f"{', '.join(_OBSTORE)} or a scheme of fsspec"
        )
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url))
    try:
        system, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        what = f"{scheme}:// is read by a package of fsspec that is not installed: {error}"
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url)) from None
    return _FsspecObjects(system, url.rstrip("/"), root, secrets)


def _given(prefix: str, storage: object, secrets: list[str]) -> _Objects:
    """A prefix of an object of the caller."""
    if "://" in prefix:
        raise ValueError(f"path: expected a prefix beside storage, got the URL {_shown(prefix)}")
    name = prefix.strip("/")
    if type(storage).__module__.partition(".")[0] in (
        "obstore",
        "_obstore",
        "builtins",
    ) and hasattr(storage, "list_with_delimiter"):
        config: Mapping[str, Any] = getattr(storage, "config", None) or {}
        bucket = config.get("bucket") or config.get("container_name") or ""
        kind = type(storage).__name__.lower().removesuffix("store")
        url = f"{kind}://{bucket}/{name}".rstrip("/")
        secrets += _secrets(dict(config))
        return _ObstoreObjects(storage, url, name, secrets)
    if hasattr(storage, "cat_file") and hasattr(storage, "find"):
        protocol = storage.protocol  # type: ignore[attr-defined]
        scheme = protocol if isinstance(protocol, str) else protocol[0]
        url = f"{scheme}://{prefix.rstrip('/')}"
        root = storage._strip_protocol(prefix)  # type: ignore[attr-defined]  # noqa: SLF001
        secrets += _secrets(dict(getattr(storage, "storage_options", {})))
        return _FsspecObjects(storage, url, root, secrets)
    found = type(storage).__name__
    raise TypeError(f"storage: expected an obstore store or an fsspec file system, got {found}")
