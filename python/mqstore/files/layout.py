"""The files below a store's root, each with its meaning; those of its log also to be read."""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import mqstore
from mqstore._native import ConsumeQueue, IndexFile, _store_name
from mqstore.errors import CorruptionError, StoreIOError
from mqstore.store import below, is_remote, root_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from mqstore import QueueInfo, Store, StoredMessage
    from mqstore.config import ConfigLike
    from mqstore.files.remote_path import RemotePath

# Root, kind, topic, queue, file: nothing of a store lies deeper, but for compaction's own tree.
_DEEPEST = 5
_FOLDER_OF = {"SimpleCQ": "consumequeue", "BatchCQ": "batchconsumequeue"}
# Folders that may be links, as for RocketMQ.
_LINKED = ("commitlog", "consumequeue", "index", "config")


@dataclass(slots=True)
class FileGroup:
    """Files of one kind.

    Attributes:
        name: The file, or the folder that holds them.
        what: Description.
        files: How many.
        bytes: Their lengths.
        allocated_bytes: What they take on the disk, less than the lengths where files are sparse.
    """

    name: str
    what: str
    files: int = 0
    bytes: int = 0
    allocated_bytes: int = 0


@dataclass(slots=True)
class StoreFiles:
    """Everything below a store's root.

    Attributes:
        groups: Files of a known kind, by name.
        unknown: Paths of what is none of a store's.
    """

    groups: list[FileGroup]
    unknown: list[str]


def list_files(root: str | RemotePath) -> StoreFiles:
    """Names everything below a store's root; follows no link but those of its folders.

    Raises:
        OSError: A folder cannot be read.
    """
    groups: dict[str, FileGroup] = {}
    unknown: list[str] = []
    entries = root.entries() if is_remote(root) else _walk(Path(root), ())
    for parts, status in entries:
        path = _text("/".join(parts))
        known = _store_name(path)
        if known is None:
            unknown.append(path)
            continue
        if status is None:
            continue
        group = groups.setdefault(known[0], FileGroup(*known[:2]))
        group.files += 1
        group.bytes += status.st_size
        group.allocated_bytes += status.st_blocks * 512
    return StoreFiles(sorted(groups.values(), key=lambda group: group.name), sorted(unknown))


def _walk(
    folder: Path, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], os.stat_result | None]]:
    """Each entry below `folder`: its path's parts, and its status unless it is a folder.

    What another process removes meanwhile is left out.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = (*above, entry.name)
            if entry.is_dir(follow_symlinks=not above and entry.name in _LINKED):
                yield parts, None
                known = _store_name(_text(entry.name))
                if len(parts) < _DEEPEST and (above or (known is not None and known[2])):
                    with contextlib.suppress(FileNotFoundError):
                        yield from _walk(Path(entry.path), parts)
            else:
                with contextlib.suppress(FileNotFoundError):
                    yield parts, entry.stat(follow_symlinks=False)


def _text(name: str) -> str:
    """A file's name as text that can be encoded: bytes that are no UTF-8 become marks."""
    return os.fsencode(name).decode("utf-8", "replace")


def index_files(root: str) -> list[Path]:
    """Returns the index files of a store, oldest first: 17 digits sort by time."""
    return numbered(below(root, "index"), 17)


def numbered(folder: Path, digits: int) -> list[Path]:
    """Files of a folder whose names have so many digits, sorted."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        # A link is not followed, as everywhere below a store.
        if re.fullmatch(f"[0-9]{{{digits}}}", path.name)
        and path.is_file()
        and not path.is_symlink()
    )


def open_index_files(
    store: Store, paths: Iterable[Path], *, skip_damaged: bool = False
) -> Iterator[tuple[Path, IndexFile]]:
    """Opens them in turn, each until the next, with the slots and entries that the store found.

    Passes over those that were deleted meanwhile, and with `skip_damaged` over damaged ones.
    """
    config = store.config
    slots, entries = config.max_hash_slot_num, config.max_index_num
    assert slots is not None  # noqa: S101 - a store's own settings are whole
    assert entries is not None  # noqa: S101
    for path in paths:
        try:
            file = IndexFile(path, slots=slots, entries=entries)
        except (CorruptionError, StoreIOError) as error:
            is_gone = isinstance(error, StoreIOError) and error.errno == errno.ENOENT
            if is_gone or (skip_damaged and isinstance(error, CorruptionError)):
                continue
            raise
        with file:
            yield path, file


def open_queue(store: Store, queue: QueueInfo) -> ConsumeQueue | None:
    """The files of a queue; ``None`` where it has none yet, its messages being in the log only."""
    names = _FOLDER_OF[queue.kind], queue.topic, str(queue.queue_id)
    folder = below(root_of(store), *names)
    if not folder.is_dir():
        return None
    return ConsumeQueue(folder)


class Place(Protocol):
    """Where a record is."""

    @property
    def physical_offset(self) -> int:
        """Its beginning."""

    @property
    def store_size(self) -> int:
        """Its length."""


def log_folders(root: str | os.PathLike[str], config: ConfigLike) -> list[Path]:
    """Returns the folders of a store's log, wherever its settings have them."""
    from mqstore.config import load_config  # 20 ms that others need not spend

    settings = load_config(config)
    texts = settings.store_path_commit_log, settings.read_only_commit_log_store_paths
    own, read_only = ([n for n in map(str.strip, (t or "").split(",")) if n] for t in texts)
    return [below(root, name) for name in dict.fromkeys([*(own or ["commitlog"]), *read_only])]


def log_paths(folders: Iterable[Path]) -> dict[int, Path]:
    """Returns the files of a log by the physical offset at which each begins, in order."""
    files = {int(path.name): path for folder in folders for path in numbered(folder, 20)}
    return dict(sorted(files.items()))


class LogFiles:
    """The files of a log, read by physical offset."""

    def __init__(self, folders: Iterable[Path]) -> None:
        paths = log_paths(folders)
        self._files = list(paths.values())
        self._begins = list(paths)
        self._reading: tuple[int, BinaryIO] | None = None
        self.begin = self._begins[0] if self._begins else 0
        self.end = self._begins[-1] + self._files[-1].stat().st_size if self._begins else 0

    def has(self, entry: Place) -> bool:
        """Whether an entry leads to a whole record of its size."""
        found = self.record(entry)
        return found is not None and found.store_size == entry.store_size

    def record(self, entry: Place, *, verify_crc: bool = True) -> StoredMessage | None:
        """The record that an entry leads to; without `verify_crc` its body may be damaged."""
        try:
            message = mqstore.decode(self._read(entry), verify_crc=verify_crc)
        except (mqstore.StoreError, ValueError):
            return None
        return message if message.physical_offset == entry.physical_offset else None

    def _read(self, entry: Place) -> bytes:
        at = bisect.bisect_right(self._begins, entry.physical_offset) - 1
        if at < 0 or not 0 < entry.store_size < 2**31 - 1:
            return b""
        file = self._file(at)
        place = entry.physical_offset - self._begins[at]
        left = os.fstat(file.fileno()).st_size - place
        return os.pread(file.fileno(), min(entry.store_size, left), place) if left > 0 else b""

    def _file(self, at: int) -> BinaryIO:
        """The file of that number; the one before is closed, as entries mostly go upward."""
        if self._reading is not None:
            if self._reading[0] == at:
                return self._reading[1]
            self._reading[1].close()
        self._reading = at, self._files[at].open("rb")
        return self._reading[1]

    def close(self) -> None:
        """Closes the file that was read last."""
        if self._reading is not None:
            self._reading[1].close()
