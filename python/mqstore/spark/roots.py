"""Roots of stores in driver and workers."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Self

from mqstore.store import FRESH_S, connect, has_scheme, is_backup, is_remote

if TYPE_CHECKING:
    from mqstore.files.remote_path import RemotePath
    from mqstore.spark.options import ReadOptions


class KeptPath(str):
    """A path of a backup, with the snapshot that a batch reads, in the driver and all workers."""

    __slots__ = ("snapshot",)
    snapshot: str

    def __new__(cls, path: str, snapshot: str) -> Self:
        """A path and a snapshot's id."""
        kept = super().__new__(cls, path)
        kept.snapshot = snapshot
        return kept

    def __reduce__(self) -> tuple[type[KeptPath], tuple[str, str]]:
        return KeptPath, (str(self), self.snapshot)


def kept_path(options: ReadOptions, path: str) -> str:
    """A store's path, that of a backup with its newest snapshot.

    Raises:
        NotAStoreError: There is no store, or no backup for a moment.
        MessageNotFoundError: A backup has no snapshot yet, or none of the moment.
    """
    moment = options.at is not None or options.snapshot is not None
    if not moment and not has_scheme(path) and not is_backup(path):
        return path
    snapshot = snapshot_of(root_at(options, path))
    return path if moment or snapshot is None else KeptPath(path, snapshot)


def root_at(options: ReadOptions, store: str, path: str | None = None) -> str | RemotePath:
    """A store's root, or a path below it, for functions of the package.

    A process lists a URL once, and again where that is a second ago.
    """
    moment = {"at": options.at, "snapshot": getattr(store, "snapshot", options.snapshot)}
    moment = {name: value for name, value in moment.items() if value is not None}
    is_newest = not moment and is_backup(store)
    if not has_scheme(store) and not moment and not is_newest:
        return path or store
    given = json.dumps({**(options.storage_options or {}), **moment} or None, sort_keys=True)
    remote = (_connected.__wrapped__ if is_newest else _connected)(str(store), given)
    if not moment and not is_newest and snapshot_of(remote) is not None:
        remote = _connected.__wrapped__(str(store), given)  # a newer one may be there
    if not is_remote(remote):
        # The copy of a store in RocksDB.
        return remote if path is None else path.replace(store, remote, 1)
    remote.renew(FRESH_S)
    return remote if path is None else remote.at(path)


def snapshot_of(root: object) -> str | None:
    """The snapshot that is read; ``None`` for a store."""
    loaded = getattr(getattr(root, "_objects", None), "loaded", None)
    return None if loaded is None else loaded.snapshot.id


@functools.lru_cache(maxsize=256)
def _connected(url: str, storage_options: str) -> RemotePath | str:
    """A store behind a URL; workers are processes of their own."""
    return connect(url, json.loads(storage_options))
