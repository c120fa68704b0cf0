"""Backups in folders, and all that readers of a store get."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.stores import TINY

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 12


def answers(store: mqstore.Store) -> dict[str, Any]:
    """All that readers of a store get, by the three paths."""
    found: dict[str, Any] = {
        "end": store.max_physical_offset,
        "log": [str(item) for item in store.scan(on_error="report")],
        # A store that lost its tail may have offsets beyond it, a backup has none.
        "groups": sorted(
            (group, place.topic, place.queue_id, min(place.queue_offset, place.max_offset))
            for group, places in store.groups().items()
            for place in places
        ),
    }
    for queue in store.queues():
        place = queue.topic, queue.queue_id
        begin = max(queue.min_offset, queue.max_offset - 5)
        result = store.read(*place, begin, max_messages=9)
        found["read", place] = [str(hit) for hit in result.messages], queue.max_offset
    for topic in store.topics():
        for number in range(KEYS):
            result = store.query(topic, f"k{number}", max_messages=500)
            found["key", topic, number] = [str(hit) for hit in result], result.complete
    return found


def append(root: Path, count: int = 1, *, body: str = "body", topic: str = "T") -> None:
    """Appends to the first queue; opens and closes the store."""
    with mqstore.open(root, "a", config=TINY) as made:
        for n in range(count):
            made.append(topic, b"%s %d" % (body.encode(), n), keys=f"k{n}", queue_id=0)


def bodies(root: Path, **moment: Any) -> list[bytes]:
    with mqstore.open(root, **moment) as store:
        return [message.body for message in store.scan()]


def age(path: Path, hours: float) -> None:
    """Makes files so much older."""
    for file in [path, *path.rglob("*")]:
        if file.is_file():
            status = file.stat()
            os.utime(file, (status.st_atime, status.st_mtime - 3600 * hours))


def cut_behind(root: Path, number: int) -> None:
    """A crash whose disk lost the log from one of its messages on."""
    with mqstore.open(root) as store:
        end = [message.physical_offset for message in store.scan()][number]
    for path in (root / "commitlog").iterdir():
        at = int(path.name)
        if at > end:
            path.unlink()
        elif at + 4096 > end:
            path.write_bytes(path.read_bytes()[: end - at].ljust(4096, b"\0"))
    for name in ("mqstore.mark", "checkpoint", "mqstore.seal"):
        (root / name).unlink(missing_ok=True)
    (root / "abort").write_bytes(b"1")
    mqstore.recover(root, dry_run=False, drop_beyond=True, config=TINY)


def files_of(backup: Path) -> list[Path]:
    return sorted(path for path in backup.rglob("*") if path.is_file())
