"""What each file below a store's root is, by its name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FileGroup", "StoreFiles", "list_files"]

_FILES = {
    "abort": "there while the store is open, left behind by a crash",
    "abort.bak": "former content of abort",
    "mqstore.mark": "up to which place the log is on the disk",
    "mqstore.seal": "what closing in good order says of the files",
    "checkpoint": "how far log, queues and index are known to be flushed",
    "lock": "held by whoever writes",
    "epochFileCheckpoint": "RocketMQ's controller mode",
    "epochFileCheckpoint.bak": "RocketMQ's controller mode",
    "brokerIdentity": "RocketMQ's controller mode",
    "timerwheel": "RocketMQ's timed messages",
}
_FOLDERS = {
    "commitlog": "the messages",
    "consumequeue": "queues",
    "consumequeue_ext": "extensions of queues",
    "batchconsumequeue": "batch queues",
    "index": "keys",
    "config": "a broker's configuration and the consumers' offsets",
    "timerlog": "RocketMQ's timed messages",
    "compaction": "RocketMQ's compacted topics",
    "quarantine": "what a recovery cut off, and what a rebuild replaced",
    "rebuild": "queues and index in the making",
}
_OFFSET_NAME = re.compile("[0-9]{20}")
_INDEX_NAME = re.compile("[0-9]{17}")
# Root, kind, topic, queue, file: nothing of a store lies deeper, but for compaction's own tree.
_DEEPEST = 5


@dataclass(slots=True)
class FileGroup:
    """Files of one kind.

    Attributes:
        name: The file, or the folder that holds them.
        what: What they are.
        files: How many.
        size: Their lengths in bytes.
        allocated: Bytes that they take on the disk, less than the lengths where files are sparse.
    """

    name: str
    what: str
    files: int = 0
    size: int = 0
    allocated: int = 0


@dataclass(slots=True)
class StoreFiles:
    """Everything below a store's root.

    Attributes:
        groups: Files of a known kind, by name.
        unknown: Paths of what is none of a store's.
    """

    groups: list[FileGroup]
    unknown: list[str]


def list_files(root: str) -> StoreFiles:
    """Names everything below a store's root; follows no link.

    Raises:
        OSError: A folder cannot be read.
    """
    groups: dict[str, FileGroup] = {}
    unknown: list[str] = []
    for parts, status in _walk(Path(root), ()):
        known = _kind(parts)
        if known is None:
            unknown.append(_text("/".join(parts)))
            continue
        if status is None:
            continue
        group = groups.setdefault(known[0], FileGroup(*known))
        group.files += 1
        group.size += status.st_size
        group.allocated += status.st_blocks * 512
    return StoreFiles(sorted(groups.values(), key=lambda group: group.name), sorted(unknown))


def _walk(
    folder: Path, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], os.stat_result | None]]:
    """Each entry below `folder`: its path's parts, and its status unless it is a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield parts, None
                if len(parts) < _DEEPEST and (len(parts) > 1 or entry.name in _FOLDERS):
                    yield from _walk(Path(entry.path), parts)
            else:
                yield parts, entry.stat(follow_symlinks=False)


def _kind(parts: tuple[str, ...]) -> tuple[str, str] | None:
    """Name and meaning of what lies at a path; ``None`` for what is no store's."""
    top, *below = parts
    if not below:
        if top in _FILES:
            return top, _FILES[top]
        return (top, _FOLDERS[top]) if top in _FOLDERS else None
    if top not in _FOLDERS:
        return None
    known = top, _FOLDERS[top]
    match top, len(below):
        case "commitlog", 1:
            return known if _OFFSET_NAME.fullmatch(below[0]) else None
        case "index", 1:
            return known if _INDEX_NAME.fullmatch(below[0]) else None
        case (("consumequeue" | "consumequeue_ext" | "batchconsumequeue"), depth) if depth <= 3:
            if depth >= 2 and not below[1].isdecimal():
                return None
            return known if depth < 3 or _OFFSET_NAME.fullmatch(below[2]) else None
        case (("config" | "timerlog"), 1):
            return known
        case (("compaction" | "quarantine" | "rebuild"), _):
            return known
    return None


def _text(name: str) -> str:
    """A file's name as text that can be encoded: bytes that are no UTF-8 become marks."""
    return os.fsencode(name).decode("utf-8", "replace")
