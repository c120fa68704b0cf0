"""Roots of stores in driver and workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from mqstore.store import FRESH_S, connect, has_scheme, is_backup, is_remote

if TYPE_CHECKING:
    from mqstore.files.remote_path import RemotePath
    from mqstore.spark.options import ReadOptions


CONNECTED: dict[tuple[str, str], tuple[dict[str, object], RemotePath | str]] = {}
"""Roots by path and options, each of one moment: what was read of it stays in memory."""
_MOST_CONNECTED = 256


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
    """A store's path, that of a backup with the snapshot that is read from now on.

    Raises:
        NotAStoreError: There is no store, or no backup for a moment.
        MessageNotFoundError: A backup has no snapshot yet, or none of the moment.
    """
    if _is_plain(options, path):
        return path
    is_url = has_scheme(path) and not _moment(options, path)
    before = CONNECTED.get(_key(options, path))
    root = _connected(options, path) if is_url else _connect(options, path)
    if before is not None and before[1] is root and snapshot_of(root) is not None:
        root = _connect(options, path)  # a newer one may be there
    snapshot, cut = snapshot_of(root), getattr(getattr(root, "_objects", None), "cut", None)
    # A part of a snapshot stays the same by its time.
    if snapshot is None or cut is not None:
        return path
    kept = KeptPath(path, snapshot)
    _keep(options, kept, root)
    return kept


def root_at(options: ReadOptions, store: str, path: str | None = None) -> str | RemotePath:
    """A store's root, or a path below it, for functions of the package.

    A process lists a URL once, and again where that is a second ago.
    """
    if _is_plain(options, store):
        return path or store
    is_newest = is_backup(store) and not _moment(options, store)
    remote = _connect(options, store) if is_newest else _connected(options, store)
    if not is_remote(remote):
        # The copy of a store in RocksDB.
        return remote if path is None else path.replace(store, remote, 1)
    remote.renew(FRESH_S)
    return remote if path is None else remote.at(path)


def _is_plain(options: ReadOptions, store: str) -> bool:
    """Whether it is a folder, which is no backup."""
    return not (has_scheme(store) or _moment(options, store) or is_backup(store))


def _moment(options: ReadOptions, store: str) -> dict[str, object]:
    """The moment of a backup that is read; empty for the newest."""
    if isinstance(store, KeptPath):
        return {"snapshot": store.snapshot}
    given = {"at": options.at, "snapshot": options.snapshot}
    return {name: value for name, value in given.items() if value is not None}


def _connect(options: ReadOptions, store: str) -> RemotePath | str:
    return connect(
        str(store), {**(options.storage_options or {}), **_moment(options, store)} or None
    )


def _connected(options: ReadOptions, store: str) -> RemotePath | str:
    """A store that this process may know; workers are processes of their own."""
    known = CONNECTED.get(_key(options, store))
    if known is not None and known[0] == _moment(options, store):
        return known[1]
    root = _connect(options, store)
    _keep(options, store, root)
    return root


def _keep(options: ReadOptions, store: str, root: RemotePath | str) -> None:
    if len(CONNECTED) >= _MOST_CONNECTED:
        CONNECTED.clear()
    CONNECTED[_key(options, store)] = _moment(options, store), root


def _key(options: ReadOptions, store: str) -> tuple[str, str]:
    return str(store), json.dumps(options.storage_options, sort_keys=True)


def snapshot_of(root: object) -> str | None:
    """The snapshot that is read; ``None`` for a store."""
    loaded = getattr(getattr(root, "_objects", None), "loaded", None)
    return None if loaded is None else loaded.snapshot.id
