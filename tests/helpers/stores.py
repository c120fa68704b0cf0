"""Small stores for tests: tiny files, so that everything rolls at once, and chosen times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.files import copy_store

if TYPE_CHECKING:
    from collections.abc import Iterable

TIME = 1_696_161_296_000
TINY: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 7,
    "max_index_num": 50,
}
"""10 queue entries and 49 index entries in a file."""

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 500,
    "max_index_num": 2_000,
}
"""Files that a test reads whole: an index file of the default size has 420 MB."""


def message(topic: str = "T", size: int = 0, **fields: Any) -> mqstore.Message:
    """A message whose record has ``size`` bytes, where given, else an empty body."""
    fields.setdefault("store_timestamp_ms", TIME)
    fields.setdefault("born_timestamp_ms", TIME)
    body = fields.pop("body", b"")
    made = mqstore.Message(topic, body, **fields)
    if size:
        without = len(mqstore.encode(made, **PLACE))
        made = mqstore.Message(topic, bytes(size - without), **fields)
        assert len(mqstore.encode(made, **PLACE)) == size
    return made


PLACE: dict[str, Any] = {"physical_offset": 0, "queue_offset": 0, "store_host": "127.0.0.1:10911"}


def times(
    root: Path, store_times_ms: Iterable[int], *, config: dict[str, Any] | None = None
) -> None:
    """A store with one queue, a message for each store time, each with its number as a key."""
    with mqstore.open(root, "a", config=config or TINY) as store:
        store.append_many(
            [
                message(store_timestamp_ms=time, keys=f"k{number}")
                for number, time in enumerate(store_times_ms)
            ]
        )


def crashed_copy(store: mqstore.Store, target: Path) -> Path:
    """An open store as a killed process leaves it: every written byte, no close."""
    return copy_store(Path(store.path), target)


def next_offset(store: mqstore.Store, topic: str = "T", queue_id: int = 0) -> int:
    """Where the next message of a queue goes."""
    for queue in store.queues(topic):
        if queue.queue_id == queue_id:
            return queue.max_offset
    return 0


def offsets(store: mqstore.Store) -> list[int]:
    """Physical offsets of all messages."""
    return [found.physical_offset for found in store.scan()]


def queue_folder(root: Path, topic: str = "T", queue_id: int = 0) -> Path:
    """The folder of a queue's files."""
    return root / "consumequeue" / topic / str(queue_id)


def log_bytes(root: Path) -> bytes:
    """The commit log's files, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def log_files(root: Path) -> list[str]:
    """Names of the commit log's files."""
    return sorted(path.name for path in (root / "commitlog").iterdir())
