"""Roots of stores in driver and workers."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from mqstore.store import FRESH_S, connect, has_scheme, is_backup, is_remote

if TYPE_CHECKING:
    from mqstore.files.remote_path import RemotePath
    from mqstore.spark.options import ReadOptions


def root_at(options: ReadOptions, store: str, path: str | None = None) -> str | RemotePath:
    """A store's root, or a path below it, for functions of the package.

    A process lists a URL once, and again where that is a second ago.
    """
    moment = {"at": options.at, "snapshot": options.snapshot}
    moment = {name: value for name, value in moment.items() if value is not None}
    if not has_scheme(store) and not moment and not is_backup(store):
        return path or store
    given = {**(options.storage_options or {}), **moment} or None
    remote = _connected(store, json.dumps(given, sort_keys=True))
    if not moment and snapshot_of(remote) is not None:
        _connected.cache_clear()  # the next call may find a newer one
    if not is_remote(remote):
        # The copy of a store in RocksDB.
        return remote if path is None else path.replace(store, remote, 1)
    remote.renew(FRESH_S)
    return remote if path is None else remote.at(path)


def pinned(options: ReadOptions) -> ReadOptions:
    """Options with the newest snapshot of a backup, for the driver and all workers to read."""
    is_one = [is_backup(path) for path in options.paths] == [True]
    if is_one and options.at is None and options.snapshot is None:
        return replace(options, snapshot=snapshot_of(root_at(options, options.paths[0])))
    return options


def snapshot_of(root: object) -> str | None:
    """The snapshot that is read; ``None`` for a store."""
    loaded = getattr(getattr(root, "_objects", None), "loaded", None)
    return None if loaded is None else loaded.snapshot.id


@functools.lru_cache(maxsize=256)
def _connected(url: str, storage_options: str) -> RemotePath | str:
    """A store behind a URL; workers are processes of their own."""
    return connect(url, json.loads(storage_options))
