"""What a read comes to: which ranges of which stores, each a partition of Spark's.

Planning is a pure function of what the stores hold now and the options. Ends are fixed here, so
that a task that runs again reads the same rows.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

import mqstore
from mqstore.errors import NotAStoreError

if TYPE_CHECKING:
    from mqstore.spark.options import ReadOptions

__all__ = ["LogRange", "StoreDir", "find_stores", "plan"]

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class StoreDir:
    """A store's directory.

    Attributes:
        path: The directory, absolute.
        broker: What the column ``broker`` says.
    """

    path: str
    broker: str


@dataclass(frozen=True)
class LogRange(InputPartition):
    """The records that begin in a byte range of a commit log.

    Attributes:
        store: The store's directory.
        broker: What the column ``broker`` says.
        begin: First physical offset.
        end: One past the last.
        log_end: How far the log may be read: the last record may end there.
    """

    store: str
    broker: str
    begin: int
    end: int
    log_end: int


def find_stores(options: ReadOptions) -> list[StoreDir]:
    """The stores that the paths name, each once, in their order.

    A directory is a store when a ``commitlog`` lies in it; of what a glob matches, the others are
    passed over.

    Raises:
        NotAStoreError: A path that is no store, or a glob that no store matches.
    """
    found: dict[str, None] = {}
    for given in options.paths:
        path = os.path.abspath(given)  # noqa: PTH100 - links are not followed, dots are resolved
        if _is_store(path):
            found[path] = None
            continue
        if not _GLOB.search(given):
            reason = "no folder `commitlog` in it" if Path(path).exists() else "no such path"
            raise NotAStoreError(f"{given}: not a store: {reason}", given, reason)
        matches = [one for one in sorted(glob.glob(path)) if _is_store(one)]  # noqa: PTH207
        if not matches:
            reason = "no directory that it matches holds a `commitlog`"
            raise NotAStoreError(f"{given}: no store: {reason}", given, reason)
        found |= dict.fromkeys(matches)
    return [StoreDir(path, options.broker_name or broker_of(path)) for path in found]


def broker_of(path: str) -> str:
    """The name of a broker by its store's directory: of ``/data/broker-a/store``, ``broker-a``."""
    parts = Path(path).parts
    named = [part for part in parts if part not in ("store", os.sep)]
    return named[-1] if named else parts[-1]


def _is_store(path: str) -> bool:
    return (Path(path) / "commitlog").is_dir()


def plan(options: ReadOptions) -> list[LogRange]:
    """The partitions of a read."""
    ranges = []
    for store_dir in find_stores(options):
        with mqstore.open(store_dir.path, config=options.config) as store:
            end = store.max_physical_offset
            at = store.min_physical_offset
        while at < end:
            stop = min(at + options.split_bytes, end)
            ranges.append(LogRange(store_dir.path, store_dir.broker, at, stop, end))
            at = stop
    return ranges
