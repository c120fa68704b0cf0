"""Files that a backup keeps as a whole, their offsets, and the files that it leaves out."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore
from mqstore import _native
from mqstore.backup.snapshot import can_keep
from mqstore.backup.source import names_in, path_of
from mqstore.backup.target import MOST_OBJECT_BYTES
from mqstore.store import DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


QUEUES = {"consumequeue": 20, "batchconsumequeue": 46, "consumequeue_ext": 1}
"""Bytes of an entry; units of an extension are written before the entry that leads to them."""
_WHOLE = ("abort", "checkpoint", "mqstore.mark")
_WITHOUT_BODIES = ("config", "mqstore.acks")
_WHOLE_BELOW = (*_WITHOUT_BODIES, "mqstore.failed")
_MADE_AGAIN = ("lock", "mqstore.seal", "mqstore.wait", "abort.bak", "mqstore.deleted")
OFFSET_FILES = (
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "config/lmqConsumerOffset.json",
)
_DELAYED = "SCHEDULE_TOPIC_XXXX"


def small_files(
    root: Path, skipped: list[str], *, redact: str | None
) -> Iterator[tuple[str, bytes]]:
    """Files that are kept as a whole; `skipped` gets a line for each that is not kept."""
    names: list[str] = list(_WHOLE)
    for folder in _WITHOUT_BODIES if redact else _WHOLE_BELOW:
        found = (name.removesuffix(".bak") for name in names_in(root / folder))
        names += dict.fromkeys(f"{folder}/{name}" for name in found)
    for name in names:
        path = path_of(root, name)
        if name.endswith(".tmp") or name in DATABASES:
            continue
        if path.is_symlink() or path.is_dir():
            skipped.append(f"{name!a}: a {'link' if path.is_symlink() else 'folder'}")
        elif not can_keep(name):
            skipped.append(f"{name!a}: no name of a store")
        else:
            content = _content(path, has_bak=name not in _WHOLE)
            if _is_large(path):
                skipped.append(f"{name!a}: more than {MOST_OBJECT_BYTES} bytes")
            if content is not None:
                yield name, content


def _content(path: Path, *, has_bak: bool) -> bytes | None:
    """A file, or its `.bak` where a broker would read that in its place."""
    found: dict[Path, bytes] = {}
    # The former content of `abort` says nothing of the store now.
    for place in (path, path.with_name(f"{path.name}.bak"))[: 1 + has_bak]:
        with contextlib.suppress(FileNotFoundError):  # replaced or removed meanwhile
            if place.is_file() and not place.is_symlink() and not _is_large(place):
                found[place] = place.read_bytes()
    readable = (c for c in found.values() if len(found) > 1 and read_table(c) is not None)
    return next(readable, next(iter(found.values()), None))


def _is_large(path: Path) -> bool:
    """Whether a file would be an object that no reader takes for one of a sync."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size > MOST_OBJECT_BYTES
    return False


def left_out_names(root: Path, *, redact: str | None) -> Iterator[str]:
    """A line for each kind of files that no snapshot has."""
    for name in sorted(names_in(root)):
        known = _native._store_name(name.encode(errors="replace").decode())  # noqa: SLF001
        below = _WITHOUT_BODIES if redact else _WHOLE_BELOW
        if name in (*_WHOLE, *below, *_MADE_AGAIN, *QUEUES, "commitlog", "index"):
            continue
        yield f"{name}: {'no file of a store' if known is None else known[1]}"
    for name in DATABASES:
        if (root / name / "CURRENT").is_file():
            made = "offsets are kept as consumerOffset.json" if "Offsets" in name else ""
            yield f"{name}: a database of RocksDB; {made or 'its rows are made from the log'}"


def offsets_in_database(root: Path, store: mqstore.Store) -> dict[str, bytes]:
    """The offsets of groups that RocksDB has, in the file that a broker would write."""
    if not (root / "config/consumerOffsets/CURRENT").is_file():
        return {}
    table: dict[str, dict[str, int]] = defaultdict(dict)
    for group, offsets in store.groups().items():
        for offset in offsets:
            table[f"{offset.topic}@{group}"][str(offset.queue_id)] = offset.queue_offset
    return {OFFSET_FILES[0]: json.dumps({"offsetTable": table}).encode()}


def read_table(content: bytes) -> dict[str, Any] | None:
    """One of the broker's tables; ``None`` where a broker would read its `.bak` instead."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.json")
        path.write_bytes(content)
        with contextlib.suppress(mqstore.CorruptionError, TypeError):
            row = json.loads(mqstore.read_config_json(path))
            return row if isinstance(row, dict) else None
    return None


def within(
    files: Mapping[str, bytes], store: mqstore.Store, empty: Iterable[tuple[str, ...]] = ()
) -> dict[str, bytes]:
    """Those files that have offsets, with none beyond the end of its queue; some are `empty`."""
    ends: dict[tuple[str, ...], int] = dict.fromkeys(empty, 0)
    ends |= {(queue.topic, str(queue.queue_id)): queue.max_offset for queue in store.queues()}
    return {name: _within(files[name], ends) for name in OFFSET_FILES if name in files}


def _within(content: bytes, ends: Mapping[tuple[str, ...], int]) -> bytes:
    """A file of offsets; it comes back as it is where none is beyond, or if it is damaged."""
    row = read_table(content) or {}
    tables = (row.get(name) for name in ("offsetTable", "lmqOffsetTable"))
    is_changed = False
    for table in (one for one in tables if isinstance(one, dict)):
        for name, offsets in table.items():
            topic = name.rpartition("@")[0]
            if isinstance(offsets, dict):
                places = [(offsets, queue, (topic, queue)) for queue in offsets]
            elif name.isdecimal():
                places = [(table, name, (_DELAYED, str(int(name) - 1)))]
            else:
                places = [(table, name, (topic, "0"))]  # of a light queue
            for holder, key, place in places:
                end = ends.get(place)
                if end is not None and isinstance(holder[key], int) and holder[key] > end:
                    holder[key] = end
                    is_changed = True
    return json.dumps(row).encode() if is_changed else content
