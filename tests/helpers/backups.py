"""Backups in folders, and all that readers of a store get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import mqstore

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


def files_of(backup: Path) -> list[Path]:
    return sorted(path for path in backup.rglob("*") if path.is_file())
