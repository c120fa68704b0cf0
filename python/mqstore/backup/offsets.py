"""Offsets of consumer groups and delay levels that lead no further than their queues."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore

if TYPE_CHECKING:
    from collections.abc import Mapping


OFFSET_FILES = (
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "config/lmqConsumerOffset.json",
)
_DELAYED = "SCHEDULE_TOPIC_XXXX"


def offsets_in_database(root: Path, store: mqstore.Store) -> bytes | None:
    """The offsets of groups that RocksDB has, as the file that a broker would write."""
    if not (root / "config/consumerOffsets/CURRENT").is_file():
        return None
    table: dict[str, dict[str, int]] = defaultdict(dict)
    for group, offsets in store.groups().items():
        for offset in offsets:
            table[f"{offset.topic}@{group}"][str(offset.queue_id)] = offset.queue_offset
    return json.dumps({"offsetTable": table}).encode()


def read_table(content: bytes) -> dict[str, Any] | None:
    """One of the broker's tables; ``None`` where a broker would read its `.bak` instead."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.json")
        path.write_bytes(content)
        with contextlib.suppress(mqstore.CorruptionError, TypeError):
            row = json.loads(mqstore.read_config_json(path))
            return row if isinstance(row, dict) else None
    return None


def within(content: bytes, ends: Mapping[tuple[str, str], int]) -> bytes:
    """A file of offsets with no offset beyond the end of its queue.

    Args:
        content: The file; it comes back as it is where no offset is beyond, or if it is damaged.
        ends: End of each queue by topic and number.
    """
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
