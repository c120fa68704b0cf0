"""Bounds of the stores of a stream: where each log begins, and up to where it may be read."""

from __future__ import annotations

import logging
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mqstore
from mqstore.errors import ConfigError
from mqstore.files.durable import sync
from mqstore.files.layout import log_folders, log_paths
from mqstore.spark.roots import snapshot_of
from mqstore.spark.stores import check_topics, find_stores, topic_names
from mqstore.store import has_scheme

if TYPE_CHECKING:
    from mqstore.spark.options import ReadOptions
    from mqstore.spark.stores import StoreDir

SYNC_EVERY_S = 10.0
"""RocketMQ flushes its whole log as often (``flushCommitLogThoroughInterval``)."""
_LOCAL = frozenset(
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"]
)
_THREADS = 8
_MOUNTS = Path("/proc/self/mountinfo")

_log = logging.getLogger("mqstore.spark")


@dataclass(frozen=True, slots=True)
class Reach:
    """Current bounds of a store.

    Attributes:
        store: Its directory and broker.
        begin: Where its log begins: retention moves this.
        end: Up to where a stream may read.
        log_end: The end of its last whole record.
    """

    store: StoreDir
    begin: int
    end: int
    log_end: int


class Bounds:
    """Looks at the stores of one stream, again and again.

    Args:
        options: The options of the stream.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._synced: dict[str, tuple[float, int]] = {}
        self._failed: set[str] = set()
        self._idle: dict[str, tuple[float, int]] = {}
        self._names_checked = False

    def read(self) -> dict[str, Reach]:
        """Current bounds of the stores, by broker.

        Raises:
            ConfigError: Two stores have one broker's name, a store of a retired broker is there, or
                no store has a topic and ``strict`` is on.
            NotAStoreError: A path that is no store, and ``missingStores`` is ``fail``.
        """
        found: dict[str, StoreDir] = {}
        for store in find_stores(self.options):
            if store.broker in found:
                raise ConfigError(
                    f"two stores are called {store.broker!r}: {found[store.broker].path} "
                    f"and {store.path}; a stream keeps its place by broker, so read them as "
                    "streams of their own, each with its brokerName",
                    "brokerName",
                )
            if store.broker in self.options.retire:
                raise ConfigError(
                    f"option retire: the store of broker {store.broker} is still there, and would "
                    f"be read again from its beginning: move {store.path} out of the paths first",
                    "retire",
                )
            found[store.broker] = store
        with ThreadPoolExecutor(max(1, min(_THREADS, len(found)))) as threads:
            read = list(threads.map(self._read_one, found.values()))
        if not self._names_checked and any(names is not None for _, names in read):
            self._names_checked = True
            known = frozenset().union(*(names or () for _, names in read))
            check_topics(self.options.topics, known, self.options)
        return {reach.store.broker: reach for reach, _ in read}

    def _read_one(self, found: StoreDir) -> tuple[Reach, frozenset[str] | None]:
        with mqstore.open(self.options.root(found.path), config=self.options.config) as store:
            log_end, begin = store.max_physical_offset, store.min_physical_offset
            match self.options.until:
                case "flushed":
                    end = self._flushed(found, store, log_end)
                case "dispatched":
                    end = store.dispatched_offset
                case _:
                    end = log_end
            names = None if self._names_checked else topic_names(store, self.options)
        return Reach(found, begin, max(begin, min(end, log_end)), log_end), names

    def _flushed(self, found: StoreDir, store: mqstore.Store, log_end: int) -> int:
        """Up to where a power cut takes nothing of the log.

        The store's own mark or checkpoint leaves out the last messages of a broker that idles. Here
        the system is asked to write what the broker has in the log's files, so that it is known.
        """
        known = min(store.flushed_offset, log_end)
        at, synced = self._synced.get(found.path, (-SYNC_EVERY_S, 0))
        if synced > log_end:
            self._synced.pop(found.path)
            at, synced = -SYNC_EVERY_S, 0
        known = max(known, synced)
        if known < log_end and time.monotonic() - at >= SYNC_EVERY_S:
            root = self.options.root(found.path)
            is_backup = snapshot_of(root) is not None
            if has_scheme(found.path) and not is_backup:  # an object is durable
                return log_end
            paths = {} if is_backup else log_paths(log_folders(root, store.config))
            held = _held(paths, known, log_end)
            # The broker of a backup may lose what it had not flushed, and go on otherwise.
            is_local = not is_backup and all(_file_system(path) in _LOCAL for path in held)
            if self._sync(found.path, held) if is_local else self._idles(found.path, log_end):
                self._synced[found.path] = (time.monotonic(), log_end)
                known = log_end
        return known

    def _sync(self, root: str, files: list[Path]) -> bool:
        """Makes files of a log durable, bytes and names; whether that is known to have worked."""
        if root in self._failed:
            return False
        try:
            for path in (*files, *{path.parent for path in files}):
                sync(path)
        except FileNotFoundError:  # retention deleted it meanwhile
            return False
        except OSError as error:
            # The system reports lost bytes once: the next flush would succeed without them.
            self._failed.add(root)
            _log.warning(
                "%s: its disk refused to flush (%s); from now on until=flushed relies on the "
                "broker's own mark or checkpoint",
                root,
                error,
            )
            return False
        return bool(files)

    def _idles(self, root: str, log_end: int) -> bool:
        """Whether a log has not grown for as long as the user says that its broker needs to flush.

        Nothing proves it: the broker may be dead, or its own flush may have failed.
        """
        now, wanted = time.monotonic(), self.options.flushed_after_s
        since, end = self._idle.get(root, (now, log_end))
        self._idle[root] = (since if end == log_end else now, log_end)
        return wanted is not None and now - self._idle[root][0] >= wanted


def _held(files: dict[int, Path], begin: int, end: int) -> list[Path]:
    """The files of a log that have a part of a range."""
    bases = [at for at in files if at < end]
    return [files[at] for n, at in enumerate(bases) if n + 1 == len(bases) or bases[n + 1] > begin]


def _file_system(path: Path) -> str | None:
    """The kind of file system that a file lies in.

    Another machine's file system may answer a flush before the data is on its disk.
    """
    real, best, kind = os.path.realpath(path), "", None
    if not _MOUNTS.exists():  # Linux only
        return None
    for line in _MOUNTS.read_bytes().splitlines():
        fields, _, rest = line.partition(b" - ")
        name = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields.split()[4])
        mount = os.fsdecode(name)
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split()[0].decode()
    return kind
